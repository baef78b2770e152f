// Package workerpool runs hooks in worker processes: the running binary
// executed again, one socket each, many app VMs in each. It implements
// hook.Runtime.
//
// A worker enforces the soft limits (time, memory, stack, timers); the pool
// enforces the hard ones: a worker that does not answer is killed and
// replaced, and the other calls it held run again elsewhere. Everything a hook
// asks of the outside passes through the pool, so a call that is run twice
// never acts twice for an attempt the pool has given up.
package workerpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// Options says how a Pool works. The zero value of a field takes the default.
type Options struct {
	Host hook.Host   // what hooks may ask for; required
	Log  *zap.Logger // default: none

	Workers int // processes; default GOMAXPROCS
	Depth   int // calls in flight per worker; default 32
	PerApp  int // calls of one app in flight; default Workers*Depth/4
	Queue   int // calls of one app that may wait; default 1024

	Limits hook.Limits // for calls that set none

	IdleVMs      int           // kept per worker; default 128
	RecycleCalls int           // calls after which a worker is replaced; default 100 000
	BreakAfter   int           // hard kills until an app's breaker opens; default 3
	CoolDown     time.Duration // how long it stays open, and an app slow; default 1 min
}

// The default limits of a call.
const (
	defaultWall       = 30 * time.Second
	defaultGrace      = time.Second
	defaultMemory     = 64 << 20
	defaultSize       = 4 << 20
	defaultHostOps    = 32
	defaultTimers     = 1000
	defaultLogBytes   = 64 << 10
	defaultDepth      = 32
	defaultQueue      = 1024
	defaultIdleVMs    = 128
	defaultRecycle    = 100_000
	defaultBreakAfter = 3
	defaultCoolDown   = time.Minute

	// cleanRuns in quarantine bring an app back among the others.
	cleanRuns = 10

	// A worker's data segment holds one VM at its limit twice over (a value
	// and its JSON text) beside what the runtime and idle VMs need.
	dataBase    = 128 << 20
	idleShare   = 4 // idle VMs may hold 1/idleShare of the data limit
	dataPerVM   = 2
	maxLimitMem = 1 << 30
)

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Depth = cmp.Or(o.Depth, defaultDepth)
	o.PerApp = cmp.Or(o.PerApp, max(1, o.Workers*o.Depth/4))
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.IdleVMs = cmp.Or(o.IdleVMs, defaultIdleVMs)
	o.RecycleCalls = cmp.Or(o.RecycleCalls, defaultRecycle)
	o.BreakAfter = cmp.Or(o.BreakAfter, defaultBreakAfter)
	o.CoolDown = cmp.Or(o.CoolDown, defaultCoolDown)
	o.Limits = withDefaults(o.Limits, hook.Limits{
		Wall: defaultWall, Grace: defaultGrace, MemBytes: defaultMemory, MaxIn: defaultSize, MaxOut: defaultSize,
		MaxHostOps: defaultHostOps, MaxTimers: defaultTimers, MaxLog: defaultLogBytes,
	})
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}

func withDefaults(l, base hook.Limits) hook.Limits {
	return hook.Limits{
		Wall:       cmp.Or(l.Wall, base.Wall),
		Grace:      cmp.Or(l.Grace, base.Grace),
		MemBytes:   min(cmp.Or(l.MemBytes, base.MemBytes), maxLimitMem),
		MaxIn:      cmp.Or(l.MaxIn, base.MaxIn),
		MaxOut:     cmp.Or(l.MaxOut, base.MaxOut),
		MaxHostOps: cmp.Or(l.MaxHostOps, base.MaxHostOps),
		MaxTimers:  cmp.Or(l.MaxTimers, base.MaxTimers),
		MaxLog:     cmp.Or(l.MaxLog, base.MaxLog),
	}
}

// Pool is a hook.Runtime of worker processes.
type Pool struct {
	options Options
	config  config

	ctx    context.Context // ends with the pool; the parent of all host operations
	cancel context.CancelFunc
	group  sync.WaitGroup // every goroutine the pool started
	spawn  chan lane      // asks the spawner for a worker

	mu         sync.Mutex
	closed     bool
	workers    []*worker
	quarantine *worker // runs suspects one at a time; nil until needed
	spawning   [laneQuarantine + 1]int
	apps       map[hook.AppRef]*app
	scripts    map[string]*scriptRef // by hash
	waiting    []*app                // with calls queued, next to serve first
	lastID     uint64
	calls      uint64
	kills      uint64
	respawns   uint64
	level      int // index into isolations of the way that works
}

// lane is a kind of worker.
type lane int

const (
	laneMain       lane = iota
	laneQuarantine      // for apps that had to be killed, and for what may have been the cause
)

// app is one loaded AppRef.
type app struct {
	ref     hook.AppRef
	number  uint64
	bundle  hook.Bundle
	script  *scriptRef
	running int
	queue   []*job
	listed  bool // it is in the pool's waiting list

	dropped   bool      // unloaded or replaced
	slowUntil time.Time // one call at a time until then: it burned a whole time limit
	strikes   int       // hard kills it caused
	clean     int       // good calls in quarantine since the last
	openUntil time.Time // the circuit breaker
}

// scriptRef is a script that workers may hold, shared by the tenants of an
// app.
type scriptRef struct {
	number uint64
	hash   string
	source []byte
	users  int
}

var _ hook.Runtime = (*Pool)(nil)

// New starts a pool. It returns once its first worker runs.
func New(options Options) (*Pool, error) {
	if options.Host == nil {
		return nil, errors.New("workerpool: no Host")
	}
	options = options.withDefaults()
	dataLimit := dataBase + dataPerVM*int(options.Limits.MemBytes)
	p := &Pool{
		options: options,
		config:  config{dataLimit: dataLimit, idleVMs: options.IdleVMs, idleBytes: dataLimit / idleShare},
		spawn:   make(chan lane, 2*options.Workers+2),
		apps:    map[hook.AppRef]*app{},
		scripts: map[string]*scriptRef{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	first := make(chan error, 1)
	p.group.Go(func() { p.runSpawner(first) })
	p.mu.Lock()
	for range options.Workers {
		p.askWorker(laneMain)
	}
	p.mu.Unlock()
	if err := <-first; err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("start hook worker: %w", err)
	}
	return p, nil
}

// Load implements hook.Runtime.
func (p *Pool) Load(ctx context.Context, ref hook.AppRef, bundle hook.Bundle) (hook.Description, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return hook.Description{}, errClosedPool()
	}
	p.lastID++
	loaded := &app{ref: ref, number: p.lastID, bundle: bundle, script: p.useScript(bundle)}
	p.mu.Unlock()

	call := hook.Call{App: ref, Limits: withDefaults(hook.Limits{}, p.options.Limits)}
	answer, failure := p.do(ctx, &job{ctx: ctx, call: &call, app: loaded, describe: true})
	if failure != nil {
		p.mu.Lock()
		p.dropApp(loaded)
		p.mu.Unlock()
		return hook.Description{}, failure
	}
	description, err := parseDescription(answer.output)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.dropApp(loaded)
		return hook.Description{}, &hook.Error{Code: hook.CodeInvalidBundle, Phase: "load", Message: err.Error()}
	}
	if old := p.apps[ref]; old != nil {
		p.dropApp(old)
	}
	p.apps[ref] = loaded
	return description, nil
}

// Unload implements hook.Runtime.
func (p *Pool) Unload(ref hook.AppRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if loaded := p.apps[ref]; loaded != nil {
		delete(p.apps, ref)
		p.dropApp(loaded)
	}
}

// dropApp lets the workers forget an app. Calls of it that are queued or
// running keep what they need.
func (p *Pool) dropApp(a *app) {
	for _, w := range p.allWorkers() {
		w.out.add(func(f *frames) { f.number(frameForgetApp, a.number) })
	}
	a.dropped = true
	p.forgetScript(a)
}

// forgetScript gives up a dropped app's script once its last call is over.
func (p *Pool) forgetScript(a *app) {
	if !a.dropped || a.running > 0 || len(a.queue) > 0 {
		return
	}
	a.dropped = false
	a.script.users--
	if a.script.users > 0 {
		return
	}
	delete(p.scripts, a.script.hash)
	for _, w := range p.allWorkers() {
		if w.scripts[a.script.number] {
			delete(w.scripts, a.script.number)
			w.out.add(func(f *frames) { f.number(frameForget, a.script.number) })
		}
	}
}

func (p *Pool) useScript(bundle hook.Bundle) *scriptRef {
	s := p.scripts[bundle.Hash]
	if s == nil {
		p.lastID++
		s = &scriptRef{number: p.lastID, hash: bundle.Hash, source: bundle.JS}
		p.scripts[bundle.Hash] = s
	}
	s.users++
	return s
}

// Invoke implements hook.Runtime.
func (p *Pool) Invoke(ctx context.Context, call hook.Call) (hook.Result, error) {
	started := time.Now()
	call.Limits = withDefaults(call.Limits, p.options.Limits)
	if int64(len(call.Input)+len(call.RawBody)) > call.Limits.MaxIn {
		return hook.Result{}, &hook.Error{Code: hook.CodeTooLarge, Phase: "resolution", Message: "the hook's input is too large"}
	}
	p.mu.Lock()
	target := p.apps[call.App]
	p.mu.Unlock()
	if target == nil {
		return hook.Result{}, &hook.Error{Code: hook.CodeUnknownApp, Phase: "resolution", Message: "no such app is loaded"}
	}
	answer, failure := p.do(ctx, &job{ctx: ctx, call: &call, app: target})
	usage := hook.Usage{Wall: time.Since(started), CPU: answer.cpu, Fresh: answer.fresh}
	if failure != nil {
		failure.Stack = mapStack(failure.Stack, target.bundle.SourceMap)
		return hook.Result{Usage: usage}, failure
	}
	return hook.Result{Output: answer.output, Usage: usage}, nil
}

// do runs a job to its end, or until ctx ends.
func (p *Pool) do(ctx context.Context, j *job) (result, *hook.Error) {
	j.done = make(chan struct{})
	p.mu.Lock()
	w, failure := p.accept(j)
	p.mu.Unlock()
	if failure != nil {
		return result{}, failure
	}
	if w != nil {
		w.out.flush()
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		p.abandon(j)
		<-j.done
	}
	if j.answer.err != nil && ctx.Err() != nil {
		// A fetch that the end of ctx broke off may have been thrown first.
		j.answer.err = gaveUp(ctx)
	}
	return j.answer, j.answer.err
}

// gaveUp says how a call ended whose caller no longer waits.
func gaveUp(ctx context.Context) *hook.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &hook.Error{Code: hook.CodeTimeout, Phase: "execute", Message: "the caller's time ran out"}
	}
	return &hook.Error{Code: hook.CodeCancelled, Phase: "execute", Message: "the caller gave up"}
}

// accept starts a job or queues it.
func (p *Pool) accept(j *job) (*worker, *hook.Error) {
	a := j.app
	switch {
	case p.closed:
		return nil, errClosedPool()
	case time.Now().Before(a.openUntil):
		return nil, quarantined()
	case len(a.queue) == 0:
		if w := p.place(j); w != nil {
			return w, nil
		}
	case len(a.queue) >= p.options.Queue:
		return nil, &hook.Error{Code: hook.CodeOverloaded, Phase: "execute", Message: "too many calls of this app are waiting"}
	}
	a.queue = append(a.queue, j)
	p.list(a)
	return nil, nil
}

// list puts an app with queued calls at the end of the waiting list.
func (p *Pool) list(a *app) {
	if !a.listed && len(a.queue) > 0 {
		a.listed = true
		p.waiting = append(p.waiting, a)
	}
}

// place gives a job to a worker, if one may take it now.
func (p *Pool) place(j *job) *worker {
	a := j.app
	limit := p.options.PerApp
	if time.Now().Before(a.slowUntil) {
		limit = 1
	}
	if a.running >= limit {
		return nil
	}
	w := p.pick(j)
	if w == nil {
		return nil
	}
	p.lastID++
	j.id, j.worker = p.lastID, w
	w.jobs[j.id] = j
	w.served++
	a.running++
	p.calls++
	limits := j.call.Limits
	id := j.id
	j.timer = time.AfterFunc(limits.Wall+limits.Grace, func() { p.overdue(j, id) })
	first := !w.scripts[a.script.number]
	w.scripts[a.script.number] = true
	w.out.add(func(f *frames) {
		if first {
			f.script(a.script.number, a.script.source)
		}
		f.request(request{id: j.id, app: a.number, bundle: a.script.number, describe: j.describe, call: *j.call})
	})
	if w.served >= p.options.RecycleCalls {
		p.retire(w)
	}
	return w
}

// pick is the worker for a job, nil when there is none with room.
func (p *Pool) pick(j *job) *worker {
	if j.isolated || j.app.strikes > 0 {
		if p.quarantine == nil {
			if p.spawning[laneQuarantine] == 0 {
				p.askWorker(laneQuarantine)
			}
			return nil
		}
		// One at a time: if the worker dies, it is known why.
		if len(p.quarantine.jobs) > 0 {
			return nil
		}
		return p.quarantine
	}
	var best *worker
	for _, w := range p.workers {
		if !w.retiring && len(w.jobs) < p.options.Depth && (best == nil || len(w.jobs) < len(best.jobs)) {
			best = w
		}
	}
	return best
}

// dispatch starts queued jobs, one app after the other, while there is room.
func (p *Pool) dispatch() {
	for misses := 0; misses < len(p.waiting); {
		a := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		a.listed = false
		if len(a.queue) == 0 {
			continue
		}
		if p.place(a.queue[0]) == nil {
			misses++
		} else {
			misses = 0
			a.queue = slices.Delete(a.queue, 0, 1)
		}
		p.list(a)
	}
}

// flushAll writes what dispatch left in the workers' outboxes.
func (p *Pool) flushAll() {
	p.mu.Lock()
	workers := p.allWorkers()
	p.mu.Unlock()
	for _, w := range workers {
		w.out.flush()
	}
}

func (p *Pool) allWorkers() []*worker {
	all := slices.Clone(p.workers)
	if p.quarantine != nil {
		all = append(all, p.quarantine)
	}
	return all
}

// abandon gives up a job whose caller left.
func (p *Pool) abandon(j *job) {
	p.mu.Lock()
	if j.ended {
		p.mu.Unlock()
		return
	}
	w := j.worker
	if w == nil {
		j.app.queue = slices.DeleteFunc(j.app.queue, func(other *job) bool { return other == j })
	} else {
		// The worker still holds it: its place is free when the worker says so,
		// and the hard limit stays.
		w.out.add(func(f *frames) { f.number(frameCancel, j.id) })
		j.stopHostOps()
	}
	j.end(result{err: gaveUp(j.ctx)})
	p.mu.Unlock()
	if w != nil {
		w.out.flush()
	}
}

// overdue kills the worker of a job that is past its hard limit.
func (p *Pool) overdue(j *job, id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := j.worker
	if w == nil || j.id != id || w.jobs[id] != j || w.dead {
		return
	}
	j.overdue = true
	p.kills++
	w.kill()
}

// finished takes a worker's result.
func (p *Pool) finished(w *worker, r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := w.jobs[r.id]
	if j == nil {
		return
	}
	w.vms = r.vms
	p.release(w, j)
	p.judge(w, j, r)
	j.end(r)
	p.forgetScript(j.app)
	if r.tired {
		p.retire(w)
	}
	p.dispatch()
	if w.retiring && len(w.jobs) == 0 {
		w.kill()
	}
}

// release takes a job off its worker.
func (p *Pool) release(w *worker, j *job) {
	delete(w.jobs, j.id)
	j.timer.Stop()
	j.stopHostOps()
	j.worker = nil
	j.app.running--
}

// judge keeps an app's record.
func (p *Pool) judge(w *worker, j *job, r result) {
	a := j.app
	if r.err != nil && r.err.Code == hook.CodeTimeout && r.cpu > j.call.Limits.Wall/2 {
		a.slowUntil = time.Now().Add(p.options.CoolDown)
	}
	if w.lane == laneQuarantine && a.strikes > 0 && (r.err == nil || r.err.Code != hook.CodeTimeout) {
		a.clean++
		if a.clean >= cleanRuns {
			a.strikes, a.clean = 0, 0
		}
	}
}

// strike counts a hard kill that an app caused.
func (p *Pool) strike(a *app) {
	a.strikes++
	a.clean = 0
	p.options.Log.Warn("hook.killed",
		zap.String("app_id", a.ref.ID), zap.String("app_version", a.ref.Version), zap.Int("strikes", a.strikes))
	if a.strikes < p.options.BreakAfter {
		return
	}
	a.openUntil = time.Now().Add(p.options.CoolDown)
	for _, j := range a.queue {
		j.end(result{err: quarantined()})
	}
	a.queue = nil
}

// retire stops giving calls to a worker and asks for its replacement.
func (p *Pool) retire(w *worker) {
	if w.retiring || w.lane == laneQuarantine {
		return
	}
	w.retiring = true
	p.askWorker(w.lane)
}

// died cleans up after a worker process that is gone.
func (p *Pool) died(w *worker, how string) {
	p.mu.Lock()
	w.dead = true
	expected := p.closed || w.retiring
	p.workers = slices.DeleteFunc(p.workers, func(other *worker) bool { return other == w })
	if p.quarantine == w {
		p.quarantine = nil
	}
	explained := false
	jobs := make([]*job, 0, len(w.jobs))
	for _, j := range w.jobs {
		jobs = append(jobs, j)
		explained = explained || j.overdue
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(b.id, a.id) })
	for _, j := range jobs {
		p.release(w, j)
		p.bury(w, j, explained)
	}
	if !p.closed {
		if !expected {
			p.options.Log.Warn("hook.worker_died", zap.Int("pid", w.pid), zap.String("how", how),
				zap.Bool("killed", explained), zap.Int("calls", len(jobs)))
			p.respawns++
			p.askWorker(w.lane)
		}
		p.dispatch()
	}
	p.mu.Unlock()
	p.flushAll()
}

// bury decides what becomes of a job whose worker died. explained says that
// some job was overdue and the pool itself killed the worker.
func (p *Pool) bury(w *worker, j *job, explained bool) {
	lost := &hook.Error{Code: hook.CodeWorkerLost, Phase: "execute", Message: "the worker process was lost"}
	switch {
	case p.closed:
		j.end(result{err: errClosedPool()})
	case j.overdue:
		p.strike(j.app)
		j.end(result{err: &hook.Error{Code: hook.CodeTimeout, Phase: "execute", Message: "the hook ran out of time and had to be killed"}})
	case !explained && w.lane == laneQuarantine:
		p.strike(j.app) // it was alone in there
		j.end(result{err: lost})
	case j.attempts > 0:
		j.end(result{err: lost})
	case j.ended:
		// Its caller left.
	default:
		j.attempts++
		j.isolated = !explained
		j.app.queue = slices.Insert(j.app.queue, 0, j)
		p.list(j.app)
	}
}

// Stats implements hook.Runtime.
func (p *Pool) Stats() hook.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := hook.Stats{Calls: p.calls, Kills: p.kills, Respawns: p.respawns}
	for _, w := range p.allWorkers() {
		s.Workers++
		s.VMs += w.vms
		s.Running += len(w.jobs)
	}
	for _, a := range p.waiting {
		s.Queued += len(a.queue)
	}
	return s
}

// Close implements hook.Runtime.
func (p *Pool) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.cancel()
		for _, a := range p.waiting {
			for _, j := range a.queue {
				j.end(result{err: errClosedPool()})
			}
			a.queue = nil
		}
		for _, w := range p.allWorkers() {
			w.kill()
		}
		close(p.spawn)
	}
	p.mu.Unlock()
	p.group.Wait()
	return nil
}

func quarantined() *hook.Error {
	return &hook.Error{Code: hook.CodeQuarantined, Phase: "execute", Message: "the app's hooks had to be killed too often; it rests for a while"}
}

func errClosedPool() *hook.Error {
	return &hook.Error{Code: hook.CodeWorkerLost, Phase: "execute", Message: "the hook runtime is closed"}
}
