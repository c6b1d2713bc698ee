//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// described is openapi.json as the test of random requests reads it. It checks values against schemas by itself, so that
// the test needs no other module.
type described struct{ root map[string]any }

// deref follows a reference.
func (d described) deref(v any) map[string]any {
	o, _ := v.(map[string]any)
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		var at any = d.root
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[name]
		}
		o = at.(map[string]any)
	}
}

// fault returns what is wrong with a value by a schema, or nothing. The value was decoded with UseNumber.
func (d described) fault(schema any, value any, at string) string {
	s := d.deref(schema)
	if choices, ok := s["oneOf"].([]any); ok {
		for _, choice := range choices {
			if d.fault(choice, value, at) == "" {
				return ""
			}
		}
		return at + " is none of its choices"
	}
	if constant, ok := s["const"]; ok && fmt.Sprint(constant) != fmt.Sprint(value) {
		return fmt.Sprintf("%s is %v, not %v", at, value, constant)
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, value) {
		return fmt.Sprintf("%s is %v, not one of %v", at, value, enum)
	}

	switch s["type"] {
	case "object":
		return d.objectFault(s, value, at)
	case "array":
		return d.arrayFault(s, value, at)
	case "string":
		return stringFault(s, value, at)
	case "integer":
		return integerFault(s, value, at)
	case "boolean":
		if _, ok := value.(bool); !ok {
			return at + " is no boolean"
		}
	case "null":
		if value != nil {
			return at + " is not null"
		}
	}
	return ""
}

func (d described) objectFault(s map[string]any, value any, at string) string {
	fields, ok := value.(map[string]any)
	if !ok {
		return at + " is no object"
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, there := fields[name.(string)]; !there {
			return fmt.Sprintf("%s lacks %s", at, name)
		}
	}
	if fault := countFault(s, "Properties", len(fields), at); fault != "" {
		return fault
	}

	properties, _ := s["properties"].(map[string]any)
	for name, field := range fields {
		sub, known := properties[name]
		if !known {
			sub = s["additionalProperties"]
		}
		if sub == false {
			return at + " has the unknown field " + name
		}
		if names, ok := s["propertyNames"]; ok {
			if fault := d.fault(names, name, at+"'s name "+name); fault != "" {
				return fault
			}
		}
		if fault := d.fault(sub, field, at+"."+name); fault != "" {
			return fault
		}
	}
	return ""
}

func (d described) arrayFault(s map[string]any, value any, at string) string {
	list, ok := value.([]any)
	if !ok {
		return at + " is no list"
	}
	for i, element := range list {
		if fault := d.fault(s["items"], element, fmt.Sprintf("%s[%d]", at, i)); fault != "" {
			return fault
		}
	}
	return countFault(s, "Items", len(list), at)
}

func stringFault(s map[string]any, value any, at string) string {
	text, ok := value.(string)
	if !ok {
		return at + " is no text"
	}
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
		return fmt.Sprintf("%s is %q, which does not match %s", at, text, pattern)
	}
	return countFault(s, "Length", utf8.RuneCountInString(text), at)
}

func integerFault(s map[string]any, value any, at string) string {
	number, ok := value.(json.Number)
	n, err := number.Int64()
	if !ok || err != nil {
		return fmt.Sprintf("%s is %v, no integer", at, value)
	}
	if least, ok := s["minimum"].(float64); ok && n < int64(least) {
		return fmt.Sprintf("%s is %d, below %v", at, n, least)
	}
	if most, ok := s["maximum"].(float64); ok && n > int64(most) {
		return fmt.Sprintf("%s is %d, above %v", at, n, most)
	}
	return ""
}

// countFault checks minLength, maxItems and their like.
func countFault(s map[string]any, of string, n int, at string) string {
	if least, ok := s["min"+of].(float64); ok && n < int(least) {
		return fmt.Sprintf("%s has %d, less than min%s", at, n, of)
	}
	if most, ok := s["max"+of].(float64); ok && n > int(most) {
		return fmt.Sprintf("%s has %d, more than max%s", at, n, of)
	}
	return ""
}

// describedCall is an operation of the description.
type describedCall struct {
	method, path string
	operation    map[string]any
}

// calls are the operations, in a fixed order.
func (d described) calls() (all []describedCall) {
	for path, methods := range d.root["paths"].(map[string]any) {
		for method, operation := range methods.(map[string]any) {
			all = append(all, describedCall{strings.ToUpper(method), path, operation.(map[string]any)})
		}
	}
	slices.SortFunc(all, func(a, b describedCall) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// bodySchema is the schema of a request's or an answer's body; nil if it has none.
func (d described) bodySchema(of any) any {
	content, _ := d.deref(of)["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	return media["schema"]
}

// answerFault returns what of an answer to a call is not as described, or nothing.
func (d described) answerFault(c describedCall, status int, header http.Header, body any) string {
	all := c.operation["responses"].(map[string]any)
	if status == http.StatusMethodNotAllowed {
		all = d.root["x-router-responses"].(map[string]any)
	}
	response := d.deref(all[fmt.Sprint(status)])
	if response == nil {
		return fmt.Sprintf("the status %d is not described", status)
	}

	headers, _ := response["headers"].(map[string]any)
	for name, h := range headers {
		if d.deref(h)["required"] == true && header.Get(name) == "" {
			return "the header " + name + " is missing"
		}
	}
	fields, _ := body.(map[string]any)
	failure, _ := fields["error"].(map[string]any)
	codes, _ := response["x-error-codes"].([]any)
	if failure != nil && !slices.Contains(codes, failure["code"]) {
		return fmt.Sprintf("the code %v is not described", failure["code"])
	}
	schema := d.bodySchema(response)
	if schema == nil {
		return ""
	}
	return d.fault(schema, body, "body")
}
