package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Cleanup()
	os.Exit(code)
}

func TestASeedGivesOnePlan(t *testing.T) {
	t.Parallel()
	a, b := Plan(7, time.Minute), Plan(7, time.Minute)
	if !slices.Equal(a, b) {
		t.Error("one seed gave two plans")
	}
	if slices.Equal(a, Plan(8, time.Minute)) {
		t.Error("two seeds gave one plan")
	}
	kinds := map[string]bool{}
	for _, s := range Plan(1, time.Hour) {
		kinds[s.Kind] = true
	}
	for _, k := range slices.Concat(processFaults, surroundingFaults) {
		if !kinds[k.name] {
			t.Errorf("an hour has no %q", k.name)
		}
	}
}

// The round that every change has to survive. Its seed is fixed; `make chaos`
// plays others, and longer.
func TestNothingIsLostStuckOrStartedTwiceUnderFire(t *testing.T) {
	t.Parallel()
	if os.Getenv("CHAOS_MINUTES") != "" {
		t.Skip("make chaos plays a long round instead")
	}
	judge(t, Round{Seed: 1, Length: 20 * time.Second})
}

// The same with the embedded engine, whose claims hold many events.
func TestTheEmbeddedEngineLosesNothingUnderFire(t *testing.T) {
	t.Parallel()
	if os.Getenv("CHAOS_MINUTES") != "" {
		t.Skip("make chaos plays long rounds instead")
	}
	judge(t, Round{Seed: 2, Length: 20 * time.Second, Embedded: true})
}

// make chaos: CHAOS_MINUTES long, CHAOS_SEED or one that is drawn and printed.
func TestChaos(t *testing.T) { //nolint:paralleltest // nothing else runs beside it
	minutes, err := strconv.ParseFloat(os.Getenv("CHAOS_MINUTES"), 64)
	if err != nil {
		t.Skip("for make chaos, which sets CHAOS_MINUTES")
	}
	seed := rand.Int64N(1_000_000)
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("CHAOS_SEED: %v", err)
		}
	}
	// Every fourth seed is for the embedded engine.
	judge(t, Round{Seed: seed, Length: time.Duration(minutes * float64(time.Minute)), Embedded: seed%4 == 0})
}

func judge(t *testing.T, r Round) {
	t.Helper()
	report, history := r.Run(t)
	t.Logf("seed %d\n%s\n%s", r.Seed, checker.Header, report.Row())
	t.Logf("%d calls, %d dispatched, %d failed, %d changes of state, %d requeued",
		report.Posts, report.Dispatched, report.Failed, len(history.Changes), len(history.Requeues))
	for i, v := range report.Violations {
		if i == 40 {
			t.Errorf("… and %d more", len(report.Violations)-i)
			break
		}
		t.Error(v, story(history, v.Event))
	}
	if report.Accepted < int(r.Length.Seconds())*10 {
		t.Errorf("only %d events were accepted: the round proved little", report.Accepted)
	}
	if t.Failed() {
		t.Logf("play it again: make chaos CHAOS_SEED=%d CHAOS_MINUTES=%g", r.Seed, r.Length.Minutes())
	}
}

// story tells what happened to one event.
func story(h *checker.History, id string) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, c := range h.Changes {
		if c.EventID == id {
			lines = append(lines, line{c.At, fmt.Sprintf("%s attempts %d due %s (tx %s began %s)", c.Status, c.Attempts, c.Due.Format("05.000"), c.Tx, c.Began.Format("05.000"))})
		}
	}
	for _, s := range h.Starts {
		if s.EventID == id {
			lines = append(lines, line{s.At, fmt.Sprintf("engine: start, run %q, told %t, until %s", s.RunID, s.Told, s.Ended.Format("05.000"))})
		}
	}
	for _, a := range h.Attempts {
		if a.EventID == id {
			lines = append(lines, line{a.Ended, fmt.Sprintf("attempt %d %s", a.Attempt, a.Outcome)})
		}
	}
	if len(lines) > 0 {
		from, to := lines[0].at, lines[0].at
		for _, l := range lines {
			if l.at.Before(from) {
				from = l.at
			}
			if l.at.After(to) {
				to = l.at
			}
		}
		for _, f := range h.Faults {
			if f.To.After(from.Add(-10*time.Second)) && f.From.Before(to) {
				lines = append(lines, line{f.From, "FAULT " + f.Kind + " until " + f.To.Format("05.000")})
			}
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, l := range lines {
		text.WriteString("\n    " + l.at.UTC().Format("04:05.000") + " " + l.text)
	}
	return text.String()
}
