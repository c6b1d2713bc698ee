package main

// This file is about the list of an owner's orders: which orders it shows, and the same list as CSV for a spreadsheet.
// The CSV has a row per item, so that products can be summed too. Values of a whole order stand in its first row only,
// so that each column of amounts adds up.

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// asked says which orders an owner asks for, in the address of the desk and of the CSV.
type asked struct {
	Text, State string // a text to search for, and a status
	From, To    string // the first and the last day, such as 2026-01-31; in WIB
}

// asked reads which orders a page's address asks for. An invalid day counts as left out.
func (p *page) asked() (a asked, f OrderFilter) {
	a = asked{Text: strings.TrimSpace(dropInvisible(p.Query("q"))), State: p.Query("status")}
	f = OrderFilter{Status: Status(a.State), StartingAfter: p.Query("after"), Limit: 50}
	if a.State == "shipped" { // It is no status of an order.
		f.Status = ""
		f.Shipped = true
	}
	if day, isDay := dayOf(p.Query("from")); isDay {
		a.From = p.Query("from")
		f.CreatedMin = day
	}
	if day, isDay := dayOf(p.Query("to")); isDay {
		a.To = p.Query("to")
		f.CreatedMax = day.lastOfDay()
	}
	return a, f
}

// IsAll reports whether all orders are asked for.
func (a asked) IsAll() bool { return a == asked{} }

// CSV returns the address of the CSV of what is asked for.
func (a asked) CSV() string {
	query := url.Values{}
	for name, value := range map[string]string{"q": a.Text, "status": a.State, "from": a.From, "to": a.To} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return strings.TrimSuffix("/dashboard/orders.csv?"+query.Encode(), "?")
}

// ordersAsked returns the orders that a text finds or, without a text, a page of those that match a filter.
func (s *server) ordersAsked(p *page, text string, f OrderFilter) (orders []Order, more bool, err error) {
	var stored []StoredOrder
	if text != "" {
		stored, err = searching(s, p, func() ([]StoredOrder, error) {
			return s.db.FindOrders(p.Context(), p.Store.ID, text, f)
		})
	} else {
		stored, more, err = s.db.Orders(p.Context(), p.Store.ID, f)
	}
	for _, o := range stored {
		order, err := o.decode()
		if err != nil {
			return nil, false, err
		}
		orders = append(orders, order)
	}
	return orders, more, err
}

// searching reads what takes long, in the store's place for a search.
func searching[T any](s *server, p *page, read func() (T, error)) (found T, err error) {
	leave, err := s.auth.busyPlace(p.Context(), p.Store.ID, "search")
	if err != nil {
		return found, err
	}
	defer leave()
	return read()
}

// exportOrders writes the orders asked for, as the CSV that Excel uses in Indonesia: with ; and a byte order mark,
// which marks it as UTF-8.
func (s *server) exportOrders(p *page) error {
	leave, err := s.auth.place(p.Context(), p.Store.ID, "large")
	if err != nil {
		return err
	}
	defer leave()

	p.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	p.w.Header().Set("Content-Disposition", `attachment; filename="orders.csv"`)
	http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(10 * time.Minute)) // for slow connections
	p.w.WriteHeader(http.StatusOK)
	out := bufio.NewWriter(p.w)
	fmt.Fprint(out, "\ufeff", p.Language.say("csv.order"), "\r\n")
	err = s.exportRows(p, out)
	if err != nil { // Half a file must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	return out.Flush()
}

func (s *server) exportRows(p *page, out *bufio.Writer) error {
	methods := map[string]Method{} // by code, those that were read
	a, filter := p.asked()
	for {
		orders, more, err := s.ordersAsked(p, a.Text, filter)
		if err != nil {
			return err
		}
		for _, o := range orders {
			m, isKnown := methods[o.PaymentMethod]
			if !isKnown {
				m, err = s.db.MethodOf(p.Context(), OrderRow{StoreID: p.Store.ID, Order: o})
				methods[o.PaymentMethod] = m
			}
			if err != nil {
				return err
			}
			returned, err := s.returnedAt(p, o)
			if err != nil {
				return err
			}
			writeRows(out, p.Language, o, m, returned)
			filter.StartingAfter = o.ID
		}
		if !more {
			return nil
		}
	}
}

// returnedAt returns when a refunded order's money was returned, 0 for any other.
func (s *server) returnedAt(p *page, o Order) (Time, error) {
	if o.Status != Refunded {
		return 0, nil
	}
	history, err := s.db.History(p.Context(), o.ID)
	i := slices.IndexFunc(history, func(h HistoryEntry) bool { return h.To == Refunded && h.From != Refunded })
	if err != nil || i < 0 {
		return 0, err
	}
	return history[i].At, nil
}

// writeRows writes an order to the CSV, a row per item.
func writeRows(out *bufio.Writer, l language, o Order, m Method, returned Time) {
	state := l.word("status", o.Status)
	if m.Kind == Cash && o.Status == AwaitingVerification { // Its buyer has confirmed it.
		state = l.say("todo.confirmed")
		if o.isShipped() {
			state = l.say("csv.collect")
		}
	}
	test := ""
	if o.Test {
		test = l.text("ya", "yes")
	}

	before := []any{
		o.PaymentReference, o.CreatedAt, state, o.Buyer.Name, o.Buyer.Email, o.Buyer.Phone,
		o.Shipping.Address, o.Shipping.Method, o.Shipping.Carrier, o.Shipping.TrackingNumber, o.Shipping.ShippedAt,
	}
	after := []any{
		o.Subtotal, o.ShippingFee, -o.Discount, o.Fee, o.UniqueCode, o.Amount,
		m.Name, o.PaidAt, returned, o.ExternalID, test, o.Note,
	}
	for _, item := range o.Items {
		row := slices.Concat(before, []any{item.Title, item.Quantity, item.UnitPrice, item.LineTotal}, after)
		for i, cell := range row {
			if i > 0 {
				out.WriteByte(';')
			}
			out.WriteString(csvCell(cell))
		}
		out.WriteString("\r\n")
		clear(before)
		clear(after)
	}
}

// oneBreak removes tabs and carriage returns from a cell. Some spreadsheets drop them, others begin a new cell there.
var oneBreak = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", " ")

// formulas matches where a formula begins, even for a spreadsheet that begins a cell after each comma, semicolon and
// line break.
var formulas = regexp.MustCompile(`((?:^|[,;\n])[\s"]*)([=+@＝＋＠－-])`)

// notWords matches texts that a spreadsheet takes for something else and rewrites: texts with a digit that consist of
// nothing but the characters of numbers, amounts, dates and times; truth values; and names of errors, such as #N/A.
// 081234567890 would lose its 0, 3-12 would become a day, 1E5 a hundred thousand, and a number of twenty digits would
// end in zeros.
var notWords = func() *regexp.Regexp {
	part := `(?:[^\pL]|e|t|z|rp|idr|usd|eur|am|pm|` +
		`(?:jan|feb|peb|mar|apr|ma[yi]|mei|jun|jul|a[gu][guts]|sep|o[ck]t|no[pv]|de[cs]|` +
		`sen|sel|rab|kam|jum|sab|min|ahad|mon|tue|wed|thu|fri|sat|sun)\pL*)*`
	return regexp.MustCompile(`(?i)^(?:` + part + `\pN` + part + `|true|false|benar|salah|#[a-z\d/]+[!?]?)$`)
}()

// csvCell writes a value for the CSV: a time in WIB, and a text in quotes, after an apostrophe if a spreadsheet would
// take it for something else.
func csvCell(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case Time:
		if v == 0 {
			return ""
		}
		return v.Time().In(wib).Format(time.DateTime)
	case string:
		if v == "" {
			return ""
		}
		v = oneBreak.Replace(v)
		marked := formulas.ReplaceAllString(v, "$1'$2")
		if marked[0] != '\'' && notWords.MatchString(v) {
			marked = "'" + marked
		}
		return `"` + strings.ReplaceAll(marked, `"`, `""`) + `"`
	}
	return fmt.Sprint(cell)
}
