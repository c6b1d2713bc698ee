//go:build !cgo

package main

import (
	"fmt"
	"os"
)

// Without a C compiler Go leaves out SQLite, and with it every other file of this package.
func main() {
	fmt.Fprintln(os.Stderr, "storeorder: SQLite needs a C compiler: install gcc "+
		"(Debian: apt install gcc, Alpine: apk add gcc musl-dev, macOS: xcode-select --install) "+
		"and build again with CGO_ENABLED=1")
	os.Exit(1)
}
