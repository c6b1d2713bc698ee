//go:build cgo

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestLogsNameNoOrder sends requests to every kind of path with an order's id in it. The id opens the order's
// pay page, so whoever reads the log must not find it there.
func TestLogsNameNoOrder(t *testing.T) {
	s := newGuardedShop(t)
	o := s.place(t, s.storeID, "Siti", "", 1)
	owner := s.at("203.0.113.5")
	owner.signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")
	api := func(method, path string) {
		s.do(t, method, strings.ReplaceAll(path, "$order", o.ID), nil, "X-Forwarded-For", "203.0.113.6:4711")
	}
	page := func(method, path string) {
		owner.send(t, method, strings.ReplaceAll(path, "$order", o.ID), nil)
	}

	for _, id := range []string{o.ID, strings.ToUpper(o.ID), o.ID + "x", o.ID[:30]} {
		for _, path := range []string{"/v1/orders/", "/v1/orders/x/", "/v1/x"} {
			api("GET", path+id)
			api("POST", path+id+"/x")
		}
		for _, path := range []string{
			"/pay/", "/nothing/", "/sandbox/", "/dashboard/orders/", "/dashboard/x/",
		} {
			page("GET", path+id)
			page("GET", path+id+"/go")
			page("POST", path+id+"/method")
		}
	}
	api("GET", "/v1/orders?starting_after=$order")
	api("GET", "/$order")
	api("GET", "/notifications/midtrans/"+s.storeID)
	page("GET", "/dashboard/keys/"+s.storeID+"/revoke")
	page("GET", "/dashboard/endpoints/"+s.storeID)
	page("POST", "/dashboard/deliveries/"+s.storeID+"/resend")
	page("POST", "/pay/$order")
	page("GET", "/dashboard/orders/$order/approve")
	page("POST", "/dashboard/orders/$order/approve")
	page("GET", "/dashboard/login?next=/dashboard/orders/$order")

	log := s.logs.String()
	for _, id := range []string{o.ID, o.ID[:30]} {
		for line := range strings.Lines(log) {
			if strings.Contains(strings.ToLower(line), id) && !strings.Contains(line, "status=404") {
				t.Errorf("the log names the order: %s", line)
			}
		}
	}
	if ids := regexp.MustCompile("(?i)"+o.ID).FindAllString(log, -1); len(ids) > 0 {
		t.Errorf("the log has the order's id %d times", len(ids))
	}

	written, _, _ := strings.Cut(strings.TrimPrefix(log, "time="), " ")
	at, err := time.Parse(time.RFC3339, written)
	if err != nil || time.Since(at).Abs() > time.Hour {
		t.Errorf("the first line is of %s, error %v", at, err)
	}

	for _, want := range []string{
		"path=/v1/orders/{order_id} status=200 duration_ms=X order=$ref store=$store client=203.0.113.6 request_id=",
		"path=/pay/{order_id} status=200 duration_ms=X order=$ref store=$store client=203.0.113.5",
		"path=/dashboard/orders/{order_id} status=200 duration_ms=X order=$ref store=$store client=203.0.113.5",
		"path=/dashboard/orders/{order_id}/approve status=200 duration_ms=X order=$ref",
		"path=/nothing/{id} status=404",
		"path=/sandbox/{session_id} status=404",
		"path=/{id} status=404",
		"path=/notifications/midtrans/$store status=",
		"path=/dashboard/keys/$store/revoke status=",
		"path=/dashboard/endpoints/$store status=",
		"path=/dashboard/deliveries/$store/resend status=",
	} {
		want = strings.NewReplacer("$ref", o.PaymentReference, "$store", s.storeID).Replace(want)
		if !strings.Contains(regexp.MustCompile(`duration_ms=\S+`).ReplaceAllString(log, "duration_ms=X"), want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
}

// wantNoOrderInLog reports order ids in the log: an order's id opens its pay page. Every test ends with this.
func (s *testServer) wantNoOrderInLog(t *testing.T) {
	t.Helper()
	ids, err := queryAll(s.db.reader, scanValue[string], "SELECT id FROM orders")
	if err != nil { // The test has closed or damaged the database.
		return
	}
	log := s.logs.String()
	for _, id := range ids {
		if strings.Contains(log, id) {
			t.Errorf("the log names the order %s", id)
		}
	}
}

// TestBodiesWithoutEnd sends more than any answer needs, and then stands still without closing the
// connection.
func TestBodiesWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1000, strings.Repeat(" ", 1000))
	for name, c := range map[string]struct {
		head   string
		chunks int
		status string
	}{
		"too large": {
			head:   "POST /v1/orders HTTP/1.1\r\nAuthorization: Bearer " + s.key,
			chunks: 66,
			status: "413",
		},
		"without a key": {
			head:   "POST /v1/orders HTTP/1.1",
			chunks: 1,
			status: "401",
		},
		"for no path": {
			head:   "POST /nothing HTTP/1.1",
			chunks: 0,
			status: "404",
		},
		"a notification": {
			head:   "POST /notifications/midtrans/" + s.storeID + " HTTP/1.1",
			chunks: 66,
			status: "413",
		},
		"a form": {
			head:   "POST /dashboard/login HTTP/1.1",
			chunks: 66,
			status: "422",
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			must(t, err)
			defer conn.Close()
			// The form is a sign-in, whose hash leaves the processor to everything else.
			must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = fmt.Fprintf(conn, "%s\r\nHost: shop.test\r\nContent-Type: application/json\r\n"+
				"Transfer-Encoding: chunked\r\n\r\n%s", c.head, strings.Repeat(chunk, c.chunks))
			must(t, err)

			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			must(t, err)
			if !strings.HasPrefix(resp.Status, c.status) {
				t.Errorf("status %s, want %s", resp.Status, c.status)
			}
			if !resp.Close {
				t.Error("the connection stays open")
			}
		})
	}
}

// TestConnectionsAreKept sends bodies that are not read. They are short, so the connection is used again.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, path := range []string{"/v1/orders", "/v1/products", "/nothing"} {
		r := s.as("so_wrong").do(t, "POST", path, `{"short": true}`)
		if r.Header.Get("Connection") != "" {
			t.Errorf("%s answers with Connection: %s", path, r.Header.Get("Connection"))
		}
	}
}

// TestAnswersAreNotSniffed looks at the answers of all kinds of paths.
func TestAnswersAreNotSniffed(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, path := range []string{
		"/v1/orders", "/v1/products", "/v1/nothing", "/v1/openapi.json",
		"/healthz", "//", "/dashboard/login", "/style.css",
	} {
		resp, err := s.client.Get(s.url + path)
		must(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options %q, want nosniff", path, got)
		}
	}
}
