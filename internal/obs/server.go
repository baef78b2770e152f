package obs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Limits bounds what a client may take its time for. Zero fields take the
// defaults.
type Limits struct {
	Header time.Duration // to send the header: 10 s
	Body   time.Duration // to send header and body: 30 s
	// Write is the time from the header to the end of the answer, with the
	// handler's own time in it. 0 is no limit.
	Write time.Duration
	Idle  time.Duration // between requests of a connection: 75 s
	// HeaderBytes is the size of the header: 64 KiB.
	HeaderBytes int
}

func (l Limits) withDefaults() Limits {
	if l.Header == 0 {
		l.Header = 10 * time.Second
	}
	if l.Body == 0 {
		l.Body = 30 * time.Second
	}
	if l.Idle == 0 {
		l.Idle = 75 * time.Second
	}
	if l.HeaderBytes == 0 {
		l.HeaderBytes = 64 << 10
	}
	return l
}

// Server is an HTTP server that has its port already and does not answer yet.
type Server struct {
	name     string
	listener net.Listener
	http     *http.Server
	log      *zap.Logger
	// draining makes each answer the last one of its connection.
	draining atomic.Bool
}

// Listen takes the address, so that a port in use is found before anything
// else is started.
func Listen(ctx context.Context, name, addr string, handler http.Handler, limits Limits, log *zap.Logger) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	limits = limits.withDefaults()
	s := &Server{name: name, listener: listener, log: log}
	s.http = &http.Server{
		Handler:           s.lastWhenDraining(handler),
		ReadHeaderTimeout: limits.Header,
		ReadTimeout:       limits.Body,
		WriteTimeout:      limits.Write,
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    limits.HeaderBytes,
		ErrorLog:          errorLog(log, name),
	}
	return s, nil
}

// lastWhenDraining sends clients elsewhere with the answer they get. Go's
// SetKeepAlivesEnabled would also close the idle connections at once, and so
// the one on which a call is just being sent.
func (s *Server) lastWhenDraining(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close gives the port back of a server that was never served.
func (s *Server) Close() error { return s.listener.Close() }

// Shutdown says how to stop serving.
type Shutdown struct {
	// Health turns not ready first. It may be nil.
	Health *Health
	// Drain is the time between that and the last accepted connection, for
	// load balancers to look elsewhere.
	Drain time.Duration
	// Grace is how long requests that are running may take after it.
	Grace time.Duration
}

// DrainFor is the part of the grace period that is spent draining.
func DrainFor(grace time.Duration) time.Duration { return min(grace/10, 2*time.Second) }

// Serve serves until ctx ends, then stops in order: not ready, drain, no new
// connections, running requests end, first server first. It returns nil when
// all of them stopped in time. A server that fails stops the others too.
func Serve(ctx context.Context, stop Shutdown, servers ...*Server) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(servers))
	for _, s := range servers {
		s.log.Info("http.listening", zap.String("listener", s.name), zap.String(KeyAddr, s.Addr()))
		go func() {
			err := s.http.Serve(s.listener)
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			} else {
				err = fmt.Errorf("serve %s: %w", s.name, err)
				cancel()
			}
			ended <- err
		}()
	}
	<-ctx.Done()
	err := stop.run(context.WithoutCancel(ctx), servers)
	for range servers {
		err = errors.Join(err, <-ended)
	}
	return err
}

func (stop Shutdown) run(ctx context.Context, servers []*Server) error {
	if stop.Health != nil {
		stop.Health.Stop("shutting down")
	}
	for _, s := range servers {
		s.draining.Store(true)
	}
	if stop.Drain > 0 {
		<-time.After(stop.Drain)
	}
	ctx, cancel := context.WithTimeout(ctx, stop.Grace)
	defer cancel()
	var err error
	for _, s := range servers {
		if e := s.http.Shutdown(ctx); e != nil {
			_ = s.http.Close()
			err = errors.Join(err, fmt.Errorf("stop %s: requests were still running after %s", s.name, stop.Grace))
		}
	}
	return err
}
