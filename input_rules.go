package main

// This file has the rules of inputs: which fields of a struct are read, and what the words in their rule tags mean. The
// rules themselves are listed in input.go.

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// input is a field of a struct that is read.
type input struct {
	name  string
	index []int
	rule
}

// rule is a `rule` tag in its parts.
type rule struct {
	kind             string
	least, most      int64
	choices          []string
	optional, unique bool
	preset           int64    // the value of a field that is left out
	without          []string // fields that the elements of a list do not have
}

// inputs returns the fields of a struct that are read.
func inputs(t reflect.Type) []input {
	if known, ok := inputsOf.Load(t); ok {
		return known.([]input)
	}

	var all []input
	for f := range t.Fields() {
		tag, ok := f.Tag.Lookup("rule")
		if !ok {
			continue
		}

		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			name = strings.ToLower(f.Name)
		}
		all = append(all, input{name, f.Index, parseRule(tag)})
	}

	inputsOf.Store(t, all)
	return all
}

// inputsOf remembers the inputs of a type: reading tags for every request would be slow.
var inputsOf sync.Map

func parseRule(tag string) rule {
	kind, rest, _ := strings.Cut(tag, " ")
	r := rule{kind: kind, least: 1, most: formats[kind].most}
	words := strings.Fields(rest)
	switch kind {
	case "money":
		r.least = 0
		r.most = maxMoney
	case "event":
		for _, name := range EventNames {
			r.choices = append(r.choices, string(name))
		}
	case "choice":
		r.choices = strings.Split(words[0], "|")
		words = words[1:]
	}

	for _, word := range words {
		least, most, isRange := strings.Cut(word, "..")
		preset, isPreset := strings.CutPrefix(word, "=")
		names, isWithout := strings.CutPrefix(word, "without=")
		switch {
		case word == "optional":
			r.optional = true
		case word == "unique":
			r.unique = true
		case isWithout:
			r.without = strings.Split(names, ",")
		case isPreset:
			r.preset = mustInteger(tag, preset)
		case isRange:
			r.least = mustInteger(tag, least)
			r.most = mustInteger(tag, most)
		default:
			panic("the rule " + tag + " has the word " + word)
		}
	}
	return r
}

func mustInteger(tag, digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic("the rule " + tag + " has no number but " + digits)
	}
	return n
}

// fillIn gives the fields that an input leaves out their present values.
func fillIn[T any](in *T, there T, given map[string]bool) {
	to := reflect.ValueOf(in).Elem()
	from := reflect.ValueOf(there)
	for _, f := range inputs(to.Type()) {
		if !given[f.name] {
			to.FieldByIndex(f.index).Set(from.FieldByIndex(f.index))
		}
	}
}

// isChange reports whether an input that was filled in changes anything.
func isChange[T any](in, there T) bool {
	before := reflect.ValueOf(there)
	after := reflect.ValueOf(in)
	for _, f := range inputs(before.Type()) {
		isSame := reflect.DeepEqual(after.FieldByIndex(f.index).Interface(), before.FieldByIndex(f.index).Interface())
		if !isSame && f.kind != "ignored" {
			return true
		}
	}
	return false
}

// asInput returns the inputs of a struct by their names, as a request would give them.
func asInput(v any) jsonObject {
	from := reflect.ValueOf(v)
	fields := jsonObject{}
	for _, f := range inputs(from.Type()) {
		fields[f.name] = from.FieldByIndex(f.index).Interface()
	}
	return fields
}
