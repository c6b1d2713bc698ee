package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// This file tests what the rules of inputs say, not a list of fields: what an owner or a program changes is kept, and
// what requests take is described. So a new field is tested too.

// another returns another value for an input of a struct than the one that it has.
func another(of reflect.Type, f input, was any) any {
	switch f.kind {
	case "list":
		row := fields{}
		of = of.FieldByIndex(f.index).Type.Elem()
		for _, column := range inputs(of) {
			row[column.name] = another(of, column, nil)
		}
		return []any{row}
	case "codes":
		return []any{"qris"}
	case "bool":
		return was != true && was != "on"
	case "int", "money":
		return json.Number(fmt.Sprint(f.most - 1))
	case "choice":
		return f.choices[(slices.Index(f.choices, fmt.Sprint(was))+1)%len(f.choices)]
	}
	formed := map[string]string{"url": "https://img.example.id/baru.jpg", "contact": "toko@example.id",
		"account": "987 654 3210", "slug": "baru", "lines 490": ownCodeText,
		"duration": "5h0m0s", "email": "baru@example.id"}
	for _, kind := range []string{f.kind, fmt.Sprint(f.kind, " ", f.most)} {
		if text := formed[kind]; text != "" {
			return text
		}
	}
	return "Baru: " + f.name
}

// isFixed reports whether an input does not change what it is about, or not under its own name.
func isFixed(f input) bool {
	return f.kind == "ignored" || slices.Contains(strings.Fields("id slug code provider kind stock_change"), f.name)
}

// entriesToKeep are some of the catalog that have all its fields.
var entriesToKeep = []struct {
	kind, key, name, form string
	of                    reflect.Type
}{
	{"product", "slug", "kopi", "/dashboard/catalog/product?slug=", reflect.TypeFor[Entry]()},
	{"bundle", "slug", "duo", "/dashboard/catalog/bundle?slug=", reflect.TypeFor[Entry]()},
	{"payment_method", "code", "bank_transfer", "/dashboard/payments/method?code=", reflect.TypeFor[Method]()},
	{"payment_method", "code", "kode", "/dashboard/payments/method?code=", reflect.TypeFor[Method]()},
	{"payment_method", "code", "snap", "/dashboard/payments/method?code=", reflect.TypeFor[Method]()},
	{"payment_method", "code", "link", "/dashboard/payments/method?code=", reflect.TypeFor[Method]()},
}

// seenInputs has the inputs that a test has changed, after the names of their structs.
type seenInputs map[string]bool

// wantAll reports the inputs of a struct that were not changed.
func (s seenInputs) wantAll(t *testing.T, of reflect.Type, where string) {
	t.Helper()
	for _, f := range inputs(of) {
		if !isFixed(f) && !s[of.Name()+f.name] {
			t.Errorf("%s does not show the field %s of %s", where, f.name, of)
		}
	}
}

// TestCatalogIsKept changes each field of entries by PUT /v1/catalog and nothing else, creates others like them, and
// reads all of that.
func TestCatalogIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manage := as(w.shop.keys["manage"])
	seen := seenInputs{}
	read := func(kind, key, name string) fields {
		all := w.get(t, "/v1/catalog?limit=500&type="+kind, manage...).list(kind + "s")
		e := all[slices.IndexFunc(all, func(e fields) bool { return e[key] == name })]
		delete(e, "created_at")
		delete(e, "updated_at")
		return e
	}
	put := func(kind string, e fields, result string) {
		t.Helper()
		w.putCatalog(fields{kind + "s": []any{e}}).has(t, "entries.0.result "+result)
	}
	put("product", fields{"slug": "baru", "title": "baru", "price": 1}, "created")

	for _, kept := range entriesToKeep {
		e := read(kept.kind, kept.key, kept.name)
		for _, f := range inputs(kept.of) {
			was, isShown := e[f.name]
			if !isShown || isFixed(f) {
				continue
			}
			seen[kept.of.Name()+f.name] = true
			e[f.name] = another(kept.of, f, was)
			put(kept.kind, e, "changed")
			if got := read(kept.kind, kept.key, kept.name); fmt.Sprint(got) != fmt.Sprint(e) {
				t.Errorf("with another %s, %s is\n%v, not\n%v", f.name, kept.name, got, e)
				e = got
			}
		}

		e[kept.key] = "new-" + kept.name
		delete(e, "id")
		put(kept.kind, e, "created")
		got := read(kept.kind, kept.key, "new-"+kept.name)
		delete(got, "id")
		if fmt.Sprint(got) != fmt.Sprint(e) {
			t.Errorf("a new entry is\n%v, not\n%v", got, e)
		}
	}
	seen.wantAll(t, reflect.TypeFor[Entry](), "GET /v1/catalog")
	seen.wantAll(t, reflect.TypeFor[Method](), "GET /v1/catalog")
	// Programs that sell read all these fields too, and each has to be described there.
	const forSale = `{"products":[{"slug":"new-kopi","title":"Kopi","price":5,"published":true}]}`
	w.do(t, "PUT", "/v1/catalog", forSale, manage...)
	w.get(t, "/v1/products?slug=new-kopi")

	options := another(reflect.TypeFor[shippingForm](), inputs(reflect.TypeFor[shippingForm]())[0], nil)
	w.putCatalog(fields{"shipping_options": options}).want(t, 200, "")
	delete(options.([]any)[0].(fields), "position") // It sorts the list, and is not kept.
	if got := w.get(t, "/v1/store", manage...).at("store.shipping_options"); got != fmt.Sprint(options) {
		t.Errorf("the shipping options are\n%s, not\n%v", got, options)
	}
}

// TestFormsAreKept changes each field of the forms of the catalog and the settings and nothing else, and opens the form
// again.
func TestFormsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	p.who = p.people["owner"]
	const product = `{"products":[{"slug":"baru","title":"baru","price":1}]}`
	w.command("catalog import -store "+w.shop.id, w.temporary(product))
	seen := seenInputs{}
	open := func(address string) url.Values {
		p.open(address, nil)
		values := maps.Clone(p.who.page.find("save", "").form.values)
		for _, name := range strings.Fields("shown stock_shown token") {
			delete(values, name)
		}
		for name, texts := range values {
			values.Set(name, strings.Join(strings.Fields(strings.Join(texts, " ")), " "))
		}
		return values
	}
	keeps := func(address string, of reflect.Type) {
		for _, f := range inputs(of) {
			want := open(address)
			typed := typedAs(f.name, another(of, f, want.Get(f.name)))
			delete(typed, "options[0].position") // It sorts the list, and is not kept.
			for name := range typed {
				if !want.Has(name) || isFixed(f) {
					typed = nil
				}
			}
			if typed == nil {
				continue
			}
			seen[of.Name()+f.name] = true
			var words []string
			for name, text := range typed {
				words = append(words, name+"="+text)
				want.Set(name, text)
			}
			p.press("save", words)
			p.wantNoRefusal()
			got := open(address)
			for name := range want {
				if got.Get(name) != want.Get(name) {
					t.Errorf("with another %s, %s shows %s as %q, not %q", f.name, address, name, got[name], want[name])
				}
			}
		}
	}

	for _, kept := range entriesToKeep {
		keeps(kept.form+kept.name, kept.of)
	}
	for address, of := range map[string]reflect.Type{
		"/dashboard/account":  reflect.TypeFor[settings](),
		"/dashboard/shop":     reflect.TypeFor[shopSettings](),
		"/dashboard/shipping": reflect.TypeFor[shippingForm](),
	} {
		keeps(address, of)
		seen.wantAll(t, of, address)
	}
	seen.wantAll(t, reflect.TypeFor[Entry](), "the form of an entry")
	seen["Methodqris"], seen["Methodimage_url"] = true, true // These two have forms of their own.
	seen.wantAll(t, reflect.TypeFor[Method](), "the form of a method")
}

// TestStoreSet gives the flags of "store set" one by one, and looks for each in the store that is printed. Some are not
// printed as they are given, and have stories.
func TestStoreSet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, flags, _ := w.run("store set -h")
		for _, f := range inputs(reflect.TypeFor[textFlags]()) {
			if strings.Contains(flags, " -"+f.name+" ") &&
				!strings.Contains("store plan domain test shop-hold", f.name) {
				value := fmt.Sprint(another(nil, f, "id"))
				printed := fmt.Sprint(w.run("store set -store "+w.shop.id, "-"+f.name, value))
				if !strings.Contains(printed, value) {
					t.Error(f.name, printed)
				}
			}
		}
	})
}

// typedAs writes a value into the fields of a form.
func typedAs(name string, value any) map[string]string {
	switch v := value.(type) {
	case bool:
		return map[string]string{name: map[bool]string{true: "on"}[v]}
	case []any:
		row, isRow := v[0].(fields)
		if !isRow {
			return typedAs(name, v[0])
		}
		typed := map[string]string{}
		for column, value := range row {
			maps.Copy(typed, typedAs(name+"[0]."+column, value))
		}
		return typed
	default:
		return map[string]string{name: fmt.Sprint(value)}
	}
}

// TestInputsAreDescribed compares the fields of requests' bodies and queries with those that openapi.json describes.
func TestInputsAreDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	read := map[string]reflect.Type{
		"CatalogFile": reflect.TypeFor[Catalog](),
		"NewOrder":    reflect.TypeFor[NewOrder](),
		"OrderEdit":   reflect.TypeFor[OrderEdit](),
		"OwnerAct":    reflect.TypeFor[OwnerAct](),
		"Shipment":    reflect.TypeFor[Shipment](),
		"NewWebhook":  reflect.TypeFor[NewEndpoint](),
		"Nothing":     reflect.TypeFor[struct{}](),
	}
	d := &contract{root: described().root}
	for path, methods := range d.root["paths"].(fields) {
		for method, o := range methods.(fields) {
			operation, name := asFields(o), ""
			if schema := bodySchema(asFields(operation["requestBody"])); schema != nil {
				d.deref(schema, &name)
				d.wantInputs(t, name, schema, read[name], nil)
			}
			var names []string
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				if parameter := d.deref(p, &name); parameter["in"] == "query" {
					names = append(names, textOf(parameter, "name"))
				}
			}
			refused := w.do(t, strings.ToUpper(method), path+"?x=1", nil, as(w.shop.keys["manage"])...).Error.Message
			_, taken, _ := strings.Cut(strings.TrimSuffix(refused, "."), "this path takes ")
			takes := strings.Split(taken, ", ")
			slices.Sort(takes)
			slices.Sort(names)
			want := cmp.Or(strings.Join(names, ", "), "none")
			if got := strings.Join(takes, ", "); got != want && path != descriptionPath {
				t.Errorf("%s %s takes %s, and %s is described", method, path, got, want)
			}
		}
	}
}

// wantInputs compares a schema with the inputs of a struct, but for some.
func (c *contract) wantInputs(t *testing.T, at string, schema any, of reflect.Type, without []string) {
	s := c.deref(schema, &at)
	left := maps.Clone(asFields(s["properties"]))
	required, _ := s["required"].([]any)
	for _, f := range inputs(of) {
		if slices.Contains(without, f.name) {
			continue
		}
		if left[f.name] == nil {
			t.Errorf("%s does not have %s", at, f.name)
			continue
		}
		c.wantRule(t, at+"."+f.name, left[f.name], f, of.FieldByIndex(f.index).Type)
		isRequired := slices.Contains(required, any(f.name))
		if isRequired == (f.optional || f.preset > 0) && at != "CatalogBundle" { // whose items a form may leave out
			t.Errorf("%s.%s is described as required: %v", at, f.name, isRequired)
		}
		delete(left, f.name)
	}
	for name := range left {
		t.Errorf("%s.%s is not taken", at, name)
	}
}

// wantRule compares a schema with the rule of an input: its type and bounds, of a text only the upper one.
func (c *contract) wantRule(t *testing.T, at string, schema any, f input, of reflect.Type) {
	s := c.deref(schema, new(string))
	if choices, ok := s["oneOf"].([]any); ok { // The other one is null.
		s = c.deref(choices[0], new(string))
	}
	bound := func(name string) int64 {
		n, _ := s[name].(float64)
		return int64(n)
	}
	kind, want, got := "string", "", ""
	switch f.kind {
	case "ignored":
		return
	case "object":
		kind = "object"
		c.wantInputs(t, at, schema, of, nil)
	case "list":
		c.wantInputs(t, at, s["items"], of.Elem(), f.without)
		kind, want, got = "array", fmt.Sprint(f.least, f.most), fmt.Sprint(bound("minItems"), bound("maxItems"))
		if f.most > 2000 { // A file may have more.
			want = fmt.Sprint(0, 2000)
		}
	case "codes", "events":
		kind, want, got = "array", fmt.Sprint(f.most), fmt.Sprint(bound("maxItems"))
	case "map":
		kind, want, got = "object", fmt.Sprint(f.most), fmt.Sprint(bound("maxProperties"))
	case "int", "money":
		kind, want, got = "integer", fmt.Sprint(f.least, f.most), fmt.Sprint(bound("minimum"), bound("maximum"))
	case "bool":
		kind = "boolean"
	case "choice":
		words, _ := s["enum"].([]any)
		want, got = fmt.Sprint(f.choices), fmt.Sprint(words)
	case "id":
		want, got = "uuid", textOf(s, "format")
	default:
		want, got = fmt.Sprint(f.most), fmt.Sprint(bound("maxLength"))
	}
	if want != got || s["type"] != kind {
		t.Errorf("%s is %s %s, and takes %s %s", at, s["type"], got, kind, want)
	}
}
