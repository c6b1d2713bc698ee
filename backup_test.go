//go:build cgo

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namesIn lists the files in a folder.
func namesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRestoreDrill backs up a shop that is killed later, so that its WAL is left, and restores the backup.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	backup := filepath.Join(t.TempDir(), "backup.db")

	address, _, process := startProgram(t, file)
	s := reach(t, address, key)
	for range 3 {
		s.create(t, "teh", 1)
	}
	command(t, 0, "backup", "-db", file, backup)
	for range 2 {
		s.create(t, "teh", 1)
	}

	t.Run("not while it is served", func(t *testing.T) {
		before := namesIn(t, filepath.Dir(file))
		_, stderr := command(t, 1, "restore", "-db", file, backup)
		if !strings.Contains(stderr, "stop it first") {
			t.Errorf("restore says %s", stderr)
		}
		if after := namesIn(t, filepath.Dir(file)); !slices.Equal(after, before) {
			t.Errorf("files %v, want %v", after, before)
		}
	})

	process.Process.Kill()
	process.Wait()
	if fileSize(file+"-wal") == 0 {
		t.Fatal("the killed service has left no WAL")
	}

	t.Run("not a damaged one", func(t *testing.T) {
		content, err := os.ReadFile(backup)
		must(t, err)
		damaged := filepath.Join(t.TempDir(), "damaged.db")
		must(t, os.WriteFile(damaged, content[:len(content)/2], 0o600))
		_, stderr := command(t, 1, "restore", "-db", file, damaged)
		if !strings.Contains(stderr, "damaged.db is damaged") {
			t.Errorf("restore says %s", stderr)
		}
	})

	restored, stderr := command(t, 0, "restore", backup, "-db", file)
	aside, _ := restored["set_aside"].(string)
	t.Run("it says what it did", func(t *testing.T) {
		if fmt.Sprint(restored["orders"]) != "3" || restored["restored"] != file {
			t.Errorf("restore prints %v", restored)
		}
		if aside == "" || !strings.Contains(stderr, aside) {
			t.Errorf("restore does not say where the old file is: %v, %s", restored, stderr)
		}
	})

	t.Run("the shop is that of the backup", func(t *testing.T) {
		found, _ := command(t, 0, "check", "-db", file)
		if fmt.Sprint(found["orders"]) != "3" {
			t.Errorf("check prints %v, want 3 orders", found)
		}
		if dump(t, file) != dump(t, backup) {
			t.Error("the restored file has other rows than the backup")
		}
		address, _, _ := startServe(t, file)
		reach(t, address, key).create(t, "teh", 1)
	})

	t.Run("the old file is whole", func(t *testing.T) {
		found, _ := command(t, 0, "check", "-db", aside)
		if fmt.Sprint(found["orders"]) != "5" {
			t.Errorf("check of the file set aside prints %v, want 5 orders", found)
		}
	})
}

func TestRestoreToAMissingFile(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	restored, _ := command(t, 0, "restore", "-db", fresh, file)
	if restored["set_aside"] != nil {
		t.Errorf("restore prints %v", restored)
	}
	if dump(t, fresh) != dump(t, file) {
		t.Error("the restored file has other rows")
	}
	info, err := os.Stat(fresh)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the restored file's mode is %v, want 0600", info.Mode())
	}
}

// TestCheckChangesNothing checks files of this version and an older one.
func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	const nothing = "to_delete:map[deliveries:0 events:0 notifications:0]"
	current := fmt.Sprintf("schema_version:%d", schemaVersion)
	for _, c := range []struct {
		name, file, want string
	}{
		{"new", file, "map[faults:[] ok:true orders:0 " + current + " stores:1 " + nothing + " waiting_deliveries:0]"},
		{"version 1", unzip(t, "testdata/v1.db.gz"),
			"map[faults:[] ok:true orders:5 schema_version:1 stores:1 waiting_deliveries:22]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, os.Chmod(c.file, 0o400))
			before, err := os.ReadFile(c.file)
			must(t, err)
			names := namesIn(t, filepath.Dir(c.file))

			found, _ := command(t, 0, "check", "-db", c.file, "-keep-events", "87600h")
			if got := fmt.Sprint(found); got != c.want {
				t.Errorf("check prints %s, want %s", got, c.want)
			}
			after, err := os.ReadFile(c.file)
			must(t, err)
			if sha256.Sum256(after) != sha256.Sum256(before) {
				t.Error("the file has changed")
			}
			if got := namesIn(t, filepath.Dir(c.file)); !slices.Equal(got, names) {
				t.Errorf("files %v, want %v", got, names)
			}
		})
	}
}

func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	content, err := os.ReadFile(file)
	must(t, err)
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	must(t, os.WriteFile(damaged, content[:len(content)-3*4096], 0o600))
	_, stderr := command(t, 1, "check", "-db", damaged)
	if !strings.Contains(stderr, "restore a backup") {
		t.Errorf("check says %s", stderr)
	}
}

// TestCheckFindsAnotherStatus changes an order's column and not its JSON.
func TestCheckFindsAnotherStatus(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v4.db.gz")
	command(t, 0, "store", "list", "-db", file) // brings it up to date
	command(t, 0, "check", "-db", file)
	sqliteFile(t, file, "UPDATE orders SET status = 'paid' WHERE status = 'pending'")
	command(t, 1, "check", "-db", file)
	found, err := inspectAll(file)
	must(t, err)
	if len(found.Faults) != 1 || !strings.Contains(found.Faults[0], "differs from its JSON") {
		t.Errorf("faults: %q", found.Faults)
	}
}

// TestBackupThatDoesNotFit copies more than a file may hold, as on a full disk.
func TestBackupThatDoesNotFit(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	out := filepath.Join(t.TempDir(), "backup.db")
	exe, err := os.Executable()
	must(t, err)

	const limited = `ulimit -f 128 && exec "$0" backup -db "$1" "$2"` // in 512 bytes or in 1024
	cmd := exec.Command("sh", "-c", limited, exe, file, out)
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	said, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the backup succeeds")
	}
	if !strings.Contains(string(said), "to "+out) {
		t.Errorf("backup says %s", said)
	}
	if names := namesIn(t, filepath.Dir(out)); len(names) > 0 {
		t.Errorf("the failed backup leaves %v", names)
	}
	if names := namesIn(t, filepath.Dir(file)); len(names) != 1 {
		t.Errorf("the failed backup leaves %v beside the database", names)
	}
}

func TestFailedBackupLeavesNothing(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	out := filepath.Join(t.TempDir(), "absent", "backup.db")
	_, stderr := command(t, 1, "backup", "-db", file, out)
	if !strings.Contains(stderr, out) {
		t.Errorf("backup says %s", stderr)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, _ := command(t, 0, "version")
	if got := fmt.Sprint(out["sqlite"]); !regexp.MustCompile(`^3\.\d+\.\d+$`).MatchString(got) {
		t.Errorf("SQLite's version is %s", got)
	}
	if got := fmt.Sprint(out["schema_version"]); got != fmt.Sprint(schemaVersion) {
		t.Errorf("the schema's version is %s", got)
	}
	for _, name := range []string{"version", "revision", "go"} {
		if out[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestOrderCommands compare what the commands show with what the API shows.
func TestOrderCommands(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	address, _, _ := startServe(t, file)
	s := reach(t, address, key)
	first, second := s.create(t, "teh", 1), s.create(t, "teh", 2)
	command(t, 0, "order", "approve", "-db", file, "-order", first)

	t.Run("list", func(t *testing.T) {
		listed, _ := command(t, 0, "order", "list", "-db", file, "-store", storeID)
		if got, want := fmt.Sprint(listed), fmt.Sprint(s.get(t, "/v1/orders").Data); got != want {
			t.Errorf("order list prints\n%s, want\n%s", got, want)
		}
	})

	t.Run("list of one status", func(t *testing.T) {
		listed, _ := command(t, 0, "order", "list", "-db", file, "-store", storeID, "-status", "paid")
		if got, want := fmt.Sprint(listed), fmt.Sprint(s.get(t, "/v1/orders?status=paid").Data); got != want {
			t.Errorf("order list prints\n%s, want\n%s", got, want)
		}
	})

	t.Run("a page of the list", func(t *testing.T) {
		listed, _ := command(t, 0, "order", "list", "-db", file, "-store", storeID, "-limit", "1")
		r := reply{Data: listed}
		if r.at("orders.0.id") != second || r.at("has_more") != "true" {
			t.Errorf("order list prints %v", listed)
		}
	})

	t.Run("show", func(t *testing.T) {
		shown, _ := command(t, 0, "order", "show", "-db", file, "-order", strings.ToUpper(second))
		if got, want := fmt.Sprint(shown), fmt.Sprint(s.get(t, "/v1/orders/"+second).Data); got != want {
			t.Errorf("order show prints\n%s, want\n%s", got, want)
		}
	})
}
