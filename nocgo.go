//go:build !cgo

package main

// SQLite is written in C. If Go finds no C compiler, this undefined name is the first error of the build. Debian:
// apt install gcc, Alpine: apk add gcc musl-dev, macOS: xcode-select --install. Then build again, with CGO_ENABLED=1.
var _ = install_gcc_because_SQLite_needs_a_C_compiler
