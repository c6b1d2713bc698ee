package main

// What clients, owners and operators send is read here, by one reader: JSON bodies (readJSON), forms
// (readForm) and query parameters (readQuery) fill a struct. A field with a `rule` tag is taken under the
// name of its json tag (or its own name in lower case, where json hides it); all other names are refused,
// except in forms. All wrong fields are reported at once, in one *Refusal.
//
// 	text 1..200    a text of one line with that many characters; not blank
// 	lines 0..1000  a text of several lines, which may be empty
// 	int 1..50      an integer; money is int 0..999999999999; int64 or *int64
// 	bool           true or false; in a form a checkbox, false when it is left out
// 	choice a|b     one of these texts
// 	slug code id   names of products and of payment methods; a UUID
// 	email phone contact host account url https origin
// 	time, end      an ISO 8601 time (Time) as a lower or an upper bound
// 	duration 1..60 a time.Duration such as 1h30m, of that many minutes
// 	object         a struct
// 	event          the name of an event
// 	list 1..100    a slice of structs; in a form a[0].name=…
// 	map 0..20      a map of texts with short names
//
// The rule may be followed by `optional` (it may be left out), `unique` (no two elements of the list share
// it), `=20` (its value when it is left out), `without=x` (elements of the list have no field x). A pointer
// may also be null. In a form an empty value is treated as left out, but is marked in Given. A field Given
// map[string]bool is set to the names that were given. A struct that is a checker checks what no single field
// can say.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const maxDepth = 16

// readJSON reads a body with one JSON object. It is stricter than encoding/json: the text must be UTF-8, end
// after the object, give no key twice and be nested at most 16 levels deep.
func readJSON(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	value, err := parseValue(decoder, 1)
	if _, refused := errors.AsType[*Refusal](err); refused {
		return err
	}

	_, end := decoder.Token()
	if err != nil || end != io.EOF || !utf8.Valid(body) {
		return refuse(InvalidRequest)
	}

	fields, ok := value.(map[string]any)
	if !ok {
		return &Refusal{Reason: ValidationFailed, Words: "The body must be a JSON object."}
	}
	return reader{}.read(fields, into)
}

// malformed refuses an input that cannot be understood.
func malformed(format string, values ...any) *Refusal {
	return &Refusal{Reason: InvalidRequest, Words: fmt.Sprintf(format, values...)}
}

// parseValue returns the next JSON value as a map, list, string, json.Number, bool or nil.
func parseValue(decoder *json.Decoder, depth int) (any, error) {
	token, err := decoder.Token()
	isObject := token == json.Delim('{')
	if !isObject && token != json.Delim('[') {
		return token, err
	}
	if depth > maxDepth {
		return nil, malformed("The JSON is nested deeper than %d levels.", maxDepth)
	}

	var list []any // for an object, its keys and values in turn
	for decoder.More() {
		value, err := parseValue(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}

	_, err = decoder.Token() // the closing brace or bracket
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

// checker is a struct that checks what no single field can say. path precedes the names of its fields, and
// given has those that were given.
type checker interface {
	check(wrong *Refusal, path string, given map[string]bool)
}

// readForm reads what a person has typed. Names such as items[0].slug are fields of lists.
func readForm(values url.Values, into any) error {
	fields := map[string]any{}
	for name := range values {
		value := strings.TrimSpace(invisible.ReplaceAllString(values.Get(name), ""))
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
	return reader{form: true}.read(fields, into)
}

// invisible matches what comes along with a text that a person types or pastes, such as a number from a
// phone's contacts: the \r of line breaks, and direction marks.
var invisible = regexp.MustCompile(`[\r\x{61c}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

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

	err = reader{query: true}.read(fields, into)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		wrong := refusal.Fields[0]
		return malformed("%s %s.", wrong.Field, wrong.Message())
	}
	return nil
}

// reader fills structs from decoded values and collects the wrong fields.
type reader struct {
	form, query bool     // it reads what a person typed, or query parameters: every value is a text
	wrong       *Refusal // the wrong fields so far
	malformed   *Refusal // refuses the input as a whole
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
	preset           int64  // the value of a field that is left out
	without          string // a field that the elements of a list do not have
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
	words := strings.Fields(tag)
	r := rule{
		kind:     words[0],
		least:    1,
		most:     formats[words[0]].most,
		optional: slices.Contains(words, "optional"),
		unique:   slices.Contains(words, "unique"),
	}

	switch r.kind {
	case "money":
		r.kind = "int"
		r.least = 0
		r.most = maxMoney
	case "event":
		for _, name := range EventNames {
			r.choices = append(r.choices, string(name))
		}
	case "choice":
		r.choices = strings.Split(words[1], "|")
	}

	for _, word := range words[1:] { // A word that matches no pattern changes nothing.
		fmt.Sscanf(word, "%d..%d", &r.least, &r.most)
		fmt.Sscanf(word, "=%d", &r.preset)
		fmt.Sscanf(word, "without=%s", &r.without)
	}
	return r
}

// object fills a struct.
func (r *reader) object(path string, fields map[string]any, to reflect.Value, known []input) {
	if !r.form {
		r.refuseUnknown(path, fields, known)
	}

	given := map[string]bool{}
	for _, f := range known {
		value, ok := fields[f.name]
		if r.form && f.kind == "bool" {
			value = ok && value != ""
			ok = true
		}

		given[f.name] = ok

		target := to.FieldByIndex(f.index)
		if !ok || r.form && value == "" {
			if f.preset != 0 {
				target.SetInt(f.preset)
			} else if !f.optional {
				r.wrong.add(path+f.name, "is needed")
			}
			continue
		}

		if target.Kind() == reflect.Pointer {
			if value == nil {
				continue
			}
			target.Set(reflect.New(target.Type().Elem()))
			target = target.Elem()
		}

		r.value(path+f.name, f.rule, value, target)
	}

	if field := to.FieldByName("Given"); field.IsValid() {
		field.Set(reflect.ValueOf(given))
	}
	if c, ok := to.Addr().Interface().(checker); ok {
		c.check(r.wrong, path, given)
	}
}

// refuseUnknown refuses the names that are not known. A known name in another case makes the input malformed,
// because many decoders would take it for the right one.
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

// value checks one value and keeps it if it is right.
func (r *reader) value(path string, rule rule, value any, to reflect.Value) {
	text, _ := value.(string)
	switch rule.kind {
	case "int":
		r.integer(path, rule, value, to)
	case "bool":
		is, ok := value.(bool)
		if !ok {
			r.wrong.add(path, "must be true or false")
		}
		to.SetBool(is)
	case "time", "end":
		t, ok := parseTime(text, rule.kind == "end")
		if !ok {
			r.wrong.add(path, "must be an ISO 8601 date or time, such as %s", r.example(path, "2026-01-31"))
		}
		to.SetInt(cmp.Or(int64(t), 1)) // The first moment of 1970 is a bound too, and 0 means no bound.
	case "duration":
		d, err := time.ParseDuration(text)
		least := time.Duration(rule.least) * time.Minute
		most := time.Duration(rule.most) * time.Minute
		if err != nil || d < least || d > most {
			r.wrong.add(path, "must be %s to %s", least, most)
		}
		to.SetInt(int64(d))
	case "object":
		fields, ok := value.(map[string]any)
		if !ok {
			r.wrong.add(path, "must be an object")
			return
		}
		r.object(path+".", fields, to, inputs(to.Type()))
	case "list":
		r.list(path, rule, value, to)
	case "map":
		r.texts(path, rule, value, to)
	default:
		to.SetString(r.text(path, rule, value))
	}
}

// example shows a valid value; in a query, with its parameter.
func (r *reader) example(path, value string) string {
	if r.query {
		return path + "=" + value
	}
	return value
}

func (r *reader) integer(path string, rule rule, value any, to reflect.Value) {
	digits, _ := value.(string)
	switch number, _ := value.(json.Number); {
	case r.form:
		digits = parseRupiah(digits)
	case !r.query:
		digits = number.String()
	}

	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != digits || n < rule.least || n > rule.most {
		such := max(rule.least, min(20, rule.most))
		if rule.most == maxMoney {
			such = 85000
		}

		r.wrong.add(path, "must be an integer from %d to %d, such as %s", rule.least, rule.most,
			r.example(path, strconv.FormatInt(such, 10)))
		return
	}
	to.SetInt(n)
}

// text reads a text. The result is empty if the text is refused.
func (r *reader) text(path string, rule rule, value any) string {
	text, ok := value.(string)
	if rule.kind == "id" {
		text = strings.ToLower(text)
	}

	format, isFormat := formats[rule.kind]
	length := int64(utf8.RuneCountInString(text))
	// Broken UTF-8 and control characters are forbidden, and so are those that change the direction of
	// writing: a name with one would reorder the text after it.
	isForbidden := func(c rune) bool {
		isBreak := rule.kind == "lines" && strings.ContainsRune("\r\n\t", c)
		return c == utf8.RuneError || !isBreak && unicode.In(c, unicode.Cc, unicode.Bidi_Control)
	}

	switch {
	case slices.Contains(rule.choices, text):
		return text
	case rule.choices != nil:
		r.wrong.add(path, "must be one of %s", strings.Join(rule.choices, ", "))
	case !ok || length < rule.least || length > rule.most:
		r.wrong.add(path, "must be a text of %d to %d characters", rule.least, rule.most)
	case strings.ContainsFunc(text, isForbidden):
		r.wrong.add(path, "must be UTF-8 without control characters or direction marks")
	case rule.kind != "lines" && strings.TrimSpace(text) == "":
		r.wrong.add(path, "must not be only spaces")
	case isFormat && !format.valid(text):
		r.wrong.add(path, format.words)
	default:
		return text
	}
	return ""
}

func (r *reader) list(path string, rule rule, value any, to reflect.Value) {
	values, ok := value.([]any)
	if len(values) > int(rule.most) {
		values = nil
		ok = false
	}

	elements := reflect.MakeSlice(to.Type(), 0, len(values))
	isWithout := func(f input) bool { return f.name == rule.without }
	known := slices.DeleteFunc(slices.Clone(inputs(to.Type().Elem())), isWithout)
	seen := map[string]bool{} // names and values of unique fields
	for i, value := range values {
		fields, isObject := value.(map[string]any)
		if r.form && isEmptyRow(fields) {
			continue
		}

		at := fmt.Sprintf("%s[%d]", path, i)
		element := reflect.New(to.Type().Elem()).Elem()
		if isObject {
			r.object(at+".", fields, element, known)
		} else {
			r.wrong.add(at, "must be an object")
		}

		for _, f := range known {
			value := element.FieldByIndex(f.index)
			if f.unique && !value.IsZero() {
				name := f.name + " " + value.String()
				if seen[name] {
					r.wrong.add(at+"."+f.name, "appears twice: %q", value.String())
				}
				seen[name] = true
			}
		}
		elements = reflect.Append(elements, element)
	}

	if !ok || elements.Len() < int(rule.least) {
		r.wrong.add(path, "must be a list of %d to %d entries", rule.least, rule.most)
	}
	to.Set(elements)
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

// isMetadataKey reports whether text can be a name in a map of texts.
var isMetadataKey = matcher(`^[A-Za-z0-9_-]{1,40}$`)

func (r *reader) texts(path string, rule rule, value any, to reflect.Value) {
	fields, ok := value.(map[string]any)
	if !ok || len(fields) > int(rule.most) {
		r.wrong.add(path, "must be an object with at most %d keys", rule.most)
		return
	}

	texts := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !isMetadataKey(key) {
			r.wrong.add(path+"."+key, "must have a name of 1 to 40 letters, digits, _ and -")
			continue
		}
		texts[key] = r.text(path+"."+key, parseRule("lines 0..500"), fields[key])
	}
	to.Set(reflect.ValueOf(texts))
}
