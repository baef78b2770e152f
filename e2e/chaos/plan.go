// Package chaos runs the real binaries on a PostgreSQL of their own, on
// loopback, and does to them what happens to programs: kills and stops them,
// restarts, starves and cuts off the database, and lets the engine misbehave.
// Package checker then judges what was seen. A seed gives a plan of faults, and
// the same seed the same plan.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/checker"
)

// Step is one fault of a plan.
type Step struct {
	At   time.Duration // since the plan began
	For  time.Duration // how long it lasts; 0: it is over at once
	Kind string
	// Which process of the target is hit.
	Index int
}

func (s Step) String() string {
	return fmt.Sprintf("%7.1fs %-22s %4.1fs #%d", s.At.Seconds(), s.Kind, s.For.Seconds(), s.Index)
}

// kind is one kind of fault.
type kind struct {
	name   string
	target checker.Target
	least  time.Duration // it lasts from least
	most   time.Duration // to most
	weight int
}

// Processes are hit on a track of their own, so that a dispatcher may die while
// the database is away.
var processFaults = []kind{
	{"kill dispatcher", checker.Dispatcher, 0, 0, 5},
	{"term dispatcher", checker.Dispatcher, 0, 0, 3},
	{"stop dispatcher", checker.Dispatcher, time.Second, 8 * time.Second, 4},
	{"kill ingest", checker.Ingest, 0, 0, 3},
	{"term ingest", checker.Ingest, 0, 0, 2},
	{"stop ingest", checker.Ingest, 500 * time.Millisecond, 3 * time.Second, 2},
}

var surroundingFaults = []kind{
	{"database fast restart", checker.Database, 0, time.Second, 2},
	{"database crash", checker.Database, 0, time.Second, 2},
	{"database away", checker.Database, 2 * time.Second, 6 * time.Second, 1},
	{"database read-only", checker.Database, time.Second, 4 * time.Second, 2},
	{"database slots", checker.Database, time.Second, 4 * time.Second, 2},
	{"database stopped", checker.Database, 500 * time.Millisecond, 2 * time.Second, 1},
	{"listeners terminated", checker.Database, 0, 0, 3},
	{"everyone terminated", checker.Database, 0, 0, 3},
	{"network cut", checker.Network, 500 * time.Millisecond, 4 * time.Second, 3},
	{"network slow", checker.Network, time.Second, 4 * time.Second, 2},
	{"network half-open", checker.Network, 0, 0, 3},
	{"engine slow", checker.Engine, time.Second, 5 * time.Second, 2},
	{"engine hung", checker.Engine, time.Second, 4 * time.Second, 2},
	{"engine flapping", checker.Engine, 2 * time.Second, 6 * time.Second, 2},
	{"engine garbage", checker.Engine, 500 * time.Millisecond, 2 * time.Second, 1},
	{"engine dirty", checker.Engine, 500 * time.Millisecond, 2 * time.Second, 1},
	{"engine late", checker.Engine, 500 * time.Millisecond, 2 * time.Second, 2},
	{"engine refusing", checker.Engine, time.Second, 3 * time.Second, 1},
}

// Plan lays out the faults of a round.
func Plan(seed int64, length time.Duration) []Step {
	var plan []Step
	for track, kinds := range [][]kind{processFaults, surroundingFaults} {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(track)))
		at := time.Second
		for at < length {
			k := pick(random, kinds)
			step := Step{At: at, Kind: k.name, Index: random.IntN(1 << 10), For: k.least}
			if k.most > k.least {
				step.For += time.Duration(random.Int64N(int64(k.most - k.least)))
			}
			plan = append(plan, step)
			at += step.For + time.Second + time.Duration(random.Int64N(int64(3*time.Second)))
		}
	}
	slices.SortStableFunc(plan, func(a, b Step) int { return int(a.At - b.At) })
	return plan
}

func pick(random *rand.Rand, kinds []kind) kind {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := random.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return kinds[0]
}

func targetOf(name string) checker.Target {
	for _, k := range slices.Concat(processFaults, surroundingFaults) {
		if k.name == name {
			return k.target
		}
	}
	return ""
}

// isProcess says on which track a step is.
func isProcess(s Step) bool {
	return slices.ContainsFunc(processFaults, func(k kind) bool { return k.name == s.Kind })
}

// Summary counts a plan's faults by kind.
func Summary(plan []Step) string {
	count := map[string]int{}
	for _, s := range plan {
		count[s.Kind]++
	}
	var parts []string
	for _, k := range slices.Concat(processFaults, surroundingFaults) {
		if n := count[k.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d× %s", n, k.name))
		}
	}
	return strings.Join(parts, ", ")
}
