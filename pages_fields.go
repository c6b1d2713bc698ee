package main

// This file says how the forms of pages work: what their fields hold, and what is wrong with them. A form shows the
// present values, or what was typed if it was refused. It carries a digest of what each field showed. A field that was
// not changed is not written, so an older page undoes nothing.

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// form is a form of a page: the values of its fields, and why it was refused, if it was.
type form struct {
	Values  url.Values
	Refusal *Refusal
}

// Form returns the form of an act, filled in with the fields of its subject; without those, the subject is new. Without
// an act, it is the refused form.
func (p *page) Form(act string, about ...url.Values) form {
	if p.typed.Refusal != nil && (act == p.act || act == "") {
		return p.typed
	}
	values := url.Values{"enabled": {"on"}, "published": {"on"}, "shop": {"on"}}
	if len(about) > 0 {
		values = about[0]
	}
	return form{Values: values}
}

// field is a field of a form as its template shows it.
type field struct {
	Name, Kind, Label, Hint, Value string
	Required                       bool
	Error                          *FieldError
}

// Field returns a field with its value and what is wrong with it first.
func (f form) Field(name, kind string, required bool, label, hint string) field {
	shown := field{name, kind, label, hint, f.Values.Get(name), required, nil}
	if f.Refusal != nil {
		for _, e := range f.Refusal.Fields {
			if e.Field == name && shown.Error == nil {
				shown.Error = &e
			}
		}
	}
	return shown
}

// Ticks reports whether the box of a field that has this value is ticked.
func (f form) Ticks(name string, value any) bool {
	return slices.Contains(strings.Fields(strings.Join(f.Values[name], " ")), fmt.Sprint(value))
}

// Elsewhere returns the errors that no field shows.
func (f form) Elsewhere() []FieldError {
	return slices.DeleteFunc(slices.Clone(f.Refusal.Fields), func(e FieldError) bool { return f.Values.Has(e.Field) })
}

// Fields fills in the form of a struct: the inverse of readForm.
func (p *page) Fields(of any) url.Values {
	values := url.Values{}
	addValues(values, "", reflect.ValueOf(of))
	return values
}

func addValues(values url.Values, prefix string, v reflect.Value) {
	for _, in := range inputs(v.Type()) {
		field := reflect.Indirect(v.FieldByIndex(in.index))
		switch {
		case !field.IsValid(): // a nil pointer
		case in.kind == "codes" || in.kind == "events":
			values.Set(prefix+in.name, sortedWords(strings.Trim(fmt.Sprint(field), "[]")))
		case field.Kind() == reflect.Slice:
			for i := range field.Len() {
				addValues(values, fmt.Sprintf("%s[%d].", in.name, i), field.Index(i))
			}
		case field.Kind() != reflect.Bool:
			values.Set(prefix+in.name, fmt.Sprint(field))
		case field.Bool():
			values.Set(prefix+in.name, "on")
		}
	}
}

// Shown returns a digest of each field as the form shows it, which is sent along with the form.
func (f form) Shown() string {
	if f.Refusal != nil {
		return f.Values.Get("shown") // as the first page showed them
	}
	return digests(f.Values).Encode()
}

// readChanges reads the posted form, and marks the fields that it did not change as not given. now is what its fields
// would show by now; only a list needs it.
func (p *page) readChanges(into any, now url.Values) error {
	if err := readForm(p.PostForm, into); err != nil {
		return err
	}
	return p.keepUnchanged(reflect.ValueOf(into).Elem().Interface(), now)
}

// keepUnchanged marks the fields that the posted form did not change as not given. saved is the struct that the form
// was read into. A list that the form has changed is refused if somebody else has changed it too since the form was
// shown: one change would undo the other.
func (p *page) keepUnchanged(saved any, now url.Values) error {
	if !p.PostForm.Has("shown") {
		return nil
	}
	wrong := refuse(ValidationFailed)
	shown, _ := url.ParseQuery(p.PostFormValue("shown")) // What cannot be read counts as changed.
	typed := digests(p.PostForm)
	saves := digests(p.Fields(saved))
	there := digests(now)
	given := reflect.ValueOf(saved).FieldByName("Given").Interface().(map[string]bool)
	for _, in := range inputs(reflect.TypeOf(saved)) {
		name := in.name
		isList := in.kind == "list" || in.kind == "codes" || in.kind == "events"
		expected := []string{shown.Get(name), typed.Get(name), saves.Get(name)}
		switch {
		case !given[name]:
		case typed.Get(name) == shown.Get(name):
			given[name] = false
		case isList && !slices.Contains(expected, there.Get(name)):
			wrong.add(name, "was changed elsewhere since this page was opened: open it again, and change it there")
		}
	}
	return wrong.orNil()
}

// digests returns a digest of each field, or of all rows or boxes of a list, as they were typed. Empty ones have none.
func digests(values url.Values) url.Values {
	typed := map[string][]string{}
	for field := range values {
		text := strings.TrimSpace(strings.ReplaceAll(values.Get(field), "\r", ""))
		if len(values[field]) > 1 {
			text = sortedWords(strings.Join(values[field], " ")) // boxes that are ticked
		}
		if name, _, _ := strings.Cut(field, "["); text != "" {
			typed[name] = append(typed[name], field+"="+text)
		}
	}

	all := url.Values{}
	for name, texts := range typed {
		slices.Sort(texts)
		all.Set(name, base64.RawURLEncoding.EncodeToString(digest(strings.Join(texts, "\n"))[:6]))
	}
	return all
}

func sortedWords(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

// filledRows returns the prefixes of the filled-in rows of a list, such as "items[2].".
func filledRows(values url.Values, list string, most int) (rows []string) {
	for row := range most {
		name := fmt.Sprintf("%s[%d].", list, row)
		for field := range values {
			if strings.HasPrefix(field, name) && strings.TrimSpace(values.Get(field)) != "" {
				rows = append(rows, name)
				break
			}
		}
	}
	return rows
}

// Holds reports whether any of the fields has a value or an error. Then they are not folded away.
func (f form) Holds(names ...string) bool {
	for _, name := range names {
		if field := f.Field(name, "", false, "", ""); field.Value != "" || field.Error != nil {
			return true
		}
	}
	return false
}

// Rows returns the rows of a list in a form: all up to the last filled-in one, and two more, within the list's limit.
func (f form) Rows(list, name string, most int) (rows []int) {
	last := -1
	for row := range most {
		if f.Values.Get(fmt.Sprintf("%s[%d].%s", list, row, name)) != "" {
			last = row
		}
	}
	for row := range min(last+3, most) {
		rows = append(rows, row)
	}
	return rows
}
