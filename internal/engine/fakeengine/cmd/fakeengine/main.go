// Command fakeengine serves package fakeengine, for fault drills by hand and
// from scripts:
//
//	fakeengine -addr 127.0.0.1:9090 -script '{"then":{"do":"ok","latency":"20ms"}}'
//
// Each start is written to standard output as a line of JSON. PUT /_fake/script
// changes the script, GET /_fake/stats and /_fake/starts tell what came.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fakeengine:", err)
		os.Exit(1)
	}
}

func run() error {
	addr := flag.String("addr", "127.0.0.1:9090", "where to listen")
	script := flag.String("script", "{}", "the script to start with, as JSON")
	quiet := flag.Bool("quiet", false, "write no line for each start")
	flag.Parse()

	var first fakeengine.Script
	if err := json.Unmarshal([]byte(*script), &first); err != nil {
		return fmt.Errorf("read -script: %w", err)
	}
	engine := fakeengine.New(&lines{})
	if *quiet {
		engine = fakeengine.New(nil)
	}
	engine.Play(first)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: *addr, Handler: engine, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	_ = server.Close() // hanging starts are part of the drill; they are not waited for
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// lines keeps whole lines together on standard output.
type lines struct{ mu sync.Mutex }

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return os.Stdout.Write(line)
}
