//go:build cgo

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// client is one keep-alive connection.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// do sends a request and reads the answer. It returns the answer's status and the length of its body.
func (c *client) do(request []byte) (status, length int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, 0, err
	}

	status, length, err = c.readHeader()
	if err != nil {
		return 0, 0, err
	}
	_, err = c.r.Discard(length)
	return status, length, err
}

// read reads an answer with its body.
func (c *client) read() (status int, body []byte, err error) {
	status, length, err := c.readHeader()
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.r, body)
	return status, body, err
}

// readHeader reads an answer up to its body.
func (c *client) readHeader() (status, length int, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, 0, errors.New("the answer is not HTTP")
	}
	status, _ = strconv.Atoi(string(line[9:12]))

	for string(line) != "\r\n" {
		line, err = c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		if string(name) == "Content-Length" {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return status, length, nil
}

// sizeOf is how many bytes the body of the answer to a request has.
func sizeOf(b *testing.B, addr string, request []byte) int {
	b.Helper()
	c, err := dial(addr)
	must(b, err)
	defer c.Close()

	status, length, err := c.do(request)
	must(b, err)
	if status/100 != 2 {
		b.Fatal("status ", status)
	}
	return length
}

// tally is the measurement of one client.
type tally struct {
	took   []time.Duration
	failed int
}

// send sends one of the requests by chance. The time that it takes runs from begun.
func (a *tally) send(c *client, requests [][]byte, begun time.Time) error {
	request := requests[rand.IntN(len(requests))]
	status, _, err := c.do(request)
	if err != nil || status/100 != 2 {
		a.failed++
	}

	a.took = append(a.took, time.Since(begun))
	return err
}

// load is the outcome of a round of requests.
type load struct {
	sent      int
	failed    int
	perSecond float64
	p50, p99  time.Duration
}

func rate(l load) float64 { return l.perSecond }

// perRequest is the time from one answer to the next.
func perRequest(l load) float64 { return 1 / l.perSecond }

// p50 and p99 are in milliseconds.
func p50(l load) float64 { return float64(l.p50) / 1e6 }
func p99(l load) float64 { return float64(l.p99) / 1e6 }

// measure runs n clients at once, each on a connection of its own, and waits until all have ended.
func measure(addr string, n int, run func(*client, *tally)) load {
	tallies := make([]tally, n)
	start := time.Now()
	parallel(n, func(i int) {
		c, err := dial(addr)
		if err != nil {
			tallies[i].failed++
			return
		}
		defer c.Close()
		run(c, &tallies[i])
	})
	elapsed := time.Since(start)

	var l load
	var took []time.Duration
	for _, a := range tallies {
		l.failed += a.failed
		took = append(took, a.took...)
	}

	if len(took) > 0 {
		slices.Sort(took)
		l.sent = len(took)
		l.perSecond = float64(len(took)) / elapsed.Seconds()
		l.p50 = took[len(took)/2]
		l.p99 = took[len(took)*99/100]
	}
	return l
}

// drive lets n clients send requests for a round, one after another.
func drive(addr string, n int, requests [][]byte) load {
	start := time.Now()
	return measure(addr, n, func(c *client, a *tally) {
		for time.Since(start) < round {
			if a.send(c, requests, time.Now()) != nil {
				return
			}
		}
	})
}

// driveAll lets all clients send total requests, one after another.
func driveAll(addr string, total int64, requests [][]byte) load {
	var sent atomic.Int64
	return measure(addr, clients, func(c *client, a *tally) {
		for sent.Add(1) <= total {
			if a.send(c, requests, time.Now()) != nil {
				return
			}
		}
	})
}

// pace sends perSecond requests a second for a time, however long the answers take. The time that a request
// takes runs from the moment it was due.
func pace(addr string, perSecond int, d time.Duration, requests [][]byte) load {
	n := int(d.Seconds() * float64(perSecond))
	due := make(chan time.Time, n)
	go func() {
		defer close(due)
		start := time.Now()
		for i := range n {
			at := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			time.Sleep(time.Until(at))
			due <- at
		}
	}()

	return measure(addr, clients, func(c *client, a *tally) {
		for at := range due {
			a.send(c, requests, at)
		}
	})
}

// comparison has the rounds of two things that were measured in turns.
type comparison struct{ left, right []load }

// compare measures two things in turns.
func compare(b *testing.B, left, right func() load) (c comparison) {
	b.Helper()
	for i := range rounds {
		if i%2 == 0 {
			c.left = append(c.left, left())
			c.right = append(c.right, right())
		} else {
			c.right = append(c.right, right())
			c.left = append(c.left, left())
		}

		if n := c.left[i].failed + c.right[i].failed; n > 0 {
			b.Errorf("%d requests failed", n)
		}
	}
	return c
}

// ratio is the median of the rounds' ratios of left to right.
func (c comparison) ratio(of func(load) float64) float64 {
	var all []float64
	for i := range c.left {
		all = append(all, of(c.left[i])/of(c.right[i]))
	}
	return median(all)
}

// medians writes the medians of both sides, each in the format.
func (c comparison) medians(format string, of func(load) float64) string {
	return fmt.Sprintf(format+" and "+format, medianOf(c.left, of), medianOf(c.right, of))
}

func (c comparison) rates() string { return c.medians("%.0f/s", rate) }

func medianOf(all []load, of func(load) float64) float64 {
	var values []float64
	for _, l := range all {
		values = append(values, of(l))
	}
	return median(values)
}

func median[T cmp.Ordered](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
