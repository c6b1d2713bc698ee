-- From version 5 to version 6.

-- A store has a version of its titles, for the lists of them that searches keep in memory. Triggers raise it.
ALTER TABLE stores ADD COLUMN titles_version INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER products_added;
DROP TRIGGER products_removed;
DROP TRIGGER bundles_added;
DROP TRIGGER bundles_removed;
CREATE TRIGGER products_added   AFTER INSERT ON products     BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER products_removed AFTER DELETE ON products     BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = old.store_id; END;
CREATE TRIGGER bundles_added    AFTER INSERT ON bundles      BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER bundles_removed  AFTER DELETE ON bundles      BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = old.store_id; END;

CREATE TRIGGER products_retitled AFTER UPDATE OF id, store_id, slug, title, title_folded, published ON products
WHEN old.id IS NOT new.id OR old.store_id IS NOT new.store_id OR old.slug IS NOT new.slug OR
     old.title IS NOT new.title OR old.title_folded IS NOT new.title_folded OR old.published IS NOT new.published
BEGIN
  UPDATE stores SET titles_version = titles_version + 1 WHERE id IN (old.store_id, new.store_id);
END;
CREATE TRIGGER bundles_retitled AFTER UPDATE OF id, store_id, slug, title, title_folded, published ON bundles
WHEN old.id IS NOT new.id OR old.store_id IS NOT new.store_id OR old.slug IS NOT new.slug OR
     old.title IS NOT new.title OR old.title_folded IS NOT new.title_folded OR old.published IS NOT new.published
BEGIN
  UPDATE stores SET titles_version = titles_version + 1 WHERE id IN (old.store_id, new.store_id);
END;
