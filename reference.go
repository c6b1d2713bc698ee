//go:build cgo

package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
)

//go:embed openapi.json
var description []byte

// exampleServer is the address that openapi.json names, before the service's own takes its place.
const exampleServer = "http://localhost:8080"

// describe answers the API's description to anyone, also to pages of other sites, without an envelope. It names the
// service's own address.
func (s *server) describe(w http.ResponseWriter, r *http.Request) {
	if r.Method != "GET" && r.Method != "HEAD" {
		s.notAllowed(w, r, "GET", "HEAD")
		return
	}
	if err := parseQuery(r).err; err != nil {
		s.respond(w, r, answer{}, err)
		return
	}

	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	own := bytes.Replace(description, []byte(exampleServer), []byte(s.db.publicURL), 1)
	writeJSON(w, http.StatusOK, "", own, "")
}

// reference is the description as its page shows it: see web/docs.html.
type reference struct {
	Server     string // the service's own address
	Intro      template.HTML
	Operations []operationView
	Webhooks   template.HTML // about all events
	Headers    []fieldView   // of every event
	Events     []eventView
	Schemas    []schemaView
}

type operationView struct {
	ID, Method, Path, Summary string
	Description               template.HTML
	Parameters                []fieldView
	Open                      bool   // it needs no key
	Body                      string // an example; empty if it takes none
	Schema                    string // the name of the body's schema
	Address                   string // of the example: its path with an example of each parameter in it
	Answers                   []answerView
}

type answerView struct {
	Status      string
	Description template.HTML
	Example     string
}

type eventView struct {
	Name        string
	Description template.HTML
	Example     string
}

type schemaView struct {
	Name        string
	Type        string // of one without fields
	Description template.HTML
	Fields      []fieldView
}

type fieldView struct {
	Name        string
	Type        string
	Schema      string // the name of the schema that its type is; empty for one of JSON's own
	Required    bool
	Description template.HTML
}

// node is a part of the description. A reference is followed when it is read.
type node struct {
	root   json.RawMessage
	fields []member
}

type member struct {
	name  string
	value json.RawMessage
}

// newNode reads an object and keeps the order of its fields. Anything else has none.
func newNode(root, text json.RawMessage) node {
	n := node{root: root}
	dec := json.NewDecoder(bytes.NewReader(text))
	opening, err := dec.Token()
	if err != nil || opening != json.Delim('{') {
		return n
	}

	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return n
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return n
		}
		n.fields = append(n.fields, member{name.(string), value})
	}
	return n
}

func (n node) raw(name string) json.RawMessage {
	i := slices.IndexFunc(n.fields, func(m member) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return n.fields[i].value
}

// at returns what a path of names leads to, with the reference in its place followed.
func (n node) at(path ...string) node {
	for _, name := range path {
		n = newNode(n.root, n.raw(name))
	}

	_, referred, ok := strings.Cut(n.text("$ref"), "#/")
	if !ok {
		return n
	}
	return newNode(n.root, n.root).at(strings.Split(referred, "/")...)
}

// text is the text of a field; empty if it has none.
func (n node) text(name string) (text string) {
	json.Unmarshal(n.raw(name), &text) // Anything else leaves it empty.
	return text
}

func (n node) list(name string) (list []json.RawMessage) {
	json.Unmarshal(n.raw(name), &list)
	return list
}

// readReference reads the description once. Its text is ours, and a test reads all of it.
var readReference = sync.OnceValue(func() reference {
	root := newNode(description, description)
	ref := reference{Intro: marked(root.at("info").text("description"))}

	for _, path := range root.at("paths").fields {
		for _, method := range newNode(description, path.value).fields {
			op := newNode(description, method.value)
			ref.Operations = append(ref.Operations, viewOperation(path.name, strings.ToUpper(method.name), op))
		}
	}
	for _, text := range root.list("tags") {
		tag := newNode(description, text)
		if tag.text("name") == "Webhooks" {
			ref.Webhooks = marked(tag.text("description"))
		}
	}
	for _, event := range root.at("webhooks").fields {
		post := root.at("webhooks", event.name, "post")
		if ref.Headers == nil { // They are the same for all.
			ref.Headers = viewParameters(post)
		}
		body := post.at("requestBody", "content", "application/json")
		ref.Events = append(ref.Events, eventView{
			Name:        event.name,
			Description: marked(post.text("description")),
			Example:     indented(body.raw("example")),
		})
	}
	for _, schema := range root.at("components", "schemas").fields {
		ref.Schemas = append(ref.Schemas, viewSchema(schema.name, newNode(description, schema.value)))
	}
	return ref
})

func viewOperation(path, method string, op node) operationView {
	view := operationView{
		ID:          op.text("operationId"),
		Method:      method,
		Path:        path,
		Summary:     op.text("summary"),
		Description: marked(op.text("description")),
		Open:        string(op.raw("security")) == "[]",
		Address:     path,
	}

	view.Parameters = viewParameters(op)
	for _, text := range op.list("parameters") {
		p := follow(op.root, text)
		if p.text("in") == "path" {
			view.Address = strings.ReplaceAll(path, "{"+p.text("name")+"}", p.text("example"))
		}
	}

	body := op.at("requestBody", "content", "application/json")
	view.Body = indented(firstExample(body))
	view.Schema = schemaName(newNode(op.root, body.raw("schema")))
	for _, status := range op.at("responses").fields {
		response := op.at("responses", status.name)
		view.Answers = append(view.Answers, answerView{
			Status:      status.name,
			Description: marked(response.text("description")),
			Example:     indented(firstExample(response.at("content", "application/json"))),
		})
	}
	return view
}

func viewParameters(op node) (all []fieldView) {
	for _, text := range op.list("parameters") {
		p := follow(op.root, text)
		all = append(all, viewField(p.text("name"), string(p.raw("required")) == "true", p))
	}
	return all
}

// follow returns an object, or what it refers to.
func follow(root, text json.RawMessage) node {
	return node{root: root, fields: []member{{"it", text}}}.at("it")
}

// firstExample is the example of a body, or the first of several.
func firstExample(body node) json.RawMessage {
	if example := body.raw("example"); example != nil {
		return example
	}
	examples := body.at("examples").fields
	if len(examples) == 0 {
		return nil
	}
	return newNode(body.root, examples[0].value).raw("value")
}

func viewSchema(name string, schema node) schemaView {
	view := schemaView{Name: name, Description: marked(schema.text("description"))}
	var required []string
	json.Unmarshal(schema.raw("required"), &required)
	for _, field := range newNode(schema.root, schema.raw("properties")).fields {
		f := newNode(schema.root, field.value)
		view.Fields = append(view.Fields, viewField(field.name, slices.Contains(required, field.name), f))
	}
	if len(view.Fields) == 0 {
		view.Type, _ = typeOf(schema)
	}
	return view
}

// viewField shows a field of a schema, or a parameter, whose schema is a field of it.
func viewField(name string, required bool, field node) fieldView {
	schema := field
	if field.raw("schema") != nil {
		schema = newNode(field.root, field.raw("schema"))
	}
	typ, ref := typeOf(schema)
	words := cmp.Or(field.text("description"), follow(schema.root, mustJSON(object{"$ref": schema.text("$ref")})).text("description"))
	return fieldView{name, typ, ref, required, marked(words)}
}

// typeOf says what a schema allows, in short, and names the schema that it refers to.
func typeOf(schema node) (text, ref string) {
	if ref := schemaName(schema); ref != "" {
		return ref, ref
	}
	for _, choice := range schema.list("oneOf") {
		inner := newNode(schema.root, choice)
		if inner.text("type") != "null" {
			text, ref := typeOf(inner)
			return text + " or null", ref
		}
	}
	if schema.text("type") == "array" {
		text, ref := typeOf(newNode(schema.root, schema.raw("items")))
		return "list of " + text, ref
	}

	values := slices.Concat(schema.list("enum"), schema.list("x-extensible-enum"))
	if constant := schema.raw("const"); constant != nil {
		values = append(values, constant)
	}
	if len(values) == 0 {
		return cmp.Or(schema.text("format"), schema.text("type")), ""
	}
	var all []string
	for _, value := range values {
		all = append(all, strings.Trim(string(value), `"`))
	}
	return strings.Join(all, ", "), ""
}

// schemaName is the name of the schema that a reference leads to.
func schemaName(schema node) string {
	_, name, _ := strings.Cut(schema.text("$ref"), "#/components/schemas/")
	return name
}

// indented writes JSON over several lines.
func indented(text json.RawMessage) string {
	if text == nil {
		return ""
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return string(text)
	}
	return out.String()
}

// marked turns a text of the description into HTML: what is between backticks is code, an empty line ends a paragraph,
// and lines that begin with a hyphen are a list.
func marked(text string) template.HTML {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		items := strings.Split("\n"+paragraph, "\n- ")
		if lead := strings.TrimSpace(items[0]); lead != "" {
			out.WriteString("<p>" + withCode(lead) + "</p>")
		}
		if len(items) == 1 {
			continue
		}
		out.WriteString("<ul>")
		for _, item := range items[1:] {
			out.WriteString("<li>" + withCode(item) + "</li>")
		}
		out.WriteString("</ul>")
	}
	return template.HTML(out.String())
}

func withCode(text string) string {
	parts := strings.Split(text, "`")
	for i, part := range parts {
		parts[i] = template.HTMLEscapeString(part)
		if i%2 == 1 {
			parts[i] = "<code>" + parts[i] + "</code>"
		}
	}
	return strings.Join(parts, "")
}

// showReference is the page of the description. It needs no sign-in.
func (s *server) showReference(w http.ResponseWriter, r *http.Request) error {
	page := readReference()
	page.Server = s.db.publicURL
	return render(w, r, http.StatusOK, "docs.html", page)
}
