//go:build cgo

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestDescriptionNamesTheService(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	resp, err := s.client.Get(s.url + "/v1/openapi.json")
	must(t, err)
	defer resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("Access-Control-Allow-Origin %q, want *", got)
	}

	var d struct {
		Servers []struct {
			Variables map[string]struct{ Default string }
		}
	}
	must(t, json.NewDecoder(resp.Body).Decode(&d))
	if got := d.Servers[0].Variables["base_url"].Default; got != s.db.publicURL {
		t.Errorf("server %q, want %s", got, s.db.publicURL)
	}
}

// TestReferencePage looks for everything of the description on its page.
func TestReferencePage(t *testing.T) {
	s := newShop(t, "https://orders.example.id")
	p := s.browser().get(t, "/docs")
	p.has(t, 200,
		"https://orders.example.id/v1/openapi.json",
		`curl -X POST "$API/v1/orders" -H "Authorization: Bearer $KEY" -d @- <<'END'`,
		`curl "$API/v1/openapi.json"<`,
		`"payment_method": "bank_transfer"`,
		"<code>Idempotency-Key</code>",
		"list of OrderItem",
		"<code>X-Service-Signature</code>",
		"To test a verifier",
		"int64 or null")
	p.lacks(t, "<script", "#/components", "<no value>")

	root := newNode(description, description)
	for _, path := range root.at("paths").fields {
		for _, method := range newNode(description, path.value).fields {
			p.has(t, 200, "<h2>"+strings.ToUpper(method.name)+" "+path.name+"</h2>")
		}
	}
	for _, event := range root.at("webhooks").fields {
		p.has(t, 200, "<summary>"+event.name+"</summary>", `"event": "`+event.name+`"`)
	}
	for _, schema := range root.at("components", "schemas").fields {
		p.has(t, 200, schema.name)
	}

	t.Run("every link leads to a place of the page", func(t *testing.T) {
		for _, part := range strings.Split(p.body, `href="#`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			if !strings.Contains(p.body, `id="`+id+`"`) {
				t.Errorf("nothing has the id %q", id)
			}
		}
	})

	t.Run("a page of the owner leads to it", func(t *testing.T) {
		s.owner(t, "kopi-kita@example.id").sees(t, "/dashboard/developers", `href="/docs"`)
	})

	t.Run("its headers forbid scripts", func(t *testing.T) {
		if got := p.header.Get("Content-Security-Policy"); got != contentSecurity {
			t.Errorf("Content-Security-Policy %q", got)
		}
		if p.status != http.StatusOK {
			t.Errorf("status %d", p.status)
		}
	})
}
