// Ogen lists, creates, reads, manages and fails with the client that ogen makes of openapi.json. Its decoders check
// formats, patterns and bounds, and which fields are there. The service's address and a key are its arguments.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"clients/ogen/api"
)

type key string

func (k key) ApiKey(context.Context, api.OperationName) (api.ApiKey, error) {
	return api.ApiKey{Token: string(k)}, nil
}

// must returns an answer of the wanted type, or ends the program.
func must[T any](answer any, err error) T {
	wanted, ok := answer.(T)
	if err != nil || !ok {
		log.Fatalf("%T instead of %T: %+v %v", answer, wanted, answer, err)
	}
	return wanted
}

func main() {
	ctx := context.Background()
	connect := func(k string) *api.Client {
		client, err := api.NewClient(os.Args[1], key(k))
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	c := connect(os.Args[2])

	products := must[*api.CatalogAnswerHeaders](c.ListProducts(ctx, api.ListProductsParams{}))
	kopi := products.Response.Data.Products[0]
	must[*api.PaymentMethodsAnswerHeaders](c.ListPaymentMethods(ctx, api.ListPaymentMethodsParams{}))
	must[*api.StoreAnswerHeaders](c.GetStore(ctx))

	order := &api.NewOrder{
		Items: []api.NewOrderItem{{
			Type:      api.ItemTypeProduct,
			ProductID: api.NewOptGivenId(api.GivenId(kopi.ID)),
			Quantity:  2,
		}},
		Buyer:         api.Buyer{Name: "Siti", Email: api.NewOptString("siti@example.id")},
		PaymentMethod: api.NewOptString("bank_transfer"),
		ShippingFee:   api.NewOptMoney(9000),
		Metadata:      api.NewOptNewOrderMetadata(api.NewOrderMetadata{"channel": "ogen"}),
	}
	made := must[*api.CreatedOrderAnswerHeaders](c.CreateOrder(ctx, order, api.CreateOrderParams{}))
	id := made.Response.Data.Order.ID
	must[*api.OrderAnswerHeaders](c.GetOrder(ctx, api.GetOrderParams{OrderID: api.GivenId(id)}))
	must[*api.ChangedOrderAnswerHeaders](
		c.ApproveOrder(ctx, api.OptOwnerAct{}, api.ApproveOrderParams{OrderID: api.GivenId(id)}))
	must[*api.OrdersAnswerHeaders](c.ListOrders(ctx, api.ListOrdersParams{}))
	events := must[*api.EventsAnswerHeaders](c.ListEvents(ctx, api.ListEventsParams{}))

	must[*api.ChangedOrderAnswerHeaders](c.EditOrder(ctx, &api.OrderEdit{Note: api.NewOptString("Tanpa gula")},
		api.EditOrderParams{OrderID: api.GivenId(id)}))
	must[*api.ChangedOrderAnswerHeaders](
		c.ShipOrder(ctx, api.NewOptShipment(api.Shipment{Carrier: api.NewOptString("JNE")}),
			api.ShipOrderParams{OrderID: api.GivenId(id)}))
	must[*api.ChangedOrderAnswerHeaders](
		c.UnshipOrder(ctx, &api.Nothing{}, api.UnshipOrderParams{OrderID: api.GivenId(id)}))
	for _, kind := range []api.GetCatalogType{api.GetCatalogTypeProduct, api.GetCatalogTypeBundle,
		api.GetCatalogTypePaymentMethod} {
		must[*api.CatalogPageHeaders](c.GetCatalog(ctx, api.GetCatalogParams{Type: kind}))
	}
	must[*api.WebhooksAnswerHeaders](c.ListWebhooks(ctx))

	cancel := api.CancelOrderParams{OrderID: api.GivenId(id)}
	must[*api.DecisionRefusedHeaders](c.CancelOrder(ctx, api.OptOwnerAct{}, cancel))
	order.Items[0].ProductID = api.NewOptGivenId(api.GivenId(id))
	must[*api.OrderRefusedHeaders](c.CreateOrder(ctx, order, api.CreateOrderParams{}))
	must[*api.UnauthorizedHeaders](connect("wrong").GetStore(ctx))
	fmt.Println("listed, created, read, managed, failed, events:", len(events.Response.Data.Events) > 0)
}
