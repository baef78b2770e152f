//go:build !linux

package workerpool

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func selfPath() (string, error) { return os.Executable() }

// isolation is one way to start a worker.
type isolation struct {
	name       string
	attributes *syscall.SysProcAttr
}

// isolations has one way here: a process with limits. A worker notices the
// end of its parent by the closed socket.
func isolations() []isolation {
	return []isolation{{name: "limits", attributes: &syscall.SysProcAttr{}}}
}

// limitProcess gives up what a worker does not need. It runs in the worker.
func limitProcess(_ config) error {
	for _, resource := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", resource, err)
		}
	}
	return nil
}

// forbidPrivileges has no counterpart here.
func forbidPrivileges() error { return nil }

// residentBytes is the most memory this process ever had resident.
func residentBytes() int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return int64(usage.Maxrss)
}
