//go:build cgo

package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ---- What all pages share

//go:embed web
var web embed.FS

// pages are the templates by language. Each text stands in them in both: {{t "Pesanan" "Order"}}.
var pages = map[string]*template.Template{"id": parsePages("id"), "en": parsePages("en")}

var stylesheet, stylesheetURL = func() ([]byte, string) {
	css, err := web.ReadFile("web/style.css")
	if err != nil {
		panic(err)
	}
	hash := sha256.Sum256(css)
	return css, "/style.css?v=" + hex.EncodeToString(hash[:6])
}()

func parsePages(lang string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"lang":   func() string { return lang },
		"style":  func() string { return stylesheetURL },
		"rupiah": rupiah,
		"when":   func(t Time) string { return when(lang, t) },
		"t": func(id, en string) string {
			if lang == "en" {
				return en
			}
			return id
		},
	}).ParseFS(web, "web/*.html"))
}

// rupiah writes an amount as Indonesians do: Rp85.000.
func rupiah(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "." + digits[i:]
	}
	return "Rp" + digits
}

var months = strings.Fields("Jan Feb Mar Apr Mei Jun Jul Agu Sep Okt Nov Des")

// when writes a time in WIB (UTC+7), with the zone's name.
func when(lang string, t Time) string {
	at := t.Time().In(wib)
	if lang == "en" {
		return at.Format("2 Jan 2006, 15:04") + " WIB"
	}
	return at.Format("2 ") + months[at.Month()-1] + at.Format(" 2006, 15.04") + " WIB"
}

// language is en for those who ask for it before Indonesian, and id for all others.
func language(r *http.Request) string {
	best, lang := 0.0, "id"
	for entry := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(entry), ";")
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			q, _ = strconv.ParseFloat(text, 64)
		}
		if (primary == "id" || primary == "en") && q > best {
			best, lang = q, primary
		}
	}
	return lang
}

// page wraps the handlers of all pages: the headers that keep them safe, and no posts from other sites.
func (s *server) page(handle http.HandlerFunc) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self' data: https:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Add("Vary", "Accept-Language")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		handle(w, r)
	}))
}

// render writes a page. The template is executed before the status is sent, so that a fault in it is a 500.
func (s *server) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var b bytes.Buffer
	if err := pages[language(r)].ExecuteTemplate(&b, name, data); err != nil {
		s.pageError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// pageError answers what went wrong: 404 for what is not there, else 500 or 503.
func (s *server) pageError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case err == errNotFound:
		status = http.StatusNotFound
	case outOfService(err):
		status = http.StatusServiceUnavailable
	}
	if status != http.StatusNotFound {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}
	var b bytes.Buffer
	if err := pages[language(r)].ExecuteTemplate(&b, "error.html", status); err != nil {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func (s *server) serveStylesheet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(stylesheet))
}

// ---- The hosted pay page

// ---- The store dashboard
