// Budget fails when the program or its tests have grown over what a reader can take in:
//
//	go run .ci/budget/main.go        from the repository's root
//
// It counts tokens, as the compiler reads them. A raw string is one token, so long texts, which are SQL most of all, are
// counted in bytes too. A file that is left out of a build with cgo is not counted.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// budget is what some files may have together; lines is for each of them.
type budget struct {
	name                        string
	files, tokens, texts, lines int
}

var (
	program = budget{"program", 16, 57_000, 26_000, 1_200}
	tests   = budget{"tests", 14, 65_000, 1 << 30, 1 << 30}
)

func main() {
	names, err := filepath.Glob("*.go")
	check(err)
	var ofProgram, ofTests []string
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			ofTests = append(ofTests, name)
		case name != "nocgo.go":
			ofProgram = append(ofProgram, name)
		}
	}

	ok := program.holds(ofProgram)
	ok = tests.holds(ofTests) && ok
	if !ok {
		os.Exit(1)
	}
}

// holds prints what the files have, and says what is over the budget.
func (b budget) holds(names []string) bool {
	tokens, texts, ok := 0, 0, true
	over := func(what string, have, most int) {
		if have > most {
			fmt.Printf("over the budget: %s: %d %s, at most %d\n", b.name, have, what, most)
			ok = false
		}
	}

	for _, name := range names {
		src, err := os.ReadFile(name)
		check(err)
		t, s := count(src)
		tokens, texts = tokens+t, texts+s
		over("lines in "+name, strings.Count(string(src), "\n"), b.lines)
	}
	fmt.Printf("%s: %d files, %d tokens, %d bytes of long texts\n", b.name, len(names), tokens, texts)
	over("files", len(names), b.files)
	over("tokens", tokens, b.tokens)
	over("bytes of long texts", texts, b.texts)
	return ok
}

// count returns the tokens of a source, and the bytes of its texts over 60 characters with each gap as one space.
func count(src []byte) (tokens, texts int) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(src)), src, nil, 0)
	for {
		_, tok, literal := s.Scan()
		if tok == token.EOF {
			return tokens, texts
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // The scanner adds one at a line's end.
		}
		tokens++

		if tok != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal)
		check(err)
		if len(text) > 60 {
			texts += len(strings.Join(strings.Fields(text), " "))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
