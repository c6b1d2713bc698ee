package main

// This file is what a programmer reads about the API: /docs, and for programs /docs.md and /llms.txt. The page has a
// first order of the store's own product, then the guide, which is docs/integration.md, then the description, which is
// openapi.json. The guide is Markdown. As much of it as the guide uses becomes the page: headings, paragraphs, lists,
// tables and code.

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"sync"
)

//go:embed docs/integration.md docs/php/storeorder.php
var guideFiles embed.FS

// guideText is the guide with the code of a file where a paragraph is a link to it.
var guideText = sync.OnceValue(func() string {
	text := embedded(guideFiles, "docs/integration.md")
	return linkToCode.ReplaceAllStringFunc(text, func(link string) string {
		name := linkToCode.FindStringSubmatch(link)[1]
		return "```php\n" + embedded(guideFiles, "docs/"+name) + "```"
	})
})

var linkToCode = regexp.MustCompile(`(?m)^\[[^\]]*\]\((php/[^)]*)\)$`)

// llms says to a language model what there is to read.
const llms = `# Store Order API

> The API of a small shop's order service: read a catalog, create orders whose buyers pay on hosted pages, ` +
	`and receive signed
> webhooks. Amounts are whole rupiah (IDR).

- [Guide](/docs.md): a shop's checkout, events and how to verify them, errors and what to do, retries, the test kit, ` +
	`and a PHP client
- [Description](/v1/openapi.json): each path and field, as OpenAPI 3.1
- [For people](/docs): both on one page
`

// docsPage is the description, and what its examples need.
type docsPage struct {
	*page
	Spec            map[string]any // openapi.json
	Guide           []guidePart
	Product, Method string // a slug and a code for the examples, the demo's at first
	IsOwn           bool   // They are the store's own.
}

// admitReader lets everybody in. An owner who is signed in sees their own product in the first order.
func (s *server) admitReader(p *page) (err error) {
	p.Store, err = s.auth.owner(p.Request)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// answerStranger shows the description to whoever is not signed in. It is made once for each language.
func (s *server) answerStranger(p *page) error {
	if p.Store.ID != "" {
		return nil
	}
	text, found := s.docs.Load(p.Language)
	if !found {
		view, err := s.readDocs(p)
		if err != nil {
			return err
		}
		p.InOtherLanguage = "/docs?lang=" + p.Language.text("en", "id") // whatever else this reader's address has
		if text, err = p.render(view); err != nil {
			return err
		}
		s.docs.Store(p.Language, text)
	}
	p.sendPage(text.([]byte))
	p.Template = "" // It is answered.
	return nil
}

func (s *server) readDocs(p *page) (any, error) {
	v := docsPage{page: p, Guide: guideParts(guideText()), Product: "kopi-gayo", Method: "bank_transfer"}
	if err := json.Unmarshal([]byte(description), &v.Spec); err != nil || p.Store.ID == "" {
		return v, err
	}

	products, _, err := s.db.Entries(p.Context(), p.Store.ID, EntryFilter{Type: Product, Limit: 1})
	if err != nil {
		return nil, err
	}
	methods, err := s.db.UsableMethods(p.Context(), p.Store, -1)
	if len(products) > 0 && len(methods) > 0 {
		v.Product = products[0].Slug
		v.Method = methods[0].Code
		v.IsOwn = true
	}
	return v, err
}

// guidePart is a heading, code, or anything else, which is HTML already.
type guidePart struct {
	Level int    // of a heading; 0 is none
	ID    string // of a heading, for links
	Text  string // of a heading or of code
	Lines int    // of code
	HTML  template.HTML
}

// guideParts reads Markdown. Its blocks are separated by empty lines.
func guideParts(text string) (parts []guidePart) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimLeft(text, "\n") {
		if fenced, ok := strings.CutPrefix(text, "```"); ok {
			_, fenced, _ = strings.Cut(fenced, "\n") // the language
			code, rest, _ := strings.Cut(fenced, "\n```")
			parts = append(parts, guidePart{Text: code, Lines: strings.Count(code, "\n") + 1})
			text = rest
			continue
		}
		var block string
		block, text, _ = strings.Cut(text, "\n\n")
		parts = append(parts, guideBlock(block))
	}
	return parts
}

var (
	headingMark = regexp.MustCompile(`^(#+) (.*)$`)
	itemMark    = regexp.MustCompile(`(?m)^(- |[0-9]+\. )`)
	notInID     = regexp.MustCompile(`[^a-z0-9 -]`)
)

func guideBlock(block string) guidePart {
	if heading := headingMark.FindStringSubmatch(block); heading != nil {
		id := notInID.ReplaceAllString(strings.ToLower(heading[2]), "")
		return guidePart{Level: len(heading[1]), ID: strings.ReplaceAll(id, " ", "-"), Text: heading[2]}
	}
	if strings.HasPrefix(block, "| ") {
		return guidePart{HTML: guideTable(block)}
	}
	if mark := itemMark.FindString(block); mark != "" && strings.HasPrefix(block, mark) {
		list := "ol"
		if mark == "- " {
			list = "ul"
		}
		items := itemMark.ReplaceAllString(string(inline(block)), "<li>")
		return guidePart{HTML: template.HTML("<" + list + ">" + items + "</" + list + ">")}
	}
	return guidePart{HTML: "<p>" + inline(block) + "</p>"}
}

// guideTable has its heading in the first row; the second only separates it.
func guideTable(block string) template.HTML {
	var html strings.Builder
	html.WriteString("<table>")
	for i, row := range strings.Split(block, "\n") {
		if i == 1 {
			continue
		}
		cell := "td"
		if i == 0 {
			cell = "th"
		}
		html.WriteString("<tr>")
		for text := range strings.SplitSeq(strings.Trim(row, "|"), "|") {
			html.WriteString("<" + cell + ">" + string(inline(strings.TrimSpace(text))) + "</" + cell + ">")
		}
		html.WriteString("</tr>")
	}
	html.WriteString("</table>")
	return template.HTML(html.String())
}

// marked is inline for a text of the description, or for none.
func marked(text any) template.HTML {
	if text == nil {
		return ""
	}
	return inline(fmt.Sprint(text))
}

var (
	inBackticks = regexp.MustCompile("`([^`]+)`")
	inAsterisks = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	linkWithin  = regexp.MustCompile(`\[([^\]]+)\]\((#[^)]*)\)`)
)

// inline escapes a text, and marks its code, its bold words and its links.
func inline(text string) template.HTML {
	html := template.HTMLEscapeString(text)
	html = inBackticks.ReplaceAllString(html, "<code>$1</code>")
	html = inAsterisks.ReplaceAllString(html, "<b>$1</b>")
	return template.HTML(linkWithin.ReplaceAllString(html, `<a href="$2">$1</a>`))
}
