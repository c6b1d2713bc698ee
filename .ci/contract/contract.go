// Package contract holds the service to its description, openapi.json.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// exchange is a request and its answer, as the root package's tests record them too.
type exchange struct {
	Method  string      `json:"method"`
	Path    string      `json:"path"` // with its query
	Request string      `json:"request"`
	Sent    http.Header `json:"sent"`
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    string      `json:"body"`
}

type object = map[string]any

// contract is a description, and what of it was seen.
type contract struct {
	raw    object
	doc    *openapi3.T
	routes routers.Router
	seen   map[string]bool
}

// routerPath stands for what every path of the API answers when it is unknown or does not take a method.
const routerPath = "/x-router-responses"

// defineFormats has the formats of texts checked, which kin-openapi knows by name only.
func defineFormats() {
	openapi3.DefineStringFormatCallback("email", func(text string) error {
		address, err := mail.ParseAddress(text)
		if err == nil && address.Address != text {
			return errors.New("more than an address")
		}
		return err
	})
	openapi3.DefineStringFormatCallback("uri", func(text string) error {
		u, err := url.Parse(text)
		if err == nil && !u.IsAbs() {
			return errors.New("no absolute address")
		}
		return err
	})
	openapi3.DefineStringFormatCallback("date-time", func(text string) error {
		_, err := time.Parse(time.RFC3339, text)
		return err
	})
	openapi3.DefineStringFormat("uuid", `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
}

func load(text []byte) (*contract, error) {
	defineFormats()
	c := &contract{seen: map[string]bool{}}
	if err := json.Unmarshal(text, &c.raw); err != nil {
		return nil, err
	}
	closeSchemas(c.raw)
	c.raw["paths"].(object)[routerPath] = object{"get": object{"operationId": "router", "responses": c.raw["x-router-responses"]}}
	whole, err := json.Marshal(c.raw)
	if err != nil {
		return nil, err
	}
	if c.doc, err = openapi3.NewLoader().LoadFromData(whole); err != nil {
		return nil, err
	}
	c.doc.Servers = nil // any address
	c.routes, err = gorillamux.NewRouter(c.doc)
	return c, err
}

// closeSchemas makes a description complete. It lets answers and events grow, so that clients are ready for more:
// their objects may have further fields, and their lists of known values (x-extensible-enum) are open. What the
// service sends must still be described, so here each field and value beyond the described ones is an error.
func closeSchemas(v any) {
	switch v := v.(type) {
	case []any:
		for _, sub := range v {
			closeSchemas(sub)
		}
	case object:
		for name, sub := range v {
			switch name {
			case "example", "examples": // values
			case "/v1/openapi.json": // answers the description itself, whose fields are OpenAPI's
			case "schema":
				closeSchema(sub.(object))
			case "schemas":
				for _, schema := range sub.(object) {
					closeSchema(schema.(object))
				}
			default:
				closeSchemas(sub)
			}
		}
	}
}

func closeSchema(schema object) {
	if known, ok := schema["x-extensible-enum"]; ok {
		schema["enum"] = known
		delete(schema, "x-extensible-enum")
	}

	// A schema here without a type only narrows the one beside it, to which $ref points.
	further, said := schema["additionalProperties"]
	if schema["type"] == "object" && (!said || further == true) {
		schema["additionalProperties"] = false
	}

	properties, _ := schema["properties"].(object)
	for _, sub := range properties {
		closeSchema(sub.(object))
	}
	if items, ok := schema["items"].(object); ok {
		closeSchema(items)
	}
}

// growth returns where a description forbids answers and events to grow, and where it does not forbid requests what
// it does not know.
func growth(text []byte) (faults []string, err error) {
	c := &contract{}
	if err := json.Unmarshal(text, &c.raw); err != nil {
		return nil, err
	}

	request := func(at string, schema object) {
		_, isMap := schema["additionalProperties"].(object)
		if schema["type"] == "object" && schema["additionalProperties"] != false && !isMap {
			faults = append(faults, "a request takes further fields: "+at)
		}
		if schema["x-extensible-enum"] != nil {
			faults = append(faults, "a request takes further values: "+at)
		}
	}
	answer := func(at string, schema object) {
		for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
			if schema[keyword] == false {
				faults = append(faults, "an answer cannot have further fields: "+at)
			}
		}
		if schema["maxProperties"] != nil {
			faults = append(faults, "an answer cannot have further fields: "+at)
		}
		if schema["enum"] != nil {
			faults = append(faults, "an answer cannot have further values: "+at)
		}
	}

	responses := func(at string, all any) {
		for status, response := range all.(object) {
			c.visit(c.schemaOf(c.deref(response)), at+" "+status, answer)
		}
	}
	parameters := func(operation object, see func(string, object)) {
		list, _ := operation["parameters"].([]any)
		for _, p := range list {
			parameter := c.deref(p)
			c.visit(parameter["schema"].(object), parameter["name"].(string), see)
		}
	}
	for path, methods := range c.raw["paths"].(object) {
		for method, operation := range methods.(object) {
			at, operation := method+" "+path, operation.(object)
			responses(at, operation["responses"])
			parameters(operation, request)
			c.visit(c.schemaOf(c.deref(operation["requestBody"])), at, request)
		}
	}
	responses("router", c.raw["x-router-responses"])
	for name, item := range c.raw["webhooks"].(object) {
		operation := item.(object)["post"].(object)
		parameters(operation, answer)
		c.visit(c.schemaOf(c.deref(operation["requestBody"])), name, answer)
	}

	slices.Sort(faults)
	return slices.Compact(faults), nil
}

// visit shows a schema and all within it to see.
func (c *contract) visit(schema object, at string, see func(at string, schema object)) {
	if schema == nil {
		return
	}
	see(at, schema)
	if _, refers := schema["$ref"]; refers {
		c.visit(c.deref(schema), place(schema, at), see)
	}

	properties, _ := schema["properties"].(object)
	for name, sub := range properties {
		c.visit(sub.(object), at+"."+name, see)
	}
	items, _ := schema["items"].(object)
	c.visit(items, at+"[]", see)
}

// check returns what of an exchange is not as described.
func (c *contract) check(x exchange) error {
	method := x.Method
	if method == "HEAD" {
		method = "GET"
	}
	req, err := http.NewRequest(method, x.Path, strings.NewReader(x.Request))
	if err != nil {
		return err
	}
	req.Header = x.Sent.Clone()
	if x.Request != "" { // The service asks no type of it, and a description has to name one.
		req.Header.Set("Content-Type", "application/json")
	}
	route, params, err := c.routes.FindRoute(req)
	if err != nil {
		if x.Status != 404 && x.Status != 405 {
			return fmt.Errorf("no operation is described here: %w", err)
		}
		item := c.doc.Paths.Find(routerPath)
		route, params = &routers.Route{Spec: c.doc, Path: routerPath, PathItem: item, Method: "GET", Operation: item.Get}, nil
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: &openapi3filter.Options{
		IncludeResponseStatus: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if x.Status < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("%d for a request that the description forbids: %w", x.Status, err)
		}
		for name := range req.URL.Query() {
			if route.Operation.Parameters.GetByInAndName("query", name) == nil {
				return fmt.Errorf("%d with the query parameter %q, which is not described", x.Status, name)
			}
		}
		var body any
		json.Unmarshal([]byte(x.Request), &body)
		operation := c.raw["paths"].(object)[route.Path].(object)[strings.ToLower(method)].(object)
		c.mark(c.schemaOf(c.deref(operation["requestBody"])), body, "")
	}
	if x.Status < 400 {
		for _, p := range route.Operation.Parameters {
			if p.Value.In == "path" || p.Value.In == "query" && req.URL.Query().Has(p.Value.Name) || p.Value.In == "header" && x.Sent.Get(p.Value.Name) != "" {
				c.seen["parameter "+p.Value.Name+" of "+route.Operation.OperationID] = true
			}
		}
	}
	described := route.Operation.Responses.Status(x.Status)
	if described == nil {
		return fmt.Errorf("status %d is not described for %s", x.Status, route.Operation.OperationID)
	}
	if x.Method != "HEAD" && x.Status != 304 {
		err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{RequestValidationInput: in,
			Status: x.Status, Header: x.Header, Body: io.NopCloser(strings.NewReader(x.Body)), Options: in.Options})
		if err != nil {
			return err
		}
	} else if x.Body != "" {
		return errors.New("a body where there must be none")
	}
	at := described.Ref
	if at == "" {
		at = fmt.Sprintf("%s %d", route.Operation.OperationID, x.Status)
	}
	for name := range x.Header {
		switch name {
		case "Content-Type", "Content-Length", "Date", "X-Content-Type-Options": // HTTP's own, and for browsers
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(described.Value.Headers)), func(n string) bool { return strings.EqualFold(n, name) }) {
			return fmt.Errorf("header %s is not described for %s", name, at)
		}
		c.seen["header "+strings.ToLower(name)+" of "+at] = true
	}
	for name, h := range described.Value.Headers { // kin leaves HEAD and 304 out
		if h.Value.Required && x.Header.Get(name) == "" {
			return fmt.Errorf("header %s is missing", name)
		}
	}
	var body object
	json.Unmarshal([]byte(x.Body), &body)
	failure, _ := body["error"].(object)
	if failure != nil {
		code, _ := failure["code"].(string)
		if !slices.Contains(c.codesAt(route.Path, method, x.Status), code) {
			return fmt.Errorf("the code %s is not described for %s", code, at)
		}
	}
	c.seen[strings.TrimSpace(fmt.Sprintf("%s %d %v", route.Operation.OperationID, x.Status, orEmpty(failure["code"])))] = true
	if failure != nil {
		c.seen["example "+masked(body)] = true
	}
	if route.Path != "/v1/openapi.json" || x.Status != 200 {
		if r := c.raw["paths"].(object)[route.Path].(object)[strings.ToLower(method)]; r != nil && x.Body != "" {
			c.mark(c.schemaOf(c.deref(r.(object)["responses"].(object)[strconv.Itoa(x.Status)])), body, "")
		} else if route.Path == routerPath && x.Body != "" {
			c.mark(c.schemaOf(c.deref(c.raw["x-router-responses"].(object)[strconv.Itoa(x.Status)])), body, "")
		}
	}
	return nil
}

// checkWebhook returns what of a delivery is not as described.
func (c *contract) checkWebhook(h http.Header, body []byte) error {
	name := h.Get("X-Service-Event")
	item := c.doc.Webhooks[name]
	if item == nil {
		return fmt.Errorf("the event %q is not described", name)
	}
	req, err := http.NewRequest("POST", "http://receiver.invalid/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = h
	err = openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{Request: req, QueryParams: url.Values{},
		Route: &routers.Route{Spec: c.doc, PathItem: item, Method: "POST", Operation: item.Post}})
	if err != nil {
		return err
	}
	for header := range h {
		if strings.HasPrefix(header, "X-") && item.Post.Parameters.GetByInAndName("header", header) == nil {
			return fmt.Errorf("header %s is not described", header)
		}
	}
	var value object
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	if value["event"] != name || value["id"] != h.Get("X-Service-Event-Id") {
		return errors.New("headers and body name different events")
	}
	c.seen["event "+name], c.seen["value EventName="+name] = true, true
	c.mark(c.schemaOf(c.deref(c.raw["webhooks"].(object)[name].(object)["post"].(object)["requestBody"])), value, "")
	return nil
}

// unseen are the described operations with their statuses and error codes, parameters, headers, fields, enumerated values,
// examples of failures and events that no exchange had.
func (c *contract) unseen() (list []string) {
	all := map[string]bool{}
	collect := func(item object) {
		operation := item["operationId"].(string)
		parameters, _ := item["parameters"].([]any)
		for _, p := range parameters {
			all["parameter "+c.deref(p)["name"].(string)+" of "+operation] = true
		}
		c.collect(c.schemaOf(c.deref(item["requestBody"])), "", all)
		for status, r := range item["responses"].(object) {
			response := c.deref(r)
			schema := c.schemaOf(response)
			at := operation + " " + status
			if codes := codesOf(response); codes != nil {
				for _, code := range codes {
					all[at+" "+code] = true
				}
			} else {
				all[at] = true
			}
			if ref, ok := r.(object)["$ref"].(string); ok {
				at = ref
			}
			headers, _ := response["headers"].(object)
			for name := range headers {
				all["header "+strings.ToLower(name)+" of "+at] = true
			}
			for _, example := range examples(response) {
				if _, ok := example["error"]; ok {
					all["example "+masked(example)] = true
				}
			}
			if operation != "getDescription" || status != "200" {
				c.collect(schema, "", all)
			}
		}
	}
	for _, methods := range c.raw["paths"].(object) {
		for _, operation := range methods.(object) {
			collect(operation.(object))
		}
	}
	for name, item := range c.raw["webhooks"].(object) {
		all["event "+name] = true
		c.collect(c.schemaOf(c.deref(item.(object)["post"].(object)["requestBody"])), "", all)
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		if !c.seen[what] {
			list = append(list, what)
		}
	}
	return list
}

func (c *contract) deref(v any) object {
	o, _ := v.(object)
	for ref, ok := o["$ref"].(string); ok; ref, ok = o["$ref"].(string) {
		var at any = c.raw
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(object)[name]
		}
		o = at.(object)
	}
	return o
}

func (c *contract) schemaOf(body object) object {
	content, _ := body["content"].(object)
	media, _ := content["application/json"].(object)
	schema, _ := media["schema"].(object)
	return schema
}

// codesAt are the error codes that an operation's answer of this status may have.
func (c *contract) codesAt(path, method string, status int) []string {
	operation, ok := c.raw["paths"].(object)[path].(object)[strings.ToLower(method)].(object)
	if !ok { // of a method that the path does not take
		operation = c.raw["paths"].(object)[routerPath].(object)["get"].(object)
	}
	return codesOf(c.deref(operation["responses"].(object)[strconv.Itoa(status)]))
}

// codesOf are the error codes that a failure may have.
func codesOf(response object) (codes []string) {
	list, _ := response["x-error-codes"].([]any)
	for _, v := range list {
		codes = append(codes, v.(string))
	}
	return codes
}

func place(schema object, at string) string {
	if ref, ok := schema["$ref"].(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	return at
}

// collect names the fields and enumerated values of a schema.
func (c *contract) collect(schema object, at string, all map[string]bool) {
	at, schema = place(schema, at), c.deref(schema)
	properties, _ := schema["properties"].(object)
	for name, sub := range properties {
		all["field "+at+"."+name] = true
		c.collect(sub.(object), at+"."+name, all)
	}
	if items, ok := schema["items"].(object); ok {
		c.collect(items, at+"[]", all)
	}
	values, _ := schema["enum"].([]any)
	for _, v := range values {
		all[fmt.Sprintf("value %s=%v", at, v)] = true
	}
}

// mark notes the fields and enumerated values of a schema that a value has.
func (c *contract) mark(schema object, value any, at string) {
	at, schema = place(schema, at), c.deref(schema)
	switch value := value.(type) {
	case object:
		properties, _ := schema["properties"].(object)
		for name, v := range value {
			if sub, ok := properties[name].(object); ok {
				c.seen["field "+at+"."+name] = true
				c.mark(sub, v, at+"."+name)
			}
		}
	case []any:
		items, _ := schema["items"].(object)
		for _, v := range value {
			c.mark(items, v, at+"[]")
		}
	case string:
		c.seen[fmt.Sprintf("value %s=%v", at, value)] = true
	}
}

func examples(response object) (list []object) {
	content, _ := response["content"].(object)
	media, _ := content["application/json"].(object)
	if one, ok := media["example"].(object); ok {
		list = append(list, one)
	}
	named, _ := media["examples"].(object)
	for _, e := range named {
		list = append(list, e.(object)["value"].(object))
	}
	return list
}

var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// masked is a value's JSON without ids.
func masked(v any) string {
	text, _ := json.Marshal(v)
	return ids.ReplaceAllString(string(text), "<id>")
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}
