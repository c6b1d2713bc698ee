//go:build cgo

package main

// Actor is who changed an order.
type Actor string

const (
	ActorAPI     Actor = "api"
	ActorOwner   Actor = "owner"
	ActorBuyer   Actor = "buyer"
	ActorGateway Actor = "gateway"
	ActorClock   Actor = "clock"
)

// HistoryEntry is a line of an order's history: a change of state or, if From and To are equal, only a note.
type HistoryEntry struct {
	At    Time
	From  Status // empty when the order is created
	To    Status
	Actor Actor
	Note  Note
}

// Note says why something happened to an order: a code and the values that go with it. The pages put it into
// words (web/notes.html).
type Note struct {
	Code        NoteCode     `json:"code"`
	Text        string       `json:"text,omitempty"`
	Provider    Provider     `json:"provider,omitempty"`
	Attempt     int          `json:"attempt,omitempty"`     // of the payment session
	State       GatewayState `json:"state,omitempty"`       // what the gateway said
	Amount      int64        `json:"amount,omitempty"`      // that came or was returned
	Due         int64        `json:"due,omitempty"`         // that the order asked for
	Status      Status       `json:"status,omitempty"`      // of the order, when the money came
	Transaction string       `json:"transaction,omitempty"` // the gateway's name of a payment or refund
	Sender      string       `json:"sender,omitempty"`      // the name that a buyer says they sent money under
	Bank        string       `json:"bank,omitempty"`        // the bank that they say they sent it from
}

type NoteCode string

const (
	NoteText             NoteCode = "text" // in a person's words, or from an older version of this program
	NoteCreated          NoteCode = "created"
	NoteBuyerClaims      NoteCode = "buyer_claims"
	NoteBuyerConfirms    NoteCode = "buyer_confirms" // an order that is paid in cash
	NoteTakenBack        NoteCode = "taken_back"     // what the buyer said
	NoteStockReleased    NoteCode = "stock_released" // nobody decided about the order
	NoteInDashboard      NoteCode = "in_dashboard"
	NoteByCommand        NoteCode = "by_command"
	NoteByAPI            NoteCode = "by_api" // with the reason as Text, if there is one
	NoteResolved         NoteCode = "resolved"
	NoteNotPaidInTime    NoteCode = "not_paid_in_time"
	NotePaid             NoteCode = "paid"
	NoteOtherAmount      NoteCode = "other_amount"       // Amount was paid instead of Due
	NoteNotNeeded        NoteCode = "not_needed"         // Amount came while the order was Status
	NoteMaybeNotNeeded   NoteCode = "maybe_not_needed"   // of an older version of this program
	NoteConfirmsApproval NoteCode = "confirms_approval"  // Amount came after the owner had approved the order
	NoteDenied           NoteCode = "denied"             // an attempt to pay failed; the buyer can try again
	NoteDisputed         NoteCode = "disputed"           // the buyer disputes Amount
	NoteDisputeOver      NoteCode = "dispute_over"       // the store has won
	NoteUnconfirmed      NoteCode = "unconfirmed"        // the gateway notified of State and never confirmed it
	NoteMethodChanged    NoteCode = "method_changed"     // the buyer chose the method Text
	NoteChallenged       NoteCode = "challenged"         // the gateway wants a person to look at the payment
	NoteReversed         NoteCode = "reversed"           // the gateway reversed the payment
	NoteEndedByGateway   NoteCode = "ended_by_gateway"   // State says how
	NoteRefunded         NoteCode = "refunded"           // all of it
	NoteReturned         NoteCode = "returned"           // Amount, of a payment that does not pay the order any more
	NoteReturnedPartly   NoteCode = "returned_partly"    // Amount
	NotePaidThenReturned NoteCode = "paid_then_returned" // of an older version of this program
)

// withCreation puts the creation of an order before the rest of its history. It has no row of its own, unless an older
// version of this program wrote one.
func withCreation(o Order, history []HistoryEntry) []HistoryEntry {
	if len(history) > 0 && history[0].From == "" {
		return history
	}

	created := HistoryEntry{At: o.CreatedAt, To: Pending, Actor: ActorAPI, Note: Note{Code: NoteCreated}}
	if o.PaymentProvider == ProviderNone { // There was nothing to pay.
		created.To = Paid
	}
	return append([]HistoryEntry{created}, history...)
}

func (tx *Tx) addHistory(orderID string, h HistoryEntry) error {
	_, err := tx.exec(`
		INSERT INTO order_history (order_row, position, at, from_status, to_status, actor, note)
		SELECT ?1, coalesce(max(position), 0) + 1, ?2, ?3, ?4, ?5, ?6
		FROM   order_history
		WHERE  order_row = ?1`,
		rowOf(orderID), tx.now, h.From, h.To, h.Actor, string(mustJSON(h.Note)))
	return err
}

// addNote adds a note of the gateway's news to an order's history, unless it is there already.
func (tx *Tx) addNote(orderID string, status Status, n Note) (added bool, err error) {
	noted, err := queryOne(tx, scanValue[bool],
		"SELECT EXISTS (SELECT 1 FROM order_history WHERE order_row = ? AND note = ?)",
		rowOf(orderID), string(mustJSON(n)))
	if err != nil || noted {
		return false, err
	}
	err = tx.addHistory(orderID, HistoryEntry{From: status, To: status, Actor: ActorGateway, Note: n})
	return err == nil, err
}
