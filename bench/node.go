package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/tocsin-dev/tocsin/bench/internal/machine"
)

var nodeModules struct {
	sync.Once
	err error
}

// node runs a peer that is a Node library; skipped where there is no Node or npm
// cannot install it.
func node(peer string) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		dir := filepath.Join(r.root, "bench", "node")
		nodeModules.Do(func() { nodeModules.err = installNode(ctx, dir) })
		if nodeModules.err != nil {
			return skipped(nodeModules.err.Error())
		}
		database, err := r.database(ctx, "empty", nil)
		if err != nil {
			return err
		}
		machine.WaitQuiet(r.quiet)
		cmd := exec.CommandContext(ctx, "node", "bench.mjs", peer, database, strconv.Itoa(callers), strconv.Itoa(int(r.seconds.Seconds())))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "NODE_NO_WARNINGS=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		usage, err := machine.Measure(map[string]int{"postgres": r.cluster.PID}, cmd.Wait)
		if err != nil {
			return skipped(fmt.Sprintf("%s: %v: %.200s", peer, err, stderr.String()))
		}
		var answer struct {
			N       int     `json:"n"`
			Seconds float64 `json:"seconds"`
			P50     float64 `json:"p50"`
			P99     float64 `json:"p99"`
		}
		if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
			return fmt.Errorf("%s said %.200s: %w", peer, stdout.String(), err)
		}
		// The client's time is known once it has ended, its start-up included.
		took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		usage.CPU["node"] = took
		usage.Others = max(0, usage.Others-float64(took)/float64(usage.Elapsed)/float64(cores()))
		r.sample.N, r.sample.Usage, r.sample.Rate = answer.N, usage, float64(answer.N)/answer.Seconds
		r.sample.P50, r.sample.P99 = answer.P50, answer.P99
		return nil
	}
}

func installNode(ctx context.Context, dir string) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s on this machine", program)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %.300s", err, out)
	}
	return nil
}

// nodeVersions reads the versions of what is installed.
func nodeVersions(dir string) map[string]string {
	versions := map[string]string{}
	for _, name := range []string{"graphile-worker", "pg-boss"} {
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
		if err != nil {
			continue
		}
		var manifest struct {
			Version string `json:"version"`
		}
		if json.Unmarshal(text, &manifest) == nil {
			versions[name] = manifest.Version
		}
	}
	return versions
}
