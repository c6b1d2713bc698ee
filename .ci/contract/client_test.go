package contract

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"contract/client"
)

// TestGoClient lists, creates, reads and fails with the client that oapi-codegen makes.
func TestGoClient(t *testing.T) {
	s, ctx := newShop(t, nil), t.Context()
	connect := func(key string) *client.ClientWithResponses {
		c, err := client.NewClientWithResponses(s.url, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+key)
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := connect(s.key)
	products, err := c.ListProductsWithResponse(ctx, &client.ListProductsParams{Q: new("kopi")})
	if err != nil || products.JSON200 == nil || len(products.JSON200.Data.Products) != 1 {
		t.Fatal(err, products)
	}
	kopi := products.JSON200.Data.Products[0]
	if kopi.Title != "Kopi Gayo" || kopi.Price != 85000 || kopi.Stock != nil || *kopi.ImageUrl != "https://img.example.id/kopi.jpg" {
		t.Errorf("%+v", kopi)
	}
	made, err := c.CreateOrderWithResponse(ctx, &client.CreateOrderParams{IdempotencyKey: new("go-1")}, client.NewOrder{
		Items: []client.NewOrderItem{{Type: client.ItemTypeProduct, ProductId: &kopi.Id, Quantity: 2}},
		Buyer: client.Buyer{Name: "Siti", Phone: new("+628123456789")}, PaymentMethod: new("sandbox")})
	if err != nil || made.JSON201 == nil || made.JSON201.Data.Order.Amount != 172500 || made.Headers201.Location == "" {
		t.Fatal(err, made)
	}
	one, err := c.GetOrderWithResponse(ctx, made.JSON201.Data.Order.Id)
	if err != nil || one.JSON200 == nil || one.JSON200.Data.PaymentSession.Status != client.PaymentSessionStatusActive ||
		one.JSON200.Data.Order.Buyer.Email != nil || one.JSON200.Data.Order.Status != client.OrderStatusPending {
		t.Fatal(err, one)
	}
	list, err := c.ListOrdersWithResponse(ctx, &client.ListOrdersParams{Limit: new(10)})
	if err != nil || list.JSON200 == nil || len(list.JSON200.Data.Orders) != 1 || list.JSON200.Data.Orders[0].Id != one.JSON200.Data.Order.Id {
		t.Fatal(err, list)
	}
	wrong, err := c.CreateOrderWithResponse(ctx, nil, client.NewOrder{Items: []client.NewOrderItem{}, Buyer: client.Buyer{Name: "Siti"}})
	if err != nil || wrong.JSON422 == nil || wrong.JSON422.Error.Code != client.VALIDATIONFAILED || len(*wrong.JSON422.Error.Details) != 2 {
		t.Fatal(err, wrong)
	}
	refused, err := connect("wrong").GetOrderWithResponse(ctx, made.JSON201.Data.Order.Id)
	if err != nil || refused.JSON401 == nil || refused.JSON401.Error.Code != client.UNAUTHORIZED {
		t.Fatal(err, refused)
	}
}

// TestTypeScriptClient does the same with openapi-typescript: see main.ts.
func TestTypeScriptClient(t *testing.T) {
	dir := os.Getenv("STOREORDER_NODE")
	if dir == "" {
		t.Skip("STOREORDER_NODE names no folder with the compiled client")
	}
	s := newShop(t, nil)
	cmd := exec.Command("node", "main.js", s.url, s.key)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "listed, created, read, failed" {
		t.Errorf("%v: %s", err, out)
	}
}
