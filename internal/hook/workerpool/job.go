package workerpool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// job is one call on its way through the pool. Its fields belong to the
// pool's lock; answer may be read once done is closed.
type job struct {
	ctx      context.Context // the caller's
	call     *hook.Call
	app      *app
	describe bool

	id       uint64 // new for each attempt
	worker   *worker
	attempts int  // that ended with the worker's death
	isolated bool // its worker died for no known reason: run it alone
	overdue  bool
	timer    *time.Timer

	hostCtx    context.Context // of this attempt's host operations
	hostCancel context.CancelFunc
	hostOps    int

	ended  bool
	done   chan struct{}
	answer result
}

func (j *job) end(r result) {
	if !j.ended {
		j.ended, j.answer = true, r
		close(j.done)
	}
}

// startHostOp counts a host operation of the current attempt.
func (j *job) startHostOp() (context.Context, bool) {
	if j.ended || j.hostOps >= j.call.Limits.MaxHostOps {
		return nil, false
	}
	if j.hostCtx == nil {
		j.hostCtx, j.hostCancel = context.WithCancel(j.ctx)
	}
	j.hostOps++
	return j.hostCtx, true
}

func (j *job) stopHostOps() {
	if j.hostCancel != nil {
		j.hostCancel()
	}
	j.hostCtx, j.hostCancel, j.hostOps = nil, nil, 0
}

func parseDescription(output []byte) (hook.Description, error) {
	var description struct {
		Definition json.RawMessage `json:"definition"`
		Hooks      []string        `json:"hooks"`
	}
	if err := json.Unmarshal(output, &description); err != nil {
		return hook.Description{}, fmt.Errorf("read the app's description: %w", err)
	}
	return hook.Description{Definition: description.Definition, Hooks: description.Hooks}, nil
}
