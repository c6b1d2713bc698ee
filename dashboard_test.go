package main

import "testing"

func TestPages(t *testing.T) { playStories(t, "testdata/pages.txt") }
