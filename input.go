//go:build cgo

package main

import (
	"bytes"
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
	"unicode"
	"unicode/utf8"
)

const (
	maxBody    = 64 << 10
	maxCatalog = 1 << 20
	maxDepth   = 16
)

// readBody returns a request's body of at most so many bytes. Its Content-Type is not asked: what is no JSON is refused
// as such, and many a client sends another type, or none.
func readBody(r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, bodyTooLarge(most)
	}
	if err != nil {
		return nil, badRequest("The body did not arrive whole.")
	}
	return body, nil
}

// readNewOrder reads the body of POST /v1/orders.
func readNewOrder(body []byte) (in NewOrder, err error) {
	f, err := parseForm(body)
	if err != nil {
		return in, err
	}

	f.only("items", "buyer", "payment_method", "external_id", "return_url",
		"shipping_fee", "discount", "note", "metadata")
	in.PaymentMethod = f.text("payment_method", optional, 64)
	in.ExternalID = f.text("external_id", optional, 64)
	in.ReturnURL = f.uri("return_url")
	in.Buyer = readBuyer(f.object("buyer", f.fields["buyer"], "is needed: an object"))
	items := f.list("items", 1, 100)
	in.Items = make([]NewItem, len(items))
	for i, item := range items {
		in.Items[i] = readNewItem(item)
	}

	in.ShippingFee = f.money("shipping_fee")
	in.Discount = f.money("discount")
	in.Note = f.text("note", multiline, 1000)
	in.Metadata = readMetadata(f)
	return in, f.err()
}

// readReason reads the body of POST /v1/orders/{order_id}/approve and its like, which may be empty.
func readReason(body []byte) (reason string, err error) {
	if len(body) == 0 {
		return "", nil
	}
	f, err := parseForm(body)
	if err != nil {
		return "", err
	}

	f.only("reason")
	reason = f.text("reason", optional, 200)
	return reason, f.err()
}

func readMetadata(f *form) Metadata {
	if !f.has("metadata") {
		return nil
	}

	const most = 20
	given := f.object("metadata", f.fields["metadata"], "must be an object")
	if len(given.fields) > most {
		f.refuse("metadata", fmt.Sprintf("must have at most %d keys", most))
		return nil
	}

	m := Metadata{}
	for _, key := range slices.Sorted(maps.Keys(given.fields)) {
		if !metadataKey.MatchString(key) {
			given.refuse(key, "must be named by 1 to 40 letters, digits, _ and -")
			continue
		}
		m[key] = given.text(key, multiline, 500)
	}
	return m
}

func readBuyer(f *form) Buyer {
	f.only("name", "email", "phone")
	b := Buyer{
		Name:  f.text("name", required, 200),
		Email: f.text("email", optional, 254),
		Phone: f.text("phone", optional, 40),
	}

	if b.Email != "" && !isBuyerEmail(b.Email) {
		f.refuse("email", "must be one e-mail address in ASCII, with a dot in its domain, "+
			"such as siti@example.id")
	}
	if b.Phone != "" && !isPhone(b.Phone) {
		f.refuse("phone", "must have 6 to 20 digits, and beside them only spaces, +, (, ) and -, "+
			"such as +628123456789")
	}
	if !f.has("email") && !f.has("phone") {
		f.refuse("email", "or phone is needed")
	}
	return b
}

func readNewItem(f *form) NewItem {
	item := NewItem{
		Quantity: f.integer("quantity", 1, 10_000),
		Kind:     Kind(f.text("type", required, 20)),
	}

	idField := "product_id"
	switch item.Kind {
	case KindProduct, KindBundle:
		idField = string(item.Kind) + "_id"
		item.ID = f.uuid(idField)
	case "": // It is refused already.
	default:
		f.refuse("type", "must be product or bundle")
	}
	f.only("type", idField, "quantity")

	if item.ID == "" {
		return item
	}
	if f.seen[item.ID] {
		f.refuse(idField, "is in the order already: raise that item's quantity")
	}
	f.seen[item.ID] = true
	return item
}

// form reads the fields of a JSON object and collects their faults, so that a client learns all of them at
// once. The pages read their forms with it too.
type form struct {
	path    string          // before the names of its fields in a fault: empty or such as "items[0]."
	fields  map[string]any  // nil if there is no such object, which is its only fault
	seen    map[string]bool // in a list: the ids of the elements before this one
	*faults                 // of the whole body: the forms in a form share its faults
}

type faults struct {
	malformed *APIError // answered instead of the details
	details   []Detail
}

// parseForm reads one JSON object, strictly (RFC 8259), with unique keys (RFC 7493) and at most 16 levels.
func parseForm(body []byte) (*form, error) {
	if !utf8.Valid(body) {
		return nil, errInvalidJSON
	}

	reader := jsonReader{text: string(body)}
	value, err := reader.value(1)
	if err != nil {
		return nil, err
	}
	reader.skipSpace()
	if reader.at < len(reader.text) {
		return nil, errInvalidJSON
	}

	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &APIError{Code: codeValidationFailed, Message: "The body must be a JSON object."}
	}
	return newForm(fields), nil
}

func newForm(fields map[string]any) *form { return &form{fields: fields, faults: &faults{}} }

// jsonReader checks a JSON text while it reads it into maps, lists, strings, json.Numbers, bools and nil. It finds what
// encoding/json does not report: a key that is given twice.
type jsonReader struct {
	text string
	at   int // the next byte to read
}

func (r *jsonReader) skipSpace() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// next skips white space and returns the byte after it, without reading that one. At the end of the text it returns 0,
// which no JSON has.
func (r *jsonReader) next() byte {
	r.skipSpace()
	if r.at >= len(r.text) {
		return 0
	}
	return r.text[r.at]
}

// take skips white space. If c follows, it reads c and returns true.
func (r *jsonReader) take(c byte) bool {
	found := r.next() == c
	if found {
		r.at++
	}
	return found
}

func (r *jsonReader) value(depth int) (any, error) {
	first := r.next()
	if first == '"' {
		return r.string()
	}
	if first != '{' && first != '[' {
		return r.scalar()
	}

	if depth > maxDepth {
		return nil, badRequest("The JSON is nested deeper than %d levels.", maxDepth)
	}
	r.at++
	if first == '{' {
		return r.object(depth)
	}
	return r.list(depth)
}

func (r *jsonReader) object(depth int) (any, error) {
	fields := map[string]any{}
	for first := true; !r.take('}'); first = false {
		if !first && !r.take(',') {
			return nil, errInvalidJSON
		}
		name, err := r.string()
		if err != nil {
			return nil, err
		}
		if _, twice := fields[name]; twice {
			return nil, badRequest("The key %q is given twice in one object: give it once.", name)
		}

		if !r.take(':') {
			return nil, errInvalidJSON
		}
		fields[name], err = r.value(depth + 1)
		if err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func (r *jsonReader) list(depth int) (any, error) {
	list := []any{}
	for first := true; !r.take(']'); first = false {
		if !first && !r.take(',') {
			return nil, errInvalidJSON
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

// string reads a text. One without escapes is not copied: it keeps the memory of the whole body alive.
func (r *jsonReader) string() (s string, err error) {
	if !r.take('"') {
		return "", errInvalidJSON
	}

	begin := r.at
	escaped := false
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '\\':
			escaped = true
			r.at++ // The next byte does not end the text.
		case c < ' ':
			return "", errInvalidJSON
		case c == '"':
			r.at++
			if !escaped {
				return r.text[begin : r.at-1], nil
			}
			if json.Unmarshal([]byte(r.text[begin-1:r.at]), &s) != nil {
				return "", errInvalidJSON
			}
			return s, nil
		}
	}
	return "", errInvalidJSON
}

// scalar reads a number, true, false or null.
func (r *jsonReader) scalar() (any, error) {
	begin := r.at
	for r.at < len(r.text) && strings.IndexByte(",]} \t\r\n", r.text[r.at]) < 0 {
		r.at++
	}

	switch text := r.text[begin:r.at]; text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "null":
		return nil, nil
	default:
		if !json.Valid([]byte(text)) {
			return nil, errInvalidJSON
		}
		return json.Number(text), nil
	}
}

// Fault describes a wrong field of a form: a code and the values that go with it. The pages put it into words
// (web/faults.html).
type Fault struct {
	Code  FaultCode
	Least int64
	Most  int64
	Text  string // the given text, an example or the choices: see the code
}

type FaultCode string

const (
	FaultText           FaultCode = "text"            // must be a text of 1 to Most characters
	FaultBlank          FaultCode = "blank"           // has only spaces
	FaultCharacters     FaultCode = "characters"      // has control characters (isControl) or broken ones
	FaultInteger        FaultCode = "integer"         // must be an integer from Least to Most
	FaultAddress        FaultCode = "address"         // must be an http or https address, such as Text
	FaultChoice         FaultCode = "choice"          // must be one of Text
	FaultBounds         FaultCode = "bounds"          // is above the upper bound
	FaultName           FaultCode = "name"            // must be lower-case letters, digits and single hyphens
	FaultList           FaultCode = "list"            // must have 1 to Most entries
	FaultTwice          FaultCode = "twice"           // Text is there twice
	FaultTaken          FaultCode = "taken"           // Text belongs to another entry
	FaultUnknownProduct FaultCode = "unknown_product" // Text is no product of the store
	FaultHTTPS          FaultCode = "https"           // must begin with https://
	FaultUserInfo       FaultCode = "user_info"       // must have no user, password or fragment
	FaultPrivate        FaultCode = "private"         // must be a public address
	FaultEvent          FaultCode = "unknown_event"   // Text is no event
	FaultNewPassword    FaultCode = "new_password"    // must have Least to Most characters
	FaultRepeated       FaultCode = "repeated"        // is a password that repeats itself
	FaultPersonal       FaultCode = "personal"        // is a password made of the store's name or e-mail
	FaultCommon         FaultCode = "common"          // is a password that is guessed first
	FaultPassword       FaultCode = "password"        // is not the owner's password
	FaultTries          FaultCode = "tries"           // was tried too often: wait Least seconds
	FaultTime           FaultCode = "time"            // must be a day and a time
	FaultSecretKey      FaultCode = "secret_key"      // a gateway's key is needed
	FaultCallbackToken  FaultCode = "callback_token"  // Xendit's callback token is needed
	FaultLimit          FaultCode = "limit"           // the store has Most of these already
	FaultMode           FaultCode = "mode"            // the key does not belong to the mode Text
	FaultAccount        FaultCode = "account"         // must be an account number
	FaultContact        FaultCode = "contact"         // must be a WhatsApp number or an e-mail address
)

// fault adds a wrong field: as a Fault for the pages, and in English words for the API.
func (f *form) fault(name string, fault Fault, format string, args ...any) {
	if f.fields == nil || len(f.details) >= 100 {
		return
	}

	d := detailf(f.path+name, format, args...)
	d.Fault = fault
	f.details = append(f.details, d)
}

// refuse adds a wrong field that no form of the pages can have.
func (f *form) refuse(name, message string) { f.fault(name, Fault{}, "%s", message) }

func (f *form) has(name string) bool {
	_, ok := f.fields[name]
	return ok
}

// err returns the faults of the form and of all forms in it as one error.
func (f *form) err() error {
	if f.malformed != nil {
		return f.malformed
	}
	if len(f.details) > 0 {
		return validationFailed(f.details...)
	}
	return nil
}

// validationFailed refuses a well-formed body with wrong fields.
func validationFailed(details ...Detail) *APIError {
	return &APIError{
		Code:    codeValidationFailed,
		Message: "The request has wrong fields: see details.",
		Details: details,
	}
}

// only refuses all fields but these. A name in the wrong case makes the whole body malformed, because many
// decoders would take it for the right one.
func (f *form) only(names ...string) {
	var unknown []string
	for given := range f.fields {
		if !slices.Contains(names, given) {
			unknown = append(unknown, given)
		}
	}

	slices.Sort(unknown)
	for _, given := range unknown {
		for _, name := range names {
			if strings.EqualFold(name, given) {
				f.malformed = badRequest("The key %q must be written %q.", f.path+given, f.path+name)
			}
		}
		f.refuse(given, "is not known here: leave it out")
	}
}

// textRule says what a text may be.
type textRule int

const (
	required  textRule = iota // there, and not blank
	optional                  // left out, or else not blank
	multiline                 // left out, empty or of several lines
)

// text reads a text of at most so many characters. It is empty if it is left out or refused.
func (f *form) text(name string, rule textRule, most int) string {
	wrong := Fault{Code: FaultText, Most: int64(most)}
	value, given := f.fields[name]
	if !given {
		if rule == required {
			f.fault(name, wrong, "is needed: a text of 1 to %d characters", most)
		}
		return ""
	}

	text, isText := value.(string)
	if !isText || utf8.RuneCountInString(text) > most {
		f.fault(name, wrong, "must be a text of at most %d characters", most)
		return ""
	}
	if text == "" && rule != multiline {
		f.fault(name, wrong, "must be a text of 1 to %d characters", most)
		return ""
	}

	forbidden := func(r rune) bool {
		if rule == multiline && (r == '\n' || r == '\t') {
			return false
		}
		return r == utf8.RuneError || isControl(r)
	}
	if strings.ContainsFunc(text, forbidden) {
		f.fault(name, Fault{Code: FaultCharacters}, "must have no control characters, also none that "+
			"change the direction of writing, and no broken ones (U+FFFD)")
		return ""
	}
	if rule != multiline && strings.TrimSpace(text) == "" {
		f.fault(name, Fault{Code: FaultBlank}, "must have more than spaces")
		return ""
	}
	return text
}

// isControl reports whether a character is a control character, also one that changes the direction of
// writing: a name with it would show what follows it in another order.
func isControl(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// integer reads a number that is not left out. It is 0 if it is refused.
func (f *form) integer(name string, least, most int64) int64 {
	number, _ := f.fields[name].(json.Number)
	n, err := strconv.ParseInt(string(number), 10, 64)

	if err != nil || n < least || n > most {
		f.fault(name, Fault{Code: FaultInteger, Least: least, Most: most},
			"must be an integer from %d to %d, such as %d", least, most, max(least, 1))
		return 0
	}
	return n
}

// money reads an amount in rupiah, which is 0 if it is left out.
func (f *form) money(name string) int64 {
	if !f.has(name) {
		return 0
	}
	return f.integer(name, 0, maxMoney)
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
	if !f.has(name) {
		return true
	}

	value, isBool := f.fields[name].(bool)
	if !isBool {
		f.refuse(name, "must be true or false")
	}
	return value
}

// uuid reads the id of a product or bundle. It is empty if it is refused.
func (f *form) uuid(name string) string {
	text, _ := f.fields[name].(string)
	text = strings.ToLower(text)
	if !isUUID(text) {
		f.refuse(name, "must be an id from GET /v1/products, such as 0190f5a0-0000-7000-8000-000000000001")
		return ""
	}
	return text
}

// isUUID reports whether text is a UUID in lower case.
func isUUID(text string) bool {
	if len(text) != idLength {
		return false
	}

	digits := text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	hyphens := text[8:9] + text[13:14] + text[18:19] + text[23:24]
	return hyphens == "----" && strings.Trim(digits, "0123456789abcdef") == ""
}

// address reads an http or https address that may be left out.
func (f *form) address(name string) string {
	text := f.text(name, optional, 2048)
	if text != "" && !isAddress(text) {
		const example = "https://shop.example.id/thanks"
		f.fault(name, Fault{Code: FaultAddress, Text: example}, "must be an address such as %s", example)
	}
	return text
}

// secureAddress reads an https address: a browser shows no other pictures on our pages.
func (f *form) secureAddress(name string) string {
	text := f.address(name)
	if text != "" && !isHTTPS(text) {
		f.fault(name, Fault{Code: FaultHTTPS}, "must begin with https://")
	}
	return text
}

// isAddress reports whether text is an http or https address with a host.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && hasHTTPScheme(u)
}

// uri reads an http or https address that may be left out. It has to be written as RFC 3986 wants it, because
// gateways and the clients of the API read it with parsers of their own.
func (f *form) uri(name string) string {
	text := f.text(name, optional, 2048)
	if text != "" && !(isAddress(text) && uriPattern.MatchString(text)) {
		f.refuse(name, "must be an http or https address in ASCII, with a space as %20, "+
			"such as https://shop.example.id/thanks")
	}
	return text
}

// object returns the form of a value in this form. A value that is no object is refused with these words.
func (f *form) object(name string, value any, words string) *form {
	fields, ok := value.(map[string]any)
	if !ok {
		f.refuse(name, words)
	}
	return &form{path: f.path + name + ".", fields: fields, faults: f.faults}
}

// list returns the forms of a list of objects. It may be left out if it may be empty.
func (f *form) list(name string, least, most int) []*form {
	if !f.has(name) && least == 0 {
		return nil
	}

	values, ok := f.fields[name].([]any)
	if !ok || len(values) < least || len(values) > most {
		f.fault(name, Fault{Code: FaultList, Most: int64(most)},
			"must be a list of %d to %d objects", least, most)
		return nil
	}

	forms := make([]*form, len(values))
	seen := map[string]bool{}
	for i, value := range values {
		forms[i] = f.object(name+"["+strconv.Itoa(i)+"]", value, "must be an object")
		forms[i].seen = seen
	}
	return forms
}

var (
	slugPattern = regexp.MustCompile(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)
	slugGaps    = regexp.MustCompile(`[^a-z0-9]+`)
	codePattern = regexp.MustCompile(`^[a-z0-9]+(?:[_-][a-z0-9]+)*$`)
	hostPattern = regexp.MustCompile(`^` + hostLabel + `(?:\.` + hostLabel + `)*$`)
	metadataKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

	// accountPattern matches an account number: digits, in groups or not.
	accountPattern = regexp.MustCompile(`^[0-9](?:[ .-]?[0-9]){3,33}$`)

	// dottedHostPattern matches a host of two labels or more, the last of which is no number.
	dottedHostPattern = regexp.MustCompile(`^(?:` + hostLabel + `\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$`)

	// uriPattern matches an address by its characters (RFC 3986, appendix A): brackets only around the host, one
	// # at most, and two digits after each %.
	uriPattern = regexp.MustCompile(`^[a-zA-Z]+://` + uriChars + `*(?:\[[0-9a-fA-F:.]+\](?::[0-9]*)?)?` +
		`(?:[/?](?:` + uriChars + `|[/?])*)?(?:#(?:` + uriChars + `|[/?])*)?$`)
)

const (
	hostLabel = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?` // RFC 1123, section 2.1
	uriChars  = `(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})`
)

// isPhone reports whether text has 6 to 20 digits, and beside them only the marks that phoneMarks removes.
func isPhone(text string) bool {
	digits := phoneMarks.Replace(text)
	return len(digits) >= 6 && len(digits) <= 20 && strings.Trim(digits, "0123456789") == ""
}

// phoneMarks removes the marks around and between the digits of a telephone number.
var phoneMarks = strings.NewReplacer(" ", "", "+", "", "(", "", ")", "", "-", "")

// slugOf turns a name into a slug of at most slugLength characters: "Kopi Café Gayo" is kopi-cafe-gayo. It is empty for a
// name without Latin letters and digits.
func slugOf(name string) string {
	slug := strings.Trim(slugGaps.ReplaceAllString(withoutMarks.Replace(strings.ToLower(name)), "-"), "-")
	if len(slug) <= slugLength {
		return slug
	}

	// It is cut between two words, unless the first is too long.
	whole := strings.LastIndexByte(slug[:slugLength+1], '-')
	if whole <= 0 {
		whole = slugLength
	}
	return slug[:whole]
}

// slugLength is how long a slug is that is made of a name.
const slugLength = 40

// withoutMarks writes the letters of Indonesia's and its neighbours' names in ASCII.
var withoutMarks = strings.NewReplacer(
	"à", "a", "á", "a", "â", "a", "ã", "a", "ä", "a", "å", "a", "ā", "a", "æ", "ae", "ç", "c", "č", "c", "ć", "c",
	"ḍ", "d", "ð", "d", "è", "e", "é", "e", "ê", "e", "ë", "e", "ē", "e", "ě", "e", "ĕ", "e", "ə", "e",
	"ì", "i", "í", "i", "î", "i", "ï", "i", "ī", "i", "ñ", "n", "ń", "n", "ò", "o", "ó", "o", "ô", "o", "õ", "o",
	"ö", "o", "ø", "o", "ō", "o", "œ", "oe", "ř", "r", "š", "s", "ś", "s", "ß", "ss", "ṭ", "t", "ù", "u", "ú", "u",
	"û", "u", "ü", "u", "ū", "u", "ý", "y", "ÿ", "y", "ž", "z", "’", "", "'", "")

// isEmail reports whether text is one bare e-mail address.
func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text && len(text) <= 254
}

// isBuyerEmail reports whether text is an e-mail address that both gateways take: in ASCII, with a dot in its
// domain.
func isBuyerEmail(text string) bool {
	local, domain, _ := strings.Cut(text, "@")
	notASCII := func(r rune) bool { return r > unicode.MaxASCII }
	if !isEmail(text) || strings.ContainsFunc(local, notASCII) {
		return false
	}
	return dottedHostPattern.MatchString(strings.ToLower(domain))
}

// readCatalog reads a catalog file. Its errors name the line or the entry.
func readCatalog(data []byte) (c Catalog, err error) {
	f, err := parseForm(data)
	if err == errInvalidJSON {
		return c, explainInvalid(data)
	}
	if err != nil {
		return c, err
	}
	return f.catalog()
}

// explainInvalid says where a file is not JSON.
func explainInvalid(data []byte) error {
	var value any
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, &value))
	if !ok {
		return badRequest("the file is not UTF-8")
	}

	before := data[:min(int(syntax.Offset), len(data))]
	return badRequest("line %d: %s", 1+bytes.Count(before, []byte("\n")), syntax)
}

// catalog reads the content of a catalog file. The dashboard reads its forms with it too.
func (f *form) catalog() (c Catalog, err error) {
	const most = 100_000
	f.only("products", "bundles", "payment_methods")

	for _, e := range f.list("products", 0, most) {
		e.only("slug", "title", "description", "price", "stock", "image_url", "published")
		c.Products = append(c.Products, readEntry(e))
	}

	for _, e := range f.list("bundles", 0, most) {
		e.only("slug", "title", "description", "price", "image_url", "published", "items")
		entry := readEntry(e)
		for _, item := range e.list("items", 1, 50) {
			entry.Items = append(entry.Items, readBundleItem(item))
		}
		c.Bundles = append(c.Bundles, entry)
	}

	for _, e := range f.list("payment_methods", 0, most) {
		e.only("code", "name", "provider", "kind", "fee", "instructions", "accounts", "image_url",
			"unique_code", "min_amount", "max_amount", "enabled")
		c.PaymentMethods = append(c.PaymentMethods, readMethod(e))
	}
	return c, f.err()
}

func readEntry(f *form) CatalogEntry {
	p := Product{
		Slug:        f.identifier("slug", slugPattern),
		Title:       f.text("title", required, 200),
		Description: f.text("description", multiline, 10_000),
		Price:       f.integer("price", 0, maxMoney),
		Stock:       f.integerOrNull("stock", 0, maxMoney),
		Published:   f.boolean("published"),
	}

	if f.fields["image_url"] != nil {
		image := f.address("image_url")
		p.ImageURL = &image
	}
	return CatalogEntry{p, f.given()}
}

func readBundleItem(f *form) BundleItem {
	f.only("slug", "quantity")
	return BundleItem{
		Slug:     f.identifier("slug", slugPattern),
		Quantity: f.integer("quantity", 1, 10_000),
	}
}

func readMethod(f *form) MethodEntry {
	m := PaymentMethod{
		Code:         f.identifier("code", codePattern),
		Name:         f.text("name", required, 100),
		Provider:     Provider(f.text("provider", required, 20)),
		Fee:          f.money("fee"),
		Instructions: f.text("instructions", multiline, 10_000),
		MinAmount:    f.integerOrNull("min_amount", 0, maxMoney),
		MaxAmount:    f.integerOrNull("max_amount", 0, maxMoney),
		Enabled:      f.boolean("enabled"),
		Kind:         MethodTransfer,
		Accounts:     []BankAccount{},
	}
	if f.has("kind") {
		m.Kind = MethodKind(f.text("kind", required, 20))
		oneOf(f, "kind", m.Kind, methodKinds)
	}
	for _, account := range f.list("accounts", 0, mostAccounts) {
		m.Accounts = append(m.Accounts, readAccount(account))
	}
	if f.fields["image_url"] != nil {
		image := f.secureAddress("image_url")
		m.ImageURL = &image
	}

	if f.has("unique_code") {
		m.UniqueCode = f.boolean("unique_code")
	}

	oneOf(f, "provider", m.Provider, providers)
	for _, name := range []string{"kind", "accounts", "unique_code"} {
		if m.Provider != ProviderManual && f.has(name) {
			f.refuse(name, "is only for methods of the provider manual: leave it out")
		}
	}
	if m.MinAmount != nil && m.MaxAmount != nil && *m.MinAmount > *m.MaxAmount {
		f.fault("min_amount", Fault{Code: FaultBounds}, "must not be above max_amount")
	}
	return MethodEntry{m, f.given()}
}

// mostAccounts is how many accounts a payment method can have.
const mostAccounts = 10

func readAccount(f *form) BankAccount {
	f.only("bank", "number", "holder")
	a := BankAccount{
		Bank:   f.text("bank", required, 60),
		Number: f.text("number", required, 50),
	}
	if f.has("holder") {
		a.Holder = f.text("holder", optional, 100)
	}

	if a.Number != "" && !accountPattern.MatchString(a.Number) {
		f.fault("number", Fault{Code: FaultAccount},
			"must have 4 to 34 digits, with single spaces, hyphens or dots between, such as 123 456 7890")
	}
	return a
}

// oneOf refuses a text that is none of the choices. An empty one was refused before.
func oneOf[T ~string](f *form, name string, value T, choices []T) {
	if value == "" || slices.Contains(choices, value) {
		return
	}
	all := strings.Join(toStrings(choices), ", ")
	f.fault(name, Fault{Code: FaultChoice, Text: all}, "must be one of %s", all)
}

// identifier reads a slug or code, which no two entries of a list share.
func (f *form) identifier(name string, pattern *regexp.Regexp) string {
	id := f.text(name, required, 64)
	if id == "" {
		return ""
	}

	switch {
	case !pattern.MatchString(id):
		f.fault(name, Fault{Code: FaultName}, "must have lower-case letters and digits, "+
			"with single hyphens (in a code also underscores) between, such as kopi-gayo")
	case f.seen[id]:
		f.fault(name, Fault{Code: FaultTwice, Text: id}, "is there twice: %q", id)
	}
	f.seen[id] = true
	return id
}

// given returns the names of the form's fields.
func (f *form) given() map[string]bool {
	names := map[string]bool{}
	for name := range f.fields {
		names[name] = true
	}
	return names
}

// cut shortens a text to at most n characters.
func cut(text string, n int) string {
	return fmt.Sprintf("%.*s", n, text) // The precision of a text counts its characters.
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
