package clients

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPHPClient places an order twice and catches up, with docs/php/storeorder.php.
func TestPHPClient(t *testing.T) {
	if _, err := exec.LookPath("php"); err != nil {
		t.Skip("php is not installed")
	}
	s := newShop(t)
	out, err := exec.Command("php", "client.php", s.url, s.key).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "placed, refused, caught up" {
		t.Errorf("%v: %s", err, out)
	}
}
