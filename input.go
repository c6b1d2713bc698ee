package main

// One parser reads all input of clients, owners and operators. The bodies of requests (readJSON, readPatch,
// readCatalog), forms (readForm) and query parameters (readQuery) fill a struct. A field with a `rule` tag is read
// under the name in its json tag, or under its own name in lower case if json hides it. All other names are refused,
// except in forms. One *Refusal reports all wrong fields.
//
//	text 1..200    a text of one line with that many characters; not blank
//	lines 0..1000  a text of several lines, which may be empty
//	exact 1..64    a text of one line that a program has written
//	int 1..50      an integer; int64 or *int64
//	money          an integer from 0 to 999999999999, in rupiah
//	bool           true or false; in a form a checkbox, false when it is left out
//	choice a|b     one of these texts
//	slug code id   names of products and of payment methods; a UUID
//	email phone contact host account url origin
//	time, end      a time (Time) as a lower or an upper bound
//	duration 1..60 a time.Duration such as 1h30m, of that many minutes
//	object         a struct
//	event          the name of an event
//	ignored        anything: it may be sent back as it was answered
//	list 1..100    a slice of structs; in a form a[0].name=…
//	codes 0..40    a slice of texts as code; in a form boxes of one name, or a text with spaces between
//	events 0..20   the same of names of events
//	map 0..20      a map of texts with short names
//
// The rule may be followed by `optional` (it may be left out), `unique` (no two elements of the list share it), `=20`
// (its value when it is left out), `without=x,y` (elements of the list have no fields x and y).
//
// Many programs send null or an empty text for values that they do not have. The meaning depends on the reader:
//
//	             null                        "" for what is optional        {} and [] for an optional object or map
//	readJSON     left out                    left out                       left out
//	readPatch    refused; removes a map's    a text of 0 characters, where  {} changes nothing, [] is refused
//	             key, as "" does             that is allowed; or left out
//	readCatalog  no value, where the field   a text of 0 characters, where  refused
//	             is a pointer; or refused    that is allowed; or refused
//	readForm                                 left out, but in Given
//
// A field Given map[string]bool gets the names that were given. A struct that is a validator checks what involves
// several fields.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// source is where an input comes from.
type source int

const (
	fromBody source = iota
	fromPatch
	fromCatalog
	fromForm
	fromQuery
)

// readJSON reads the body of a request.
func readJSON(body []byte, into any) error { return readBodyOf(fromBody, math.MaxInt, body, into) }

// readPatch reads a body that changes the fields it has.
func readPatch(body []byte, into any) error { return readBodyOf(fromPatch, math.MaxInt, body, into) }

// readCatalog reads entries of a catalog, and stops after most of them. A field that an entry leaves out keeps its
// value.
func readCatalog(body []byte, most int, into any) error {
	return readBodyOf(fromCatalog, most, body, into)
}

const maxDepth = 16

// readBodyOf reads one JSON object. It is stricter than encoding/json: the text must be UTF-8, end after the object,
// have no key twice, and be nested at most 16 levels deep.
func readBodyOf(s source, mostEntries int, body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	p := parser{Decoder: decoder, mostEntries: mostEntries}
	value, err := p.nextValue(1)
	if _, refused := errors.AsType[*Refusal](err); refused {
		return err
	}

	_, end := p.Token()
	if err != nil || end != io.EOF || !utf8.Valid(body) {
		return refuse(InvalidRequest)
	}

	fields, ok := value.(map[string]any)
	if !ok {
		return &Refusal{Reason: ValidationFailed, Words: "The body must be a JSON object."}
	}
	return reader{source: s}.read(fields, into)
}

// malformed refuses an input that cannot be understood.
func malformed(format string, values ...any) *Refusal {
	return &Refusal{Reason: InvalidRequest, Words: fmt.Sprintf(format, values...)}
}

// parser reads JSON. Values take many times the memory of their text, so it stops after too many entries, which are the
// elements of the lists in the outermost object.
type parser struct {
	*json.Decoder
	entries, mostEntries int
}

// nextValue returns the next JSON value as a map, list, string, json.Number, bool or nil.
func (p *parser) nextValue(depth int) (any, error) {
	token, err := p.Token()
	isObject := token == json.Delim('{')
	if !isObject && token != json.Delim('[') {
		return token, err
	}
	if depth > maxDepth {
		return nil, malformed("The JSON is nested deeper than %d levels.", maxDepth)
	}

	var list []any // for an object, its keys and values in turn
	for p.More() {
		if !isObject && depth == 2 {
			p.entries++
		}
		if p.entries > p.mostEntries {
			return nil, refuse(ValidationFailed).add("products",
				"and all other entries may be at most %d at once", p.mostEntries)
		}
		value, err := p.nextValue(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}

	_, err = p.Token() // the closing brace or bracket
	if !isObject || err != nil {
		return list, err
	}

	object := map[string]any{}
	for pair := range slices.Chunk(list, 2) {
		name := pair[0].(string)
		if _, twice := object[name]; twice {
			return nil, malformed("The key %q is given twice in one object: give it once.", name)
		}
		object[name] = pair[1]
	}
	return object, nil
}

// readForm reads what a person has typed. Names such as items[0].slug are fields of lists.
func readForm(values url.Values, into any) error {
	fields := map[string]any{}
	for name := range values {
		typed := strings.Join(values[name], " ")
		value := strings.TrimSpace(dropInvisible(strings.ReplaceAll(typed, "\r", "")))
		m := formRow.FindStringSubmatch(name)
		if m == nil {
			fields[name] = value
			continue
		}

		rows, _ := fields[m[1]].([]any)
		row, _ := strconv.Atoi(m[2])
		for len(rows) <= row {
			rows = append(rows, map[string]any{})
		}

		rows[row].(map[string]any)[m[3]] = value
		fields[m[1]] = rows
	}
	return reader{source: fromForm}.read(fields, into)
}

// formRow captures the name of a list, the number of a row and the name of a field.
var formRow = regexp.MustCompile(`^([a-z_]+)\[(\d{1,2})\]\.([a-z_]+)$`)

// readQuery reads the query string of a request's address. Only the first wrong parameter is reported.
func readQuery(query string, into any) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return malformed("The query string is malformed: encode each value, as in %s.",
			"created_at_min=2026-01-31T10:00:00%2B07:00")
	}

	var names []string
	for _, f := range inputs(reflect.TypeOf(into).Elem()) {
		names = append(names, f.name)
	}

	fields := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		switch {
		case !slices.Contains(names, name):
			known := cmp.Or(strings.Join(names, ", "), "none")
			return malformed("%q is not a parameter: this path takes %s.", name, known)
		case len(value) > 1:
			return malformed("%s is given twice: give it once.", name)
		case value[0] == "":
			return malformed("%s is empty: give it a value or leave it out.", name)
		}
		fields[name] = value[0]
	}

	err = reader{source: fromQuery}.read(fields, into)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		wrong := refusal.Fields[0]
		return malformed("%s %s.", wrong.Field, wrong.Message())
	}
	return nil
}

// reader fills structs from decoded values and collects the wrong fields.
type reader struct {
	source
	wrong     *Refusal // the wrong fields so far
	malformed *Refusal // refuses the input as a whole
}

func (r reader) read(fields map[string]any, into any) error {
	r.wrong = refuse(ValidationFailed)
	to := reflect.ValueOf(into).Elem()
	r.object("", fields, to, inputs(to.Type()))
	if r.malformed != nil {
		return r.malformed
	}
	return r.wrong.orNil()
}

// validator is a struct that checks what involves several fields. path precedes the names of its fields, and given has
// the names that were given.
type validator interface {
	validate(wrong *Refusal, path string, given map[string]bool)
}

// object fills a struct.
func (r *reader) object(path string, fields map[string]any, to reflect.Value, known []input) {
	if r.source != fromForm {
		r.refuseUnknown(path, fields, known)
	}

	given := map[string]bool{}
	for _, f := range known {
		value, isThere := fields[f.name]
		if r.source == fromForm && f.kind == "bool" {
			value = isThere && value != ""
			isThere = true
		}

		isLeftOut := !isThere || r.isLeftOut(f.rule, value)
		given[f.name] = !isLeftOut || isThere && r.source == fromForm
		field := to.FieldByIndex(f.index)
		switch {
		case !isLeftOut:
			r.setField(path+f.name, f.rule, value, field)
		case f.preset != 0:
			field.SetInt(f.preset)
		case !f.optional:
			r.wrong.add(path+f.name, "is needed")
		}
	}

	if field := to.FieldByName("Given"); field.IsValid() {
		field.Set(reflect.ValueOf(given))
	}
	if c, ok := to.Addr().Interface().(validator); ok {
		c.validate(r.wrong, path, given)
	}
}

// refuseUnknown refuses unknown names. A known name in another case makes the input malformed, because many decoders
// would take it for the right one.
func (r *reader) refuseUnknown(path string, fields map[string]any, known []input) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		right := slices.IndexFunc(known, func(f input) bool { return strings.EqualFold(f.name, name) })
		switch {
		case right < 0:
			r.wrong.add(path+name, "is not known here: leave it out")
		case known[right].name != name:
			r.malformed = malformed("The key %q must be written %q.", path+name, path+known[right].name)
		}
	}
}

// isLeftOut reports whether a value counts as left out although it was given.
func (r *reader) isLeftOut(rule rule, value any) bool {
	switch r.source {
	case fromBody:
		return value == nil || rule.optional && isEmpty(rule.kind, value)
	case fromPatch:
		return value == "" && rule.optional && rule.least > 0
	case fromForm:
		return value == ""
	default:
		return false
	}
}

// isEmpty reports whether a value is an empty text, object or map. PHP writes an empty map as [].
func isEmpty(kind string, value any) bool {
	isObject := kind == "object" || kind == "map"
	switch v := value.(type) {
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0 && isObject
	case []any:
		return len(v) == 0 && isObject
	default:
		return false
	}
}

// setField sets a field of a struct, which may be a pointer.
func (r *reader) setField(path string, rule rule, value any, to reflect.Value) {
	isPointer := to.Kind() == reflect.Pointer
	switch {
	case value == nil && isPointer, rule.kind == "ignored": // It stays as it is.
	case value == nil && rule.optional:
		r.wrong.add(path, "must not be null: leave it out")
	case value == nil:
		r.wrong.add(path, "is needed")
	case isPointer:
		to.Set(reflect.New(to.Type().Elem()))
		r.setValue(path, rule, value, to.Elem())
	default:
		r.setValue(path, rule, value, to)
	}
}

// setValue checks one value and keeps it if it is right.
func (r *reader) setValue(path string, rule rule, value any, to reflect.Value) {
	text, _ := value.(string)
	switch rule.kind {
	case "int", "money":
		r.integer(path, rule, value, to)
	case "bool":
		is, ok := value.(bool)
		if !ok {
			r.wrong.add(path, "must be true or false")
		}
		to.SetBool(is)
	case "time", "end":
		r.time(path, rule, text, to)
	case "duration":
		r.duration(path, rule, text, to)
	case "object":
		fields, ok := value.(map[string]any)
		if !ok {
			r.wrong.add(path, "must be an object")
			return
		}
		r.object(path+".", fields, to, inputs(to.Type()))
	case "list":
		r.list(path, rule, value, to)
	case "codes", "events":
		r.words(path, rule, value, to)
	case "map":
		r.texts(path, rule, value, to)
	default:
		to.SetString(r.text(path, rule, value))
	}
}

func (r *reader) integer(path string, rule rule, value any, to reflect.Value) {
	var digits string
	switch v := value.(type) {
	case json.Number:
		digits = v.String()
	case string:
		digits = r.typedInteger(rule, v)
	}

	n, err := strconv.ParseInt(digits, 10, 64)
	isValid := err == nil && strconv.FormatInt(n, 10) == digits && n >= rule.least && n <= rule.most
	if !isValid && r.source == fromForm && rule.kind == "money" { // Who types an amount knows no bounds of ours.
		r.wrong.add(path, "must be an amount in rupiah, such as 85.000")
		return
	}
	if !isValid {
		such := max(rule.least, min(20, rule.most))
		if rule.kind == "money" {
			such = 85000
		}

		r.wrong.add(path, "must be an integer from %d to %d, such as %s", rule.least, rule.most,
			r.example(path, strconv.FormatInt(such, 10)))
		return
	}
	to.SetInt(n)
}

// typedInteger returns the digits of an integer that is written as a text. A form takes what people type, and a query
// only plain digits. In JSON a text is not an integer.
func (r *reader) typedInteger(rule rule, text string) (digits string) {
	switch {
	case r.source == fromQuery:
		return text
	case r.source == fromForm && rule.kind == "money":
		return parseRupiah(text)
	case r.source == fromForm:
		return parseCount(text)
	default:
		return ""
	}
}

// example shows a valid value; in a query, with its parameter.
func (r *reader) example(path, value string) string {
	if r.source == fromQuery {
		return path + "=" + value
	}
	return value
}

func (r *reader) time(path string, rule rule, text string, to reflect.Value) {
	t, ok := parseTime(text, rule.kind == "end")
	if !ok {
		r.wrong.add(path, "must be an ISO 8601 date or time, such as %s", r.example(path, "2026-01-31"))
	}
	to.SetInt(cmp.Or(int64(t), 1)) // 0 means no bound, so the first moment of 1970 becomes 1.
}

func (r *reader) duration(path string, rule rule, text string, to reflect.Value) {
	d, err := time.ParseDuration(text)
	least := time.Duration(rule.least) * time.Minute
	most := time.Duration(rule.most) * time.Minute
	if err != nil || d < least || d > most {
		r.wrong.add(path, "must be %s to %s, in hours or minutes such as 2160h or 90m", least, most)
	}
	to.SetInt(int64(d))
}

// asMeant returns a text without what comes along when people copy it; in a form, a telephone number as it was meant.
func (r *reader) asMeant(kind, text string) string {
	text = withoutPaste(kind, text)
	if r.source == fromForm && (kind == "phone" || kind == "contact") {
		return typedPhone(text)
	}
	return text
}

// text reads a text. The result is empty if the text is refused.
func (r *reader) text(path string, rule rule, value any) string {
	text, isText := value.(string)
	text = r.asMeant(rule.kind, text)
	format, hasFormat := formats[rule.kind]
	length := int64(utf8.RuneCountInString(text))
	isForbidden := func(c rune) bool { return isForbiddenIn(rule.kind, c) }

	switch {
	case slices.Contains(rule.choices, text):
		return text
	case rule.choices != nil:
		r.wrong.add(path, "must be one of %s", strings.Join(rule.choices, ", "))
	case !isText || length < rule.least || length > rule.most:
		r.wrong.add(path, "must be a text of %d to %d characters", rule.least, rule.most)
	case strings.ContainsFunc(text, isForbidden):
		r.wrong.add(path, "must be UTF-8 without control characters or direction marks")
	case rule.kind == "text" && strings.ContainsFunc(text, isZeroWidth):
		r.wrong.add(path, "must not have invisible characters inside")
	case rule.kind != "lines" && isBlank(text):
		r.wrong.add(path, "must not be only spaces")
	case hasFormat && !format.valid(text):
		r.wrong.add(path, format.words)
	default:
		return text
	}
	return ""
}

// list fills a slice of structs. Empty rows of a form are not elements.
func (r *reader) list(path string, rule rule, value any, to reflect.Value) {
	values, isList := value.([]any)
	isTooLong := len(values) > int(rule.most)
	if isTooLong {
		values = nil
	}

	elements := reflect.MakeSlice(to.Type(), 0, len(values))
	isWithout := func(f input) bool { return slices.Contains(rule.without, f.name) }
	known := slices.DeleteFunc(slices.Clone(inputs(to.Type().Elem())), isWithout)
	seen := map[string]bool{}
	for i, value := range values {
		fields, isObject := value.(map[string]any)
		if r.source == fromForm && isEmptyRow(fields) {
			continue
		}

		at := fmt.Sprintf("%s[%d]", path, i)
		element := reflect.New(to.Type().Elem()).Elem()
		if isObject {
			r.object(at+".", fields, element, known)
			r.refuseTwice(at, known, element, seen)
		} else {
			r.wrong.add(at, "must be an object")
		}
		elements = reflect.Append(elements, element)
	}

	if !isList || isTooLong || elements.Len() < int(rule.least) {
		r.wrong.add(path, "must be a list of %d to %d entries", rule.least, rule.most)
	}
	to.Set(elements)
}

// refuseTwice refuses a value of a unique field that an earlier element of the list has. seen has the names and values
// so far.
func (r *reader) refuseTwice(path string, known []input, element reflect.Value, seen map[string]bool) {
	for _, f := range known {
		value := element.FieldByIndex(f.index)
		if !f.unique || value.IsZero() {
			continue
		}
		name := f.name + " " + value.String()
		if seen[name] {
			r.wrong.add(path+"."+f.name, "appears twice: %q", value.String())
		}
		seen[name] = true
	}
}

// wordRules are the rules of the texts in a list of texts.
var wordRules = map[string]rule{"codes": parseRule("code"), "events": parseRule("event")}

// words reads a list of texts. A form has them as boxes of one name, or as a text with spaces between.
func (r *reader) words(path string, rule rule, value any, to reflect.Value) {
	values, ok := value.([]any)
	if text, isText := value.(string); isText && r.source == fromForm {
		ok = true
		for word := range strings.FieldsSeq(text) {
			values = append(values, word)
		}
	}
	if !ok || len(values) > int(rule.most) {
		r.wrong.add(path, "must be a list of %d to %d entries", rule.least, rule.most)
		return
	}

	words := reflect.MakeSlice(to.Type(), len(values), len(values))
	for i, value := range values {
		words.Index(i).SetString(r.text(path, wordRules[rule.kind], value))
	}
	to.Set(words)
}

// isEmptyRow reports whether nothing was typed into a form's row.
func isEmptyRow(fields map[string]any) bool {
	for _, value := range fields {
		if value != "" {
			return false
		}
	}
	return true
}

// texts fills a map. In a body, a key with null is left out. In a patch, null is like an empty text, which removes the
// key.
func (r *reader) texts(path string, rule rule, value any, to reflect.Value) {
	fields, ok := value.(map[string]any)
	if !ok || len(fields) > int(rule.most) {
		r.wrong.add(path, "must be an object with at most %d keys", rule.most)
		return
	}

	texts := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := fields[key]
		switch {
		case !isMetadataKey(key):
			r.wrong.add(path+"."+key, "must have a name of 1 to 40 letters, digits, _ and -")
		case value == nil && r.source == fromBody:
		case value == nil && r.source == fromPatch:
			texts[key] = ""
		default:
			texts[key] = r.text(path+"."+key, mapText, value)
		}
	}
	to.Set(reflect.ValueOf(texts))
}

// isMetadataKey reports whether text can be a name in a map of texts.
var isMetadataKey = matcher(`^[A-Za-z0-9_-]{1,40}$`)

// mapText is the rule of the texts in a map.
var mapText = parseRule("lines 0..500")
