package main

// This file has words in two languages, and money, dates and numbers as people read them.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// vocabulary has the words of web/words.txt by language and code.
var vocabulary = sync.OnceValue(func() map[language]map[string]string {
	all := map[language]map[string]string{"id": {}, "en": {}}
	for line := range strings.Lines(webFile("words.txt")) {
		code, words, isWord := strings.Cut(strings.TrimSpace(line), " = ")
		id, en, isCode := strings.Cut(words, " | ")
		if !isCode {
			en = code // which is what the program says
		}
		if isWord && line[0] != '#' {
			all["id"][code] = id
			all["en"][code] = en
		}
	}
	return all
})

// language is a language of the pages: id or en.
type language string

var languageRange = regexp.MustCompile(`^(?i)[ \t]*([a-z]{1,8}|\*)(?:-[a-z0-9]{1,8})*[ \t]*` +
	`(?:;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*)?$`)

// preferred returns the language that Accept-Language (RFC 9110, 12.5.4) gives the greatest weight, the first of
// several. in is an old code of Indonesian. What is not of the header's grammar is skipped.
func preferred(header string) language {
	greatest := 0.0
	choice := language("id")
	for element := range strings.SplitSeq(header, ",") {
		m := languageRange.FindStringSubmatch(element)
		if m == nil {
			continue
		}
		weight, err := strconv.ParseFloat(m[2], 64)
		if err != nil { // There is none.
			weight = 1
		}

		l := map[string]language{"id": "id", "in": "id", "en": "en"}[strings.ToLower(m[1])]
		switch {
		case l != "" && weight > greatest:
			greatest = weight
			choice = l
		case l == "id" && weight == 0 && greatest == 0:
			choice = "en" // Anything but Indonesian.
		}
	}
	return choice
}

// say returns the word for a code. Values follow, each after its name in braces.
func (l language) say(code string, values ...string) string {
	return strings.NewReplacer(values...).Replace(cmp.Or(vocabulary()[l][code], code))
}

// word returns the word for a code of a kind.
func (l language) word(kind string, code any) string { return l.say(fmt.Sprint(kind, ".", code)) }

// message returns what is wrong with a field.
func (l language) message(e FieldError) string { return fmt.Sprintf(l.say(e.Format), e.Values...) }

// firstWord returns the first of some codes that has a word.
func firstWord(codes ...string) string {
	for _, code := range codes {
		if vocabulary()["id"][code] != "" {
			return code
		}
	}
	return ""
}

// alert returns what an alert is about.
func (l language) alert(a shownAlert) string {
	return l.say("alert."+a.Kind, "{amount}", rupiah(a.Amount), "{due}", rupiah(a.Due),
		"{excess}", rupiah(a.Amount-a.Due))
}

// noteWords returns what a line of an order's history says.
func (l language) noteWords(n Note) string {
	from := ""
	for _, part := range []string{n.Bank, n.Sender} {
		if part != "" {
			from += ", " + part
		}
	}
	text := n.Text
	if text != "" {
		text = ": " + text
	}
	alert := ""
	if n.Alert != "" {
		about := shownAlert{Alert: Alert{Amount: n.Amount, Due: n.Due}, Kind: n.Alert}
		if n.Alert == string(Overpaid) {
			about.Kind = "money"
		}
		alert = l.alert(about)
	}
	if n.Code == NoteEdited {
		var names []string
		for name := range strings.SplitSeq(n.Text, ", ") {
			names = append(names, l.word("changed", name))
		}
		text = ": " + strings.Join(names, ", ")
	}

	payment := fmt.Sprint(l.word("provider", n.Provider), " ", n.SessionNumber, " ", n.Payment)
	return l.say("note."+string(n.Code), "{text}", text, "{alert}", alert, "{from}", from, "{payment}", payment,
		"{parcel}", l.parcel(n.Carrier, n.Tracking), "{amount}", rupiah(n.Amount), "{due}", rupiah(n.Due))
}

// parcel returns the carrier and the number of a parcel, to be read after a colon. It is "" if neither is known.
func (l language) parcel(carrier, number string) string {
	words := strings.TrimSpace(carrier + " " + number)
	if words == "" {
		return ""
	}
	return ": " + words
}

// text chooses between the two languages of a text.
func (l language) text(id, en string) string {
	if l == "en" {
		return en
	}
	return id
}

// dates writes times in WIB (UTC+7), with this layout.
func (l language) dates(layout string) func(t Time) string {
	words := strings.NewReplacer()
	if l == "id" {
		words = strings.NewReplacer("May", "Mei", "Aug", "Agu", "Oct", "Okt", "Dec", "Des", ":", ".")
	}
	return func(t Time) string { return words.Replace(t.Time().In(wib).Format(layout)) }
}

// rupiah writes an amount the way Indonesians do: Rp85.000.
func rupiah(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "." + text[i:]
	}
	return "Rp" + text
}

var fourDigits = regexp.MustCompile(`\d{4}`)

// grouped writes an account's number in groups, as people read it: in those of its owner or, if there are
// none, of four digits.
func grouped(a BankAccount) string {
	if a.Number != a.Digits() {
		return a.Number
	}
	return strings.TrimSpace(fourDigits.ReplaceAllString(a.Number, "$0 "))
}

// writeTo returns the link by which a person writes to a contact: an e-mail address, or a telephone number on
// WhatsApp. It is "" for a number that cannot be called from abroad.
func writeTo(contact, text string) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	if strings.Contains(contact, "@") {
		return "mailto:" + url.PathEscape(contact) + "?body=" + text
	}

	number := internationalPhone(contact)
	if number == "" {
		return ""
	}
	return "https://wa.me/" + number[1:] + "?text=" + text
}

// masked returns a buyer's contact as their pay page shows it, because buyers pass the page's address on.
func masked(b Buyer) string {
	if b.Email == "" && b.Phone == "" {
		return ""
	}
	if name, domain, isEmail := strings.Cut(b.Email, "@"); isEmail {
		return fmt.Sprintf("%.1s•••@%s", name, domain)
	}
	digits := phoneMarks.Replace(b.Phone)
	return "•••" + digits[max(0, len(digits)-3):]
}

func indented(value any) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return string(text), err
}
