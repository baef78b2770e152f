package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/bench/internal/cluster"
	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/machine"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
)

// scenario is a table of sides that are run in turn, round by round, and the
// figures that are read off them.
type scenario struct {
	name    string
	sides   []side
	figures []figure
}

// side is one subject or one peer.
type side struct {
	name string
	run  func(ctx context.Context, r *run) error
}

// figure is a line of issue 8's table, or one that is only shown: a metric of one
// side, divided by that of another if there is one, within the same round.
type figure struct {
	id     string
	text   string
	metric string // rate, p50, p99 or a key of sample.Values
	of, to string // sides; to may be ""
	unit   string
	lower  bool // less is better
	goal   float64
	fail   float64 // beyond it the figure has failed; 0 with goal 0: only shown
}

// sample is what one run of a side gave.
type sample struct {
	N       int
	Rate    float64 // events a second
	P50     float64 // milliseconds
	P99     float64
	Usage   machine.Usage
	Values  map[string]float64
	Note    string
	Skipped string // why there is nothing
}

func (s *sample) metric(name string) float64 {
	switch name {
	case "rate":
		return s.Rate
	case "p50":
		return s.P50
	case "p99":
		return s.P99
	}
	return s.Values[name]
}

func (s *sample) latencies(list []time.Duration) {
	s.P50, s.P99 = load.Quantile(list, .5), load.Quantile(list, .99)
}

func (s *sample) quiet() bool { return s.Usage.Others <= machine.MaxOthers }

// cost is the CPU time per event of everybody who took part, in µs.
func (s *sample) cost() float64 {
	if s.N == 0 {
		return 0
	}
	sum := time.Duration(0)
	for _, used := range s.Usage.CPU {
		sum += used
	}
	return float64(sum.Nanoseconds()) / 1e3 / float64(s.N)
}

// skipped is a side that cannot run here.
type skipped string

func (s skipped) Error() string { return string(s) }

// bench is what all runs share.
type bench struct {
	root       string
	dir        string
	cluster    *cluster.Cluster
	binaries   tocsin.Binaries
	rounds     int
	seconds    time.Duration // of a run under load; drains take at most twice as long
	quiet      time.Duration // for how long a run waits for a quiet machine
	history    int
	profiles   string // where to; "": no profiles
	documents  [][]byte
	deliveries []load.Delivery
	peaks      map[string]float64 // found rates, for the scenarios that need half of one
}

// run is one run of one side.
type run struct {
	*bench
	sample sample
	undo   []func()
}

func (r *run) later(f func()) { r.undo = append(r.undo, f) }

func (r *run) cleanup() {
	for _, f := range slices.Backward(r.undo) {
		f()
	}
}

// value notes a figure beside the rate.
func (r *run) value(name string, v float64) {
	if r.sample.Values == nil {
		r.sample.Values = map[string]float64{}
	}
	r.sample.Values[name] = v
}

// measure runs f, which says how many events it was, on a machine as quiet as
// it gets.
func (r *run) measure(parts map[string]int, f func() (int, error)) error {
	machine.WaitQuiet(r.quiet)
	if parts == nil {
		parts = map[string]int{"postgres": r.cluster.PID}
	}
	var n int
	usage, err := machine.Measure(parts, func() (err error) {
		n, err = f()
		return err
	})
	r.sample.N, r.sample.Usage, r.sample.Rate = n, usage, float64(n)/usage.Elapsed.Seconds()
	return err
}

// database makes a database for this run out of a template.
func (r *run) database(ctx context.Context, template string, build func(context.Context, string) error) (string, error) {
	name, err := r.cluster.Template(ctx, template, build)
	if err != nil {
		return "", err
	}
	url, drop, err := r.cluster.Database(ctx, name)
	if err != nil {
		return "", err
	}
	r.later(drop)
	return url, nil
}

// outcome is a scenario's samples, by side and round.
type outcome struct {
	Scenario string
	Order    []string // of the sides
	Samples  map[string][]sample
	Figures  []reading
}

// play runs the sides that the figures need, interleaved.
func (b *bench) play(ctx context.Context, s *scenario, figures []figure) (*outcome, error) {
	out := &outcome{Scenario: s.name, Samples: map[string][]sample{}}
	var sides []side
	for _, side := range s.sides {
		if len(figures) == len(s.figures) || slices.ContainsFunc(figures, func(f figure) bool { return f.of == side.name || f.to == side.name }) {
			sides = append(sides, side)
			out.Order = append(out.Order, side.name)
		}
	}
	for round := range b.rounds {
		for _, side := range sides {
			sample, err := b.once(ctx, side)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, round %d: %w", s.name, side.name, round+1, err)
			}
			out.Samples[side.name] = append(out.Samples[side.name], sample)
			say("  %d/%d %-24s %s", round+1, b.rounds, side.name, oneLine(&sample))
		}
	}
	for _, f := range figures {
		out.Figures = append(out.Figures, read(f, out.Samples))
	}
	return out, nil
}

func (b *bench) once(ctx context.Context, side side) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	r := &run{bench: b}
	defer r.cleanup()
	err := side.run(ctx, r)
	var skip skipped
	if errors.As(err, &skip) {
		return sample{Skipped: skip.Error()}, nil
	}
	return r.sample, err
}

func oneLine(s *sample) string {
	if s.Skipped != "" {
		return "skipped: " + s.Skipped
	}
	var parts []string
	if s.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%8.0f/s", s.Rate))
	}
	if s.P50 > 0 {
		parts = append(parts, fmt.Sprintf("p50 %.2f p99 %.2f ms", s.P50, s.P99))
	}
	parts = append(parts, costs(s), fmt.Sprintf("others %.0f %%", 100*s.Usage.Others))
	if !s.quiet() {
		parts = append(parts, "(busy)")
	}
	if s.Note != "" {
		parts = append(parts, s.Note)
	}
	return strings.Join(parts, "  ")
}

// costs gives the CPU time per event of each part.
func costs(s *sample) string {
	if s.N == 0 {
		return ""
	}
	var parts []string
	for _, name := range sortedKeys(s.Usage.CPU) {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, float64(s.Usage.CPU[name].Microseconds())/float64(s.N)))
	}
	return strings.Join(parts, ", ") + " µs/event"
}
