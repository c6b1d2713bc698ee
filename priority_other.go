//go:build cgo && !linux

package main

// lowerPriority is for Linux, where each thread has a priority of its own.
func lowerPriority() {}
