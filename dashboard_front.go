//go:build cgo

package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// This file is the dashboard's first page: what waits for the owner, the orders, and the charts.

// ordersPage lists orders. The first page without a filter begins with what a new owner does first and what waits for
// the owner, and ends with charts.
type ordersPage struct {
	frame
	Filter   OrderSearch
	Day      string // the filter's day, as its input shows it
	Statuses []Status
	List     OrderList
	Next     string // the address of the next page, if List.Next says that there is one
	Newest   string // the address of the first page of the same filter
	CSV      string // the address of the same orders as CSV
	First    bool
	Begun    Begun
	Waiting  waitingList
	Revenue  chart
	Orders   chart
	here     string // the address of this page, to come back to from an order
}

// StatusLink is the address of the same search among the orders in a status, or in all.
func (p ordersPage) StatusLink(status Status) string {
	return "/dashboard?" + url.Values{
		"status": {string(status)},
		"q":      {p.Filter.Text},
		"day":    {p.Day},
	}.Encode()
}

// BackLink is the query that leads from an order back to this page.
func (p ordersPage) BackLink() string {
	if p.here == "/dashboard" {
		return ""
	}
	return "?" + url.Values{"back": {p.here}}.Encode()
}

func (s *server) showOrders(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	f := s.orderSearch(r.URL.Query(), st, 25)
	list, err := s.db.SearchOrders(st.ID, f)
	if err != nil {
		return err
	}

	page := ordersPage{
		frame:    newFrame(r, st, "orders"),
		Filter:   f,
		Statuses: []Status{AwaitingVerification, Pending, Paid, Failed, Expired, Refunded},
		List:     list,
		First:    f.Status == "" && f.Text == "" && f.After == "" && f.From == 0,
		here:     ownPath(r.URL.RequestURI(), "/dashboard"),
	}
	if f.From > 0 {
		page.Day = f.From.Time().In(wib).Format(time.DateOnly)
	}

	page.Newest = page.StatusLink(f.Status)
	filter := strings.TrimPrefix(page.Newest, "/dashboard?")
	page.CSV = "/dashboard/orders.csv?" + filter
	page.Next = page.Newest + "&after=" + list.Next

	if page.First {
		front, err := s.db.FrontPage(st.ID, 30)
		if err != nil {
			return err
		}
		page.Begun, page.Waiting = front.begun, newWaitingList(front.attention)
		page.Revenue = newChart(front.totals, func(d DayTotals) int64 { return d.Revenue })
		page.Orders = newChart(front.totals, func(d DayTotals) int64 { return d.Orders })
	}
	return render(w, r, http.StatusOK, "dash-orders.html", page)
}

// MoreItems is how many items an order has besides its first.
func (o Order) MoreItems() int { return len(o.Items) - 1 }

// orderSearch reads the filter of the orders page.
func (s *server) orderSearch(q url.Values, st StoreProfile, limit int) OrderSearch {
	f := OrderSearch{
		Text:  strings.TrimSpace(q.Get("q")),
		After: q.Get("after"),
		Limit: limit,
	}
	status := Status(q.Get("status"))
	if slices.Contains(statuses, status) {
		f.Status = status
	}

	day, err := time.ParseInLocation(time.DateOnly, q.Get("day"), wib)
	if err == nil && day.Year() >= 2000 {
		f.From, f.To = timeOf(day), timeOf(day.AddDate(0, 0, 1))
	}
	f.Amount = amountIn(f.Text)
	f.References = referencesWith(f.Text, st, s.db.Now())

	// 0812…, 62812… and +62812… are one number.
	if isPhone(f.Text) {
		number := phoneMarks.Replace(f.Text)
		f.Phone = strings.TrimLeft(strings.TrimPrefix(number, "62"), "0")
	}
	return f
}

// amountIn returns the amount that a search names, such as 170217 or Rp 170.217; 0 if it names none.
func amountIn(text string) int64 {
	digits, ok := number(text).(json.Number)
	if !ok {
		return 0
	}
	amount, err := digits.Int64()
	if err != nil || amount < 0 || amount > maxMoney {
		return 0
	}
	return amount
}

// Begun is what a new store has done so far.
type Begun struct {
	Catalog   bool // it sells something
	Method    bool // it has a payment method
	Connected bool // it has an API key or an endpoint
	Order     bool // it has had an order
}

// All reports whether there is nothing left to begin with.
func (b Begun) All() bool { return b.Catalog && b.Method && b.Connected && b.Order }

const sqlBegun = `
	SELECT EXISTS (SELECT 1 FROM products WHERE store_id = ?1),
	       EXISTS (SELECT 1 FROM payment_methods WHERE store_id = ?1 AND enabled = 1),
	       EXISTS (SELECT 1 FROM api_keys WHERE store_id = ?1 AND revoked_at IS NULL) OR
	       EXISTS (SELECT 1 FROM endpoints WHERE store_id = ?1 AND removed_at IS NULL),
	       EXISTS (SELECT 1 FROM orders WHERE store_id = ?1)`

// Unfinished reports whether the checklist on a store's first page still has something to do.
func (db *DB) Unfinished(storeID string) (bool, error) {
	b, err := queryOne(db.reader, scanBegun, sqlBegun, storeID)
	return !b.All(), err
}

func scanBegun(r row) (b Begun, err error) {
	err = r.Scan(&b.Catalog, &b.Method, &b.Connected, &b.Order)
	return b, err
}

// Attention is what waits for the owner: a few of each kind, the oldest first.
type Attention struct {
	Awaiting  []AwaitingOrder // a person has to check the payment
	Alerted   []AlertedOrder
	Troubles  []GatewayTrouble // whose gateway could not be asked
	Endpoints []Endpoint       // that are off or keep failing
}

// attentionMost is how many orders of a kind are read. The page shows one less, and that there are more.
const attentionMost = 6

// waitingList is an Attention as the page shows it. It opens with a few lines and keeps the rest folded, so that a
// phone's first screen has room for orders.
type waitingList struct {
	First        []waitingLine
	Rest         []waitingLine
	More         bool // more waits than was read
	MoreAwaiting bool // more orders wait for a check of their payment
}

// waitingLine is one thing that waits for the owner. One of its fields is set.
type waitingLine struct {
	Alerted  *AlertedOrder
	Awaiting *AwaitingOrder
	Trouble  *GatewayTrouble
	Endpoint *Endpoint
}

func newWaitingList(a Attention) waitingList {
	w := waitingList{MoreAwaiting: len(a.Awaiting) == attentionMost}
	var lines []waitingLine
	add := func(i int, line waitingLine) {
		if i+1 < attentionMost {
			lines = append(lines, line)
		} else {
			w.More = true
		}
	}

	for i := range a.Alerted {
		add(i, waitingLine{Alerted: &a.Alerted[i]})
	}
	for i := range a.Awaiting {
		add(i, waitingLine{Awaiting: &a.Awaiting[i]})
	}
	for i := range a.Troubles {
		add(i, waitingLine{Trouble: &a.Troubles[i]})
	}
	for i := range a.Endpoints {
		lines = append(lines, waitingLine{Endpoint: &a.Endpoints[i]})
	}

	// Folding a single line would save no room.
	const few = 2
	w.First = lines
	if len(lines) > few+1 {
		w.First, w.Rest = lines[:few], lines[few:]
	}
	return w
}

// AwaitingOrder is an order whose payment a person has to check.
type AwaitingOrder struct {
	Order
	Approved bool // by the owner: the gateway has not confirmed it yet
	Why      Note // what made it wait
}

func scanAwaiting(r row) (o AwaitingOrder, err error) {
	err = r.Scan(fromJSON{&o.Order}, &o.Approved, fromJSON{&o.Why})
	return o, err
}

// sqlAwaiting leaves out the orders with an alert, which says more.
const sqlAwaiting = `
	SELECT json, EXISTS (
		SELECT 1 FROM payment_sessions s
		WHERE  s.order_row = o.row AND s.approved = 1 AND s.status = 'active'),
		coalesce((
			SELECT note FROM order_history h
			WHERE  h.order_row = o.row AND to_status = 'awaiting_verification' AND from_status <> to_status
			ORDER BY position DESC LIMIT 1), '{}')
	FROM   orders o
	WHERE  store_id = ? AND status = 'awaiting_verification' AND json -> '$.alerts' IS NULL
	ORDER BY row LIMIT +?`

// frontPage is what FrontPage reads from one snapshot.
type frontPage struct {
	begun     Begun
	attention Attention
	totals    []DayTotals
}

// FrontPage reads what the first page of the dashboard shows around the newest orders.
func (db *DB) FrontPage(storeID string, days int64) (frontPage, error) {
	return readResult(db, func(q querier) (p frontPage, err error) {
		p.begun, err = queryOne(q, scanBegun, sqlBegun, storeID)
		if err != nil {
			return p, err
		}
		p.attention, err = readAttention(q, storeID)
		if err != nil {
			return p, err
		}
		p.totals, err = dailyTotals(q, storeID, days)
		return p, err
	})
}

func readAttention(q querier, storeID string) (a Attention, err error) {
	a.Awaiting, err = queryAll(q, scanAwaiting, sqlAwaiting, storeID, attentionMost)
	if err != nil {
		return a, err
	}
	a.Alerted, err = queryAll(q, scanAlerted, sqlAlerted, storeID, attentionMost)
	if err != nil {
		return a, err
	}
	a.Troubles, err = queryAll(q, scanTrouble, sqlTroubles, storeID, attentionMost)
	if err != nil {
		return a, err
	}

	endpoints, err := queryAll(q, scanEndpoint, sqlEndpoints, 0, storeID)
	healthy := func(e Endpoint) bool { return e.Active && e.Failures < failing }
	a.Endpoints = slices.DeleteFunc(endpoints, healthy)
	return a, err
}

const sqlDailyTotals = `
	SELECT day, orders, revenue FROM daily_totals
	WHERE  store_id = ? AND day >= ? AND day < ?
	ORDER BY day`

// dailyTotals returns the last days of a store up to today, one entry for each day.
func dailyTotals(q querier, storeID string, days int64) ([]DayTotals, error) {
	first := dayOf(timeOf(time.Now())) - days + 1
	totals := make([]DayTotals, days)
	for i := range days {
		totals[i].Day = first + i
	}

	busy, err := queryAll(q, scanTotals, sqlDailyTotals, storeID, first, first+days)
	for _, d := range busy {
		totals[d.Day-first] = d
	}
	return totals, err
}

func scanTotals(r row) (d DayTotals, err error) {
	err = r.Scan(&d.Day, &d.Orders, &d.Revenue)
	return d, err
}

// chart draws one value of each day as a bar. Its drawing is 80 high, and 10 wide for each day.
type chart struct {
	Bars []bar
	Most int64 // the highest value
	Sum  int64
}

// First and Last are the days at the chart's ends.
func (c chart) First() int64 { return c.Bars[0].Day }
func (c chart) Last() int64  { return c.Bars[len(c.Bars)-1].Day }

type bar struct {
	DayTotals
	X      int64
	Y      int64 // from the top
	Height int64
}

func newChart(totals []DayTotals, value func(DayTotals) int64) chart {
	const width, height = 10, 80

	var c chart
	for _, d := range totals {
		c.Most = max(c.Most, value(d))
		c.Sum += value(d)
	}

	for i, d := range totals {
		b := bar{X: int64(i) * width, DayTotals: d}
		v := value(d)
		if v > 0 {
			b.Height = max(1, v*height/c.Most)
		}
		b.Y = height - b.Height
		c.Bars = append(c.Bars, b)
	}
	return c
}
