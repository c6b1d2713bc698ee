package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// contract is openapi.json as the tests read it. It checks by itself, so that they need no other module.
type contract struct {
	root fields

	mu       sync.Mutex
	seen     map[string]bool // the answers, codes, fields and words that were
	patterns sync.Map        // compiled, by their text
}

var described = sync.OnceValue(func() *contract {
	c := &contract{seen: map[string]bool{}}
	file, err := os.ReadFile("openapi.json")
	if err == nil {
		err = json.Unmarshal(file, &c.root)
	}
	if err != nil {
		panic(err)
	}
	return c
})

// deref follows references, and sets the name to what they lead to.
func (c *contract) deref(v any, name *string) fields {
	o, _ := v.(fields)
	for o["$ref"] != nil {
		path := strings.Split(strings.TrimPrefix(o["$ref"].(string), "#/"), "/")
		*name = path[len(path)-1]
		o = c.root
		for _, step := range path {
			o, _ = o[step].(fields)
		}
	}
	return o
}

var pathParameter = regexp.MustCompile(`\{\w+\}`)

func (c *contract) matches(pattern, text string) bool {
	compiled, known := c.patterns.Load(pattern)
	if !known {
		compiled = regexp.MustCompile(pattern)
		c.patterns.Store(pattern, compiled)
	}
	return compiled.(*regexp.Regexp).MatchString(text)
}

// operation is what is described of a method and a path, whose parameters have any value.
func (c *contract) operation(method, path string) (operation fields, template string) {
	path, _, _ = strings.Cut(path, "?")
	if method == "HEAD" {
		method = "GET"
	}
	for template, methods := range c.root["paths"].(fields) {
		if c.matches("^"+pathParameter.ReplaceAllString(template, "[^/]+")+"$", path) {
			operation, _ = methods.(fields)[strings.ToLower(method)].(fields)
			return operation, template
		}
	}
	return nil, ""
}

// check returns what of an answer is not as described, or nothing.
func (c *contract) check(method, path string, status int, header http.Header, body any) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	operation, template := c.operation(method, path)
	responses, name := operation["responses"], method+" "+template+" "+strconv.Itoa(status)
	if operation == nil {
		responses = c.root["x-router-responses"]
	}
	response := c.deref(responses.(fields)[strconv.Itoa(status)], &name)
	switch {
	case response == nil && operation == nil:
		return "openapi.json has no such path with this method"
	case response == nil:
		return "the status is not described"
	}
	c.seen[name] = true

	for field, h := range asFields(response["headers"]) {
		described, given := c.deref(h, new(string)), header.Get(field)
		if described["required"] == true && given == "" {
			return "the header " + field + " is missing"
		}
		pattern, _ := asFields(described["schema"])["pattern"].(string)
		if given != "" && !c.matches(pattern, given) {
			return fmt.Sprintf("the header %s is %q, which does not match %s", field, given, pattern)
		}
	}
	if failure, ok := asFields(body)["error"].(fields); ok {
		codes, _ := response["x-error-codes"].([]any)
		if !slices.Contains(codes, failure["code"]) {
			return fmt.Sprintf("the code %v is not described", failure["code"])
		}
		c.seen[fmt.Sprint(name, " ", failure["code"])] = true
	}
	if schema := bodySchema(response); schema != nil && body != nil && template != descriptionPath {
		return c.fault(schema, body, name)
	}
	return ""
}

// webhook returns what of an event is not as its webhook is described, or nothing.
func (c *contract) webhook(event fields) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := textOf(event, "event")
	post := asFields(asFields(asFields(c.root["webhooks"])[name])["post"])
	if fault := c.fault(schemas(c.root)["KnownEvent"], event, name); fault != "" || post == nil {
		return name + " is no webhook: " + fault
	}
	return c.fault(bodySchema(asFields(post["requestBody"])), event, name)
}

// schemas are the types that a description names.
func schemas(description fields) fields {
	return asFields(asFields(description["components"])["schemas"])
}

// descriptionPath is the path of the description, of whose fields it lists only some.
const descriptionPath = "/v1/openapi.json"

// TestDescription reads the description as it is served to anyone.
func TestDescription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	served := w.get(t, "/v1/openapi.json", "Authorization", "")
	file, err := os.ReadFile("openapi.json")
	must(t, err)
	file = bytes.Replace(file, []byte("http://localhost:8080"), []byte("https://shop.test"), 1)
	if !bytes.Equal(served.Body, file) {
		t.Errorf("%d bytes that are not openapi.json with the service's address", len(served.Body))
	}

	source, err := os.ReadFile("handlers.go")
	must(t, err)
	paths := asFields(described().root["paths"])
	for _, route := range regexp.MustCompile(`\(s, mux, "(\w+) (.+?)"`).FindAllStringSubmatch(string(source), -1) {
		if asFields(paths[route[2]])[strings.ToLower(route[1])] == nil {
			t.Errorf("openapi.json has no %s %s", route[1], route[2])
		}
	}
}

// TestExamples compares each example of the description with the type that stands beside it.
func TestExamples(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("openapi.json")
	must(t, err)
	c := &contract{root: described().root, seen: map[string]bool{}}
	examples := 0
	check := func(schema, example any, at string) {
		examples++
		if fault := c.fault(schema, example, "it"); fault != "" {
			t.Errorf("the example at %s: %s", at, fault)
		}
	}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		o := asFields(v)
		if example, ok := o["example"]; ok && o["schema"] != nil {
			check(o["schema"], example, at)
		}
		for name, example := range asFields(o["examples"]) {
			check(o["schema"], asFields(example)["value"], at+"/"+name)
		}
		for name, field := range o {
			walk(field, at+"/"+name)
		}
		list, _ := v.([]any)
		for i, element := range list {
			walk(element, fmt.Sprint(at, "/", i))
		}
	}
	walk(readJSONText(string(file)), "")
	if examples < 100 {
		t.Errorf("there are %d examples", examples)
	}
}

// TestEventNames compares the names of events in the description, which has them in five places, with the program's.
func TestEventNames(t *testing.T) {
	t.Parallel()
	root := described().root
	w := newWorld(t)
	_, _, said := w.run("webhook add -url https://a.example/ -events none -store " + w.shop.id)
	known := regexp.MustCompile(`ping|order[A-Z]\w+`).FindAllString(said, -1)
	sorted := func(names any) string {
		text := strings.NewReplacer("[", "", "]", "").Replace(fmt.Sprint(names))
		return strings.Join(slices.Sorted(strings.FieldsSeq(text)), " ")
	}
	parameters := asFields(asFields(asFields(root["paths"])["/v1/events"])["get"])["parameters"].([]any)
	event := slices.IndexFunc(parameters, func(p any) bool { return asFields(p)["name"] == "event" })
	mapping := asFields(asFields(asFields(schemas(root)["KnownEvent"])["discriminator"])["mapping"])
	toAdd := asFields(asFields(asFields(schemas(root)["NewWebhook"])["properties"])["events"])
	for place, names := range map[string]any{
		"the query":  asFields(asFields(parameters[event])["schema"])["enum"],
		"webhooks":   slices.Collect(maps.Keys(asFields(root["webhooks"]))),
		"KnownEvent": slices.Collect(maps.Keys(mapping)),
		"NewWebhook": asFields(toAdd["items"])["enum"],
		"EventName":  asFields(schemas(root)["EventName"])["x-extensible-enum"],
	} {
		if got := sorted(names); len(known) < 10 || got != sorted(known) {
			t.Errorf("%s has %s, not %s", place, got, sorted(known))
		}
	}
}

func asFields(v any) fields {
	o, _ := v.(fields)
	return o
}

// bodySchema is the schema of a request's or an answer's body; nil if it has none.
func bodySchema(of fields) any {
	return asFields(asFields(of["content"])["application/json"])["schema"]
}

// fault returns what is wrong with a value by a schema, or nothing. The value was decoded with UseNumber.
func (c *contract) fault(schema, value any, at string) string {
	s := c.deref(schema, &at)
	if choices, ok := s["oneOf"].([]any); ok {
		fits := func(choice any) bool { return c.fault(choice, value, at) == "" }
		if !slices.ContainsFunc(choices, fits) {
			return at + " is none of its choices"
		}
		return ""
	}
	kind, size, of := typeOf(value)
	if want := s["type"]; want != nil && !strings.Contains(fmt.Sprint(want), kind) {
		return fmt.Sprintf("%s is %v, no %v", at, value, want)
	}
	if constant, ok := s["const"]; ok && fmt.Sprint(constant) != fmt.Sprint(value) {
		return fmt.Sprintf("%s is %v, not %v", at, value, constant)
	}
	for _, words := range []any{s["enum"], s["x-extensible-enum"]} {
		list, ok := words.([]any)
		if ok && !slices.Contains(list, value) {
			return fmt.Sprintf("%s is %v, not one of %v", at, value, list)
		}
		if ok {
			c.seen[fmt.Sprint(at, "=", value)] = true
		}
	}
	pattern, ok := s["pattern"].(string)
	if ok && !c.matches(pattern, fmt.Sprint(value)) {
		return fmt.Sprintf("%s is %q, which does not match %s", at, value, pattern)
	}
	if least, ok := s["min"+of].(float64); ok && size < int64(least) {
		return fmt.Sprintf("%s is %.40v: less than min%s", at, value, of)
	}
	if most, ok := s["max"+of].(float64); ok && size > int64(most) {
		return fmt.Sprintf("%s is %.40v: more than max%s", at, value, of)
	}

	if list, ok := value.([]any); ok {
		for _, element := range list {
			if fault := c.fault(s["items"], element, at+"[]"); fault != "" {
				return fault
			}
		}
	}
	return c.fieldsFault(s, asFields(value), at)
}

func (c *contract) fieldsFault(s, value fields, at string) string {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, there := value[name.(string)]; !there && value != nil {
			return fmt.Sprintf("%s lacks %s", at, name)
		}
	}
	properties := asFields(s["properties"])
	for name, field := range value {
		sub, known := properties[name]
		c.seen[at+"."+name] = known
		if !known {
			sub = s["additionalProperties"]
		}
		if !known && (sub == nil && properties != nil || sub == false) {
			return at + " has the field " + name + ", which is not described"
		}
		if names, ok := s["propertyNames"]; ok {
			if fault := c.fault(names, name, at+"'s name"); fault != "" {
				return fault
			}
		}
		if fault := c.fault(sub, field, at+"."+name); fault != "" {
			return fault
		}
	}
	return ""
}

// typeOf is the type of a value, and its size with the word that its bounds have after min and max.
func typeOf(value any) (kind string, size int64, of string) {
	switch v := value.(type) {
	case string:
		return "string", int64(utf8.RuneCountInString(v)), "Length"
	case []any:
		return "array", int64(len(v)), "Items"
	case fields:
		return "object", int64(len(v)), "Properties"
	case json.Number:
		n, err := v.Int64()
		if err == nil {
			return "integer", n, "imum"
		}
	case bool:
		return "boolean", 0, ""
	case nil:
		return "null", 0, ""
	}
	return "number", 0, ""
}

// unseen lists what is described of answers, and was in none.
func (c *contract) unseen() (list []string) {
	described := map[string]bool{}
	for template, methods := range c.root["paths"].(fields) {
		for method, operation := range methods.(fields) {
			for status, r := range operation.(fields)["responses"].(fields) {
				name := strings.ToUpper(method) + " " + template + " " + status
				response := c.deref(r, &name)
				described[name] = true
				codes, _ := response["x-error-codes"].([]any)
				for _, code := range codes {
					described[fmt.Sprint(name, " ", code)] = true
				}
				if template != descriptionPath {
					c.list(bodySchema(response), name, described)
				}
			}
		}
	}
	for name := range described {
		if c.seen[name] {
			delete(described, name)
		}
	}
	return slices.Sorted(maps.Keys(described))
}

// list adds the fields and words of a schema.
func (c *contract) list(schema any, at string, all map[string]bool) {
	s := c.deref(schema, &at)
	words, _ := s["x-extensible-enum"].([]any)
	for _, word := range words {
		all[fmt.Sprint(at, "=", word)] = true
	}
	for name, field := range asFields(s["properties"]) {
		all[at+"."+name] = true
		c.list(field, at+"."+name, all)
	}
	if s["items"] != nil {
		c.list(s["items"], at+"[]", all)
	}
	choices, _ := s["oneOf"].([]any)
	for _, choice := range choices {
		c.list(choice, at, all)
	}
}

// random makes requests of the description: right ones, and others with a mistake.
type random struct {
	*rand.Rand
	*contract
	ids    []string            // of products, orders and nothing
	named  map[string][]string // the ids that a path can have, by its parameter
	sold   map[string][]string // the ids of what is for sale, by kind
	slugs  map[string][]string // its slugs
	events []string
	made   int // texts that have to differ
}

func pick[T any](r *random, list []T) T { return list[r.IntN(len(list))] }

func (r *random) chance(percent int) bool { return r.IntN(100) < percent }

// samples are texts that match the description's patterns. A pattern that is not listed is an error of the test.
var samples = map[string][]string{
	`\S`:                              {"Siti", "bank_transfer", "qris", "Kopi é", "x"},
	`^([ ()+-]*[0-9]){6,20}[ ()+-]*$`: {"081234", "+62 (812) 345-6789"},
	`^[A-Za-z0-9_-]{1,40}$`:           {"channel", "Cart_7-b", strings.Repeat("k", 40)},
	`^[a-z0-9]+(-[a-z0-9]+)*$`:        {"baru-1", "baru-2", "x"},
	`^[a-z0-9]+([_-][a-z0-9]+)*$`:     {"tunai", "va-bca", "va_bni"},
	`^[0-9]+([ .-]?[0-9])*$`:          {"1234567890", "123 456 7890"},
	`^[hH][tT][tT][pP][sS]?://`:       {"https://img.example.id/a.jpg", "http://a.id/"},
	`^https://`:                       {"https://img.example.id/qris.png"},
}

// value returns a value that a schema allows.
func (r *random) value(schema any) any {
	s := r.deref(schema, new(string))
	if choices, ok := s["oneOf"].([]any); ok {
		return r.value(pick(r, choices))
	}
	if enum, ok := s["enum"].([]any); ok {
		return pick(r, enum)
	}
	switch s["type"] {
	case "object":
		return r.object(s)
	case "array":
		least, _ := s["minItems"].(float64)
		list := []any{}
		for range int(least) + pick(r, []int{0, 0, 1, 2}) {
			list = append(list, r.value(s["items"]))
		}
		return list
	case "string":
		return r.text(s)
	case "integer":
		return r.integer(s)
	case "boolean":
		return r.chance(50)
	}
	return nil
}

func (r *random) object(s fields) fields {
	made := fields{}
	required, _ := s["required"].([]any)
	properties := asFields(s["properties"])
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) || r.chance(40) {
			made[name] = r.value(properties[name])
		}
	}
	if names, ok := s["propertyNames"]; ok {
		for range r.IntN(4) {
			made[r.value(names).(string)] = r.value(s["additionalProperties"])
		}
	}

	// The description's narrower rules: an item has one name, and a buyer can be reached.
	if kind, ok := made["type"].(string); ok && properties["bundle_id"] != nil {
		delete(made, "product_id")
		delete(made, "bundle_id")
		if delete(made, "slug"); r.chance(30) {
			made["slug"] = pick(r, slices.Concat(r.slugs[kind], []string{"x"}))
		} else {
			made[kind+"_id"] = pick(r, slices.Concat(r.sold[kind], r.sold[kind], r.ids[:1]))
		}
	}
	if made["stock_change"] != nil {
		delete(made, "stock")
	}
	if properties["payment_method"] != nil && r.chance(80) {
		made["payment_method"] = "bank_transfer"
	}
	if properties["phone"] != nil && len(made) < 2 {
		made["phone"] = r.value(properties["phone"])
	}
	return made
}

func (r *random) text(s fields) string {
	most, limited := s["maxLength"].(float64)
	pattern, ok := s["pattern"].(string)
	switch {
	case s["format"] == "uuid":
		return pick(r, r.ids)
	case s["format"] == "email":
		return "siti@example.id"
	case s["format"] == "uri": // A webhook's host has no other, because each endpoint has a secret of its own.
		r.made++
		return fmt.Sprintf("https://shop%d.example.id/thanks", r.made)
	case strings.HasPrefix(pattern, "^evt_"):
		return pick(r, r.events)
	case limited && (!ok || pattern == `\S`) && r.chance(10):
		return strings.Repeat("é", int(most))
	case ok && samples[pattern] == nil:
		panic("no samples of " + pattern)
	case ok:
		return pick(r, samples[pattern])
	}
	r.made++
	return fmt.Sprint("text ", r.made)
}

func (r *random) integer(s fields) json.Number {
	least, _ := s["minimum"].(float64)
	most, limited := s["maximum"].(float64)
	if r.chance(80) || !limited {
		return json.Number(fmt.Sprint(max(int64(least), -5) + int64(r.IntN(20))))
	}
	return json.Number(fmt.Sprint(int64(pick(r, []float64{least, most}))))
}

// mistakes are values that hardly any field takes.
var mistakes = []any{
	nil, true, "", " ", "\x00", "a\u202eb", "\ufffd", json.Number("-1"), json.Number("1.5"), json.Number("1e3"),
	json.Number("1e400"), json.Number("99999999999999999999"), []any{}, fields{}, strings.Repeat("a", 11_000),
	"x'; DROP TABLE orders --",
}

// spoil puts a mistake somewhere into a value.
func (r *random) spoil(v any) any {
	switch v := v.(type) {
	case fields:
		names := slices.Sorted(maps.Keys(v))
		switch {
		case len(names) == 0 || r.chance(20):
			v[pick(r, []string{"price", "x", "", "__proto__", "Items"})] = pick(r, mistakes)
		case r.chance(20):
			delete(v, pick(r, names))
		default:
			name := pick(r, names)
			v[name] = r.spoil(v[name])
		}
		return v
	case []any:
		if len(v) == 0 || r.chance(30) {
			return append(v, pick(r, mistakes))
		}
		i := r.IntN(len(v))
		v[i] = r.spoil(v[i])
		return v
	}
	return pick(r, mistakes)
}

// body writes a request's body: right, with a mistake in it, or no JSON.
func (r *random) body(schema any) string {
	value := r.value(schema)
	if r.chance(40) {
		value = r.spoil(value)
	}
	encoded, _ := json.Marshal(value)
	text := string(encoded)
	switch r.IntN(30) {
	case 0:
		return text[:r.IntN(len(text))]
	case 1:
		return text + pick(r, []string{"}", "{}", "\x00", "//"})
	case 2:
		return strings.Replace(text, "{", `{"items":1,"items":2,`, 1)
	case 3:
		return strings.Repeat("[", 40) + strings.Repeat("]", 40)
	case 4:
		return pick(r, []string{"\xef\xbb\xbf", "\xff"}) + text
	}
	return text
}

// query writes parameters that a request takes, and sometimes a mistake.
func (r *random) query(parameters any) string {
	values := url.Values{}
	list, _ := parameters.([]any)
	for _, p := range list {
		parameter := r.deref(p, new(string))
		name := textOf(parameter, "name")
		switch {
		case parameter["in"] != "query" || !r.chance(30):
		case r.chance(15):
			wrong := []string{"", "x", "-1", "1e3", "\x00", "\xff", "999999999999999", strings.Repeat("a", 300)}
			values.Set(name, pick(r, wrong))
		case strings.HasPrefix(name, "created_at"):
			times := []string{"2026-01-31", "2026-01-31T10:00:00+07:00", "2099-01-01T00:00Z", "2026-02-30"}
			values.Set(name, pick(r, times))
		default:
			values.Set(name, fmt.Sprint(r.value(parameter["schema"])))
		}
	}
	if r.chance(5) {
		values.Add(pick(r, []string{"limit", "page", "a"}), "1")
	}
	if text := values.Encode() + pick(r, strings.Split(strings.Repeat(",", 50)+"&%zz", ",")); text != "" {
		return "?" + text
	}
	return ""
}

// TestRandomRequests sends requests that are made of the description, right and wrong ones. Every answer is as
// described, none is a failure of the service, and what is accepted is what the description allows.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &random{Rand: rand.New(rand.NewPCG(1, 2)), contract: described()}
	w.command("catalog import -store "+w.shop.id, w.temporary(`{"products":[
		{"slug":"kopi","title":"Kopi","price":5,"stock":null},{"slug":"teh","title":"Teh","price":5}]}`))
	r.ids = []string{"0190f5a0-0000-7000-8000-000000000001", w.create(t, "teh", 1)}
	for range 5 {
		r.ids = append(r.ids, w.create(t, "teh", 1))
	}
	r.named = map[string][]string{"{order_id}": slices.Clone(r.ids[1:])}
	r.ids = append(r.ids, slices.Sorted(maps.Values(w.shop.ids))...)
	for _, e := range w.get(t, "/v1/events").list("events") {
		r.events = append(r.events, textOf(e, "id"))
	}
	ids := w.shop.ids
	r.sold = map[string][]string{"product": {ids["kopi"], ids["teh"]}, "bundle": {ids["duo"]}}
	r.slugs = map[string][]string{"product": {"kopi", "teh"}, "bundle": {"duo"}}

	type call struct {
		method, path string
		operation    fields
	}
	var calls []call
	for path, methods := range r.root["paths"].(fields) {
		for method, operation := range methods.(fields) {
			calls = append(calls, call{strings.ToUpper(method), path, operation.(fields)})
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	answered := map[string]int{}
	for i := range 1500 {
		c := calls[i%len(calls)]
		path := pathParameter.ReplaceAllStringFunc(c.path, func(parameter string) string {
			return pick(r, slices.Concat(r.named[parameter], r.ids[:2]))
		})
		path += r.query(c.operation["parameters"])
		schema, body := bodySchema(asFields(c.operation["requestBody"])), ""
		if schema != nil {
			body = r.body(schema)
		}
		key := w.shop.keys["manage"]
		if r.chance(10) {
			key = pick(r, []string{w.shop.keys["read"], w.shop.keys["write"], "so_x"})
		}
		headers := append(as(key), "Content-Type", pick(r, contentTypes))
		if r.chance(20) {
			headers = append(headers, "Idempotency-Key", pick(r, []string{"a", "b", "é", strings.Repeat("k", 256)}))
		}
		answer := w.do(t, c.method, path, body, headers...)
		answered[fmt.Sprintf("%s %s %d", c.method, c.path, answer.Status/100)]++
		if hook, _ := url.Parse(answer.at("webhook.url")); answer.Status == 201 && hook.Host != "" {
			w.net.inbox.know(hook.Host, answer.at("webhook.secret"))
			r.named["{webhook_id}"] = append(r.named["{webhook_id}"], answer.at("webhook.id"))
		}
		fault := ""
		if answer.Status < 300 && schema != nil && body != "" {
			r.mu.Lock()
			sent := readJSONText(body)
			if c.path != "/v1/catalog" {
				sent = withoutEmpty(sent)
			}
			fault = r.fault(schema, sent, "accepted, and not allowed: the request")
			r.mu.Unlock()
		}
		if answer.Status >= 500 || fault != "" {
			t.Errorf("request %d, %s %s %.500s\n%d %.500s\n%s",
				i, c.method, path, body, answer.Status, answer.Body, fault)
		}
	}
	for _, c := range calls {
		if answered[c.method+" "+c.path+" 2"] == 0 {
			t.Errorf("no %s %s succeeded: %v", c.method, c.path, answered)
		}
	}
}

// withoutEmpty removes what a request may also have in place of a field that is left out: null, and what is empty.
func withoutEmpty(v any) any {
	in, isObject := v.(fields)
	for name, value := range in {
		list, isList := value.([]any)
		for i := range list {
			list[i] = withoutEmpty(list[i])
		}
		if in[name] = withoutEmpty(value); value == nil || value == "" || isList && len(list) == 0 {
			delete(in, name)
		}
	}
	if isObject {
		return in
	}
	return v
}

// readJSONText is a JSON text's value, with numbers as they are written; nil if it is none.
func readJSONText(text string) (v any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	d.Decode(&v)
	return v
}
