package bell_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a listener and PostgreSQL. It can stop forwarding
// without closing anything, as a router that forgot a connection does.
type proxy struct {
	listener net.Listener
	target   string
	rewrite  func([]byte) // of what the server says
	stalled  atomic.Int32 // connections numbered up to this one are half-open
	count    atomic.Int32
	refuse   atomic.Bool
	refused  atomic.Int32
	done     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, target string, rewrite func([]byte)) *proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host, rewrite: rewrite}
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// through gives the URL that leads through the proxy.
func (p *proxy) through(t *testing.T, target string) dsn {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	return dsn(u.String())
}

// stall makes every connection there is half-open; later ones work.
func (p *proxy) stall() { p.stalled.Store(p.count.Load()) }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			p.refused.Add(1)
			_ = client.Close()
			continue
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		number := p.count.Add(1)
		p.done.Go(func() { p.pump(number, client, server, nil) })
		p.done.Go(func() { p.pump(number, server, client, p.rewrite) })
	}
}

func (p *proxy) pump(number int32, from, to net.Conn, rewrite func([]byte)) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if p.stalled.Load() >= number {
			_, _ = io.Copy(io.Discard, from) // swallowed until either end gives up
			return
		}
		if rewrite != nil {
			rewrite(buffer[:n])
		}
		if _, e := to.Write(buffer[:n]); err != nil || e != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// otherBackend changes the process id in BackendKeyData, as a pooler does.
func otherBackend(data []byte) {
	if at := bytes.Index(data, []byte{'K', 0, 0, 0, 12}); at >= 0 {
		data[at+8] ^= 0x55
	}
}
