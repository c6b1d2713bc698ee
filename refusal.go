package main

// This file has the errors of all families, and the reasons why a request is refused.

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is also the error for everything that belongs to another store.
	ErrNotFound = errors.New("not found")

	// ErrUnavailable says that nothing was changed, because of the file, the disk, another program's lock or
	// a shutdown.
	ErrUnavailable = errors.New("the database cannot be used now, and nothing was changed")

	// ErrUnknown leaves open whether a change is on disk: a COMMIT failed, or the file was lost meanwhile. No
	// write is possible after it.
	ErrUnknown = errors.New("the disk failed, and the change may or may not be saved: check before you repeat it")
)

// Reason is why a subject refuses a request. Its value is the API's error code.
type Reason string

const (
	ValidationFailed         Reason = "VALIDATION_FAILED"
	InvalidRequest           Reason = "INVALID_REQUEST"
	ProductUnavailable       Reason = "PRODUCT_UNAVAILABLE"
	PaymentMethodUnavailable Reason = "PAYMENT_METHOD_UNAVAILABLE"
	OutOfStock               Reason = "OUT_OF_STOCK"
	Forbidden                Reason = "FORBIDDEN" // the key's scope does not allow this
	DuplicateExternalID      Reason = "DUPLICATE_EXTERNAL_ID"
	WrongState               Reason = "ORDER_STATE"
	LimitReached             Reason = "LIMIT_REACHED"
	RateLimited              Reason = "RATE_LIMITED"
	GatewayRefused           Reason = "GATEWAY_REFUSED"
	Unavailable              Reason = "SERVICE_UNAVAILABLE" // without words: a gateway cannot be reached
	IdempotencyKeyReused     Reason = "IDEMPOTENCY_KEY_REUSED"
)

// Refusal says why a rule refused a request. Nothing was changed.
type Refusal struct {
	Reason  Reason
	Fields  []FieldError // the wrong fields, if it is about fields
	Words   string       // such as a gateway's: they fill the %s in the reason's message or, without one, replace it
	OrderID string       // with DuplicateExternalID: the order that has it
	Wait    int          // seconds after which it may be tried again, with RateLimited
}

// FieldError is one wrong field: a path such as items[0].quantity, and a text to be read after it. The format
// is also the key of its translation.
type FieldError struct {
	Field, Format string
	Values        []any
	Left          *int64 // with OutOfStock: how many of it could be ordered
}

func (e FieldError) Message() string { return fmt.Sprintf(e.Format, e.Values...) }

func (r *Refusal) Error() string { return fmt.Sprint(r.Reason, " ", r.Words, r.Fields) }

// add adds a wrong field, unless there are a hundred already, and returns the refusal.
func (r *Refusal) add(field, format string, values ...any) *Refusal {
	return r.addError(FieldError{Field: field, Format: format, Values: values})
}

func (r *Refusal) addError(e FieldError) *Refusal {
	if len(r.Fields) < 100 {
		r.Fields = append(r.Fields, e)
	}
	return r
}

// gather adds the wrong fields of an error, and returns an error that is about something else.
func (r *Refusal) gather(err error) error {
	other, isRefusal := errors.AsType[*Refusal](err)
	if !isRefusal || other.Reason != r.Reason {
		return err
	}
	for _, e := range other.Fields {
		r.addError(e)
	}
	return nil
}

// orNil returns nil when no field is wrong.
func (r *Refusal) orNil() error {
	if len(r.Fields) == 0 {
		return nil
	}
	return r
}

func refuse(reason Reason) *Refusal { return &Refusal{Reason: reason} }

func isRefused(err error, reason Reason) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Reason == reason
}
