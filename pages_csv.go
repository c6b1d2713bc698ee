package main

// This file writes an owner's orders as CSV, for a spreadsheet.

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// exportOrders writes all orders as the CSV that Excel uses in Indonesia: with ; and a byte order mark, which
// says that it is UTF-8.
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
	out := csv.NewWriter(p.w)
	out.Comma = ';'
	out.UseCRLF = true
	fmt.Fprint(p.w, "\ufeff")
	out.Write(strings.Split(p.Language.say("csv.order"), ";"))
	err = s.exportRows(p, out)
	out.Flush()
	if err != nil { // Half a file must not pass for a whole one.
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (s *server) exportRows(p *page, out *csv.Writer) error {
	filter := OrderFilter{Limit: 50}
	for {
		stored, more, err := s.db.Orders(p.Context(), p.Store.ID, filter)
		if err != nil {
			return err
		}
		for _, o := range stored {
			order, err := o.decode()
			if err != nil {
				return err
			}
			out.Write(p.Language.row(order))
			filter.StartingAfter = o.ID
		}
		if !more {
			return nil
		}
	}
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
var formulas = regexp.MustCompile(`(?m)((?:^|[,\t])[\s"]*)([=+@\t\r-])`)

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
