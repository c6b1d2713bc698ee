//go:build cgo

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
)

// refusal is a gateway's permanent refusal: the same request would be refused again. Message is the gateway's
// words without what they repeat of the buyer.
type refusal struct {
	Status  int // 0: there is no key, so nothing was asked
	Message string
}

func (r *refusal) Error() string {
	if r.Status == 0 {
		return r.Message
	}
	return fmt.Sprintf("status %d: %s", r.Status, r.Message)
}

// outage is an answer that says nothing: the same request may succeed later.
type outage struct {
	Status  int
	Message string // empty, or why, as the owner may read it
}

func (o *outage) Error() string { return fmt.Sprintf("status %d%s", o.Status, o.Message) }

// logProblem logs why a gateway gave no answer about a session of an order.
func (p *payments) logProblem(s PaymentSession, orderReference string, problem error) {
	p.log.Warn("payment gateway gives no answer",
		"provider", s.Provider, "order", orderReference, "attempt", s.Attempt,
		"error", loggedProblem(problem))
}

// loggedProblem is a problem as the log may show it: without the address that was called, which names the
// order, and without anything that the gateway has said, which may name the buyer. The order's page has the
// gateway's words.
func loggedProblem(problem error) string {
	refused, ok := errors.AsType[*refusal](problem)
	if ok && refused.Status == 0 {
		return refused.Message
	}
	if ok {
		return fmt.Sprintf("refused with status %d", refused.Status)
	}
	if out, ok := errors.AsType[*outage](problem); ok {
		return fmt.Sprintf("status %d", out.Status)
	}

	if failed, ok := errors.AsType[net.Error](problem); ok && failed.Timeout() {
		return "timed out"
	}
	if failed, ok := errors.AsType[*net.OpError](problem); ok {
		return failed.Error()
	}
	if failed, ok := errors.AsType[*tls.CertificateVerificationError](problem); ok {
		return failed.Error()
	}
	return "an answer that is not understood"
}

// withoutAddress returns a problem without the address that was called.
func withoutAddress(problem error) error {
	failed, ok := errors.AsType[*url.Error](problem)
	if ok {
		return failed.Err
	}
	return problem
}

// describeProblem returns what is stored of a problem, for the owner to read. The gateway's words are shown
// without what they repeat of the buyer.
func describeProblem(problem error, buyer Buyer) (Problem, string) {
	kind := ProblemUnreachable
	if _, refused := errors.AsType[*refusal](problem); refused {
		kind = ProblemRefused
	}
	return kind, cut(scrub(withoutAddress(problem).Error(), buyer.typed()...), 200)
}
