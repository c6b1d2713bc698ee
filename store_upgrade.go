package main

// This file upgrades the database of an earlier version. Only serve does that, in one transaction, so that the file is
// unchanged after a kill or an error. First a copy is written beside it, a backup that "storeorder restore" of the
// earlier program can restore. upgrade.sql has the changes of the tables.

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/mattn/go-sqlite3"
)

//go:embed upgrade.sql
var upgradeSQL string

// upgradeParts returns the statements that turn version 1 into 2, version 2 into 3 and so on.
func upgradeParts() []string {
	return regexp.MustCompile(`(?m)^-- To version .*$`).Split(upgradeSQL, -1)[1:]
}

// upgrade turns the tables of an earlier version into this program's. After an error nothing has changed and
// there is no copy, unless the error is ErrUnknown.
func (db *DB) upgrade(version int) error {
	saved := fmt.Sprintf("%s-before-%d-%s", db.path, schemaVersion, db.now().Time().Format("20060102-150405.000"))
	db.log.Warn("upgrading the database before serving it; a million orders take a minute",
		"from", version, "to", schemaVersion, "copy", saved)

	// With foreign keys on, a part could delete rows that refer to a table. They cannot be turned off within a
	// transaction.
	if err := db.execute("PRAGMA foreign_keys = OFF"); err != nil {
		return err
	}

	err := db.transaction(func() error {
		if err := db.saveCopy(saved); err != nil {
			return err
		}
		changes := strings.Join(upgradeParts()[version-1:], "\n")
		if err := db.execute(fmt.Sprintf("PRAGMA user_version = %d;\n%s", schemaVersion, changes)); err != nil {
			return err
		}
		return db.checkReferences()
	})
	if errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w (before the upgrade it was %s)", err, saved)
	}
	if err != nil {
		os.Remove(saved)
		if code := sqliteCode(err); code == sqlite3.ErrFull || code == sqlite3.ErrIoErr {
			return db.noRoom(err)
		}
		return err
	}

	db.log.Info("the database has been upgraded", "to", schemaVersion, "copy", saved)
	return db.execute("PRAGMA foreign_keys = ON")
}

// saveCopy writes the file as it is before the upgrade. The transaction has begun, so nothing is added
// meanwhile. The copy gets its name when it is complete and on disk.
func (db *DB) saveCopy(saved string) error {
	part := fmt.Sprintf("%s-before-%d.part", db.path, schemaVersion)
	if err := db.copyFor(context.Background(), db.path, part, backupID); err != nil {
		return db.noRoom(err)
	}
	return errors.Join(os.Rename(part, saved), syncFolder(saved))
}

// noRoom says how much room an upgrade takes. Most often there was too little.
func (db *DB) noRoom(err error) error {
	size := int64(0)
	if info, err := os.Stat(db.path); err == nil {
		size = info.Size()
	}
	return fmt.Errorf("nothing was upgraded: the upgrade first makes a copy beside the database, which takes "+
		"%d MB, and then a tenth of that for itself (%v)", size>>20+1, err)
}

// checkReferences refuses an upgrade that leaves a row with a broken reference.
func (db *DB) checkReferences() error {
	tx := &Tx{Context: context.Background(), db: db}
	broken := ""
	if tx.find(&broken, sqlBrokenReferences+" LIMIT 1") {
		return fmt.Errorf("%s cannot be upgraded: %s; restore a backup that \"storeorder check\" finds nothing "+
			"wrong with", db.path, broken)
	}
	return tx.err
}

// checkColumns refuses a file of this version whose tables are not those of schema.sql: an unreleased program has made
// it. Tables of other programs, such as Litestream's, do no harm.
func (db *DB) checkColumns(ctx context.Context) error {
	fresh := &DB{readers: openPool(":memory:", "mode=memory", 1)}
	defer fresh.readers.Close()
	if _, err := fresh.readers.ExecContext(ctx, schema); err != nil {
		return err
	}

	wanted, err := fresh.tableColumns(ctx)
	if err != nil {
		return err
	}
	found, err := db.tableColumns(ctx)
	if err != nil {
		return err
	}

	for table, columns := range wanted {
		if !slices.Equal(found[table], columns) {
			return fmt.Errorf("%s has version %d of the database as it was before the release: the table %s has the "+
				"columns %q, and this program needs %q; go back to a copy that was made before "+
				"(docs/operation.md, \"Upgrade, and go back\")",
				db.path, schemaVersion, table, found[table], columns)
		}
	}
	return nil
}

// tableColumns returns the sorted names of each table's columns.
func (db *DB) tableColumns(ctx context.Context) (map[string][]string, error) {
	rows, err := all[struct{ Table, Column string }](ctx, db, `
		SELECT m.name AS "table", c.name AS "column"
		FROM   sqlite_schema m JOIN pragma_table_info(m.name) c
		WHERE  m.type = 'table'
		ORDER BY m.name, c.name`)
	tables := map[string][]string{}
	for _, row := range rows {
		tables[row.Table] = append(tables[row.Table], row.Column)
	}
	return tables, err
}
