// Budget fails when the program or its tests have grown over what a reader can take in:
//
//	go run .ci/budget/main.go        from the repository's root
//
// It counts tokens as the compiler reads them, the lines of each file, and the ways through each function. Nobody
// counts single tokens: the ceilings have air. A file that is left out of a build with cgo is not counted.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	programTokens = 107_000
	testTokens    = 85_000
	mostLines     = 700 // of a file of the program
	mostBranches  = 15  // of a function of the program
)

// tablesOfCases are switches that are read row by row, as a table is. They may have as many cases as they need.
var tablesOfCases = []string{"settle"}

func main() {
	names, err := filepath.Glob("*.go")
	check(err)
	var wrong []string
	program, tests := 0, 0

	for _, name := range names {
		if name == "nocgo.go" {
			continue
		}
		src, err := os.ReadFile(name)
		check(err)
		if strings.HasSuffix(name, "_test.go") {
			tests += tokens(src)
			continue
		}

		program += tokens(src)
		if lines := strings.Count(string(src), "\n"); lines > mostLines {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, at most %d", name, lines, mostLines))
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		check(err)
		for _, d := range file.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			if !isFunc || slices.Contains(tablesOfCases, f.Name.Name) {
				continue
			}
			if n := branches(f); n > mostBranches {
				wrong = append(wrong,
					fmt.Sprintf("%s: %s has %d branches, at most %d", name, f.Name.Name, n, mostBranches))
			}
		}
	}

	fmt.Println(program, "tokens of the program,", tests, "of its tests")
	if program > programTokens {
		wrong = append(wrong, fmt.Sprintf("the program has %d tokens, at most %d", program, programTokens))
	}
	if tests > testTokens {
		wrong = append(wrong, fmt.Sprintf("the tests have %d tokens, at most %d", tests, testTokens))
	}
	for _, w := range wrong {
		fmt.Println("over the budget:", w)
	}
	if len(wrong) > 0 {
		os.Exit(1)
	}
}

// tokens counts the tokens of a file, without comments and the semicolons that the compiler inserts.
func tokens(src []byte) (n int) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, 0)
	for {
		_, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok != token.SEMICOLON || text != "\n" {
			n++
		}
	}
}

// branches counts the ways through a function: one, and one more for each if, for, case, && and ||.
func branches(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
