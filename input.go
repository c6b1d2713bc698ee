//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// readNewOrder reads the body of POST /v1/orders.
func readNewOrder(body []byte) (in NewOrder, err error) {
	f, err := parseForm(body)
	if err != nil {
		return in, err
	}
	f.only("items", "buyer", "payment_method", "external_id", "return_url")
	in.PaymentMethod = f.text("payment_method", optional, 64)
	in.ExternalID = f.text("external_id", optional, 64)
	in.ReturnURL = f.address("return_url")
	buyer := f.object("buyer", f.fields["buyer"], "is needed: an object")
	buyer.only("name", "email", "phone")
	in.Buyer = Buyer{Name: buyer.text("name", required, 200), Email: buyer.text("email", optional, 254), Phone: buyer.text("phone", optional, 40)}
	if in.Buyer.Email != "" && !isEmail(in.Buyer.Email) {
		buyer.fault("email", "must be one e-mail address, such as siti@example.id")
	}
	if in.Buyer.Phone != "" && !phonePattern.MatchString(in.Buyer.Phone) {
		buyer.fault("phone", "must have 6 to 20 digits, and beside them only spaces, +, (, ) and -, such as +628123456789")
	}
	if !buyer.has("email") && !buyer.has("phone") && f.has("buyer") {
		buyer.fault("email", "or phone is needed")
	}
	for _, item := range f.list("items", 1, 100) {
		n := NewItem{Kind: Kind(item.text("type", required, 20)), Quantity: item.integer("quantity", 1, 10_000)}
		idField := string(n.Kind) + "_id"
		switch n.Kind {
		case KindProduct, KindBundle:
			n.ID = item.uuid(idField)
		default:
			idField = "product_id"
			if n.Kind != "" {
				item.fault("type", "must be product or bundle")
			}
		}
		item.only("type", idField, "quantity")
		if n.ID != "" && item.seen[n.ID] {
			item.fault(idField, "is in the order already: raise that item's quantity")
		}
		item.seen[n.ID] = true
		in.Items = append(in.Items, n)
	}
	return in, f.err()
}

const (
	maxBody  = 64 << 10
	maxDepth = 16
)

// readJSON returns a request's body, which is at most 64 KiB and said to be JSON.
func readJSON(r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errNotJSON
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errBodyTooLarge
	} else if err != nil {
		return nil, badRequest("The body did not arrive whole.")
	}
	return body, nil
}

// form reads the fields of a JSON object and collects what is wrong with them, so that a client learns all at once.
type form struct {
	path   string // "" or such as "items[0]."
	fields map[string]any
	absent bool            // the object is missing, which was said already
	seen   map[string]bool // in a list: what identifies the elements so far
	*faults
}

type faults struct {
	malformed *APIError // outranks the details
	details   []Detail
}

// parseForm reads one JSON object, strictly (RFC 8259, I-JSON's unique keys): no key twice, at most 16 levels.
func parseForm(body []byte) (*form, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errInvalidJSON
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	value, err := parseValue(dec, 1)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &APIError{Code: codeValidationFailed, Message: "The body must be a JSON object."}
	}
	return newForm(fields), nil
}

func newForm(fields map[string]any) *form { return &form{fields: fields, faults: &faults{}} }

// parseValue reads a value of valid JSON, so that the decoder cannot fail.
func parseValue(dec *json.Decoder, depth int) (any, error) {
	token, _ := dec.Token()
	if _, container := token.(json.Delim); container && depth > maxDepth {
		return nil, badRequest("The JSON is nested deeper than %d levels.", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		fields := map[string]any{}
		for dec.More() {
			key, _ := dec.Token()
			name := key.(string)
			if _, ok := fields[name]; ok {
				return nil, badRequest("The key %q is given twice in one object: give it once.", name)
			}
			value, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			fields[name] = value
		}
		dec.Token() // the closing brace
		return fields, nil
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			value, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		dec.Token()
		return list, nil
	}
	return token, nil
}

func (f *form) fault(name, message string) {
	if !f.absent && len(f.details) < 100 {
		f.details = append(f.details, Detail{Field: f.path + name, Message: message, Fault: faultOf(message)})
	}
}

func (f *form) has(name string) bool {
	_, ok := f.fields[name]
	return ok
}

// err is what was wrong with the form and all forms in it.
func (f *form) err() error {
	if f.malformed != nil {
		return f.malformed
	} else if len(f.details) > 0 {
		return validationFailed(f.details...)
	}
	return nil
}

// validationFailed refuses a well-formed body with wrong fields.
func validationFailed(details ...Detail) *APIError {
	return &APIError{codeValidationFailed, "The request has wrong fields: see details.", details}
}

// only refuses all other fields. A name in the wrong case is told apart: half the world's decoders would take it.
func (f *form) only(names ...string) {
	for _, given := range slices.Sorted(maps.Keys(f.fields)) {
		if slices.Contains(names, given) {
			continue
		}
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, given) }); i >= 0 {
			f.malformed = badRequest("The key %q must be written %q.", f.path+given, f.path+names[i])
		}
		f.fault(given, "is not known here: leave it out")
	}
}

// need says whether a text must be there.
type need int

const (
	required need = iota // at least one character
	optional             // at least one character if it is given
	prose                // may be left out or empty, and may have several lines
)

func (f *form) text(name string, n need, most int) string {
	value, given := f.fields[name]
	text, isText := value.(string)
	length := utf8.RuneCountInString(text)
	control := func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) && !(n == prose && (r == '\n' || r == '\t'))
	}
	switch {
	case !given && n != required:
	case !given:
		f.fault(name, fmt.Sprintf("is needed: a text of 1 to %d characters", most))
	case !isText || length > most || length == 0 && n != prose || n != prose && strings.TrimSpace(text) == "":
		f.fault(name, fmt.Sprintf("must be a text of 1 to %d characters", most))
	case strings.ContainsFunc(text, control):
		f.fault(name, "must have no control characters and no broken ones (U+FFFD)")
	default:
		return text
	}
	return ""
}

func (f *form) integer(name string, least, most int64) int64 {
	number, _ := f.fields[name].(json.Number)
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || n < least || n > most {
		f.fault(name, fmt.Sprintf("must be an integer from %d to %d, such as %d", least, most, max(least, 1)))
		return 0
	}
	return n
}

// integerOrNull is nil for null and for a field left out.
func (f *form) integerOrNull(name string, least, most int64) *int64 {
	if f.fields[name] == nil {
		return nil
	}
	n := f.integer(name, least, most)
	return &n
}

// boolean is true for a field left out.
func (f *form) boolean(name string) bool {
	value, isBool := f.fields[name].(bool)
	if f.has(name) && !isBool {
		f.fault(name, "must be true or false")
	}
	return value || !f.has(name)
}

func (f *form) uuid(name string) string {
	text, _ := f.fields[name].(string)
	if text = strings.ToLower(text); !uuidPattern.MatchString(text) {
		f.fault(name, "must be an id from GET /v1/products, such as 0190f5a0-0000-7000-8000-000000000001")
		return ""
	}
	return text
}

// address reads an http or https address that may be left out.
func (f *form) address(name string) string {
	text := f.text(name, optional, 2048)
	if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		f.fault(name, "must be an address such as https://shop.example.id/thanks")
	}
	return text
}

// object is the form of a value in this form, which is to be an object.
func (f *form) object(name string, value any, otherwise string) *form {
	fields, ok := value.(map[string]any)
	if !ok {
		f.fault(name, otherwise)
	}
	return &form{path: f.path + name + ".", fields: fields, absent: !ok, faults: f.faults}
}

func (f *form) list(name string, least, most int) []*form {
	values, ok := f.fields[name].([]any)
	if (!ok || len(values) < least || len(values) > most) && (f.has(name) || least > 0) {
		f.fault(name, fmt.Sprintf("must be a list of %d to %d objects", least, most))
		return nil
	}
	forms, seen := make([]*form, len(values)), map[string]bool{}
	for i, value := range values {
		forms[i] = f.object(fmt.Sprintf("%s[%d]", name, i), value, "must be an object")
		forms[i].seen = seen
	}
	return forms
}

var (
	uuidPattern  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	slugPattern  = regexp.MustCompile(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)
	codePattern  = regexp.MustCompile(`^[a-z0-9]+(?:[_-][a-z0-9]+)*$`)
	hostPattern  = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$`)
	phonePattern = regexp.MustCompile(`^[ +()-]*(?:[0-9][ +()-]*){6,20}$`)
	timePattern  = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)(?:(T\d\d:\d\d)(:\d\d(?:[.,]\d{1,9})?)?(?:Z|([+-]\d\d)(?::?([0-5]\d))?)?)?$`)
)

// phoneMarks takes out of a phone number what phonePattern allows beside digits.
var phoneMarks = strings.NewReplacer(" ", "", "+", "", "(", "", ")", "", "-", "")

// slugOf makes a slug of a name: "Kopi Kita" is kopi-kita.
func slugOf(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "-")
}

// isEmail tells whether text is one bare e-mail address.
func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text && len(text) <= 254
}

// parseTime reads an ISO 8601 date or date-time, to the millisecond. Without an offset it is UTC; a space stands for
// the + that a client forgot to encode. A lower bound begins its day or millisecond, an upper one (end) ends it.
func parseTime(text string, end bool) (Time, bool) {
	m := timePattern.FindStringSubmatch(strings.ReplaceAll(text, " ", "+"))
	if m == nil {
		return 0, false
	}
	date, minutes, seconds, zone := m[1], m[2], m[3], "Z"
	if m[4] != "" {
		zone = m[4] + ":" + cmp.Or(m[5], "00")
	}
	t, err := time.Parse(time.RFC3339, date+cmp.Or(minutes, "T00:00")+cmp.Or(seconds, ":00")+zone)
	if _, offset := t.Zone(); err != nil || offset > 14*3600 || offset < -14*3600 {
		return 0, false
	}
	switch {
	case end && minutes == "":
		t = t.AddDate(0, 0, 1).Add(-time.Millisecond)
	case !end && t.Nanosecond()%1e6 != 0:
		t = t.Add(time.Millisecond)
	}
	return Time(t.UnixMilli()), true
}

// query reads the parameters of a URL and keeps the first thing that is wrong with them.
type query struct {
	url.Values
	err error
}

// parseQuery reads a request's parameters, which are among names, given once and not empty.
func parseQuery(r *http.Request, names ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{Values: values}
	if err != nil {
		q.refuse("The query string is malformed: encode each value, as in created_at_min=2026-01-31T10:00:00%%2B07:00.")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(names, name):
			q.refuse("%q is not a parameter: this path takes %s.", name, cmp.Or(strings.Join(names, ", "), "none"))
		case len(values[name]) > 1:
			q.refuse("%s is given twice: give it once.", name)
		case values[name][0] == "":
			q.refuse("%s is empty: give it a value or leave it out.", name)
		}
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(format, args...)
	}
}

func (q *query) text(name string, most int) string {
	text := q.Get(name)
	if utf8.RuneCountInString(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		q.refuse("%s must be a text of 1 to %d characters.", name, most)
	}
	return text
}

func (q *query) choice(name string, choices ...string) string {
	text := q.Get(name)
	if q.Has(name) && !slices.Contains(choices, text) {
		q.refuse("%s must be one of %s.", name, strings.Join(choices, ", "))
	}
	return text
}

func (q *query) integer(name string, preset, least, most int64) int64 {
	if !q.Has(name) {
		return preset
	}
	text := q.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != text {
		q.refuse("%s must be an integer from %d to %d, such as %s=%d.", name, least, most, name, max(least, min(20, most)))
	}
	return n
}

func (q *query) time(name string, end bool) *Time {
	if !q.Has(name) {
		return nil
	}
	t, ok := parseTime(q.Get(name), end)
	if !ok {
		q.refuse("%s must be an ISO 8601 date or time, such as %s=2026-01-31 or %s=2026-01-31T10:00:00Z.", name, name, name)
	}
	return &t
}

// readCatalog reads a catalog file. Its errors name the line or the entry.
func readCatalog(data []byte) (c Catalog, err error) {
	f, err := parseForm(data)
	if err == errInvalidJSON {
		var any any
		if e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, &any)); ok {
			return c, badRequest("line %d: %s", 1+bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n")), e)
		}
		return c, badRequest("the file is not UTF-8")
	} else if err != nil {
		return c, err
	}
	return f.catalog()
}

// catalog reads what a catalog file holds. The dashboard's forms are read by it too.
func (f *form) catalog() (c Catalog, err error) {
	f.only("products", "bundles", "payment_methods")
	const most = 100_000
	for _, e := range f.list("products", 0, most) {
		e.only("slug", "title", "description", "price", "stock", "image_url", "published")
		c.Products = append(c.Products, readEntry(e))
	}
	for _, e := range f.list("bundles", 0, most) {
		e.only("slug", "title", "description", "price", "image_url", "published", "items")
		entry := readEntry(e)
		for _, item := range e.list("items", 1, 50) {
			item.only("slug", "quantity")
			entry.Items = append(entry.Items, BundleItem{Slug: item.name("slug", slugPattern), Quantity: item.integer("quantity", 1, 10_000)})
		}
		c.Bundles = append(c.Bundles, entry)
	}
	for _, e := range f.list("payment_methods", 0, most) {
		e.only("code", "name", "provider", "fee", "instructions", "min_amount", "max_amount", "enabled")
		c.PaymentMethods = append(c.PaymentMethods, readMethod(e))
	}
	return c, f.err()
}

func readEntry(e *form) CatalogEntry {
	p := Product{Slug: e.name("slug", slugPattern), Title: e.text("title", required, 200), Description: e.text("description", prose, 10_000),
		Price: e.integer("price", 0, maxMoney), Stock: e.integerOrNull("stock", 0, maxMoney), Published: e.boolean("published")}
	if e.fields["image_url"] != nil {
		image := e.address("image_url")
		p.ImageURL = &image
	}
	return CatalogEntry{p, given(e)}
}

func readMethod(e *form) MethodEntry {
	m := PaymentMethod{Code: e.name("code", codePattern), Name: e.text("name", required, 100), Provider: Provider(e.text("provider", required, 20)),
		Instructions: e.text("instructions", prose, 10_000), MinAmount: e.integerOrNull("min_amount", 0, maxMoney),
		MaxAmount: e.integerOrNull("max_amount", 0, maxMoney), Enabled: e.boolean("enabled")}
	if e.has("fee") {
		m.Fee = e.integer("fee", 0, maxMoney)
	}
	if m.Provider != "" && !slices.Contains(providers, m.Provider) {
		e.fault("provider", "must be one of "+strings.Join(toStrings(providers), ", "))
	}
	if m.MinAmount != nil && m.MaxAmount != nil && *m.MinAmount > *m.MaxAmount {
		e.fault("min_amount", "must not be above max_amount")
	}
	return MethodEntry{m, given(e)}
}

// name reads what identifies an entry within its list.
func (f *form) name(field string, pattern *regexp.Regexp) string {
	name := f.text(field, required, 64)
	switch {
	case name == "":
	case !pattern.MatchString(name):
		f.fault(field, "must have lower-case letters and digits, with single hyphens (in a code also underscores) between, such as kopi-gayo")
	case f.seen[name]:
		f.fault(field, fmt.Sprintf("is there twice: %q", name))
	}
	f.seen[name] = true
	return name
}

func given(e *form) map[string]bool {
	has := map[string]bool{}
	for name := range e.fields {
		has[name] = true
	}
	return has
}

// cut shortens a text to at most n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n])
}

// toStrings converts a list of a named string type.
func toStrings[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = string(v)
	}
	return all
}

// joinOr joins a list for a sentence: "paid or expired".
func joinOr[T ~string](list []T) string { return strings.Join(toStrings(list), " or ") }

// unknownProduct is the fault of a bundle's item that is no product of the store.
func unknownProduct(field, slug string) Detail {
	return Detail{
		Field:   field,
		Message: fmt.Sprintf("names no product of the store: %q", slug),
		Fault:   Fault{Code: FaultUnknownProduct, Text: slug},
	}
}

// Fault says what is wrong with a field of a form: a code and the values that go with it. The pages put it into
// words (web/faults.html).
type Fault struct {
	Code  FaultCode
	Least int64
	Most  int64
	Text  string // what was given, an example or the choices: see the code
}

type FaultCode string

const (
	FaultText           FaultCode = "text"            // must be a text of 1 to Most characters
	FaultCharacters     FaultCode = "characters"      // has control characters or broken ones
	FaultInteger        FaultCode = "integer"         // must be an integer from Least to Most
	FaultAddress        FaultCode = "address"         // must be an http or https address, such as Text
	FaultChoice         FaultCode = "choice"          // must be one of Text
	FaultBounds         FaultCode = "bounds"          // is above the upper bound
	FaultName           FaultCode = "name"            // must have lower-case letters, digits and single hyphens
	FaultList           FaultCode = "list"            // must have 1 to Most entries
	FaultTwice          FaultCode = "twice"           // Text is there twice
	FaultTaken          FaultCode = "taken"           // Text belongs to another entry
	FaultUnknownProduct FaultCode = "unknown_product" // Text is no product of the store
	FaultHTTPS          FaultCode = "https"           // must begin with https://
	FaultUserInfo       FaultCode = "user_info"       // must have no user, password or fragment
	FaultPrivate        FaultCode = "private"         // must be a public address
	FaultEvent          FaultCode = "event"           // Text is no event
	FaultNewPassword    FaultCode = "new_password"    // must have Least to Most characters
	FaultPassword       FaultCode = "password"        // is not the owner's password
	FaultTries          FaultCode = "tries"           // was tried too often: wait Least seconds
	FaultTime           FaultCode = "time"            // must be a day and a time
	FaultSecretKey      FaultCode = "secret_key"      // a gateway's key is needed
	FaultCallbackToken  FaultCode = "callback_token"  // Xendit's callback token is needed
	FaultMode           FaultCode = "mode"            // the key does not belong to the mode Text
)
