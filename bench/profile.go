package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
)

func cores() int { return runtime.NumCPU() }

// profile writes CPU, heap, block and mutex profiles of ingest under 64
// connections, and of the dispatcher draining through either engine, to
// .local/profiles, and prints what is on top.
func (b *bench) profile(ctx context.Context) error {
	dir := filepath.Join(b.root, ".local", "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, f := range map[string]func(context.Context, *run, string) error{"ingest": profileIngest, "dispatcher-embedded": profileEmbedded, "dispatcher-http": profileHTTP} {
		r := &run{bench: b}
		err := f(ctx, r, filepath.Join(dir, name))
		r.cleanup()
		if err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
		for _, kind := range []string{"cpu", "block", "mutex"} {
			file := filepath.Join(dir, name+"-"+kind+".pprof")
			out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount=45", file).Output()
			if err != nil {
				return err
			}
			say("\n%s, %s (%s)\n%s", name, kind, strings.TrimPrefix(file, b.root+"/"), out)
		}
	}
	return nil
}

func profileIngest(ctx context.Context, r *run, prefix string) error {
	system, urls, _, err := r.ingest(ctx, "plain", callers)
	if err != nil {
		return err
	}
	post, err := r.post(ctx, system, urls, callers, kib)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := load.Closed(ctx, callers, r.seconds+4*time.Second, post)
		done <- err
	}()
	time.Sleep(warmUp)
	if err := tocsin.SaveProfiles(ctx, system.Ingest, prefix, r.seconds); err != nil {
		return err
	}
	return <-done
}

func profileEmbedded(ctx context.Context, r *run, prefix string) error {
	return r.profileDispatcher(ctx, prefix, "embedded:")
}

func profileHTTP(ctx context.Context, r *run, prefix string) error {
	engine, err := load.StartEngine(ctx, 0, nil)
	if err != nil {
		return err
	}
	r.later(engine.Close)
	return r.profileDispatcher(ctx, prefix, engine.URL)
}

func (r *run) profileDispatcher(ctx context.Context, prefix, engine string) error {
	database, err := r.filled(ctx, spread)
	if err != nil {
		return err
	}
	system := tocsin.New(r.root, r.dir, database, r.binaries, map[string]string{"ENGINE_URL": engine})
	r.later(system.Stop)
	p, err := system.StartDispatcher(ctx)
	if err != nil {
		return err
	}
	return tocsin.SaveProfiles(ctx, p, prefix, r.seconds)
}
