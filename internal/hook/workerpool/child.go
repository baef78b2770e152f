package workerpool

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/jsvm"
)

// workerArgument is the hidden first argument that makes a binary a worker.
const workerArgument = "hook-worker"

// Main turns the process into a hook worker, and ends it, if it was started as
// one; otherwise it returns at once. Every binary that uses a Pool calls it
// first thing in main (a test, in TestMain).
func Main() {
	if len(os.Args) < 2 || os.Args[1] != workerArgument {
		return
	}
	if err := runWorker(workerSocket); err != nil {
		fmt.Fprintln(os.Stderr, "hook worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workerSocket is the descriptor a worker finds its end of the socket on.
const workerSocket = 3

const (
	// slice is how long one app may hold the loop before another goroutine
	// takes it over.
	slice = 20 * time.Millisecond
	// flushAfter is how long a finished result may wait for company.
	flushAfter = 500 * time.Microsecond
	// tiredBytes of resident memory make a worker ask for its replacement.
	tiredBytes = 192 << 20
	// usageEvery is how many calls pass between looks at that.
	usageEvery = 256
)

// child is a worker process from the inside: one loop that reads calls, runs
// them on the VMs of their apps and writes results, with no goroutine switch
// on the way. Only an app that keeps the loop longer than slice loses it: the
// loop goes on in a new goroutine, and the slow call ends on the old one.
type child struct {
	fd      int
	config  config
	prelude *jsvm.Program

	// mu is held by whoever touches the fields below; the loop lets go of it
	// while JS runs and while it waits for input.
	mu       sync.Mutex
	in       frameReader
	out      frames
	outSince time.Time
	scripts  map[uint64]*script
	idle     []*vmOf // least recently used first
	idleSum  int64
	tasks    map[uint64]*task
	ready    []*task

	owner    int // the generation of the goroutine that is the loop
	detached int // goroutines that lost the loop and still run JS
	running  *task
	runs     uint64 // how many times JS was entered
	seenRuns uint64 // at the watchdog's last look
	watchdog *time.Timer
	watching bool
	calls    uint64
	ended    chan error
}

type script struct {
	source  []byte
	once    sync.Once
	program *jsvm.Program
	err     error
}

// vmOf is a VM and the number of the app in it.
type vmOf struct {
	app    uint64
	vm     *jsvm.VM
	memory int64
}

// task is one call in a worker. While running is set it belongs to the
// goroutine that runs it, except for inbox and cancelled.
type task struct {
	request
	child     *child
	script    *script
	deadline  time.Time
	vm        *jsvm.VM
	cpu       time.Duration
	fresh     bool
	outcome   *jsvm.Outcome
	inbox     []reply
	cancelled atomic.Bool
	running   bool
	queued    bool
}

func runWorker(fd int) error {
	runtime.GOMAXPROCS(2) // the loop, and an app that lost it
	prelude, err := jsvm.CompilePrelude()
	if err != nil {
		return err
	}
	c := &child{
		fd: fd, prelude: prelude,
		scripts: map[uint64]*script{}, tasks: map[uint64]*task{},
		ended: make(chan error, 1),
	}
	// Armed once so that the runtime has opened what timers need before the
	// descriptor limit falls.
	c.watchdog = time.AfterFunc(slice, c.watch)
	if err := c.configure(); err != nil {
		return err
	}
	c.out.number(frameHello, 1)
	go c.loop(0)
	return <-c.ended
}

// configure reads the first frame and locks the process down accordingly.
func (c *child) configure() error {
	for {
		kind, payload, ok, err := c.in.next()
		if err != nil {
			return err
		}
		if ok {
			c.config = payload.config()
			if kind != frameConfig || payload.bad {
				return errFrame
			}
			return limitProcess(c.config)
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

var errClosed = errors.New("socket closed")

// fill reads once. It blocks.
func (c *child) fill() error {
	space := c.in.space()
	for {
		n, err := unix.Read(c.fd, space)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errClosed
		}
		c.in.filled(n)
		return nil
	}
}

// loop is the worker's life, until the socket closes or another goroutine
// takes over.
func (c *child) loop(owner int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.read(); err != nil {
			if errors.Is(err, errClosed) || errors.Is(err, syscall.ECONNRESET) {
				err = nil
			}
			c.ended <- err
			return
		}
		c.wake(time.Now())
		for len(c.ready) > 0 {
			t := c.ready[0]
			c.ready = slices.Delete(c.ready, 0, 1)
			t.queued = false
			if len(c.out) > 0 && time.Since(c.outSince) > flushAfter {
				if err := c.flush(); err != nil {
					c.ended <- err
					return
				}
			}
			if !c.run(t, owner) {
				return
			}
		}
	}
}

// read flushes, waits for input or for something to fall due, and takes in
// all frames that are there.
func (c *child) read() error {
	if err := c.flush(); err != nil {
		return err
	}
	timeout := c.timeout()
	c.mu.Unlock()
	readable, err := waitReadable(c.fd, timeout)
	if err == nil && readable {
		err = c.fill()
	}
	c.mu.Lock()
	if err != nil {
		return err
	}
	if !c.watching {
		c.watching = true
		c.watchdog.Reset(slice)
	}
	for {
		kind, payload, ok, err := c.in.next()
		if err != nil || !ok {
			return err
		}
		if err := c.take(kind, &payload); err != nil {
			return err
		}
	}
}

// waitReadable reports whether fd has input before timeout; a negative timeout
// leaves the waiting to the read itself.
func waitReadable(fd int, timeout time.Duration) (bool, error) {
	if timeout < 0 {
		return true, nil
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	milliseconds := int((timeout + time.Millisecond - 1) / time.Millisecond)
	n, err := unix.Poll(poll, milliseconds)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// timeout is how long the loop may wait for input.
func (c *child) timeout() time.Duration {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if c.detached > 0 {
		earlier(time.Now().Add(slice)) // what ends there may leave work here
	}
	for _, t := range c.tasks {
		if !t.running && t.vm != nil {
			earlier(t.deadline)
			earlier(t.vm.Wake())
		}
	}
	if next.IsZero() {
		return -1
	}
	return max(time.Until(next), 0)
}

// wake queues the waiting calls that have a timer due or no time left.
func (c *child) wake(now time.Time) {
	for _, t := range c.tasks {
		if t.running || t.vm == nil {
			continue
		}
		if wake := t.vm.Wake(); !now.Before(t.deadline) || !wake.IsZero() && !now.Before(wake) {
			c.queue(t)
		}
	}
}

func (c *child) queue(t *task) {
	if !t.queued && !t.running {
		t.queued = true
		c.ready = append(c.ready, t)
	}
}

func (c *child) take(kind frameKind, payload *fields) error {
	switch kind {
	case frameBundle:
		number := payload.uint()
		c.scripts[number] = &script{source: slices.Clone(payload.bytes())}
	case frameForget:
		delete(c.scripts, payload.uint())
	case frameForgetApp:
		c.forgetApp(payload.uint())
	case frameCall:
		// The payload goes with the next read; the call stays longer.
		owned := fields{rest: slices.Clone(payload.rest)}
		t := &task{request: owned.request(), child: c}
		if owned.bad {
			return errFrame
		}
		t.script = c.scripts[t.bundle]
		t.deadline = time.Now().Add(t.call.Limits.Wall)
		c.tasks[t.id] = t
		c.queue(t)
	case frameCancel:
		if t := c.tasks[payload.uint()]; t != nil {
			t.cancelled.Store(true)
			c.queue(t)
		}
	case frameReply:
		r := payload.reply()
		if t := c.tasks[r.call]; t != nil {
			t.inbox = append(t.inbox, r)
			c.queue(t)
		}
	case frameConfig, frameHello, frameResult, frameFetch, frameLog:
		return errFrame
	default:
		return errFrame
	}
	return payload.err()
}

// run runs t's JS until it waits or ends. It reports whether the caller is
// still the loop.
func (c *child) run(t *task, owner int) bool {
	inbox := t.inbox
	t.inbox, t.running = nil, true
	if t.vm == nil {
		t.vm = c.takeVM(t.app)
	}
	c.running = t
	c.runs++
	c.mu.Unlock()
	started := time.Now()
	t.step(inbox)
	spent := time.Since(started)
	c.mu.Lock()
	t.running = false
	t.cpu += spent
	mine := c.owner == owner
	if mine {
		c.running = nil
	} else {
		c.detached--
	}
	switch {
	case t.outcome != nil:
		c.finish(t)
	case len(t.inbox) > 0 || t.cancelled.Load():
		c.queue(t)
	}
	if !mine {
		if err := c.flush(); err != nil {
			c.ended <- err
		}
	}
	return mine
}

// step runs without the lock.
func (t *task) step(inbox []reply) {
	now := time.Now()
	switch {
	case t.cancelled.Load() || now.After(t.deadline):
		if t.vm != nil {
			t.vm.Expire()
		}
		t.outcome = &jsvm.Outcome{Err: &hook.Error{Code: hook.CodeTimeout, Phase: "execute", Message: "the hook ran out of time"}}
		return
	case t.vm == nil || t.describe:
		if !t.open() {
			return
		}
	}
	if t.describe {
		outcome := t.vm.Describe()
		t.outcome = &outcome
		return
	}
	if inbox == nil && t.vm.Idle() {
		t.vm.Start(t.call, t, t.deadline, &t.cancelled)
	}
	for _, r := range inbox {
		t.vm.Reply(r.op, r.response, r.err)
	}
	t.vm.Tick(now)
	t.outcome = t.vm.Outcome()
}

// open makes a VM with the app in it.
func (t *task) open() bool {
	failed := func(err *hook.Error) bool {
		t.outcome = &jsvm.Outcome{Err: err}
		return false
	}
	if t.script == nil {
		return failed(&hook.Error{Code: hook.CodeUnknownApp, Phase: "load", Message: "the worker has no such app"})
	}
	program, err := t.script.compile()
	if err != nil {
		return failed(&hook.Error{Code: hook.CodeInvalidBundle, Phase: "load", Message: err.Error()})
	}
	vm, err := jsvm.New(t.child.prelude, t.call.Limits.MemBytes)
	if err != nil {
		return failed(&hook.Error{Code: hook.CodeMemory, Phase: "load", Message: err.Error()})
	}
	t.vm, t.fresh = vm, true
	if err := vm.Load(program, t.deadline); err != nil {
		return failed(err)
	}
	return true
}

func (s *script) compile() (*jsvm.Program, error) {
	s.once.Do(func() {
		s.program, s.err = jsvm.Compile(s.source)
		s.source = nil
	})
	return s.program, s.err
}

// Fetch implements jsvm.Host.
func (t *task) Fetch(id int, r hook.FetchRequest) {
	c := t.child
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing()
	c.out.fetch(t.id, id, r)
}

// Log implements jsvm.Host.
func (t *task) Log(line hook.LogLine) {
	c := t.child
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing()
	c.out.log(t.id, line)
}

// writing notes when output began to wait.
func (c *child) writing() {
	if len(c.out) == 0 {
		c.outSince = time.Now()
	}
}

func (c *child) finish(t *task) {
	delete(c.tasks, t.id)
	if t.vm != nil {
		kept := t.vm.End() && t.outcome != nil && !t.describe && !c.forgotten(t)
		if kept {
			c.keepVM(t.app, t.vm)
		} else {
			t.vm.Close()
		}
	}
	c.calls++
	r := result{
		id: t.id, output: t.outcome.Output, err: t.outcome.Err,
		cpu: t.cpu, fresh: t.fresh, vms: len(c.idle), tired: c.calls%usageEvery == 0 && residentBytes() > tiredBytes,
	}
	c.writing()
	c.out.result(r)
}

func (c *child) forgotten(t *task) bool { return c.scripts[t.bundle] != t.script }

// takeVM takes an idle VM of the app, nil when there is none.
func (c *child) takeVM(app uint64) *jsvm.VM {
	for i, v := range slices.Backward(c.idle) {
		if v.app == app {
			c.idle = slices.Delete(c.idle, i, i+1)
			c.idleSum -= v.memory
			return v.vm
		}
	}
	return nil
}

func (c *child) keepVM(app uint64, vm *jsvm.VM) {
	v := &vmOf{app: app, vm: vm, memory: vm.MemoryUsed()}
	c.idle = append(c.idle, v)
	c.idleSum += v.memory
	for len(c.idle) > c.config.idleVMs || c.idleSum > int64(c.config.idleBytes) {
		oldest := c.idle[0]
		c.idle = slices.Delete(c.idle, 0, 1)
		c.idleSum -= oldest.memory
		oldest.vm.Close()
	}
}

func (c *child) forgetApp(app uint64) {
	c.idle = slices.DeleteFunc(c.idle, func(v *vmOf) bool {
		if v.app == app {
			c.idleSum -= v.memory
			v.vm.Close()
		}
		return v.app == app
	})
}

// flush writes all output. It may block: the pool always reads.
func (c *child) flush() error {
	for rest := []byte(c.out); len(rest) > 0; {
		n, err := unix.Write(c.fd, rest)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("write: %w", err)
		}
		rest = rest[max(n, 0):]
	}
	const keep = 1 << 20
	if cap(c.out) > keep {
		c.out = nil
	}
	c.out = c.out[:0]
	return nil
}

// watch looks every slice, while there is work, whether the loop is stuck in
// one app.
func (c *child) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.watching = false // the loop waits for input and will say when it goes on
		return
	}
	if c.runs != c.seenRuns {
		c.seenRuns = c.runs
		c.watchdog.Reset(slice)
		return
	}
	c.owner++
	c.detached++
	c.running, c.watching = nil, false
	go c.loop(c.owner)
}
