package main

import "testing"

func TestPaymentsAtMidtrans(t *testing.T) { playStories(t, "testdata/midtrans.txt") }

func TestPaymentsAtXendit(t *testing.T) { playStories(t, "testdata/xendit.txt") }

func TestPaymentsThatBuyersReport(t *testing.T) { playStories(t, "testdata/claims.txt") }
