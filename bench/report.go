package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/bench/internal/cluster"
	"github.com/tocsin-dev/tocsin/bench/internal/machine"
)

func say(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// reading is a figure as it came out.
type reading struct {
	ID, Text, Unit     string
	Median, Min, Max   float64
	Goal, Fail         float64
	Lower              bool
	ByCPU              float64 // of a ratio of rates: the ratio of CPU times per event; 0: none
	Rounds, QuietRound int
	Verdict            string
}

const (
	verdictMet     = "goal met"
	verdictBelow   = "below goal"
	verdictFailing = "failing"
	verdictShown   = "shown"
	verdictSkipped = "skipped"
)

// read takes the median over the rounds, of the quiet ones where there are at
// least three.
func read(f figure, samples map[string][]sample) reading {
	r := reading{ID: f.id, Text: f.text, Unit: f.unit, Goal: f.goal, Fail: f.fail, Lower: f.lower, Verdict: verdictSkipped}
	var all, quiet, cpu []float64
	for i := range samples[f.of] {
		of := &samples[f.of][i]
		value, calm, ok := of.metric(f.metric), of.quiet(), of.Skipped == ""
		if f.to != "" {
			if i >= len(samples[f.to]) {
				continue
			}
			to := &samples[f.to][i]
			ok = ok && to.Skipped == "" && to.metric(f.metric) > 0
			calm = calm && to.quiet()
			value /= to.metric(f.metric)
			if f.metric == "rate" && of.cost() > 0 {
				cpu = append(cpu, to.cost()/of.cost())
			}
		}
		if !ok {
			continue
		}
		all = append(all, value)
		if calm {
			quiet = append(quiet, value)
		}
	}
	r.ByCPU = median(cpu)
	r.Rounds, r.QuietRound = len(all), len(quiet)
	if len(quiet) >= 3 {
		all = quiet
	}
	if len(all) == 0 {
		return r
	}
	r.Median, r.Min, r.Max = median(all), slices.Min(all), slices.Max(all)
	r.Verdict = verdict(f, r.Median)
	return r
}

func verdict(f figure, value float64) string {
	better := func(a, b float64) bool {
		if f.lower {
			return a <= b
		}
		return a >= b
	}
	switch {
	case f.goal == 0 && f.fail == 0:
		return verdictShown
	case better(value, f.goal):
		return verdictMet
	case better(value, f.fail):
		return verdictBelow
	}
	return verdictFailing
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	if len(list) == 0 {
		return 0
	}
	if len(list)%2 == 0 {
		return (list[len(list)/2-1] + list[len(list)/2]) / 2
	}
	return list[len(list)/2]
}

func (r *reading) bound() string {
	if r.Verdict == verdictShown || r.Goal == 0 && r.Fail == 0 {
		return "–"
	}
	if r.Lower {
		return fmt.Sprintf("≤ %s; > %s", number(r.Goal), number(r.Fail))
	}
	return fmt.Sprintf("≥ %s; < %s", number(r.Goal), number(r.Fail))
}

func (r *reading) byCPU() string {
	if r.ByCPU == 0 {
		return "–"
	}
	return number(r.ByCPU)
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= .1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func (r *reading) line() string {
	if r.Verdict == verdictSkipped {
		return fmt.Sprintf("%-18s skipped  %s", r.ID, r.Text)
	}
	return fmt.Sprintf("%-18s %s%s (%s–%s; by CPU time %s; %d rounds, %d quiet; goal %s): %s. %s", r.ID, number(r.Median), r.Unit, number(r.Min), number(r.Max),
		r.byCPU(), r.Rounds, r.QuietRound, r.bound(), strings.ToUpper(r.Verdict), r.Text)
}

// environment is what the figures depend on.
type environment struct {
	PostgreSQL, Go, Machine, CPU, Kernel, Commit string
	Cores                                        int
	Settings                                     []string
	Versions                                     map[string]string
	Rounds                                       int
	Seconds                                      float64
}

func (b *bench) environment() environment {
	env := environment{
		PostgreSQL: b.cluster.Version, Go: runtime.Version(), Machine: runtime.GOOS + "/" + runtime.GOARCH, CPU: machine.Model(),
		Cores: runtime.NumCPU(), Settings: cluster.Settings, Versions: map[string]string{}, Rounds: b.rounds, Seconds: b.seconds.Seconds(),
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		env.Kernel = strings.TrimSpace(string(text))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/riverqueue/river", "github.com/vgarvardt/gue/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/jackc/pgx/v5":
				env.Versions[dep.Path] = dep.Version
			}
		}
	}
	maps.Copy(env.Versions, nodeVersions(filepath.Join(b.root, "bench", "node")))
	env.Commit = git(b.root, "rev-parse", "--short", "HEAD")
	if git(b.root, "status", "--porcelain", "--untracked-files=no", "--", "internal", "services", "db") != "" {
		env.Commit += " with changes"
	}
	return env
}

// stored is what the day's runs gave, so that a run of one scenario renews its
// part of the page alone.
type stored struct {
	Outcome     outcome
	Environment environment
	At          time.Time
}

// keep adds outcomes to the day's and writes the page anew.
func (b *bench) keep(outcomes []*outcome, env environment) (string, error) {
	day := time.Now().Format(time.DateOnly)
	file := filepath.Join(b.root, ".local", "bench-results-"+day+".json")
	all := map[string]stored{}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &all); err != nil {
			return "", err
		}
	}
	for _, o := range outcomes {
		all[o.Scenario] = stored{*o, env, time.Now()}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	page := filepath.Join(b.root, "docs", "benchmarks", day+".md")
	if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
		return "", err
	}
	return page, os.WriteFile(page, []byte(markdown(day, all, env)), 0o644) //nolint:gosec // a page of the documentation
}

func markdown(day string, all map[string]stored, env environment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks of %s\n\n", day)
	fmt.Fprintf(&b, "Written by `make bench`. Read the ratios: both sides of each ran in turn, on one machine, in one run, and the machine is shared.\n\n")
	fmt.Fprintf(&b, "- Machine: %d cores (%s), %s, kernel %s. Clients, load generator, engine, PostgreSQL and Tocsin share them.\n", env.Cores, env.CPU, env.Machine, env.Kernel)
	fmt.Fprintf(&b, "- %s with `fsync`, `synchronous_commit` and `full_page_writes` on; set beside the defaults: `%s`.\n", env.PostgreSQL, strings.Join(env.Settings, "`, `"))
	fmt.Fprintf(&b, "- %s;", env.Go)
	for i, name := range sortedKeys(env.Versions) {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s %s", name, env.Versions[name])
	}
	fmt.Fprintf(&b, ".\n- A ratio is the median of the ratios of each round, with the least and the greatest. A round is quiet when nobody else took more than %.0f %% of the machine in either run; "+
		"where three or more were, only those count. By CPU time is the ratio of the CPU time per event of all that took part (the peer's by ours): it hardly moves when others are busy. Latencies are in ms, CPU in µs per event (`bench` is the client, the load generator and the engine).\n\n", 100*machine.MaxOthers)

	b.WriteString("| figure | measured | spread | by CPU time | rounds (quiet) | goal; failing | |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |\n")
	for _, name := range order(all) {
		for _, r := range all[name].Outcome.Figures {
			if r.Verdict == verdictSkipped {
				fmt.Fprintf(&b, "| %s (`%s`) | – | – | – | 0 | %s | skipped |\n", r.Text, r.ID, r.bound())
				continue
			}
			fmt.Fprintf(&b, "| %s (`%s`) | %s%s | %s–%s | %s | %d (%d) | %s | %s |\n", r.Text, r.ID, number(r.Median), r.Unit, number(r.Min), number(r.Max), r.byCPU(), r.Rounds, r.QuietRound, r.bound(), r.Verdict)
		}
	}
	for _, name := range order(all) {
		s := all[name]
		fmt.Fprintf(&b, "\n## %s\n\nAt %s, commit %s; %d rounds, runs of %g s.\n\n", name, s.At.UTC().Format("15:04 UTC"), s.Environment.Commit, s.Environment.Rounds, s.Environment.Seconds)
		b.WriteString("| side | events/s | min–max | p50 | p99 | CPU | others | note |\n| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |\n")
		for _, side := range s.Outcome.Order {
			b.WriteString(row(side, s.Outcome.Samples[side]))
		}
	}
	return b.String()
}

func row(name string, list []sample) string {
	good := slices.DeleteFunc(slices.Clone(list), func(s sample) bool { return s.Skipped != "" })
	if len(good) == 0 {
		why := ""
		if len(list) > 0 {
			why = list[0].Skipped
		}
		return fmt.Sprintf("| %s | – | – | – | – | – | – | skipped: %s |\n", name, why)
	}
	pick := func(of func(*sample) float64) (mid, least, most float64) {
		var values []float64
		for i := range good {
			values = append(values, of(&good[i]))
		}
		return median(values), slices.Min(values), slices.Max(values)
	}
	rate, least, most := pick(func(s *sample) float64 { return s.Rate })
	p50, _, _ := pick(func(s *sample) float64 { return s.P50 })
	p99, _, _ := pick(func(s *sample) float64 { return s.P99 })
	others, _, _ := pick(func(s *sample) float64 { return 100 * s.Usage.Others })
	middle := slices.SortedFunc(slices.Values(good), func(a, b sample) int { return cmp.Compare(a.Rate, b.Rate) })[len(good)/2]
	latency := func(v float64) string {
		if v == 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("| %s | %.0f | %.0f–%.0f | %s | %s | %s | %.0f %% | %s |\n", name, rate, least, most, latency(p50), latency(p99),
		strings.TrimSuffix(costs(&middle), " µs/event"), others, middle.Note)
}

// order is that of the scenarios.
func order(all map[string]stored) []string {
	var names []string
	for _, s := range scenarios() {
		if _, ok := all[s.name]; ok {
			names = append(names, s.name)
		}
	}
	return names
}
