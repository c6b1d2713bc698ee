package clients

import (
	"bytes"
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

// receiver keeps what is delivered to it.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	kept []delivery
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kept = append(r.kept, delivery{req.Header, body})
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
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

// TestVerifiers has real deliveries, and what is wrong, old or ahead of time, judged by Stripe's verifiers and those of
// docs/integration.md.
func TestVerifiers(t *testing.T) {
	s, r := newShop(t), newReceiver(t)
	endpoint := s.command(t, "webhook", "add", "-url", r.URL, "-webhook-allow-private")
	secret := endpoint["secret"].(string)
	s.createOrder(t)
	await(t, "a delivery", func() bool { return len(r.all()) > 0 })
	var cases []signed
	for _, d := range r.all() {
		cases = append(cases, signed{"delivered", secret, d.header.Get("X-Service-Signature"), string(d.body), true,
			false})
	}

	newSecret := s.rotate(t, endpoint["endpoint_id"].(string))
	s.createOrder(t)
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
				// Stripe's takes times ahead
				if c := cases[i]; got != c.Want && !(c.future && strings.HasPrefix(name, "stripe")) {
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
		return judged(t, dir, in, map[string]string{"stripe.mjs": stripeVerify,
			"judge-stripe.mjs": `import { verify } from "./stripe.mjs";` + judgeJS}, "node", "judge-stripe.mjs")
	})
	copied := snippets(t)
	judge("docs Go", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"go.mod": "module judge\n\ngo 1.26\n",
			"verify.go": "package main\n" + copied["go"], "main.go": judgeGo}, "go", "run", ".")
	})
	judge("docs JavaScript", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"verify.mjs": copied["js"],
			"judge.mjs": `import { verify } from "./verify.mjs";` + judgeJS}, "node", "judge.mjs")
	})
	judge("docs Python", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"verify.py": copied["python"], "judge.py": judgePython},
			"python3", "judge.py")
	})
	judge("docs PHP", func(t *testing.T) []bool {
		return judged(t, t.TempDir(), in, map[string]string{"judge.php": copied["php"] + judgePHP}, "php", "judge.php")
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
	judgePHP = `
$cases = json_decode(stream_get_contents(STDIN), true);
echo json_encode(array_map(fn($c) => verify($c["secret"], $c["header"], $c["body"]), $cases));
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

// snippets are the verifiers to copy, by language: the fenced blocks of docs/integration.md and its file for PHP.
func snippets(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../docs/integration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Verify a webhook\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```").FindAllStringSubmatch(section, -1) {
		found[m[1]] = m[2] + "\n"
	}
	php, err := os.ReadFile("../../docs/php/storeorder.php")
	if err != nil {
		t.Fatal(err)
	}
	found["php"] = string(php)
	for _, language := range []string{"go", "js", "python", "php"} {
		if found[language] == "" {
			t.Errorf("there is no verifier in %s to copy", language)
		}
	}
	return found
}
