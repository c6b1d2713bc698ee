//go:build cgo

package main

import "syscall"

// lowerPriority lets the thread of the calling goroutine run only as far as nothing else needs its core: the kernel
// interrupts it at once for a thread that wakes up, instead of some milliseconds later. It may fail where a sandbox
// forbids it. Then the thread runs like any other.
func lowerPriority() {
	const thisThread, lowest = 0, 19
	syscall.Setpriority(syscall.PRIO_PROCESS, thisThread, lowest)
}
