//go:build cgo

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

var randomRequests = flag.Int("random-requests", 1500, "how many requests TestRandomRequests sends")

// random makes requests of the description: right ones, and others with a mistake.
type random struct {
	*rand.Rand
	described
	ids    []string            // of products, orders and nothing
	sold   map[string][]string // the ids of what is for sale, by kind
	events []string
	made   int // texts that have to differ
}

func pick[T any](r *random, list []T) T { return list[r.IntN(len(list))] }

func (r *random) chance(percent int) bool { return r.IntN(100) < percent }

// samples are texts that match the description's patterns. An unlisted pattern is an error of this test.
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
	s := r.deref(schema)
	if choices, ok := s["oneOf"].([]any); ok {
		return r.value(pick(r, choices))
	}
	if constant, ok := s["const"]; ok {
		return constant
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

func (r *random) object(s map[string]any) map[string]any {
	fields := map[string]any{}
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) || r.chance(40) {
			fields[name] = r.value(properties[name])
		}
	}
	if names, ok := s["propertyNames"]; ok {
		for range r.IntN(4) {
			fields[r.value(names).(string)] = r.value(s["additionalProperties"])
		}
	}

	// The description's narrower rules: an item is of one kind, and a buyer can be reached.
	if kind, ok := fields["type"].(string); ok && properties["bundle_id"] != nil {
		delete(fields, "product_id")
		delete(fields, "bundle_id")
		fields[kind+"_id"] = r.value(properties[kind+"_id"])
		if r.chance(90) {
			fields[kind+"_id"] = pick(r, r.sold[kind])
		}
	}
	if properties["payment_method"] != nil && r.chance(80) {
		fields["payment_method"] = "bank_transfer"
	}
	if properties["phone"] != nil && len(fields) < 2 {
		fields["phone"] = r.value(properties["phone"])
	}
	return fields
}

func (r *random) text(s map[string]any) string {
	most, limited := s["maxLength"].(float64)
	switch {
	case s["format"] == "uuid":
		return pick(r, r.ids)
	case s["format"] == "email":
		return "siti@example.id"
	case s["format"] == "uri":
		return "https://shop.example.id/thanks"
	case strings.HasPrefix(fmt.Sprint(s["pattern"]), "^evt_"):
		return pick(r, r.events)
	}

	pattern, ok := s["pattern"].(string)
	if !ok && s["maxLength"] == nil && s["minLength"] == nil {
		pattern, ok = `^[A-Za-z0-9_-]{1,40}$`, true // the name of a key of metadata
	}
	if ok {
		list := samples[pattern]
		if list == nil {
			panic("no samples of " + pattern)
		}
		if pattern == `\S` && r.chance(10) {
			return strings.Repeat("é", int(most))
		}
		return pick(r, list)
	}
	if limited && r.chance(10) {
		return strings.Repeat("a", int(most))
	}
	r.made++
	return fmt.Sprint("text ", r.made)
}

func (r *random) integer(s map[string]any) json.Number {
	least, _ := s["minimum"].(float64)
	most, limited := s["maximum"].(float64)
	if r.chance(80) || !limited {
		return json.Number(fmt.Sprint(int64(least) + int64(r.IntN(20))))
	}
	return json.Number(fmt.Sprint(int64(pick(r, []float64{least, most}))))
}

// mistakes are values that hardly any field takes.
var mistakes = []any{
	nil, true, "", " ", "\x00", "a\u202eb", "\ufffd", json.Number("-1"), json.Number("1.5"), json.Number("1e3"), json.Number("1e400"),
	json.Number("99999999999999999999"), []any{}, map[string]any{}, strings.Repeat("a", 11_000), "x'; DROP TABLE orders --",
}

// spoil puts a mistake somewhere into a value.
func (r *random) spoil(v any) any {
	switch v := v.(type) {
	case map[string]any:
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
	text := string(mustJSON(value))

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
		return "\xef\xbb\xbf" + text
	case 5:
		return "\xff" + text
	}
	return text
}

// query writes a request's query: parameters that it takes, and sometimes a mistake.
func (r *random) query(parameters []any) string {
	values := url.Values{}
	for _, p := range parameters {
		parameter := r.deref(p)
		if parameter["in"] == "query" && r.chance(30) {
			values.Set(parameter["name"].(string), r.parameter(parameter))
		}
	}
	if r.chance(5) {
		values.Add(pick(r, []string{"limit", "page", "a"}), "1")
	}
	text := values.Encode()
	if r.chance(2) {
		text += "&%zz"
	}
	return text
}

func (r *random) parameter(p map[string]any) string {
	if r.chance(15) {
		return pick(r, []string{"", "x", "-1", "1e3", "\x00", "\xff", "999999999999999", strings.Repeat("a", 300)})
	}
	if strings.HasPrefix(p["name"].(string), "created_at") {
		return pick(r, []string{"2026-01-31", "2026-01-31T10:00:00+07:00", "2099-01-01T00:00Z", "2026-02-30"})
	}
	return fmt.Sprint(r.value(p["schema"]))
}

// request makes a request to a call, with a right key as a rule.
func (r *random) request(c describedCall, key string) (req *http.Request, body string) {
	parameters, _ := c.operation["parameters"].([]any)
	path := strings.ReplaceAll(c.path, "{order_id}", url.PathEscape(pick(r, r.ids)))
	if query := r.query(parameters); query != "" {
		path += "?" + query
	}
	if schema := r.bodySchema(c.operation["requestBody"]); schema != nil {
		body = r.body(schema)
	}

	req = httptest.NewRequest(c.method, "https://shop.test"+path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", pick(r, contentTypes))
	if r.chance(3) {
		req.Header.Set("Authorization", pick(r, []string{"", "Bearer", "Bearer so_x", key}))
	}
	if c.method == "POST" && r.chance(20) {
		req.Header.Set("Idempotency-Key", pick(r, []string{"a", "b", "é", strings.Repeat("k", 256)}))
	}
	return req, body
}

// TestRandomRequests sends requests that are made of the description, right and wrong ones. Every answer is as described,
// none is a failure of the service, and what is accepted is what the description allows.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.exec(t, "UPDATE products SET stock = 1000000 WHERE stock IS NOT NULL")
	r := &random{Rand: rand.New(rand.NewPCG(1, 2))}
	must(t, json.Unmarshal(description, &r.root))
	r.events = []string{"evt_0190f5a0-0000-7000-8000-000000000001"}
	for _, slug := range slices.Sorted(maps.Keys(s.ids)) {
		r.ids = append(r.ids, s.ids[slug])
	}
	r.ids = append(r.ids, "0190f5a0-0000-7000-8000-000000000001")
	for range 5 {
		r.ids = append(r.ids, s.create(t, "teh", 1))
	}
	bodies, _ := s.listEvents(t, url.Values{})
	for _, body := range bodies {
		r.events = append(r.events, eventID(body))
	}

	r.sold = map[string][]string{"product": {s.ids["kopi"], s.ids["teh"]}, "bundle": {s.ids["duo"]}}

	handler := s.routes()
	keys := map[Scope]string{}
	for _, scope := range scopes {
		keys[scope] = s.keyFor(t, NewKey{Name: "k", Scope: scope}).key
	}
	calls := r.calls()
	answered := map[string]int{}
	for i := range *randomRequests {
		c := calls[i%len(calls)]
		scope := ScopeManage
		if r.chance(10) {
			scope = pick(r, scopes)
		}
		req, sent := r.request(c, keys[scope])
		w := serveOnce(handler, req)
		answered[fmt.Sprintf("%s %d", c.operation["operationId"], w.Code)]++
		if fault := r.exchangeFault(c, sent, w); fault != "" {
			t.Errorf("request %d, %s %s %.500s\nanswer %d %.500s\n%s", i, c.method, req.URL, sent, w.Code, w.Body, fault)
		}
	}

	t.Log(answered)
	for _, c := range calls {
		id := c.operation["operationId"].(string)
		if answered[id+" 200"]+answered[id+" 201"] == 0 {
			t.Errorf("no request to %s succeeded: %v", id, answered)
		}
	}
}

// exchangeFault returns what of an exchange is not as described, or nothing.
func (r *random) exchangeFault(c describedCall, sent string, w *httptest.ResponseRecorder) string {
	if w.Code >= 500 {
		return "the service failed"
	}
	if fault := r.answerFault(c, w.Code, w.Header(), decoded(w.Body.String())); fault != "" {
		return fault
	}
	schema := r.bodySchema(c.operation["requestBody"])
	if w.Code >= 300 || schema == nil || sent == "" {
		return ""
	}
	if fault := r.fault(schema, decoded(sent), "request"); fault != "" {
		return "accepted, and not allowed: " + fault
	}
	return ""
}

// decoded is a JSON text's value, with numbers as they are written.
func decoded(text string) (v any) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	dec.Decode(&v) // A text that is no JSON is nil, which no schema of a body allows.
	return v
}
