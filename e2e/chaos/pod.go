package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// pod keeps one process running, as an orchestrator does: whatever ends it, it
// is started again.
type pod struct {
	t      testing.TB
	name   string
	binary string
	env    map[string]string

	mu       sync.Mutex
	process  *rig.Process
	restarts int
}

// keep runs the process until ctx ends.
func (p *pod) keep(ctx context.Context) {
	for ctx.Err() == nil {
		process := rig.StartProcess(p.t, fmt.Sprintf("%s.%d", p.name, p.restarts), p.env, p.binary)
		p.mu.Lock()
		p.process = process
		p.restarts++
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			process.Signal(syscall.SIGCONT)
			process.Stop(20 * time.Second)
			return
		case <-process.Done():
		}
		rig.Pause(ctx, 300*time.Millisecond)
	}
}

// signal signals the process that runs now.
func (p *pod) signal(signal syscall.Signal) {
	p.mu.Lock()
	process := p.process
	p.mu.Unlock()
	if process != nil {
		process.Signal(signal)
	}
}
