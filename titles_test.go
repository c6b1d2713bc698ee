//go:build cgo

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomCatalog has products and bundles whose titles are random words, so that many have the same ones.
func randomCatalog(r *rand.Rand, products, bundles int) (c Catalog) {
	words := []string{
		"kopi", "KOPI", "Gayo", "kue", "250 g", "a", "x", "xx", "xxx", "%", "_", "é", "Éclair", "İ", "ẞ", "咖啡",
	}
	newEntry := func(slug string) CatalogEntry {
		var title []string
		for range 1 + r.IntN(4) {
			title = append(title, words[r.IntN(len(words))])
		}
		return CatalogEntry{Product: Product{
			Slug:      slug,
			Title:     strings.Join(title, []string{" ", ""}[r.IntN(2)]),
			Price:     1,
			Published: r.IntN(5) > 0,
		}}
	}

	for _, n := range r.Perm(products) {
		c.Products = append(c.Products, newEntry(fmt.Sprintf("nomor-%d", n)))
	}
	for _, n := range r.Perm(bundles) {
		bundle := newEntry(fmt.Sprintf("nomor-%d", n))
		bundle.Items = []BundleItem{{Slug: "nomor-0", Quantity: 1}}
		c.Bundles = append(c.Bundles, bundle)
	}
	return c
}

// searchText returns a text to search for: a part of a title, of two titles that follow each other, or any letters.
func searchText(r *rand.Rand, titles []string) string {
	text := titles[r.IntN(len(titles))]
	switch r.IntN(6) {
	case 0:
		text += titles[r.IntN(len(titles))]
	case 1:
		text = "xé kopi"
	}

	letters := []rune(text)
	begin := r.IntN(len(letters))
	end := begin + 1 + r.IntN(len(letters)-begin)
	text = string(letters[begin:end])
	if r.IntN(2) == 0 {
		return strings.ToUpper(text)
	}
	return text
}

// TestSearchFindsWhatSQLFinds compares searches in two stores with queries that look at every title.
func TestSearchFindsWhatSQLFinds(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	otherID, _ := s.addStore(t, "lain", "growth")
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	stores := []string{s.storeID, otherID}
	for _, id := range stores {
		must(t, s.db.ImportCatalog(t.Context(), id, randomCatalog(r, 200, 50)))
	}
	titles, err := queryAll(s.db.reader, scanValue[string], "SELECT title FROM products ORDER BY title, id")
	must(t, err)

	found := 0
	for range 1500 {
		storeID := stores[r.IntN(2)]
		text := searchText(r, titles)
		f := ProductFilter{
			Products: r.IntN(4) > 0,
			Text:     text,
			Offset:   []int{0, 0, 1, r.IntN(60)}[r.IntN(4)],
			Limit:    1 + r.IntN(50),
		}
		f.Bundles = !f.Products || r.IntN(4) > 0
		found += len(s.compareSearch(t, storeID, f))

		kind := []Kind{KindProduct, KindBundle}[r.IntN(2)]
		after := []string{"", "nomor-1", "nomor-25", "o", fmt.Sprint("nomor-", r.IntN(200))}[r.IntN(5)]
		s.compareCatalogSearch(t, storeID, kind, after, text)
		if t.Failed() {
			return
		}
	}
	if found == 0 {
		t.Error("nothing was found")
	}
}

// compareSearch compares a search of the API with SQL, and returns what was found.
func (s *testServer) compareSearch(t *testing.T, storeID string, f ProductFilter) (ids []string) {
	t.Helper()
	list, err := s.db.Products(storeID, f)
	must(t, err)
	want, err := queryAll(s.db.reader, scanValue[string], `
		SELECT id
		FROM (
			SELECT 1 AS part, id, title, title_folded, store_id, published FROM products WHERE ?1
			UNION ALL
			SELECT 2, id, title, title_folded, store_id, published FROM bundles WHERE ?2)
		WHERE store_id = ?3 AND published = 1 AND instr(title_folded, ?4) > 0
		ORDER BY part, title, id
		LIMIT ?5 OFFSET ?6`,
		f.Products, f.Bundles, storeID, strings.ToLower(f.Text), f.Limit+1, f.Offset)
	must(t, err)
	more := len(want) > f.Limit
	want = want[:min(f.Limit, len(want))]

	ids = idsOf(append(list.Products, list.Bundles...))
	if !slices.Equal(ids, want) {
		t.Errorf("%+v\nfound %v\nwant  %v", f, ids, want)
	}
	if list.HasMore != more {
		t.Errorf("%+v: has_more is %t, want %t", f, list.HasMore, more)
	}
	return ids
}

// compareCatalogSearch compares a search of the dashboard with SQL.
func (s *testServer) compareCatalogSearch(t *testing.T, storeID string, kind Kind, after, text string) {
	t.Helper()
	const limit = 7
	entries, err := s.db.Catalog(storeID, kind, after, text, limit)
	must(t, err)
	want, err := queryAll(s.db.reader, scanValue[string], `
		SELECT id
		FROM   `+string(kind)+`s
		WHERE  store_id = ? AND slug > ? AND instr(title_folded, ?) > 0
		ORDER BY slug
		LIMIT ?`, storeID, after, strings.ToLower(text), limit)
	must(t, err)
	if ids := idsOf(entries); !slices.Equal(ids, want) {
		t.Errorf("%ss after %q with %q\nfound %v\nwant  %v", kind, after, text, ids, want)
	}
}

func idsOf(products []Product) (ids []string) {
	for _, p := range products {
		ids = append(ids, p.ID)
	}
	return ids
}

// finds returns the slugs that a search finds: in the API's products and bundles, and in the dashboard's.
func (s *testServer) finds(t *testing.T, text string) string {
	t.Helper()
	list, err := s.db.Products(s.storeID, ProductFilter{Products: true, Bundles: true, Text: text, Limit: 50})
	must(t, err)
	products, err := s.db.Catalog(s.storeID, KindProduct, "", text, 50)
	must(t, err)
	bundles, err := s.db.Catalog(s.storeID, KindBundle, "", text, 50)
	must(t, err)

	var lists []string
	for _, found := range [][]Product{list.Products, list.Bundles, products, bundles} {
		slugs := []string{}
		for _, p := range found {
			slugs = append(slugs, p.Slug)
		}
		lists = append(lists, strings.Join(slugs, " "))
	}
	return strings.Join(lists, ", ")
}

// TestSearchSeesEveryChange changes a catalog that was searched, and searches again.
func TestSearchSeesEveryChange(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	for _, c := range []struct {
		change     string
		statements string // of another connection to the file
		text       string
		want       string
	}{
		{"nothing", "", "melati", "teh, , teh, "},
		{
			"a title",
			"UPDATE products SET title = 'Teh Hijau', title_folded = 'teh hijau' WHERE slug = 'teh'",
			"melati", ", , , ",
		},
		{"nothing more", "", "HIJAU", "teh, , teh, "},
		{
			"the order of two titles",
			"UPDATE products SET title = 'Aduh', title_folded = 'aduh' WHERE slug = 'gratis'; " +
				"UPDATE products SET title = 'aduh', title_folded = 'aduh' WHERE slug = 'kopi'",
			"du", "gratis kopi, duo, gratis kopi, duo",
		},
		{"a product is hidden", "UPDATE products SET published = 0 WHERE slug = 'teh'", "hijau", ", , teh, "},
		{"and shown", "UPDATE products SET published = 1 WHERE slug = 'teh'", "hijau", "teh, , teh, "},
		{"a bundle is shown", "UPDATE bundles SET published = 1", "draf", ", draf, draf, draf"},
		{"a slug", "UPDATE products SET slug = 'teh-hijau' WHERE slug = 'teh'", "hijau", "teh-hijau, , teh-hijau, "},
		{
			"a product more",
			`INSERT INTO products (id, store_id, slug, title, title_folded, description, price, published,
			                       created_at, updated_at)
			 SELECT 'a', store_id, 'baru', 'Hijau', 'hijau', '', 1, 1, 0, 0 FROM products WHERE slug = 'kopi'`,
			"hijau", "baru teh-hijau, , baru teh-hijau, ",
		},
		{"a product less", "DELETE FROM products WHERE slug = 'baru'", "hijau", "teh-hijau, , teh-hijau, "},
		{
			"a bundle's title",
			"UPDATE bundles SET title = 'Tiga', title_folded = 'tiga' WHERE slug = 'duo'",
			"tiga", ", duo, , duo",
		},
		{
			"a bundle less",
			"DELETE FROM bundle_items; DELETE FROM bundles WHERE slug = 'duo'",
			"tiga", ", , , ",
		},
	} {
		t.Run(c.change, func(t *testing.T) {
			s.finds(t, c.text)
			sqliteFile(t, s.db.path, c.statements)
			if got := s.finds(t, c.text); got != c.want {
				t.Errorf("%q finds %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// TestSearchIsNotOlderThanItsRequest changes titles while others search, so that lists are read by several at once.
func TestSearchIsNotOlderThanItsRequest(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	parallel(4, func(i int) {
		for n := range 15 {
			slug, title := fmt.Sprint("p-", i), fmt.Sprintf("Ganti %d/%d.", i, n)
			s.importCatalog(t, s.storeID, fmt.Sprintf(`{"products": [{"slug": %q, "title": %q, "price": 1}]}`, slug, title))
			want := slug + ", , " + slug + ", "
			if got := s.finds(t, strings.ToUpper(title)); got != want {
				t.Errorf("%q finds %q, want %q", title, got, want)
			}
		}
	})
}

// TestTitlesVersion says which changes have a store's titles read again.
func TestTitlesVersion(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	otherID, _ := s.addStore(t, "lain", "growth")
	s.importCatalog(t, otherID, testCatalog)
	version := func(storeID string) int {
		return scalar[int](t, s.db, "SELECT titles_version FROM stores WHERE id = ?", storeID)
	}
	importing := func(text string) func() {
		return func() { s.importCatalog(t, s.storeID, text) }
	}

	for _, c := range []struct {
		name   string
		change func()
		raised bool
	}{
		{"a sale", func() { s.create(t, "kopi", 1) }, false},
		{"a sale of a bundle", func() { s.create(t, "duo", 1) }, false},
		{"a price and a description", importing(
			`{"products": [{"slug": "kopi", "title": "Kopi Gayo", "price": 1, "description": "Lain."}]}`), false},
		{"a stock", importing(
			`{"products": [{"slug": "kopi", "title": "Kopi Gayo", "price": 1, "stock": 70}]}`), false},
		{"the same catalog again", importing(testCatalog), false},
		{"a bundle's price", importing(`{"bundles": [
			{"slug": "duo", "title": "Duo", "price": 2, "items": [{"slug": "teh", "quantity": 1}]}]}`), false},
		{"a new product", importing(`{"products": [{"slug": "baru", "title": "Baru", "price": 1}]}`), true},
		{"a title", importing(`{"products": [{"slug": "baru", "title": "BARU", "price": 1}]}`), true},
		{"hiding a product", importing(
			`{"products": [{"slug": "baru", "title": "BARU", "price": 1, "published": false}]}`), true},
		{"a new bundle", importing(`{"bundles": [
			{"slug": "b", "title": "B", "price": 2, "items": [{"slug": "teh", "quantity": 1}]}]}`), true},
		{"a bundle's title", importing(`{"bundles": [
			{"slug": "b", "title": "C", "price": 2, "items": [{"slug": "teh", "quantity": 1}]}]}`), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, ofOther := version(s.storeID), version(otherID)
			c.change()
			if raised := version(s.storeID) > before; raised != c.raised {
				t.Errorf("raised: %t, want %t", raised, c.raised)
			}
			if version(otherID) != ofOther {
				t.Error("another store's version was raised")
			}
		})
	}

	t.Run("a product that moves to another store", func(t *testing.T) {
		before, ofOther := version(s.storeID), version(otherID)
		s.exec(t, "UPDATE products SET store_id = ? WHERE slug = 'baru'", otherID)
		if version(s.storeID) == before || version(otherID) == ofOther {
			t.Error("the versions of both stores are to be raised")
		}
	})
}

// TestTitlesAreKept makes sure that a list is read again only after a change of what it has.
func TestTitlesAreKept(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	read := func() *titleList {
		list, err := readResult(s.db, func(q querier) (*titleList, error) {
			return s.db.readTitles(q, titleQuery{s.storeID, KindProduct, true})
		})
		if err != nil {
			t.Error(err)
		}
		return list
	}

	first := read()
	s.create(t, "kopi", 1)
	s.importCatalog(t, s.storeID, `{"products": [{"slug": "teh", "title": "Teh Melati", "price": 51000}]}`)
	if read() != first {
		t.Error("the titles were read again after a sale and a new price")
	}
	s.importCatalog(t, s.storeID, `{"products": [{"slug": "teh", "title": "Teh", "price": 51000}]}`)
	if read() == first {
		t.Error("the titles were not read again after a new title")
	}

	// Many at once: one of them reads.
	s.importCatalog(t, s.storeID, `{"products": [{"slug": "teh", "title": "Teh Hijau", "price": 51000}]}`)
	lists := make([]*titleList, 20)
	parallel(len(lists), func(i int) { lists[i] = read() })
	for _, l := range lists {
		if l != lists[0] {
			t.Fatal("two searches at once have both read the titles")
		}
	}
}

// TestTitleCache keeps lists until they are too large together.
func TestTitleCache(t *testing.T) {
	t.Parallel()
	c := &titleCache{}
	products := titleQuery{"a", KindProduct, true}
	bundles := titleQuery{"a", KindBundle, true}
	others := titleQuery{"b", KindProduct, true}
	put := func(query titleQuery, version int64, size int) {
		t.Helper()
		c.put(query, &titleList{version: version, folded: texts{joined: strings.Repeat("x", size)}})
		sum := 0
		for _, l := range c.lists {
			sum += l.size()
		}
		if c.size != sum {
			t.Errorf("size %d, want %d", c.size, sum)
		}
		if c.size > maxTitleBytes {
			t.Errorf("size %d, which is more than %d", c.size, maxTitleBytes)
		}
	}
	keeps := func(want string) {
		t.Helper()
		got := []string{}
		for query, l := range c.lists {
			if c.get(query, l.version) == l {
				got = append(got, fmt.Sprint(query.storeID, " ", query.kind, " ", l.version))
			}
		}
		slices.Sort(got)
		if kept := strings.Join(got, ", "); kept != want {
			t.Errorf("keeps %q, want %q", kept, want)
		}
	}

	t.Run("lists are kept with their version", func(t *testing.T) {
		put(products, 1, maxTitleBytes/3)
		put(bundles, 1, maxTitleBytes/3)
		keeps("a bundle 1, a product 1")
		if c.get(products, 2) != nil || c.get(others, 1) != nil {
			t.Error("a list of another version or store is returned")
		}
	})

	t.Run("a newer one takes the place of the older", func(t *testing.T) {
		put(products, 2, maxTitleBytes/2)
		keeps("a bundle 1, a product 2")
	})

	t.Run("as many are dropped as one more needs", func(t *testing.T) {
		put(others, 1, maxTitleBytes/3)
		if c.get(others, 1) == nil || len(c.lists) != 2 {
			t.Errorf("keeps %v", c.lists)
		}
		put(others, 2, maxTitleBytes*3/4)
		keeps("b product 2")
	})

	t.Run("one that is too large is not kept, nor the older", func(t *testing.T) {
		put(bundles, 1, 10)
		put(others, 3, maxTitleBytes)
		keeps("a bundle 1")
	})
}

// TestSearchesPassOverTitles makes sure that a text that is nowhere, or in a few titles of many, is not looked for in
// all of them.
func TestSearchesPassOverTitles(t *testing.T) {
	t.Parallel()
	var titles []title
	for i := range 50_000 {
		titles = append(titles, title{fmt.Sprintf("kopi nomor %05d, 250 g", i), fmt.Sprint(i)})
	}
	l := newTitleList(1, titles)

	for text, most := range map[string]int{
		"nomor 12345,": 20,
		"nomor 60000":  20,
		"tidak ada":    0,
		"kopi nomer":   0,
		"z":            0,
		"kz":           0,
	} {
		t.Run(text, func(t *testing.T) {
			looked := 0
			for range l.blocks.mayHave(text) {
				looked++
			}
			if looked > most {
				t.Errorf("it is looked for in %d blocks, want %d at most", looked, most)
			}
		})
	}
}
