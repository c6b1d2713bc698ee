//go:build cgo

package main

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"sync"
)

// This file is how products and bundles are found by a part of their title.
//
// No index of SQLite serves such a search: it would read every title of the store, 25 ms for 50,000. So the titles of a
// list that is searched are kept in memory, in the order of the list, until the store's titles_version says that they
// have changed. A search finds the slugs of its page there, in some microseconds, and reads only their rows. It reads
// the version in the same snapshot as the rows, so a result is never older than its request, whoever has changed a
// title.

// titleQuery names a list that is searched: the products or the bundles of a store, either those that are published, by
// title and id, or all of them, by slug.
type titleQuery struct {
	storeID   string
	kind      Kind
	published bool
}

const (
	sqlTitlesVersion = "SELECT titles_version FROM stores WHERE id = ?"

	sqlPublishedProductTitles = "SELECT p.title_folded, p.slug" + fromProducts + byTitle
	sqlPublishedBundleTitles  = "SELECT p.title_folded, p.slug" + fromBundles + byTitle
	sqlProductTitles          = "SELECT title_folded, slug FROM products WHERE store_id = ? ORDER BY slug"
	sqlBundleTitles           = "SELECT title_folded, slug FROM bundles WHERE store_id = ? ORDER BY slug"

	// The rows of the slugs in a JSON array, in its order.
	whereSlugs       = " p ON p.store_id = ? AND p.slug = j.value ORDER BY j.key"
	sqlFoundProducts = "SELECT " + productColumns + " FROM json_each(?) j CROSS JOIN products" + whereSlugs
	sqlFoundBundles  = "SELECT " + bundleColumns + " FROM json_each(?) j CROSS JOIN bundles" + whereSlugs
)

// sql returns the query that reads the titles of the list.
func (q titleQuery) sql() string {
	switch {
	case q.kind == KindProduct && q.published:
		return sqlPublishedProductTitles
	case q.kind == KindProduct:
		return sqlProductTitles
	case q.published:
		return sqlPublishedBundleTitles
	default:
		return sqlBundleTitles
	}
}

// searchProducts is Products for a filter with a text.
func (db *DB) searchProducts(storeID string, f ProductFilter) (ProductList, error) {
	return readResult(db, func(q querier) (list ProductList, err error) {
		list = ProductList{Products: []Product{}, Bundles: []Product{}}
		skipped := 0
		if f.Products {
			list.Products, skipped, list.HasMore, err = db.searchPublished(q, storeID, KindProduct, f)
		}
		if err != nil || list.HasMore || !f.Bundles {
			return list, err
		}

		f.Offset -= skipped
		f.Limit -= len(list.Products)
		list.Bundles, _, list.HasMore, err = db.searchPublished(q, storeID, KindBundle, f)
		return list, err
	})
}

// searchPublished finds a page of a store's published products, or of its bundles. skipped is how many of those that were
// found come before the page.
func (db *DB) searchPublished(
	q querier, storeID string, kind Kind, f ProductFilter,
) (page []Product, skipped int, more bool, err error) {
	titles, err := db.readTitles(q, titleQuery{storeID, kind, true})
	if err != nil {
		return nil, 0, false, err
	}
	found, skipped := titles.find(f.Text, 0, f.Offset, f.Limit+1)
	page, err = readFound(q, storeID, kind, found[:min(f.Limit, len(found))])
	return page, skipped, len(found) > f.Limit, err
}

// searchCatalog is Catalog for a text that is not empty.
func (db *DB) searchCatalog(storeID string, kind Kind, after, text string, limit int) ([]Product, error) {
	return readResult(db, func(q querier) ([]Product, error) {
		titles, err := db.readTitles(q, titleQuery{storeID, kind, false})
		if err != nil {
			return nil, err
		}
		first := titles.slugs.firstAfter(after)
		found, _ := titles.find(text, first, 0, limit)
		return readFound(q, storeID, kind, found)
	})
}

// readFound reads the products or bundles with these slugs, in their order.
func readFound(q querier, storeID string, kind Kind, slugs []string) ([]Product, error) {
	if len(slugs) == 0 {
		return []Product{}, nil
	}

	query := sqlFoundProducts
	if kind == KindBundle {
		query = sqlFoundBundles
	}
	return queryAll(q, scanProduct, query, string(mustJSON(slugs)), storeID)
}

// readTitles returns the titles of a list as they are in a snapshot: those in memory, if they have its version. Of many
// searches that find a list outdated, one reads it and the others wait.
func (db *DB) readTitles(snapshot querier, query titleQuery) (*titleList, error) {
	version, err := queryOne(snapshot, scanValue[int64], sqlTitlesVersion, query.storeID)
	if err != nil {
		return nil, err
	}
	kept := db.titles.get(query, version)
	if kept != nil {
		return kept, nil
	}

	db.titles.reading.Lock()
	defer db.titles.reading.Unlock()
	kept = db.titles.get(query, version)
	if kept != nil {
		return kept, nil
	}

	titles, err := queryAll(snapshot, scanTitle, query.sql(), query.storeID)
	if err != nil {
		return nil, err
	}
	list := newTitleList(version, titles)
	db.titles.put(query, list)
	return list, nil
}

// title is an entry of a list that is searched.
type title struct {
	folded string // in small letters
	slug   string
}

func scanTitle(r row) (t title, err error) {
	err = r.Scan(&t.folded, &t.slug)
	return t, err
}

// titleList is a compact list of titles, at one titles_version of its store. It is never changed.
type titleList struct {
	version int64
	folded  texts
	slugs   texts
	blocks  fragments // each has titlesInBlock titles
}

// titlesInBlock is how many titles a search passes over at once, where its text cannot be. Larger blocks have more
// fragments, so that more of them are compared for nothing. Smaller blocks take more memory; with eight titles, the
// fragments take 32 bytes for each.
const titlesInBlock = 8

func newTitleList(version int64, titles []title) *titleList {
	return &titleList{
		version: version,
		folded:  joinTexts(titles, func(t title) string { return t.folded }),
		slugs:   joinTexts(titles, func(t title) string { return t.slug }),
		blocks:  newFragments(titles),
	}
}

// find looks for the entries from first on that have text in their title, in any case. It leaves out the first skip of
// them and returns the slugs of the next, at most limit. skipped is how many were left out: fewer than skip if there are
// no more.
func (l *titleList) find(text string, first, skip, limit int) (slugs []string, skipped int) {
	text = strings.ToLower(text)
	slugs = []string{}

	for block := range l.blocks.mayHave(text) {
		end := min((block+1)*titlesInBlock, l.folded.len())
		for i := max(first, block*titlesInBlock); i < end; i++ {
			if !strings.Contains(l.folded.at(i), text) {
				continue
			}
			if skipped < skip {
				skipped++
				continue
			}

			slugs = append(slugs, l.slugs.at(i))
			if len(slugs) == limit {
				return slugs, skipped
			}
		}
	}
	return slugs, skipped
}

// size is how many bytes of memory the list takes, its place in the cache included.
func (l *titleList) size() int {
	const rest = 512
	return l.folded.size() + l.slugs.size() + 8*len(l.blocks.rows) + rest
}

// texts is a list of texts, one after the other in one string. So 50,000 of them are two objects for the garbage
// collector.
type texts struct {
	joined string
	starts []int32 // where each begins in joined, and then where the last one ends
}

// joinTexts returns the texts that text gives of titles.
func joinTexts(titles []title, text func(title) string) texts {
	length := 0
	for _, t := range titles {
		length += len(text(t))
	}

	var joined strings.Builder
	joined.Grow(length)
	starts := make([]int32, 0, len(titles)+1)
	for _, t := range titles {
		starts = append(starts, int32(joined.Len()))
		joined.WriteString(text(t))
	}
	return texts{joined.String(), append(starts, int32(length))}
}

func (t texts) len() int        { return len(t.starts) - 1 }
func (t texts) at(i int) string { return t.joined[t.starts[i]:t.starts[i+1]] }
func (t texts) size() int       { return len(t.joined) + 4*len(t.starts) }

// firstAfter returns the position of the first text after a given one. The texts must be sorted.
func (t texts) firstAfter(text string) int {
	return sort.Search(t.len(), func(i int) bool { return t.at(i) > text })
}

// fragments says in which blocks of titles the pieces of one, two and three bytes are. Each piece has a row with a bit for
// every block. Several pieces share a row, so a block whose bit is set may lack the piece that is looked for. A block whose
// bit is not set does not have it.
//
// To compare a text with all of 50,000 titles took 0.5 to 1 ms, which was longer than the rest of the request.
type fragments struct {
	rows  []uint64 // one after the other
	width int      // of a row, in words of 64 blocks
}

// fragmentRows is a power of two: see rowsOf.
const fragmentRows = 2048

func newFragments(titles []title) fragments {
	blocks := len(titles)/titlesInBlock + 1
	width := blocks/64 + 1
	f := fragments{make([]uint64, fragmentRows*width), width}
	for i, t := range titles {
		block := i / titlesInBlock
		for n := range rowsOf(t.folded) {
			f.row(n)[block/64] |= 1 << (block % 64)
		}
	}
	return f
}

func (f fragments) row(n uint32) []uint64 { return f.rows[int(n)*f.width:][:f.width] }

// mayHave yields the blocks that have all fragments of a text. The text is in no other block.
func (f fragments) mayHave(text string) iter.Seq[int] {
	blocks := slices.Repeat([]uint64{math.MaxUint64}, f.width)
	for n := range rowsOf(text) {
		for i, word := range f.row(n) {
			blocks[i] &= word
		}
	}

	return func(yield func(int) bool) {
		for i, word := range blocks {
			for word != 0 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
				word &= word - 1 // clears the lowest bit
			}
		}
	}
}

// rowsOf yields the numbers of the rows of a text's fragments. Each is the upper part of the fragment's FNV-1a hash, which
// is better spread than the lower part.
func rowsOf(text string) iter.Seq[uint32] {
	const basis, prime = 2166136261, 16777619
	const longest = 3
	return func(yield func(uint32) bool) {
		for i := range len(text) {
			hash := uint32(basis)
			for _, b := range []byte(text[i:min(i+longest, len(text))]) {
				hash = (hash ^ uint32(b)) * prime
				if !yield(hash / (1 << 32 / fragmentRows)) {
					return
				}
			}
		}
	}
}

// titleCache keeps lists that were searched. The zero value is an empty cache.
type titleCache struct {
	reading sync.Mutex // held while a list is read from the database

	mu    sync.Mutex
	lists map[titleQuery]*titleList
	size  int // of all lists, in bytes
}

// maxTitleBytes bounds the memory of a titleCache. It has room for two lists of 70,000 titles of 50 letters each.
const maxTitleBytes = 16 << 20

// get returns a list if it is there with this version, and otherwise nil.
func (c *titleCache) get(query titleQuery, version int64) *titleList {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.lists[query]
	if list == nil || list.version != version {
		return nil
	}
	return list
}

// put keeps a list in the place of the older one. If the cache would grow too large, it drops any others. A list that is
// too large alone is not kept.
func (c *titleCache) put(query titleQuery, list *titleList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	older := c.lists[query]
	if older != nil {
		c.size -= older.size()
		delete(c.lists, query)
	}

	size := list.size()
	if size > maxTitleBytes {
		return
	}
	for other, dropped := range c.lists {
		if c.size+size <= maxTitleBytes {
			break
		}
		c.size -= dropped.size()
		delete(c.lists, other)
	}
	if c.lists == nil {
		c.lists = map[titleQuery]*titleList{}
	}
	c.lists[query] = list
	c.size += size
}
