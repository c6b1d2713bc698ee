package main

// This file is the owner's desk: signing in, what waits and the orders, one order, an order of the owner's own, and CSV.

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// admitOwner lets a store's owner in. Whoever is not signed in is sent to the sign-in page.
func (s *server) admitOwner(p *page) (err error) {
	p.Store, err = s.auth.owner(p.Request)
	if errors.Is(err, ErrNotFound) {
		p.next = "/dashboard/login?next=" + url.QueryEscape(p.URL.RequestURI())
		return nil
	}
	if err != nil {
		return err
	}

	p.IsOwner = true
	logStore(p.w, p.Store.ID)
	p.Request = p.WithContext(s.auth.boundWrites(p.Context(), p.Store.ID, "owner writes"))
	return s.auth.ownerLimiter.take(p.Store.ID).err
}

// admitStranger limits how often an address posts to the sign-in page, before its form is read.
func (s *server) admitStranger(p *page) error {
	if p.Method != http.MethodPost {
		return nil
	}
	return s.auth.formLimiter.take(s.auth.client(p.Request))
}

// signIn signs an owner in by a password, or by the button of a sign-in link: a preview that fetches the link
// does not use it up.
func (s *server) signIn(p *page) (err error) {
	if token := p.PathValue("token"); token != "" {
		err = s.auth.signInByLink(p.w, p.Request, token)
	} else {
		err = s.auth.signIn(p.w, p.Request, p.PostFormValue("email"), p.PostFormValue("password"))
	}
	if errors.Is(err, ErrNotFound) {
		return refuse(ValidationFailed)
	}

	p.next = "/dashboard"
	if asked := p.URL.Query().Get("next"); ownPaths.MatchString(asked) {
		p.next = asked
	}
	return err
}

// ownPaths are the addresses of the dashboard that a sign-in may lead to.
var ownPaths = regexp.MustCompile(`^/dashboard(/\w[\w.-]*)*(\?[\w=&%+.-]*)?$`)

// Orders returns those that the address asks for: those that match a text, or a page of 50 and one more.
func (p *page) Orders() (orders []Order, err error) {
	var stored []StoredOrder
	status := Status(p.Query("status"))
	if text := p.Query("q"); text != "" {
		stored, err = p.DB.FindOrders(p.Context(), p.Store.ID, text, status)
	} else {
		f := OrderFilter{Status: status, StartingAfter: p.Query("after"), Limit: 51}
		stored, _, err = p.DB.Orders(p.Context(), p.Store.ID, f)
	}

	for _, o := range stored {
		order, err := o.decode()
		if err != nil {
			return nil, err
		}
		orders = append(orders, order)
	}
	return orders, err
}

// shownAlert is an alert with its kind, which chooses its words: its code or, of an overpaid order, toomuch
// (only a part of the money is needed) or both (the payment pays the order, and the buyer has reported
// another one).
type shownAlert struct {
	Alert
	Kind string
}

// shownAlerts returns the alerts of a book, as pages show them.
func shownAlerts(b Book) (shown []shownAlert) {
	for _, a := range alerts(b) {
		kind := string(a.Code)
		switch {
		case a.Code != Overpaid, b.isUnneeded(a.Payment):
		case a.Amount > a.Due:
			kind = "toomuch"
		case b.Reported && b.Status == Paid:
			kind = "both"
		}
		shown = append(shown, shownAlert{a, kind})
	}
	return shown
}

// waiting says why an order waits for its owner.
type waiting struct {
	Alerts []shownAlert
	Said   Note   // by the buyer, or by the gateway about a payment
	Since  Time   // when that was
	Why    string // the kind of its first alert or, without one, the code of what was said
}

// Waiting returns why an order waits: its alerts, and what was said when it began to wait.
func (p *page) Waiting(o OrderRow) (waiting, error) {
	w := waiting{Alerts: shownAlerts(o.Book), Since: o.Order.UpdatedAt}
	history, err := p.DB.History(p.Context(), o.ID)
	became := func(h HistoryEntry) bool { return h.To == AwaitingVerification && h.From != h.To }
	if i := slices.IndexFunc(history, became); i >= 0 && o.Order.Status == AwaitingVerification {
		w.Said = history[i].Note
		w.Since = history[i].At
	}

	// Nobody has said anything when the order waits again for a payment that was held before.
	w.Why = cmp.Or(string(w.Said.Code), "held")
	if len(w.Alerts) > 0 {
		w.Why = w.Alerts[0].Kind
	}
	return w, err
}

// decideOrder does one of the acts approve, reject, cancel and refund, unless the order's State has changed
// since the owner saw it.
func (s *server) decideOrder(p *page) error {
	_, err := s.payments.Decide(p.Context(), p.Store.ID, p.PathValue("id"), Act(p.PostFormValue("act")), ActorOwner,
		Note{Code: NoteInDashboard}, p.PostFormValue("state"))
	return err
}

func (s *server) resolveAlert(p *page) error {
	isPayer := p.PostFormValue("payer") == "yes"
	return s.db.ResolveAlert(p.Context(), p.Store.ID, p.PathValue("id"), p.PostFormValue("alert"), isPayer)
}

func (s *server) checkOrder(p *page) error {
	answered, err := s.payments.CheckNow(p.Context(), p.Store.ID, p.PathValue("id"))
	if err == nil && !answered {
		err = refuse(Unavailable)
	}
	return err
}

// ownOrder is the form for an order of the owner's own.
type ownOrder struct {
	Items []struct {
		Title    string `json:"title" rule:"text 1..200"`
		Quantity int64  `json:"quantity" rule:"int 1..10000 =1"`
	} `json:"items" rule:"list 1..10"`
	Name     string `json:"name" rule:"text 1..200"`
	Phone    string `json:"phone" rule:"phone optional"`
	Email    string `json:"email" rule:"email optional"`
	Method   string `json:"payment_method" rule:"text 1..64 optional"`
	Shipping int64  `json:"shipping_fee" rule:"money optional"`
	Discount int64  `json:"discount" rule:"money optional"`
	Note     string `json:"note" rule:"lines 0..1000 optional"`
}

// makeOrder creates an order of the owner's own, and confirms it if it is to be paid in cash. The form's
// address has its idempotency key: a double click makes only one order.
func (s *server) makeOrder(p *page) error {
	var in ownOrder
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}

	order := NewOrder{
		Buyer:          Buyer{in.Name, in.Email, in.Phone},
		PaymentMethod:  in.Method,
		ShippingFee:    in.Shipping,
		Discount:       in.Discount,
		Note:           in.Note,
		IdempotencyKey: "form-" + p.Query("key"),
		BodyHash:       digest(p.PostForm.Encode()),
	}

	entries, err := p.Entries("", false, 500) // those of the form's list
	if err != nil {
		return err
	}

	wrong := refuse(ValidationFailed)
	for i, item := range in.Items {
		field := fmt.Sprintf("items[%d].title", i)
		meant := titled(entries, item.Title)
		switch len(meant) {
		case 0:
			wrong.add(field, "is not in the list: choose from it")
		case 1:
			isSame := func(other NewItem) bool { return other.ID == meant[0].ID }
			if slices.ContainsFunc(order.Items, isSame) {
				wrong.add(field, "appears twice: %q", item.Title)
			}
			order.Items = append(order.Items, NewItem{Kind: meant[0].Type, ID: meant[0].ID, Quantity: item.Quantity})
		default:
			wrong.add(field, "matches several: choose one from the list, or rename one in the catalog")
		}
	}

	if err := wrong.orNil(); err != nil {
		return err
	}

	created, err := s.db.CreateOrder(p.Context(), p.Store, order)
	if isRefused(err, IdempotencyKeyReused) { // The page asks whether to open that order.
		err = &Refusal{Reason: IdempotencyKeyReused, Words: created.ID}
	}

	p.next = "/dashboard/orders/" + created.ID
	if err != nil {
		return err
	}

	m, err := p.MethodOf(order.PaymentMethod)
	if m.Kind == Cash { // The buyer has agreed already, and may never open the pay page.
		err = s.db.ReportPayment(p.Context(), created.ID, order.PaymentMethod, "", "")
	}

	if isRefused(err, WrongState) { // A double click has confirmed it, the order has moved on, or nothing has to be paid.
		return nil
	}
	return err
}

// titled returns the entries that a person means by a text, in any case: those with this title or, if there
// are none, those whose title contains it.
func titled(entries []Entry, text string) []Entry {
	var exact, like []Entry
	text = strings.ToLower(text)
	for _, e := range entries {
		switch title := strings.ToLower(e.Title); {
		case title == text:
			exact = append(exact, e)
		case strings.Contains(title, text):
			like = append(like, e)
		}
	}

	if len(exact) > 0 {
		return exact
	}
	return like
}

// phoneWords returns what an owner's phone shows of an event: the state and the amount first, and the buyer's
// name last and cut, so that no name can pass for a state. It has no id, no telephone number and no note.
func phoneWords(lang string, event EventName, order []byte) (title, text string) {
	var o Order
	json.Unmarshal(order, &o) // A ping has none.
	l := language(lang)
	title = l.say("phone."+string(event), "{amount}", rupiah(o.Amount))
	if o.Test {
		title += " (" + l.say("phone.test") + ")"
	}
	text = fmt.Sprintf("%.40s", o.Buyer.Name)
	return title, cmp.Or(text, title)
}

// exportOrders writes all orders as the CSV that Excel uses in Indonesia: with ; and a byte order mark, which
// says that it is UTF-8.
func (s *server) exportOrders(p *page) error {
	leave, err := s.auth.place(p.Context(), p.Store.ID, "large")
	if err != nil {
		return err
	}
	defer leave()

	l := p.language()
	p.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	p.w.Header().Set("Content-Disposition", `attachment; filename="orders.csv"`)
	http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(10 * time.Minute)) // for slow connections
	p.w.WriteHeader(http.StatusOK)
	out := csv.NewWriter(p.w)
	out.Comma = ';'
	out.UseCRLF = true
	fmt.Fprint(p.w, "\ufeff")
	out.Write(strings.Split(l.say("csv.order"), ";"))
	filter := OrderFilter{Limit: 50}
	for more := true; more && err == nil; {
		var stored []StoredOrder
		stored, more, err = s.db.Orders(p.Context(), p.Store.ID, filter)
		for _, o := range stored {
			filter.StartingAfter = o.ID
			order, failed := o.decode()
			err = cmp.Or(err, failed)
			out.Write(l.row(order))
		}
	}

	out.Flush()
	if err != nil { // Half a file must not pass for a whole one.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// row returns an order's line in the CSV.
func (l language) row(o Order) (row []string) {
	var items []string
	for _, item := range o.Items {
		items = append(items, fmt.Sprintf("%d × %s", item.Quantity, item.Title))
	}

	for _, cell := range []any{
		o.PaymentReference, o.CreatedAt, l.word("status", o.Status),
		o.Buyer.Name, o.Buyer.Email, o.Buyer.Phone, strings.Join(items, ", "),
		o.Subtotal, o.ShippingFee, -o.Discount, o.Fee, o.UniqueCode, o.Amount,
		o.PaymentMethod, o.PaidAt, o.ExternalID, o.Test, o.Note,
	} {
		row = append(row, csvCell(cell))
	}
	return row
}

// formulas are where a formula begins, even for a spreadsheet that begins a cell after each comma and line
// break.
var formulas = regexp.MustCompile(`(?m)((?:^|,)[\s"]*)([=+@\t\r-])`)

// csvCell writes a value for the CSV: a time in WIB, and a text with an apostrophe before what a spreadsheet
// would take for a formula.
func csvCell(cell any) string {
	switch v := cell.(type) {
	case string:
		return formulas.ReplaceAllString(v, "$1'$2")
	case Time:
		if v == 0 {
			return ""
		}
		return v.Time().In(wib).Format(time.DateTime)
	}
	return fmt.Sprint(cell)
}
