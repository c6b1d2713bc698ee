//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mattn/go-sqlite3"
)

// This file holds what is done with whole files: backup, restore and check. None of it changes the file it
// reads from.

// access is how a file is opened for reading.
type access string

const (
	// atRest writes nothing, not even beside the file: it may be read-only. It is only for a file without a
	// WAL, which nobody is writing to.
	atRest access = "mode=ro&immutable=1"

	// inUse is for a file with a WAL.
	inUse access = "mode=ro"

	// sharing keeps others from changing the file unnoticed, also one that is at rest. It needs a folder that
	// it may write to.
	sharing access = "mode=rw"
)

// accessTo is how to look at a file without leaving a trace.
func accessTo(path string) access {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return inUse
	}
	return atRest
}

// openSource opens a file for reading and returns its schema version. It refuses a file that is empty, not
// ours, or newer than this program.
func openSource(path string, how access) (source *pool, version int, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, noDatabase(path)
	case err != nil:
		return nil, 0, err
	case info.IsDir():
		return nil, 0, fmt.Errorf("%s is a folder: name a file", path)
	case info.Size() == 0:
		return nil, 0, fmt.Errorf("%s is empty: it holds no database", path)
	}

	source = openSQLite(path, string(how)+"&_query_only=on&_busy_timeout=5000", 1)
	version, err = inspect(source, path)
	if err == nil && version == 0 {
		err = fmt.Errorf("%s has no tables: it holds no database", path)
	}
	if err != nil {
		source.Close()
		return nil, 0, explainOpenError(path, err)
	}
	return source, version, nil
}

// report is what "check" finds out about a file.
type report struct {
	Version           int
	Faults            []string // none if the file is sound
	Stores            int64
	Orders            int64
	WaitingDeliveries int64
}

func (r report) view() object {
	return object{
		"ok":                 len(r.Faults) == 0,
		"faults":             r.Faults,
		"schema_version":     r.Version,
		"stores":             r.Stores,
		"orders":             r.Orders,
		"waiting_deliveries": r.WaitingDeliveries,
	}
}

const sqlForeignKeyFaults = `
	SELECT "table" || ': row ' || coalesce(rowid, '?') || ' refers to a missing row of ' || parent
	FROM   pragma_foreign_key_check`

// ordersThatDiffer finds orders whose columns say something else than their JSON: see insertOrder and storeOrder.
const ordersThatDiffer = `
	SELECT 'orders: row ' || row || ' differs from its JSON'
	FROM   orders
	WHERE  json_valid(json) = 0 OR
	       status      IS NOT json ->> 'status' OR
	       reference   IS NOT json ->> 'payment_reference' OR
	       provider    IS NOT json ->> 'payment_provider' OR
	       external_id IS NOT json ->> 'external_id'
	LIMIT  100`

// inspectAll runs SQLite's integrity and foreign key checks on a file, looks for orders that differ from their JSON, and
// counts what a shop is made of. A file that is too damaged to be read has a fault too.
func inspectAll(path string) (r report, err error) {
	path, err = resolve(path)
	if err != nil {
		return r, err
	}
	source, version, err := openSource(path, accessTo(path))
	if err != nil {
		return r, err
	}
	defer source.Close()

	r.Version = version
	r.Faults, err = queryAll(source, scanValue[string], `
		SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'
		UNION ALL`+sqlForeignKeyFaults)
	if err == nil && version == schemaVersion {
		var differ []string
		differ, err = queryAll(source, scanValue[string], ordersThatDiffer)
		r.Faults = append(r.Faults, differ...)
	}
	if err == nil {
		err = queryInto(source, []any{&r.Stores, &r.Orders, &r.WaitingDeliveries}, `
			SELECT (SELECT count(*) FROM stores),
			       (SELECT count(*) FROM orders),
			       (SELECT count(*) FROM deliveries WHERE next_at IS NOT NULL)`)
	}

	switch sqliteCode(err) {
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrIoErr:
		r.Faults = append(r.Faults, err.Error())
		err = nil
	}
	return r, err
}

var errDamaged = errors.New("the database is damaged: restore a backup")

func check(_ context.Context, c *cli) error {
	file := c.dbFlag()
	var keep time.Duration
	c.keepEventsFlag(&keep)
	if err := c.parse(""); err != nil {
		return err
	}
	if err := checkKeepEvents(keep); err != nil {
		return err
	}

	r, err := inspectAll(*file)
	if err != nil {
		return err
	}
	result := r.view()
	if len(r.Faults) > 0 {
		return errors.Join(c.print(result), errDamaged)
	}

	if r.Version == schemaVersion { // The tables of an older file are others until serve has opened it.
		result["to_delete"], err = countOld(*file, keep)
	}
	if err != nil {
		return err
	}
	return c.print(result)
}

// countOld counts what the service deletes because it is older than keep.
func countOld(path string, keep time.Duration) (oldCounts, error) {
	path, err := resolve(path)
	if err != nil {
		return oldCounts{}, err
	}
	source, _, err := openSource(path, accessTo(path))
	if err != nil {
		return oldCounts{}, err
	}
	defer source.Close()
	return queryOne(source, scanOldCounts, sqlCountOld, firstRow(timeOf(time.Now()).Add(-keep)))
}

func backup(ctx context.Context, c *cli) error {
	file := c.dbFlag()
	if err := c.parse(""); err != nil {
		return err
	}

	out := c.Arg(0)
	if err := backUp(ctx, *file, sharing, out); err != nil {
		return err
	}
	return c.print(object{"backup": out})
}

// backUp copies a database to a new file. After an error there is no new file.
func backUp(ctx context.Context, from string, how access, out string) error {
	source, _, err := openSource(from, how)
	if err != nil {
		return err
	}
	defer source.Close()

	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: name a new file", out)
	}
	if err != nil {
		return fmt.Errorf("cannot create the backup: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}

	err = copyPages(ctx, source, out)
	if err == nil {
		err = syncFolder(out)
	}
	if err != nil {
		os.Remove(out)
		if sqliteCode(err) == sqlite3.ErrFull {
			return fmt.Errorf("the disk of %s is full: nothing was written there", out)
		}
		return fmt.Errorf("cannot copy %s to %s: %w", from, out, err)
	}
	return nil
}

// copyPages uses SQLite's online backup (https://sqlite.org/backup.html). It copies everything in one step:
// between several steps, every write would start the copy anew. The target is new and needs no journal.
func copyPages(ctx context.Context, source *pool, out string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	target := openSQLite(out, "mode=rw&_synchronous=FULL&_journal_mode=OFF", 1)
	defer target.Close()

	return target.with(func(dst *connection) error {
		return source.with(func(src *connection) error {
			b, err := dst.raw.Backup("main", src.raw, "main")
			if err != nil {
				return err
			}
			_, err = b.Step(-1)
			return errors.Join(err, b.Finish())
		})
	})
}

// syncFolder writes the names in a file's folder to the disk.
func syncFolder(file string) error {
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func restore(ctx context.Context, c *cli) error {
	file := c.dbFlag()
	if err := c.parse(""); err != nil {
		return err
	}

	from := c.Arg(0)
	r, aside, err := restoreFrom(ctx, *file, from)
	if err != nil {
		return err
	}

	result := r.view()
	delete(result, "faults")
	result["restored"] = *file
	result["from"] = from
	if aside != "" {
		result["set_aside"] = aside
		fmt.Fprintf(c.stderr, "%s: the file that was there is now %s\n", c.Name(), aside)
	}
	return c.print(result)
}

// restoreFrom puts a copy of a sound file in a database's place. The database that was there, if any, is set
// aside under another name, together with its WAL: next to another database, that would damage it.
func restoreFrom(ctx context.Context, file, from string) (r report, aside string, err error) {
	r, err = inspectAll(from)
	if err != nil {
		return r, "", err
	}
	if len(r.Faults) > 0 {
		return r, "", fmt.Errorf("%s is damaged, and nothing was changed: restore another backup (%s)",
			from, r.Faults[0])
	}

	file, err = resolve(file)
	if err != nil {
		return r, "", err
	}
	unlock, err := lockServing(file)
	if err != nil {
		return r, "", err
	}
	defer unlock()

	// The copy is complete and on the disk before it gets its name.
	fresh := file + "-restoring"
	if err := backUp(ctx, from, accessTo(from), fresh); err != nil {
		return r, "", err
	}
	aside, err = setAside(file)
	if err == nil {
		err = os.Rename(fresh, file)
	}
	if err != nil {
		os.Remove(fresh)
		return r, aside, err
	}
	return r, aside, syncFolder(file)
}

// resolve returns a file's path without symbolic links. The file may be missing.
func resolve(file string) (string, error) {
	path, err := filepath.EvalSymlinks(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}

	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, filepath.Base(file)), nil
}

// setAside renames a database together with its WAL and returns its new name; "" if there is none. The name
// ends in the time, and with the same ending the WAL still belongs to it. The file of the WAL's index is made
// anew when needed.
func setAside(file string) (aside string, err error) {
	aside = file + time.Now().UTC().Format("-20060102-150405")
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("%s exists: try again in a second", aside)
	}

	// The WAL goes first: without it, a crash leaves an older database, and with a wrong one, a damaged one.
	found := false
	for _, ending := range []string{"-wal", "-shm", ""} {
		err := os.Rename(file+ending, aside+ending)
		if err == nil {
			found = true
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return aside, err
		}
	}
	if !found {
		return "", nil
	}
	return aside, nil
}
