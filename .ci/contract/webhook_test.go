package contract

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"
)

// delivery is a webhook as it arrived.
type delivery struct {
	header http.Header
	body   []byte
}

// receiver keeps what is delivered to it. It refuses the first delivery, so that there is a second attempt.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	kept []delivery
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.kept = append(r.kept, delivery{req.Header, body}); len(r.kept) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// again is the first delivery's second attempt.
func (r *receiver) again() (d delivery, ok bool) {
	for _, d := range r.all() {
		if d.header.Get("X-Service-Attempt") == "2" {
			return d, true
		}
	}
	return d, false
}

// has tells whether at least so many of each event have come.
func (r *receiver) has(want map[string]int) bool {
	count := map[string]int{}
	for _, d := range r.all() {
		count[d.header.Get("X-Service-Event")]++
	}
	for event, n := range want {
		if count[event] < n {
			return false
		}
	}
	return true
}

// signed is a webhook as a verifier gets it, and whether it is to be believed.
type signed struct {
	What   string `json:"what"`
	Secret string `json:"secret"`
	Header string `json:"header"`
	Body   string `json:"body"`
	Want   bool   `json:"want"`
	future bool
}

// verifiers has real deliveries, and what is wrong, old or ahead of time, judged by Stripe's verifiers and the README's.
func verifiers(t *testing.T, s *shop, r *receiver, endpoint, secret string) {
	var cases []signed
	for _, d := range r.all() {
		cases = append(cases, signed{"delivered", secret, d.header.Get("X-Service-Signature"), string(d.body), true, false})
	}
	newSecret := s.cli(t, "", "webhook rotate", "-endpoint", endpoint)["secret"].(string)
	s.create(t, "bank_transfer", "kopi")
	var rotated delivery
	await(t, "a delivery with two signatures", func() bool {
		all := r.all()
		rotated = all[len(all)-1]
		return strings.Count(rotated.header.Get("X-Service-Signature"), "v1=") == 2
	})
	header, body := rotated.header.Get("X-Service-Signature"), string(rotated.body)
	_, signatures, _ := strings.Cut(header, ",")
	sign := func(after time.Duration) string {
		at := strconv.FormatInt(time.Now().Add(after).Unix(), 10)
		mac := hmac.New(sha256.New, []byte(newSecret))
		mac.Write([]byte(at + "." + body))
		return "t=" + at + ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	cases = append(cases, []signed{
		{"rotated, for the new secret", newSecret, header, body, true, false},
		{"rotated, for the old secret", secret, header, body, true, false},
		{"another secret", secret + "x", header, body, false, false},
		{"the secret without whsec_", strings.TrimPrefix(newSecret, "whsec_"), header, body, false, false},
		{"another body", newSecret, header, strings.Replace(body, "pending", "paid", 1), false, false},
		{"a space more", newSecret, header, body + " ", false, false},
		{"no header", newSecret, "", body, false, false},
		{"no signature", newSecret, strings.Split(header, ",")[0], body, false, false},
		{"no time", newSecret, signatures, body, false, false},
		{"a time that is none", newSecret, "t=now," + signatures, body, false, false},
		{"another time", newSecret, fmt.Sprintf("t=%d,%s", time.Now().Unix()-100, signatures), body, false, false},
		{"another scheme", newSecret, strings.ReplaceAll(header, "v1=", "v0="), body, false, false},
		{"a signature cut short", newSecret, header[:len(header)-70], body, false, false},
		{"an empty signature", newSecret, strings.Split(header, ",")[0] + ",v1=", body, false, false},
		{"four minutes old", newSecret, sign(-4 * time.Minute), body, true, false},
		{"over five minutes old", newSecret, sign(-302 * time.Second), body, false, false},
		{"four minutes ahead", newSecret, sign(4 * time.Minute), body, true, false},
		{"over five minutes ahead", newSecret, sign(400 * time.Second), body, false, true},
	}...)
	judge := func(name string, verify func(t *testing.T) []bool) {
		t.Run(name, func(t *testing.T) {
			for i, got := range verify(t) {
				if c := cases[i]; got != c.Want && !(c.future && strings.HasPrefix(name, "stripe")) { // Stripe's takes times ahead
					t.Errorf("%s: %t, want %t\n%s", c.What, got, c.Want, c.Header)
				}
			}
		})
	}
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	judge("stripe-go", func(t *testing.T) (got []bool) {
		for _, c := range cases {
			got = append(got, webhook.ValidatePayload([]byte(c.Body), c.Header, c.Secret) == nil)
		}
		return got
	})
	judge("stripe-node", func(t *testing.T) []bool {
		dir := os.Getenv("STOREORDER_NODE")
		if dir == "" {
			t.Skip("STOREORDER_NODE names no folder with the npm package stripe")
		}
		return judged(t, dir, in, map[string]string{"stripe.mjs": stripeVerify, "judge-stripe.mjs": `import { verify } from "./stripe.mjs";` + judgeJS}, "node", "judge-stripe.mjs")
	})
	snippets := readmeSnippets(t)
	judge("README Go", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"go.mod": "module judge\n\ngo 1.26\n",
			"verify.go": "package main\n" + snippets["go"], "main.go": judgeGo}, "go", "run", ".")
	})
	judge("README JavaScript", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"verify.mjs": snippets["javascript"],
			"judge.mjs": `import { verify } from "./verify.mjs";` + judgeJS}, "node", "judge.mjs")
	})
	judge("README Python", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"verify.py": snippets["python"], "judge.py": judgePython}, "python3", "judge.py")
	})
}

const (
	judgeGo = `package main

import (
	"encoding/json"
	"os"
)

func main() {
	var cases []struct{ Secret, Header, Body string }
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	got := []bool{}
	for _, c := range cases {
		got = append(got, verify(c.Secret, c.Header, []byte(c.Body)))
	}
	json.NewEncoder(os.Stdout).Encode(got)
}
`
	judgeJS = `
import { readFileSync } from "node:fs";
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((c) => verify(c.secret, c.header, Buffer.from(c.body)))));
`
	judgePython = `
import json, sys
from verify import verify
print(json.dumps([verify(c["secret"], c["header"], c["body"].encode()) for c in json.load(sys.stdin)]))
`
	stripeVerify = `
import Stripe from "stripe";
const stripe = new Stripe("sk_test_none");
export function verify(secret, header, body) {
  try {
    return stripe.webhooks.constructEvent(body, header, secret).id === JSON.parse(body).id;
  } catch {
    return false;
  }
}
`
)

// judged runs a verifier in another process, which reads the cases and prints its verdicts.
func judged(t *testing.T, dir string, in []byte, files map[string]string, command string, args ...string) (got []bool) {
	if _, err := exec.LookPath(command); err != nil {
		t.Skip(command + " is not installed")
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(command, args...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return got
}

// readmeSnippets are the fenced blocks under the README's heading, by language.
func readmeSnippets(t *testing.T) map[string]string {
	text, err := os.ReadFile(cmp.Or(os.Getenv("README"), "../../README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut("\n"+string(text), "\n## Verifying a webhook\n")
	section, _, _ = strings.Cut("\n"+section, "\n## ")
	snippets := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```").FindAllStringSubmatch(section, -1) {
		snippets[m[1]] = m[2] + "\n"
	}
	for _, language := range []string{"go", "javascript", "python"} {
		if snippets[language] == "" {
			t.Errorf("the README has no %s block under \"Verifying a webhook\"", language)
		}
	}
	return snippets
}
