//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowReader is a log's reader that stops reading until it is told to go on.
type slowReader struct {
	goOn chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

func (r *slowReader) Write(line []byte) (int, error) {
	<-r.goOn
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

// TestLogNeverBlocks logs far more than a pipe and the queue hold while nobody reads.
func TestLogNeverBlocks(t *testing.T) {
	t.Parallel()
	reader := &slowReader{goOn: make(chan struct{})}
	log, end, err := newLog(reader, "json", slog.LevelInfo)
	must(t, err)

	const lines = 20_000
	padding := strings.Repeat("x", 100)
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for i := range lines {
			if i%2 == 0 {
				log.Info("request", "number", i, "padding", padding)
				continue
			}
			line := log.line(time.Now(), "request")
			line.addText("padding", padding)
			log.write(line)
		}
	}()
	select {
	case <-logged:
	case <-time.After(20 * time.Second):
		t.Error("the log blocks while nobody reads it")
	}
	close(reader.goOn)
	<-logged
	end()

	written, dropped := 0, 0
	dec := json.NewDecoder(&reader.text)
	for dec.More() {
		var line struct {
			Msg   string
			Lines int
		}
		must(t, dec.Decode(&line))
		if line.Msg == "request" {
			written++
		} else {
			dropped += line.Lines
		}
	}
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	if written+dropped != lines {
		t.Errorf("%d lines were written and %d dropped, want %d together", written, dropped, lines)
	}
}

// fullDisk is a log's file on a disk that is full for a while.
type fullDisk struct {
	mu   sync.Mutex
	full bool
	left int // bytes that a full disk still takes
	text bytes.Buffer
}

func (d *fullDisk) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	room := len(line)
	if d.full {
		room = min(d.left, len(line))
	}
	d.left -= room
	d.text.Write(line[:room])
	if room < len(line) {
		return room, errors.New("no space left on device")
	}
	return room, nil // Also of no bytes: a full disk takes them.
}

func TestLogCountsWhatCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{full: true, left: 5}
	log, end, err := newLog(disk, "text", slog.LevelInfo)
	must(t, err)
	for range 3 {
		log.Info("request")
		time.Sleep(2 * logGathered)
	}

	disk.mu.Lock()
	disk.full = false
	disk.mu.Unlock()
	log.Info("request")
	end()
	got := disk.text.String()
	if !strings.Contains(got, "lines=3") {
		t.Errorf("the log does not tell of 3 lost lines:\n%s", got)
	}
	if !strings.HasPrefix(got, "time=\ntime=") {
		t.Errorf("after the line that was cut off, the log goes on:\n%s", got)
	}
}

// TestLogLines compares the lines that the program writes by itself with those of slog.
func TestLogLines(t *testing.T) {
	t.Parallel()
	inWIB := time.Date(2026, 11, 22, 7, 5, 9, 120_456_789, wib)
	values := []string{
		"GET", "", " ", "a b", `"`, `\`, "=", "a\nlevel=ERROR", "\x00", "\x7f", "/pay?x={&<>}", "+07:00",
		"\u2028", "\xff", "Caf\u00e9",
	}
	for _, asJSON := range []bool{false, true} {
		var got, want strings.Builder
		log := newServiceLog(&got, asJSON, slog.LevelInfo)
		slogs := newServiceLog(&want, asJSON, slog.LevelInfo).Handler()
		for i, value := range values {
			now := inWIB
			if i == 0 {
				now = now.UTC()
			}
			got.Reset()
			line := log.line(now, "request")
			line.addText("path", value)
			line.addNumber("status", 200)
			line.addNumber("duration_ms", 0.125)
			log.write(line)

			want.Reset()
			record := slog.NewRecord(now, slog.LevelInfo, "request", 0)
			record.Add("path", value, "status", 200, "duration_ms", 0.125)
			must(t, slogs.Handle(t.Context(), record))

			// In text, more values are quoted than slog would quote.
			unquoted := strings.Replace(got.String(), strconv.Quote(value), value, 1)
			same := got.String() == want.String() || !asJSON && unquoted == want.String()
			if !same {
				t.Errorf("%q:\ngot  %swant %s", value, got.String(), want.String())
			}
		}
	}
}

// A number never has an exponent, with which slog writes numbers of a million and more in text.
func TestLargeNumberInLogLine(t *testing.T) {
	t.Parallel()
	var line logLine
	line.addNumber("duration_ms", 1_234_567.5)
	if got, want := string(line.text), "duration_ms=1234567.5 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEverySecond(t *testing.T) {
	t.Parallel()
	var e everySecond
	start := time.Now()
	var got []string
	for _, after := range []time.Duration{0, 1, 999, 1000, 1500, 3000} {
		ok, leftOut := e.allow(start.Add(after * time.Millisecond))
		got = append(got, fmt.Sprint(ok, leftOut))
	}
	const want = "true 0, false 0, false 0, true 2, false 0, true 1"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
