//go:build cgo

package main

import (
	"bytes"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

const (
	// logQueueMost is how much of the log waits for a slow reader, in bytes.
	logQueueMost = 1 << 20

	// logGathered is how long a line waits for others, to be written together with them. Waking up a thread for each
	// line took a twentieth of the processor time of a GET.
	logGathered = 10 * time.Millisecond
)

// logQueue passes log lines on to a writer that may block, such as a pipe that nobody reads. Writing to the
// queue never blocks: what does not fit is dropped and counted, and the count is logged as soon as lines get
// through again. A program that is killed, or panics outside of a request, loses the lines of the last logGathered.
type logQueue struct {
	out    io.Writer
	cutOff bool // the last line that was written has no end; only write uses it

	mu      sync.Mutex
	lines   []byte
	dropped int // lines
	closed  bool

	added   chan struct{} // holds one when there is something to write
	closing chan struct{} // closed by close: what is there is written at once
	drained chan struct{} // closed when everything is written after close
}

func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{
		out:     out,
		added:   make(chan struct{}, 1),
		closing: make(chan struct{}),
		drained: make(chan struct{}),
	}
	return q
}

// Write takes a copy of a line, because slog uses the slice again afterwards.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if len(q.lines)+len(line) > logQueueMost {
		q.dropped++
	} else {
		q.lines = append(q.lines, line...)
	}
	q.mu.Unlock()

	q.wake()
	return len(line), nil
}

func (q *logQueue) wake() {
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// run writes the lines until the queue is closed and empty. dropped is told how many lines were lost, once
// lines get through again.
func (q *logQueue) run(dropped func(lines int)) {
	defer close(q.drained)
	lost := 0
	for range q.added {
		select {
		case <-time.After(logGathered):
		case <-q.closing:
		}
		lines, notTaken, closed := q.take()
		lost += notTaken

		if len(lines) > 0 {
			notWritten := q.write(lines)
			lost += notWritten
			if notWritten == 0 && lost > 0 {
				dropped(lost)
				lost = 0
			}
		}
		if closed {
			return
		}
	}
}

// write writes lines and returns how many were not written. What follows a line that was cut off, as by a full disk, begins
// on a new line.
func (q *logQueue) write(lines []byte) (notWritten int) {
	if q.cutOff {
		n, _ := q.out.Write([]byte("\n"))
		q.cutOff = n == 0
	}

	n, _ := q.out.Write(lines)
	if n > 0 {
		q.cutOff = lines[n-1] != '\n'
	}
	return bytes.Count(lines[n:], []byte("\n"))
}

// take empties the queue.
func (q *logQueue) take() (lines []byte, dropped int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, dropped = q.lines, q.dropped
	q.lines, q.dropped = nil, 0
	return lines, dropped, q.closed
}

// close writes what is left, which takes a second at most.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()

	close(q.closing)
	q.wake()
	select {
	case <-q.drained:
	case <-time.After(time.Second):
	}
}

// serviceLog is a slog.Logger that writes the lines of requests by itself, because that is faster: see logLine.
type serviceLog struct {
	*slog.Logger
	out    io.Writer // takes a line at a time, also from several goroutines at once
	asJSON bool      // else text
}

// newServiceLog returns a log that writes to out.
func newServiceLog(out io.Writer, asJSON bool, level slog.Level) *serviceLog {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if asJSON {
		handler = slog.NewJSONHandler(out, options)
	}
	return &serviceLog{slog.New(handler), out, asJSON}
}

// newLog returns the log of a service that writes to w without ever blocking, and what ends it.
func newLog(w io.Writer, format string, level slog.Level) (log *serviceLog, end func(), err error) {
	if format != "text" && format != "json" {
		return nil, nil, usagef("-log-format must be text or json, not %q", format)
	}

	asJSON := format == "json"
	queue := newLogQueue(w)
	direct := newServiceLog(w, asJSON, level)
	go queue.run(func(lines int) {
		direct.Warn("log lines were dropped: they could not be written as fast as they came", "lines", lines)
	})
	return newServiceLog(queue, asJSON, level), queue.close, nil
}

// logLine is a line that is being put together, at the level INFO. It looks like one of slog's, except that in text it quotes
// more values and writes large numbers without an exponent. slog takes 6 µs longer for the line of a request, which is 6 % of
// the processor time of a GET.
type logLine struct {
	text   []byte // ends with a comma or a space
	asJSON bool
}

// line begins a line.
func (l *serviceLog) line(now time.Time, message string) logLine {
	line := logLine{make([]byte, 0, 512), l.asJSON}
	if l.asJSON {
		line.text = append(line.text, '{')
		line.addText("time", now.Format(time.RFC3339Nano))
	} else {
		line.addText("time", now.Format("2006-01-02T15:04:05.000Z07:00"))
	}
	line.addText("level", "INFO")
	line.addText("msg", message)
	return line
}

func (l *logLine) addText(name, value string) {
	l.beginAttribute(name)
	switch {
	case l.asJSON:
		l.text = appendJSONText(l.text, value)
	case isPlain(value):
		l.text = append(l.text, value...)
	default:
		l.text = strconv.AppendQuote(l.text, value)
	}
	l.endAttribute()
}

func (l *logLine) addNumber(name string, value float64) {
	l.beginAttribute(name)
	l.text = strconv.AppendFloat(l.text, value, 'f', -1, 64)
	l.endAttribute()
}

func (l *logLine) beginAttribute(name string) {
	if l.asJSON {
		l.text = appendJSONName(l.text, name)
		return
	}
	l.text = append(l.text, name...)
	l.text = append(l.text, '=')
}

func (l *logLine) endAttribute() {
	if l.asJSON {
		l.text = append(l.text, ',')
	} else {
		l.text = append(l.text, ' ')
	}
}

// write writes a line that is complete.
func (l *serviceLog) write(line logLine) {
	text := line.text[:len(line.text)-1]
	if line.asJSON {
		text = append(text, '}')
	}
	l.out.Write(append(text, '\n'))
}

// everySecond lets something happen once a second and counts how often it did not. The zero value is ready.
type everySecond struct {
	mu   sync.Mutex
	next time.Time
	left int
}

// allow reports whether it may happen now, and how often it was left out since the last time.
func (e *everySecond) allow(now time.Time) (ok bool, leftOut int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Before(e.next) {
		e.left++
		return false, 0
	}

	leftOut = e.left
	e.next = now.Add(time.Second)
	e.left = 0
	return true, leftOut
}
