package main

// This file says what texts may look like: names, telephone numbers, amounts, times and public addresses.

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxMoney bounds every price and amount, in rupiah. No sum or product of the API's bounded inputs can
// overflow an int64 before it is compared with maxMoney.
const maxMoney = 999_999_999_999

// formats are the rules for texts that have a format of their own.
var formats = map[string]struct {
	most  int64
	valid func(string) bool
	words string
}{
	"slug": {64, matcher(`^[a-z0-9]+(?:-[a-z0-9]+)*$`),
		"must have lower-case letters and digits, with single hyphens, such as kopi-gayo"},
	"code": {64, matcher(`^[a-z0-9]+(?:[_-][a-z0-9]+)*$`),
		"must have lower-case letters and digits, with single hyphens or underscores, such as va_bca"},
	"id": {64, matcher(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		"must be an id, such as 0190f5a0-0000-7000-8000-000000000001"},
	"email": {254, isEmail,
		"must be one e-mail address in ASCII, with a dot in its domain, such as siti@example.id"},
	"phone": {40, isPhone,
		"must have 6 to 20 digits, and besides them only spaces, +, (, ) and -, such as +628123456789"},
	"contact": {254, isContact,
		"must be a WhatsApp number such as 0812 3456 7890, or an e-mail address"},
	"host": {253, matcher(`^` + hostLabel + `(?:\.` + hostLabel + `)*$`),
		"must be a host without scheme or port, such as order.kopikita.id"},
	"account": {50, matcher(`^[0-9](?:[ .-]?[0-9]){3,33}$`), // in groups or not
		"must have 4 to 34 digits, with single spaces, hyphens or dots between, such as 123 456 7890"},
	"url": {2048, isAddress,
		"must be an http or https address in ASCII, such as https://shop.example.id/thanks%%20you"},
	"origin": {300, matcher(`^(?i:https?)://(?:[\w.-]+|\[[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*\])(?::[0-9]*)?/?$`),
		"must be a scheme and a host, such as https://orders.example.id"},
	"https": {2048, matcher(`^https` + addressEnd), "must begin with https://"},
}

// matcher reports whether texts match a pattern.
func matcher(pattern string) func(text string) bool { return regexp.MustCompile(pattern).MatchString }

// isEmail reports whether both gateways take a text as one e-mail address: in ASCII, with a domain that has a
// dot and is not a number.
var isEmail = matcher(`(?i)^` + emailAtom + `(?:\.` + emailAtom + `)*@` +
	`(?:` + hostLabel + `\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$`)

// isAddress reports whether text is an http or https address with a host, and without a user.
var isAddress = matcher(`^(?i:https?)` + addressEnd)

// isPhone reports whether text has 6 to 20 digits, and besides them only the marks that phoneMarks removes.
var isPhone = matcher(`^[ +()-]*(?:[0-9][ +()-]*){6,20}$`)

const (
	hostLabel = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?` // RFC 1123, section 2.1
	emailAtom = "[a-z0-9!#$%&'*+/=?^_`{|}~-]+"         // RFC 5322, section 3.2.3

	// addressEnd is an address after its scheme, by its characters (RFC 3986, appendix A): brackets only around the
	// host, which has no user before it, one # at most, and two hex digits after each %.
	uriChar    = `(?:[a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2})`
	uriHost    = `(?:` + uriChar + `+|\[[0-9a-fA-F:.]+\])(?::[0-9]*)?`
	uriRest    = `(?:` + uriChar + `|[:@/?])*`
	addressEnd = `://` + uriHost + `(?:[/?]` + uriRest + `)?(?:#` + uriRest + `)?$`
)

// phoneMarks removes the marks around and between the digits of a telephone number.
var phoneMarks = strings.NewReplacer(" ", "", "+", "", "(", "", ")", "", "-", "")

// internationalPhone writes a telephone number as E.164. The result is empty if it is neither an Indonesian nor an
// international number.
func internationalPhone(text string) string {
	digits := phoneMarks.Replace(text)
	if local, isLocal := strings.CutPrefix(digits, "0"); isLocal {
		digits = "62" + local
	}
	hasCountry := strings.HasPrefix(text, "+") || strings.HasPrefix(digits, "62")
	if !hasCountry || len(digits) < 8 || len(digits) > 15 {
		return ""
	}
	return "+" + digits
}

// isContact reports whether text can be a store's contact: an e-mail address or a number on WhatsApp.
func isContact(text string) bool {
	return isEmail(text) || isPhone(text) && internationalPhone(text) != ""
}

// slugOf turns a name into a slug of at most 40 characters: "Kopi Gayo 200 g" is kopi-gayo-200-g. It is empty for a
// name without Latin letters or digits.
func slugOf(name string) string {
	slug := notInSlugs.ReplaceAllString(strings.ReplaceAll(strings.ToLower(name), "é", "e"), "-")
	return strings.Trim(fmt.Sprintf("%.40s", slug), "-")
}

var notInSlugs = regexp.MustCompile(`[^a-z0-9]+`)

// amountPattern captures the digits and the unit of an amount as people type it: Rp 85.000, 85.000,00, 85000
// or 85rb. It does not match 85.00 or 85,000, which are ambiguous.
var amountPattern = regexp.MustCompile(`^(?:rp\.?)?[\s\x{a0}]*(-?\d{1,3}(?:\.\d{3})+|-?\d+)(?:,00|,-)?[\s\x{a0}]*(rb|ribu)?$`)

// parseRupiah writes an amount as digits. The result is empty if the text is not an amount.
func parseRupiah(text string) string {
	m := amountPattern.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return ""
	}

	digits := strings.ReplaceAll(m[1], ".", "")
	if m[2] != "" {
		digits += "000"
	}
	return cmp.Or(strings.TrimLeft(digits, "0"), "0")
}

// timePattern captures the date, the time's T with hours and minutes, its seconds, and the offset's hours and
// minutes.
var timePattern = regexp.MustCompile(
	`^(\d{4}-\d\d-\d\d)(?:(T\d\d:\d\d)(:\d\d(?:[.,]\d{1,9})?)?(?:Z|([+-](?:0\d|1[0-4]))(?::?([0-5]\d))?)?)?$`)

// parseTime reads an ISO 8601 date or date-time, to the millisecond. Without an offset it is UTC; a space stands for
// the + that a client forgot to encode. A lower bound begins its day or millisecond, an upper one (end) ends it.
func parseTime(text string, end bool) (Time, bool) {
	m := timePattern.FindStringSubmatch(strings.ReplaceAll(text, " ", "+"))
	if m == nil {
		return 0, false
	}
	date, minutes, seconds, offsetHours, offsetMinutes := m[1], m[2], m[3], m[4], m[5]

	zone := "Z"
	if offsetHours != "" {
		zone = offsetHours + ":" + cmp.Or(offsetMinutes, "00")
	}
	t, err := time.Parse(time.RFC3339, date+cmp.Or(minutes, "T00:00")+cmp.Or(seconds, ":00")+zone)
	switch {
	case !end:
		t = t.Add(time.Millisecond - 1) // timeOf rounds down.
	case minutes == "":
		t = t.Add(24*time.Hour - time.Millisecond)
	}
	return timeOf(t), err == nil
}

// isPrivateHost reports whether a host, by its name or address alone, cannot be reached from the internet.
func isPrivateHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !isPublic(ip)
	}
	name := strings.ToLower(host)
	top := name[strings.LastIndexByte(name, '.')+1:]
	return slices.Contains([]string{name, "localhost", "local", "internal"}, top)
}

// isReachable reports whether a gateway can reach an address, so that its notifications arrive.
func isReachable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && !isPrivateHost(u.Hostname())
}
