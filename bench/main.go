// Command bench measures Tocsin beside its peers, on a PostgreSQL of its own with
// durability left on, and writes docs/benchmarks/DATE.md.
//
//	bench [-list] [-profile] [name …]
//
// A name is that of a scenario or of a figure; none means all. BENCH_ROUNDS (5),
// BENCH_SECONDS (5), BENCH_QUIET (5s, how long a run waits for a quiet machine)
// and BENCH_HISTORY (10000000, events) bound it. The exit code is 1 when a figure
// is failing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/bench/internal/cluster"
	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
)

func main() {
	list := flag.Bool("list", false, "print what there is")
	profile := flag.Bool("profile", false, "write profiles of ingest and dispatcher under load")
	flag.Parse()
	if *list {
		for _, s := range scenarios() {
			say("%s", s.name)
			for _, f := range s.figures {
				say("    %-18s %s", f.id, f.text)
			}
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	failing, err := start(ctx, flag.Args(), *profile)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if failing {
		os.Exit(1)
	}
}

// start sets everything up, runs what was asked for and takes it down again.
func start(ctx context.Context, names []string, profile bool) (failing bool, err error) {
	chosen, err := choose(names)
	if err != nil {
		return false, err
	}
	b := &bench{peaks: map[string]float64{}, documents: load.Documents(5000)}
	if b.root, err = repository(); err != nil {
		return false, err
	}
	seconds, err := setting("BENCH_SECONDS", 5)
	if err != nil {
		return false, err
	}
	b.seconds = time.Duration(seconds) * time.Second
	if b.rounds, err = setting("BENCH_ROUNDS", 5); err != nil {
		return false, err
	}
	if b.history, err = setting("BENCH_HISTORY", 10_000_000); err != nil {
		return false, err
	}
	quiet := os.Getenv("BENCH_QUIET")
	if quiet == "" {
		quiet = "5s"
	}
	if b.quiet, err = time.ParseDuration(quiet); err != nil {
		return false, err
	}
	if b.deliveries, err = load.Deliveries(filepath.Join(b.root, "e2e", "testdata", "github-deliveries.ndjson")); err != nil {
		return false, err
	}
	if b.dir, err = os.MkdirTemp("", "tocsin-bench-*"); err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	say("building ingest and dispatcher")
	if b.binaries, err = tocsin.Build(ctx, b.root, b.dir, profile); err != nil {
		return false, err
	}
	b.cluster, err = cluster.Start(ctx, b.root, filepath.Join(b.root, ".local", fmt.Sprintf("bench-%d", os.Getpid())))
	if b.cluster != nil {
		defer func() { err = errors.Join(err, b.cluster.Destroy()) }()
	}
	if err != nil {
		return false, err
	}
	if profile {
		return false, b.profile(ctx)
	}
	return b.all(ctx, chosen)
}

// choice is a scenario with the figures that were asked for.
type choice struct {
	scenario scenario
	figures  []figure
}

// choose finds scenarios and figures by name.
func choose(names []string) ([]choice, error) {
	unknown := slices.Clone(names)
	var list []choice
	for _, s := range scenarios() {
		c := choice{scenario: s}
		named := func(name string) bool {
			unknown = slices.DeleteFunc(unknown, func(n string) bool { return n == name })
			return slices.Contains(names, name)
		}
		whole := len(names) == 0 || named(s.name)
		for _, f := range s.figures {
			if named(f.id) || whole {
				c.figures = append(c.figures, f)
			}
		}
		if len(c.figures) > 0 {
			list = append(list, c)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("nothing is named %s; see -list", strings.Join(unknown, ", "))
	}
	return list, nil
}

func (b *bench) all(ctx context.Context, chosen []choice) (failing bool, err error) {
	env := b.environment()
	say("%s, %s, %d cores (%s)", env.PostgreSQL, env.Go, env.Cores, env.CPU)
	var outcomes []*outcome
	for _, c := range chosen {
		say("%s: %d rounds", c.scenario.name, b.rounds)
		out, err := b.play(ctx, &c.scenario, c.figures)
		if err != nil {
			return failing, err
		}
		for i := range out.Figures {
			say("%s", out.Figures[i].line())
			failing = failing || out.Figures[i].Verdict == verdictFailing
		}
		outcomes = append(outcomes, out)
		page, err := b.keep(outcomes, env) // a long run that is cut short leaves what it has
		if err != nil {
			return failing, err
		}
		if len(outcomes) == len(chosen) {
			say("\nwritten to %s\n", strings.TrimPrefix(page, b.root+"/"))
		}
	}
	for _, out := range outcomes {
		for i := range out.Figures {
			say("%s", out.Figures[i].line())
		}
	}
	return failing, nil
}

func setting(name string, value int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return value, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: want a positive number, not %q", name, text)
	}
	return n, nil
}

// repository finds the root from here up.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not within the repository")
		}
	}
}

func git(dir string, args ...string) string {
	cmd := exec.Command("git", args...) //nolint:gosec // fixed arguments
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
