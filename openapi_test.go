package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
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

	mu   sync.Mutex
	seen map[string]bool // the answers, codes, fields and words that were
}

var api = sync.OnceValue(func() *contract {
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

// operation is what is described of a method and a path, whose parameters have any value.
func (c *contract) operation(method, path string) (operation fields, template string) {
	path, _, _ = strings.Cut(path, "?")
	if method == "HEAD" {
		method = "GET"
	}
	for template, methods := range c.root["paths"].(fields) {
		pattern := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(template, "[^/]+")
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
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
	if response == nil {
		return "the status is not described"
	}
	c.seen[name] = true

	for field, h := range asFields(response["headers"]) {
		if c.deref(h, new(string))["required"] == true && header.Get(field) == "" {
			return "the header " + field + " is missing"
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
	kind, size, of := kindOf(value)
	if want := s["type"]; want != nil && !strings.Contains(fmt.Sprint(want), kind) {
		return fmt.Sprintf("%s is %v, no %v", at, value, want)
	}
	if constant, ok := s["const"]; ok && fmt.Sprint(constant) != fmt.Sprint(value) {
		return fmt.Sprintf("%s is %v, not %v", at, value, constant)
	}
	for _, words := range []any{s["enum"], s["x-extensible-enum"]} {
		if list, ok := words.([]any); ok && !slices.Contains(list, value) {
			return fmt.Sprintf("%s is %v, not one of %v", at, value, list)
		}
		c.seen[fmt.Sprint(at, "=", value)] = true
	}
	pattern, ok := s["pattern"].(string)
	if ok && !regexp.MustCompile(pattern).MatchString(fmt.Sprint(value)) {
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

// kindOf is the type of a value, and its size with the word that its bounds have after min and max.
func kindOf(value any) (kind string, size int64, of string) {
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
