//go:build cgo

package main

import (
	"crypto/rand"
	"sync"
	"time"
)

// newSecrets keeps secrets that were just created until the page that shows them is read. A form that creates one
// redirects to that page, so that reloading it creates nothing. Its zero value is empty.
type newSecrets struct {
	mu   sync.Mutex
	kept map[string]keptSecret
}

// keptSecret is a secret that waits to be shown.
type keptSecret struct {
	storeID string
	secret  string
	until   time.Time
}

// newSecretKept is how long a secret waits for its page.
const newSecretKept = 5 * time.Minute

// keep returns the name under which take finds a secret, once.
func (n *newSecrets) keep(storeID, secret string) (name string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	now := time.Now()
	for name, kept := range n.kept {
		if now.After(kept.until) {
			delete(n.kept, name)
		}
	}
	if n.kept == nil {
		n.kept = map[string]keptSecret{}
	}
	name = rand.Text()
	n.kept[name] = keptSecret{storeID, secret, now.Add(newSecretKept)}
	return name
}

// take returns a store's secret and forgets it; empty if it is not kept.
func (n *newSecrets) take(storeID, name string) (secret string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	kept, ok := n.kept[name]
	if !ok || kept.storeID != storeID || time.Now().After(kept.until) {
		return ""
	}
	delete(n.kept, name)
	return kept.secret
}
