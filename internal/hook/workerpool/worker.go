package workerpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// worker is a worker process from the outside. jobs, scripts, served, vms,
// retiring and dead belong to the pool's lock.
type worker struct {
	lane lane
	pid  int
	cmd  *exec.Cmd
	conn *net.UnixConn
	out  *outbox
	said *crashText

	jobs     map[uint64]*job
	scripts  map[uint64]bool // it holds these
	served   int
	vms      int
	retiring bool
	dead     bool
}

// startTimeout is how long a new worker may take to say hello.
const startTimeout = 20 * time.Second

// askWorker asks the spawner for a worker of a lane.
func (p *Pool) askWorker(l lane) {
	if p.closed {
		return
	}
	p.spawning[l]++
	select {
	case p.spawn <- l:
	default:
		// Cannot be: there are never more requests than workers wanted.
		p.spawning[l]--
	}
}

// runSpawner starts all workers, from one thread that lives as long as they
// do: the kernel ends a worker with the thread that made it, not with the
// process. The first outcome is sent to first.
func (p *Pool) runSpawner(first chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this goroutine
	if err := forbidPrivileges(); err != nil {
		first <- err
		return
	}
	const longestPause = 5 * time.Second
	pause := 50 * time.Millisecond
	for l := range p.spawn {
		for {
			w, err := p.start(l)
			if first != nil {
				first <- err
				first = nil
			}
			if err == nil {
				pause = 50 * time.Millisecond
				p.adopt(w)
				break
			}
			if p.ctx.Err() != nil {
				break
			}
			p.options.Log.Error("hook.worker_not_started", zap.Error(err))
			select {
			case <-p.ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, longestPause)
		}
	}
}

// start starts a process by the strictest way that works here, and remembers
// which that is.
func (p *Pool) start(l lane) (*worker, error) {
	ways := isolations()
	for {
		p.mu.Lock()
		level, closed := p.level, p.closed
		p.mu.Unlock()
		if closed {
			return nil, errors.New("the pool is closed")
		}
		w, err := launch(l, ways[level], p.config)
		if err == nil || level == len(ways)-1 {
			return w, err
		}
		p.options.Log.Warn("hook.isolation_unavailable", zap.String("isolation", ways[level].name),
			zap.String("next", ways[level+1].name), zap.Error(err))
		p.mu.Lock()
		p.level = level + 1
		p.mu.Unlock()
	}
}

func launch(l lane, way isolation, c config) (*worker, error) {
	self, err := selfPath()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	w := &worker{lane: l, conn: ours, said: &crashText{}, jobs: map[uint64]*job{}, scripts: map[uint64]bool{}}
	w.cmd = &exec.Cmd{
		Path: self, Args: []string{"tocsin", workerArgument}, Env: []string{"TZ=UTC"}, Dir: "/",
		Stderr: w.said, ExtraFiles: []*os.File{theirs}, SysProcAttr: way.attributes,
	}
	err = w.cmd.Start()
	_ = theirs.Close() // the worker's end must be the only one, or its death goes unnoticed
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	w.pid = w.cmd.Process.Pid
	if w.out, err = newOutbox(ours); err == nil {
		err = w.greet(c)
	}
	if err != nil {
		w.kill()
		_ = ours.Close()
		return nil, fmt.Errorf("%w (%s; %s)", err, outcome(w.cmd.Wait()), w.said)
	}
	return w, nil
}

// greet configures a new worker and waits for its hello.
func (w *worker) greet(c config) error {
	var f frames
	f.config(c)
	if err := w.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	if _, err := w.conn.Write(f); err != nil {
		return err
	}
	var hello [headSize + 1]byte
	for n := 0; n < len(hello); {
		read, err := w.conn.Read(hello[n:])
		if err != nil {
			return fmt.Errorf("wait for the worker: %w", err)
		}
		n += read
	}
	if frameKind(hello[headSize-1]) != frameHello {
		return errFrame
	}
	return w.conn.SetDeadline(time.Time{})
}

func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "hook-pool"), os.NewFile(uintptr(fds[1]), "hook-worker")
	conn, err := net.FileConn(ours) // which takes a descriptor of its own
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("use socket pair: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_, _ = conn.Close(), theirs.Close()
		return nil, nil, fmt.Errorf("use socket pair: got %T", conn)
	}
	return unixConn, theirs, nil
}

// adopt puts a started worker to work.
func (p *Pool) adopt(w *worker) {
	p.mu.Lock()
	p.spawning[w.lane]--
	if p.closed {
		w.kill()
	}
	if w.lane == laneQuarantine {
		p.quarantine = w
	} else {
		p.workers = append(p.workers, w)
	}
	p.group.Go(w.out.run)
	p.group.Go(func() { p.serve(w) })
	p.dispatch()
	p.mu.Unlock()
	p.flushAll()
}

// outcome is how something ended, in words.
func outcome(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// serve reads a worker's frames until it is gone.
func (p *Pool) serve(w *worker) {
	err := p.readFrames(w)
	w.kill()
	_ = w.conn.Close()
	w.out.close()
	how := fmt.Sprintf("%s; %s; %s", outcome(w.cmd.Wait()), outcome(err), w.said)
	p.died(w, how)
}

func (p *Pool) readFrames(w *worker) error {
	var in frameReader
	for {
		n, err := w.conn.Read(in.space())
		if err != nil {
			return err
		}
		in.filled(n)
		for {
			kind, payload, ok, err := in.next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if err := p.take(w, kind, &payload); err != nil {
				return err
			}
		}
		p.flushAll()
	}
}

// take handles one frame of a worker. It does not block.
func (p *Pool) take(w *worker, kind frameKind, payload *fields) error {
	switch kind {
	case frameResult:
		r := payload.result()
		if payload.bad {
			return errFrame
		}
		p.finished(w, r)
	case frameFetch:
		call, op, r := payload.fetch()
		if payload.bad {
			return errFrame
		}
		p.startFetch(w, call, op, r)
	case frameLog:
		call, line := payload.log()
		if payload.bad {
			return errFrame
		}
		p.mu.Lock()
		j := w.jobs[call]
		p.mu.Unlock()
		if j != nil {
			p.options.Host.Log(j.call, line)
		}
	case frameConfig, frameBundle, frameForget, frameForgetApp, frameCall, frameCancel, frameReply, frameHello:
		return errFrame
	default:
		return errFrame
	}
	return nil
}

// startFetch runs one fetch of a hook. Its reply goes to the worker that
// asked, or nowhere when that is gone.
func (p *Pool) startFetch(w *worker, call uint64, op int, r hook.FetchRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := w.jobs[call]
	if j == nil || p.closed {
		return
	}
	ctx, ok := j.startHostOp()
	if !ok {
		return // only a worker that broke out asks for more than it may
	}
	r.Call, r.Allow = j.call, j.app.bundle.Allow
	p.group.Go(func() {
		response, err := p.options.Host.Fetch(ctx, r)
		p.mu.Lock()
		if j.worker == w && j.id == call {
			j.hostOps--
		}
		p.mu.Unlock()
		w.out.add(func(f *frames) { f.reply(reply{call: call, op: op, response: response, err: fetchError(ctx, err)}) })
		w.out.flush()
	})
}

func fetchError(ctx context.Context, err error) *hook.Error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*hook.Error](err); ok {
		return known
	}
	if ctx.Err() != nil {
		return &hook.Error{Code: hook.CodeFetchTimeout, Message: "the call ended"}
	}
	return &hook.Error{Message: err.Error()}
}

// outbox is what waits to be written to a worker. add and flush never block;
// what the socket does not take at once is left to run.
type outbox struct {
	conn *net.UnixConn
	raw  syscall.RawConn
	more chan struct{} // tells run that the socket is full

	mu      sync.Mutex
	queue   frames
	spare   frames
	writing bool
	closed  bool
}

func newOutbox(conn *net.UnixConn) (*outbox, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &outbox{conn: conn, raw: raw, more: make(chan struct{}, 1)}, nil
}

// add appends frames to the queue.
func (o *outbox) add(encode func(*frames)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		encode(&o.queue)
	}
}

// flush writes the queue as far as the socket takes it. Whoever comes while
// another writes leaves its frames to that one.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return
	}
	for len(o.queue) > 0 && !o.closed {
		batch := o.swap()
		o.writing = true
		o.mu.Unlock()
		n := o.try(batch)
		o.mu.Lock()
		if n < len(batch) && !o.closed {
			// Still writing, in the eyes of others, until run is through.
			o.queue = append(append(frames{}, batch[n:]...), o.queue...)
			o.more <- struct{}{}
			return
		}
		o.writing = false
		o.spare = batch[:0]
	}
}

// swap takes the queue for writing.
func (o *outbox) swap() frames {
	batch := o.queue
	const keep = 1 << 20
	if cap(o.spare) > keep {
		o.spare = nil
	}
	o.queue, o.spare = o.spare[:0], nil
	return batch
}

// try writes what the socket takes without waiting. An error shows in the
// reader too, which deals with it.
func (o *outbox) try(b []byte) (n int) {
	err := o.raw.Write(func(fd uintptr) bool {
		for {
			written, err := unix.Write(int(fd), b[n:])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if written > 0 {
				n += written
			}
			return true
		}
	})
	if err != nil {
		return len(b)
	}
	return n
}

// run writes what flush could not, and may wait for the socket as long as it
// takes: a busy worker reads again when it is done.
func (o *outbox) run() {
	for range o.more {
		o.mu.Lock()
		for len(o.queue) > 0 && !o.closed {
			batch := o.swap()
			o.mu.Unlock()
			_, err := o.conn.Write(batch)
			o.mu.Lock()
			if err != nil {
				break
			}
		}
		o.writing = false
		o.mu.Unlock()
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.queue = nil
		close(o.more)
	}
}

// crashText keeps the start of a worker's stderr, which is where a crash
// tells its reason.
type crashText struct {
	mu   sync.Mutex
	text []byte
}

func (t *crashText) Write(p []byte) (int, error) {
	const size = 2 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[:min(len(p), size-len(t.text))]...)
	return len(p), nil
}

func (t *crashText) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
