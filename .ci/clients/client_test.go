package clients

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clients/client"

	"github.com/oapi-codegen/nullable"
)

// TestGoClient lists, creates, reads and fails with the client that oapi-codegen makes.
func TestGoClient(t *testing.T) {
	s, ctx := newShop(t), t.Context()
	connect := func(key string) *client.ClientWithResponses {
		c, err := client.NewClientWithResponses(s.url,
			client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
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
	if kopi.Title != "Kopi Gayo" || kopi.Price != 85000 || !kopi.Stock.IsNull() ||
		kopi.ImageUrl.MustGet() != "https://img.example.id/kopi.jpg" {
		t.Errorf("%+v", kopi)
	}
	made, err := c.CreateOrderWithResponse(ctx, &client.CreateOrderParams{IdempotencyKey: new("go-1")}, client.NewOrder{
		Items: []client.NewOrderItem{{Type: client.ItemTypeProduct, ProductId: &kopi.Id, Quantity: 2}},
		Buyer: client.Buyer{Name: "Siti", Phone: new("+628123456789")}, PaymentMethod: new("sandbox")})
	if err != nil || made.JSON201 == nil || made.JSON201.Data.Order.Amount != 172500 || made.Headers201.Location == "" {
		t.Fatal(err, made)
	}
	one, err := c.GetOrderWithResponse(ctx, made.JSON201.Data.Order.Id)
	if err != nil || one.JSON200 == nil || one.JSON200.Data.PaymentSession.Status != "active" ||
		one.JSON200.Data.Order.Buyer.Email != nil || one.JSON200.Data.Order.Status != "pending" {
		t.Fatal(err, one)
	}
	list, err := c.ListOrdersWithResponse(ctx, &client.ListOrdersParams{Limit: new(10)})
	if err != nil || list.JSON200 == nil || len(list.JSON200.Data.Orders) != 1 ||
		list.JSON200.Data.Orders[0].Id != one.JSON200.Data.Order.Id {
		t.Fatal(err, list)
	}
	wrong, err := c.CreateOrderWithResponse(ctx, nil,
		client.NewOrder{Items: []client.NewOrderItem{}, Buyer: client.Buyer{Name: "Siti"}})
	if err != nil || wrong.JSON422 == nil || wrong.JSON422.Error.Code != "VALIDATION_FAILED" ||
		len(*wrong.JSON422.Error.Details) != 2 {
		t.Fatal(err, wrong)
	}
	id := made.JSON201.Data.Order.Id
	edited, err := c.EditOrderWithResponse(ctx, id, client.OrderEdit{Note: new("Tanpa gula")})
	if err != nil || edited.JSON200 == nil || *edited.JSON200.Data.Order.Sequence != 2 {
		t.Fatal(err, edited)
	}
	canceled, err := c.CancelOrderWithResponse(ctx, id, client.OwnerAct{})
	if err != nil || canceled.JSON200 == nil || canceled.JSON200.Data.Order.Status != client.OrderStatusFailed {
		t.Fatal(err, canceled)
	}

	// null means something, and can be sent.
	stock := nullable.NewNullableWithValue[int64](7)
	for _, want := range []nullable.Nullable[int64]{stock, nullable.NewNullNullable[int64]()} {
		put, err := c.PutCatalogWithResponse(ctx, nil, client.CatalogFile{
			Products: &[]client.CatalogProduct{{Slug: kopi.Slug, Title: kopi.Title, Price: kopi.Price, Stock: want}}})
		if err != nil || put.JSON200 == nil || put.JSON200.Data.Entries[0].Result != "changed" {
			t.Fatal(err, put)
		}
		page, err := c.GetCatalogWithResponse(ctx, &client.GetCatalogParams{Type: "product"})
		if err != nil || page.JSON200 == nil || (*page.JSON200.Data.Products)[0].Stock.IsNull() != want.IsNull() {
			t.Fatal(err, page)
		}
	}

	refused, err := connect("wrong").GetOrderWithResponse(ctx, made.JSON201.Data.Order.Id)
	if err != nil || refused.JSON401 == nil || refused.JSON401.Error.Code != "UNAUTHORIZED" {
		t.Fatal(err, refused)
	}
}

// TestGoClientOfToday reads answers and an event of a later service, with fields and values that today's description
// does not have.
func TestGoClientOfToday(t *testing.T) {
	text, err := os.ReadFile("../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var description object
	if err := json.Unmarshal(text, &description); err != nil {
		t.Fatal(err)
	}
	later := func(body object, known ...string) string {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		const more = `"later":{"a":[1,null]},`
		grown := strings.ReplaceAll(string(text), "{", "{"+more)
		// the shop's own, which the service adds nothing to
		grown = strings.ReplaceAll(grown, `"metadata":{`+more, `"metadata":{`)
		for _, value := range known {
			if !strings.Contains(grown, `"`+value+`"`) {
				t.Errorf("no %s in %s", value, grown)
			}
			grown = strings.ReplaceAll(grown, `"`+value+`"`, `"later_`+value+`"`)
		}
		return grown
	}
	answer := func(path, method, status string, known ...string) *http.Response {
		operation := description["paths"].(object)[path].(object)[method].(object)
		response := deref(description, operation["responses"].(object)[status])
		code, _ := strconv.Atoi(status)
		return &http.Response{
			StatusCode: code,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       io.NopCloser(strings.NewReader(later(examples(response)[0], known...))),
		}
	}

	order, err := client.ParseGetOrderResponse(
		answer("/v1/orders/{order_id}", "get", "200", "pending", "gateway", "midtrans", "product", "active"))
	if err != nil || order.JSON200 == nil {
		t.Fatal(err, order)
	}
	got := order.JSON200.Data.Order
	if got.Status != "later_pending" || got.PaymentProvider != "later_midtrans" ||
		got.SettlementChannel != "later_gateway" {
		t.Errorf("%+v", got)
	}
	if got.Items[0].Type != "later_product" || order.JSON200.Data.PaymentSession.Status != "later_active" {
		t.Errorf("%+v", order.JSON200.Data)
	}

	for path, parse := range map[string]func(*http.Response) (bool, error){
		"/v1/products": func(r *http.Response) (bool, error) {
			list, err := client.ParseListProductsResponse(r)
			return err == nil && len(list.JSON200.Data.Bundles) == 1, err
		},
		"/v1/payment-methods": func(r *http.Response) (bool, error) {
			list, err := client.ParseListPaymentMethodsResponse(r)
			return err == nil && len(list.JSON200.Data.PaymentMethods) == 3, err
		},
		"/v1/orders": func(r *http.Response) (bool, error) {
			list, err := client.ParseListOrdersResponse(r)
			return err == nil && len(list.JSON200.Data.Orders) == 1, err
		},
	} {
		if ok, err := parse(answer(path, "get", "200")); !ok {
			t.Errorf("%s: %v", path, err)
		}
	}

	refused, err := client.ParseCreateOrderResponse(answer("/v1/orders", "post", "413", "PAYLOAD_TOO_LARGE"))
	if err != nil || refused.JSON413 == nil || refused.JSON413.Error.Code != "later_PAYLOAD_TOO_LARGE" {
		t.Error(err, refused)
	}

	post := description["webhooks"].(object)["orderPaid"].(object)["post"].(object)
	var event client.OrderEvent
	err = json.Unmarshal([]byte(later(examples(deref(description, post["requestBody"]))[0], "orderPaid")), &event)
	if err != nil || event.Event != "later_orderPaid" || event.Data.Order.Amount != 87500 {
		t.Error(err, event)
	}

	var known client.KnownEvent
	err = json.Unmarshal([]byte(later(examples(deref(description, post["requestBody"]))[0])), &known)
	paid, wrong := known.ValueByDiscriminator()
	if paid, ok := paid.(client.OrderPaidEvent); err != nil || wrong != nil || !ok || paid.Data.Order.Amount != 87500 {
		t.Error(err, wrong, paid)
	}
}

type object = map[string]any

// deref returns an object of a description, or the one that its $ref names.
func deref(description object, v any) object {
	o, _ := v.(object)
	for ref, ok := o["$ref"].(string); ok; ref, ok = o["$ref"].(string) {
		var at any = description
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(object)[name]
		}
		o = at.(object)
	}
	return o
}

// examples are those of a request's or an answer's body.
func examples(of object) (list []object) {
	content, _ := of["content"].(object)
	media, _ := content["application/json"].(object)
	if one, ok := media["example"].(object); ok {
		list = append(list, one)
	}
	named, _ := media["examples"].(object)
	for _, e := range named {
		list = append(list, e.(object)["value"].(object))
	}
	return list
}

// TestOgenClient lists, creates, reads, manages and fails with the client that ogen makes: see ogen/main.go.
func TestOgenClient(t *testing.T) {
	program := os.Getenv("STOREORDER_OGEN")
	if program == "" {
		t.Skip("STOREORDER_OGEN names no program with ogen's client")
	}
	s := newShop(t)
	out, err := exec.Command(program, s.url, s.key).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "events: true") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPrism has Prism stand between a client and the service, and compare the answers with the description: see
// prism.mjs.
func TestPrism(t *testing.T) {
	dir := os.Getenv("STOREORDER_NODE")
	if dir == "" {
		t.Skip("STOREORDER_NODE names no folder with Prism")
	}
	s := newShop(t)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	description, err := filepath.Abs("../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	prism := exec.Command(filepath.Join(dir, "node_modules/.bin/prism"), "proxy", "-h", "127.0.0.1", "-p", port,
		description, s.url)
	if err := prism.Start(); err != nil {
		t.Fatal(err)
	}
	defer prism.Wait()
	defer prism.Process.Kill()
	await(t, "Prism listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})

	out, err := exec.Command("node", "prism.mjs", "http://"+address, s.key).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "answers as described") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTypeScriptClient lists, creates, reads and fails with the types of openapi-typescript: see main.ts.
func TestTypeScriptClient(t *testing.T) {
	dir := os.Getenv("STOREORDER_NODE")
	if dir == "" {
		t.Skip("STOREORDER_NODE names no folder with the compiled client")
	}
	s := newShop(t)
	cmd := exec.Command("node", "main.js", s.url, s.key)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "listed, created, read, failed" {
		t.Errorf("%v: %s", err, out)
	}
}
