package main

// This file says what texts may look like: names, e-mail addresses, telephone numbers, amounts, times and public
// addresses. It understands what people paste: any dash and any space between the digits of a number, and invisible
// characters around a text.

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// internationalPhone writes a telephone number as E.164. The result is empty if it is neither an Indonesian nor an
// international number.
func internationalPhone(text string) string {
	text = strings.TrimLeft(plainMarks(text), " (")
	around := trunkZero.Split(text, 2)
	if len(around) == 2 && phoneMarks.Replace(around[0]) != "" {
		text = around[0] + around[1] // +44 (0)20 …: the 0 is only for calls from the same country.
	}

	digits := phoneMarks.Replace(text)
	hasCountry := strings.HasPrefix(text, "+")
	switch {
	case strings.HasPrefix(digits, "00"):
		digits = digits[2:]
		hasCountry = true
	case strings.HasPrefix(digits, "0"):
		digits = "62" + digits[1:]
	}
	if local, isIndonesian := strings.CutPrefix(digits, "62"); isIndonesian {
		digits = "62" + strings.TrimPrefix(local, "0")
		hasCountry = true
	}
	if !hasCountry || strings.HasPrefix(digits, "0") || len(digits) < 8 || len(digits) > 15 {
		return ""
	}
	return "+" + digits
}

// trunkZero matches the 0 in parentheses that some write after the code of a country.
var trunkZero = regexp.MustCompile(`\( *0 *\)`)

// phoneMarks removes the marks around and between the digits of a telephone number.
var phoneMarks = strings.NewReplacer(" ", "", "+", "", "(", "", ")", "", "-", "")

// typedPhone reads a telephone number that was typed with dots, an Indonesian mobile number without its 0, or a link to
// WhatsApp. Any other text stays as it is.
func typedPhone(text string) string {
	number := strings.ReplaceAll(chatLink.ReplaceAllString(text, "+$1"), ".", " ")
	if isBareMobile(number) {
		number = "0" + number
	}
	if !isPhone(number) {
		return text
	}
	return number
}

var (
	chatLink = regexp.MustCompile(
		`^(?i:https?://)?(?i:wa\.me/|api\.whatsapp\.com/send/?\?phone=)\+?([0-9]+)(?:[?&].*)?$`)
	isBareMobile = matcher(`^[ (]*8(?:[ ()-]*[0-9]){8,11}$`)
)

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
var amountPattern = regexp.MustCompile(
	`^(?:rp\.?)?\s*(-?\d{1,3}(?:\.\d{3})+|-?\d+)(?:,00|,-)?\s*(rb|ribu)?$`)

// parseRupiah writes an amount as digits. The result is empty if the text is not an amount.
func parseRupiah(text string) (digits string) {
	m := amountPattern.FindStringSubmatch(strings.ToLower(plainMarks(text)))
	if m == nil {
		return ""
	}
	if m[2] != "" {
		m[1] += "000"
	}
	return parseCount(m[1])
}

// isCount reports whether text is a whole number as people type it: 1500 or 1.500.
var isCount = matcher(`^-?(?:\d{1,3}(?:\.\d{3})+|\d+)$`)

// parseCount writes a whole number as digits. The result is empty if the text is no number.
func parseCount(text string) (digits string) {
	text = plainMarks(text)
	if !isCount(text) {
		return ""
	}
	digits, isNegative := strings.CutPrefix(strings.ReplaceAll(text, ".", ""), "-")
	digits = cmp.Or(strings.TrimLeft(digits, "0"), "0")
	if isNegative {
		return "-" + digits
	}
	return digits
}

// timePattern captures the parts of a time as RFC 3339 has it (section 5.6): the date, hour, minute, second and its
// fraction, and the offset's sign, hour and minute. Beyond RFC 3339 it takes what ISO 8601 allows: a date alone, a
// time without seconds or offset, a comma before the fraction, and an offset without colon or minutes. A space stands
// for the + that a client forgot to encode, and for the T.
var timePattern = regexp.MustCompile(
	`^(\d{4}-\d\d-\d\d)(?:[Tt ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d|60)(?:[.,](\d+))?)?` +
		`(?:[Zz]|([+ -])([01]\d|2[0-3])(?::?([0-5]\d))?)?)?$`)

// parseTime reads a date or a time, to the millisecond. Without an offset it is UTC. A lower bound begins its day or
// millisecond, an upper one (end) ends it.
func parseTime(text string, end bool) (Time, bool) {
	m := timePattern.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	day, err := time.Parse(time.DateOnly, m[1])
	if err != nil {
		return 0, false
	}
	if m[2] == "" && end {
		return timeOf(day.Add(24*time.Hour - time.Millisecond)), true
	}

	offset := duration(m[7], m[8], "")
	if m[6] == "-" {
		offset = -offset
	}
	t := day.Add(duration(m[2], m[3], m[4]) - offset)
	if m[4] == "60" && !isAfterLeapSecond(t) {
		return 0, false
	}

	fraction := m[5] + "000"
	millis, _ := strconv.Atoi(fraction[:3])
	if !end && strings.Trim(fraction[3:], "0") != "" {
		millis++
	}
	return timeOf(t) + Time(millis), true
}

// duration is that of hours, minutes and seconds in digits. What is empty counts as 0.
func duration(hours, minutes, seconds string) time.Duration {
	h, _ := strconv.Atoi(hours)
	m, _ := strconv.Atoi(minutes)
	s, _ := strconv.Atoi(seconds)
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second
}

// isAfterLeapSecond reports whether the second before t can be a 61st one: leap seconds end June or December in UTC.
func isAfterLeapSecond(t time.Time) bool {
	return t.Equal(time.Date(t.Year(), time.July, 1, 0, 0, 0, 0, time.UTC)) ||
		t.Equal(time.Date(t.Year(), time.January, 1, 0, 0, 0, 0, time.UTC))
}

// isPrivateHost reports whether a host, by its name or address alone, cannot be reached from the internet.
func isPrivateHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !isPublic(ip)
	}
	name := strings.ToLower(host)
	if !strings.Contains(name, ".") {
		return true // a name of this machine or of the local network
	}
	return strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".local") ||
		strings.HasSuffix(name, ".internal")
}

// isPublic reports whether anybody on the Internet can have this address.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for denied := range strings.FieldsSeq(deniedNets) {
		if netip.MustParsePrefix(denied).Contains(ip) {
			return false
		}
	}
	return ip.IsValid()
}

// deniedNets are the addresses that are not public (IANA's special-purpose registries): in IPv6 everything
// outside 2000::/3, and some within it.
const deniedNets = `
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
	::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20`

// isLoopback reports whether a host, with or without a port, is this machine itself.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// unreachable says why the notifications of gateways cannot reach the service at an address, and what to do. It is
// empty if they can. The address has a port only if it is not the usual one.
func unreachable(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "https":
		return "Xendit's methods need https, and passwords are not safe on http. Before you sell, start serve with " +
			"your own host as -public-url https://… (the package: PUBLIC_URL in /etc/default/storeorder), behind a " +
			"proxy with TLS"
	case isPrivateHost(u.Hostname()):
		return "it is not on the internet. Before you sell, start serve with a public host as -public-url"
	case u.Port() != "":
		return "they deliver to no port but 443. Before you sell, let the proxy listen there, and start serve with a " +
			"-public-url without a port"
	}
	return ""
}

// plainMarks writes what people paste between digits as they would type it: each dash as a hyphen and each space as a
// plain one, without invisible characters.
func plainMarks(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case isInvisible(c):
			return -1
		case c == '\u2212', unicode.Is(unicode.Pd, c): // the minus sign, and all dashes
			return '-'
		case unicode.Is(unicode.Zs, c):
			return ' '
		default:
			return c
		}
	}, text)
}

// withoutPaste returns a text without what comes along when people copy it: from numbers all of it, and from other
// texts the invisible characters at their ends.
func withoutPaste(kind, text string) string {
	switch kind {
	case "id":
		return strings.ToLower(text)
	case "phone", "contact", "account":
		return plainMarks(text)
	case "text", "lines", "email":
		isEnd := func(c rune) bool { return isInvisible(c) || unicode.IsSpace(c) }
		middle := strings.TrimFunc(text, isEnd)
		if middle == text {
			return text
		}
		before, after, _ := strings.Cut(text, middle)
		return dropInvisible(before) + middle + dropInvisible(after)
	default:
		return text
	}
}

// dropInvisible removes all invisible characters but those that join letters and emojis. It keeps the latter only
// between others, where they mean something.
func dropInvisible(text string) string {
	text = strings.TrimFunc(text, isInvisible)
	return strings.Map(func(c rune) rune {
		if isInvisible(c) && !isJoiner(c) {
			return -1
		}
		return c
	}, text)
}

// isInvisible reports whether nothing can be seen of a character, apart from spaces: direction marks and characters
// of no width, such as those around a telephone number that was copied from a phone's contacts.
func isInvisible(c rune) bool {
	return unicode.Is(unicode.Bidi_Control, c) || isJoiner(c) || isZeroWidth(c)
}

func isJoiner(c rune) bool { return c == '\u200c' || c == '\u200d' }

// isZeroWidth is about what makes two texts look the same: the soft hyphen, the Mongolian separator, the zero-width
// space, the word joiner, the operators of mathematics and the byte order mark.
func isZeroWidth(c rune) bool {
	return c == '\u00ad' || c == '\u180e' || c == '\u200b' || c >= '\u2060' && c <= '\u2064' || c == '\ufeff'
}

// isForbiddenIn reports whether no text of a kind may have a character: broken UTF-8, control characters and, because
// they would reorder the text after them, direction marks.
func isForbiddenIn(kind string, c rune) bool {
	if kind == "lines" && strings.ContainsRune("\r\n\t", c) {
		return false
	}
	return c == utf8.RuneError || unicode.In(c, unicode.Cc, unicode.Bidi_Control)
}

// isBlank reports whether nothing can be seen of a text. Some letters look like spaces: those that fill the place of
// a Korean letter, and the empty pattern of Braille.
func isBlank(text string) bool {
	return strings.TrimFunc(text, func(c rune) bool {
		return unicode.IsSpace(c) || isInvisible(c) || strings.ContainsRune("\u115f\u1160\u3164\uffa0\u2800", c)
	}) == ""
}
