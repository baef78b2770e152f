package rig

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a program and a server, and is the network's faults.
type Proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu     sync.Mutex
	conns  map[*link]bool
	refuse bool
	delay  time.Duration
}

type link struct {
	client, server net.Conn
	stalled        chan struct{} // closed: what comes is swallowed
	once           sync.Once
}

// StartProxy listens on loopback and forwards to target, host:port.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[*link]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.done.Wait()
	})
	return p
}

// Through gives the URL that leads through the proxy.
func (p *Proxy) Through(t testing.TB, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// Cut breaks every connection there is.
func (p *Proxy) Cut() {
	for _, l := range p.links() {
		_ = l.client.Close()
		_ = l.server.Close()
	}
}

// Refuse turns new connections away, until it is told otherwise.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Delay holds every packet up for that long.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall makes every connection there is half-open: neither end hears from the
// other again, and neither is told. New connections work.
func (p *Proxy) Stall() {
	for _, l := range p.links() {
		l.once.Do(func() { close(l.stalled) })
	}
}

func (p *Proxy) links() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*link, 0, len(p.conns))
	for l := range p.conns {
		list = append(list, l)
	}
	return list
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		p.done.Go(func() { p.forward(client) })
	}
}

func (p *Proxy) forward(client net.Conn) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, stalled: make(chan struct{})}
	p.mu.Lock()
	p.conns[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, client, server) })
	both.Go(func() { p.pump(l, server, client) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
}

func (p *Proxy) pump(l *link, from, to net.Conn) {
	defer func() { _ = from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-l.stalled:
			_, _ = io.Copy(io.Discard, from) // until this end gives up
			return
		default:
		}
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		if delay > 0 {
			Pause(context.Background(), delay)
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			_ = to.Close()
			return
		}
	}
}
