package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is one running program, with what it has logged.
type Process struct {
	Name string
	URL  string // where /healthz, /readyz and /metrics are
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []string
}

// maxLines bounds what is kept of a log.
const maxLines = 20_000

// StartProcess starts a program; it is killed with the test, if it still runs,
// and its log is shown when the test has failed.
func StartProcess(t testing.TB, name string, env map[string]string, binary string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, done: make(chan struct{}), cmd: exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)}
	p.cmd.Env = environ(env)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	read := make(chan struct{})
	go func() { defer close(read); p.collect(reader) }()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		select {
		case <-read:
		case <-time.After(5 * time.Second): // a worker of a killed process may hold the pipe for a moment
		}
	}()
	t.Cleanup(func() {
		p.Signal(syscall.SIGCONT)
		p.Stop(15 * time.Second)
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, p.Tail(60))
		}
	})
	return p
}

func (p *Process) collect(r io.ReadCloser) {
	defer func() { _ = r.Close() }()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, scanner.Text())
		if len(p.lines) > maxLines {
			p.lines = append([]string(nil), p.lines[maxLines/2:]...)
		}
		p.mu.Unlock()
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to this process alone.
func (p *Process) Signal(signal os.Signal) { _ = p.cmd.Process.Signal(signal) }

// Kill ends the process at once, as a crash would, and waits.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the process with SIGTERM, with SIGKILL after the grace, and gives
// the exit code.
func (p *Process) Stop(grace time.Duration) int {
	if !p.Exited() {
		p.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

// Done gives a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited says whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Lines gives what was logged so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// Tail gives the last lines.
func (p *Process) Tail(n int) string {
	lines := p.Lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Logged gives the log lines with a message, decoded.
func (p *Process) Logged(message string) []map[string]any {
	var found []map[string]any
	for _, line := range p.Lines() {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && (entry["msg"] == message || entry["message"] == message) {
			found = append(found, entry)
		}
	}
	return found
}
