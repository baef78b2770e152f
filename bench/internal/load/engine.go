package load

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is a workflow engine on loopback: to every request it answers
// {"runId"} after its delay, and notes what it was sent when somebody wants to
// know. It parses no more of HTTP than it must, so that it costs little.
type Engine struct {
	URL     string
	Starts  atomic.Int64
	delay   time.Duration
	started func(body []byte)
	socket  net.Listener
	done    sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]bool
}

// StartEngine listens. started, if not nil, is told each body.
func StartEngine(ctx context.Context, delay time.Duration, started func(body []byte)) (*Engine, error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &Engine{URL: "http://" + socket.Addr().String(), delay: delay, started: started, socket: socket, conns: map[net.Conn]bool{}}
	e.done.Go(func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns[conn] = true
			e.mu.Unlock()
			e.done.Go(func() { e.serve(conn) })
		}
	})
	return e, nil
}

var started = []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n" + `{"runId":"run_bench"}`)

func (e *Engine) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		e.mu.Lock()
		delete(e.conns, conn)
		e.mu.Unlock()
	}()
	in := bufio.NewReaderSize(conn, 16<<10)
	var body []byte
	for {
		_, length, err := head(in)
		if err != nil {
			return
		}
		if cap(body) < length {
			body = make([]byte, length)
		}
		body = body[:length]
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		if length > 0 {
			e.Starts.Add(1)
			if e.started != nil {
				e.started(body)
			}
			if e.delay > 0 {
				time.Sleep(e.delay)
			}
		}
		if _, err := conn.Write(started); err != nil {
			return
		}
	}
}

// Close ends it.
func (e *Engine) Close() {
	_ = e.socket.Close()
	e.mu.Lock()
	for conn := range e.conns {
		_ = conn.Close()
	}
	e.mu.Unlock()
	e.done.Wait()
}
