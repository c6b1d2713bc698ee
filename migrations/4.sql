-- From version 3 to version 4.

-- Events are deleted when they are old, and the sequence of an order's events goes on after that.
ALTER TABLE orders ADD COLUMN purged_sequence INTEGER NOT NULL DEFAULT 0;
