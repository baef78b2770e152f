package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/dispatcher/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a dispatcher with fakes around it, inside a synctest bubble.
type bundle struct {
	*ledger
	engine *fakeEngine
	wake   chan struct{}
	logs   *observer.ObservedLogs
	began  time.Time
	stop   func() // and wait
}

func (b *bundle) ring() { b.wake <- struct{}{} }

type options struct {
	cfg    dispatch.Config
	parser dispatch.Parser
	batch  *batchEngine
	ledger *ledger
	engine *fakeEngine
	serial []string
}

func run(t *testing.T, o options) *bundle {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	b := &bundle{ledger: o.ledger, engine: o.engine, wake: make(chan struct{}, 1), logs: logs, began: time.Now()}
	if b.ledger == nil {
		b.ledger = newLedger()
	}
	if b.engine == nil {
		b.engine = &fakeEngine{}
	}
	if o.parser == nil {
		o.parser = plain{}
	}
	if o.cfg.Owner == "" {
		o.cfg.Owner = "test"
	}
	parts := dispatch.Parts{
		Queue: b.ledger, Parser: o.parser, Ledger: b.ledger, Engine: b.engine, Wake: b.wake, Log: zap.New(core),
		Serial: func() []string { return o.serial },
	}
	if o.batch != nil {
		parts.Engine, b.engine = o.batch, &o.batch.fakeEngine
	}
	d, err := dispatch.New(o.cfg, parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	b.stop = func() { cancel(); <-done }
	t.Cleanup(func() {
		b.stop()
		for _, problem := range b.problems {
			t.Error(problem)
		}
		if b.engine.overlaps > 0 {
			t.Errorf("%d starts overlapped within a subscription", b.engine.overlaps)
		}
	})
	synctest.Wait()
	return b
}

// sleep moves the bubble's clock.
func sleep(d time.Duration) {
	time.Sleep(d) // the clock of the bubble
	synctest.Wait()
}

func (b *bundle) count(message string) int { return b.logs.FilterMessage(message).Len() }

func TestEventsAreFoundWithoutTheBell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		id := b.add(1, 1)
		sleep(1100 * time.Millisecond)
		if e := b.get(id); e.status != trigger.StatusDispatched || e.runID != "run_of_"+id {
			t.Errorf("%+v", e)
		}
	})
}

func TestTheBellIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Fallback: time.Hour}})
		for n := range 5 {
			id := b.add(1, n)
			b.ring()
			synctest.Wait()
			if e := b.get(id); e.status != trigger.StatusDispatched {
				t.Errorf("event %d: %+v", n, e)
			}
		}
	})
}

func TestABacklogIsDrainedAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		for n := range 40 {
			for sid := range int64(30) {
				l.add(sid, n)
			}
		}
		b := run(t, options{ledger: l, cfg: dispatch.Config{Fallback: time.Hour, Concurrency: 8}})
		sleep(time.Second)
		if n := b.open(); n != 0 {
			t.Errorf("%d events are open", n)
		}
		if b.engine.most > 8 {
			t.Errorf("%d starts at once", b.engine.most)
		}
	})
}

// RFC §Retry backoff: 5 attempts in total; 5, 10, 20, 40 s, measured from the
// event's last attempt.
func TestRetriesWaitAsTheRFCSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Fallback: 30 * time.Second}})
		b.engine.set(func(context.Context, engine.StartRequest) engine.StartResult {
			time.Sleep(time.Second) // how long the attempt takes, by the bubble's clock
			return failing(engine.Retryable, "no")
		})
		id := b.add(1, 1)
		b.ring()
		sleep(5 * time.Minute)
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, 6 * s, 17 * s, 38 * s, 79 * s}, b.engine.times(id, b.began)); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
		if e := b.get(id); e.status != trigger.StatusFailed || e.Attempts != 5 || b.count("event.retry") != 4 || b.count("event.failed") != 1 {
			t.Errorf("%+v, log %v", e, b.logs.All())
		}
	})
}

// RFC §Retry backoff: errors such as plan_error skip straight to failed.
func TestANonRetryableErrorEndsTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		b.engine.set(always(failing(engine.NonRetryable, "plan_error")))
		id := b.add(1, 1)
		sleep(time.Minute)
		if e := b.get(id); e.status != trigger.StatusFailed || e.Attempts != 1 {
			t.Errorf("%+v", e)
		}
	})
}

// RFC §Ordering: an event that waits out a backoff holds back no newer one.
func TestAWaitingEventHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		first, second := b.add(1, 1), b.add(1, 2)
		b.engine.set(func(_ context.Context, request engine.StartRequest) engine.StartResult {
			if request.EventID == first && request.Attempt == 1 {
				return failing(engine.Retryable, "once")
			}
			return started(request)
		})
		sleep(2 * time.Second)
		if b.get(second).status != trigger.StatusDispatched || b.get(first).status != trigger.StatusReceived {
			t.Errorf("first %+v, second %+v", b.get(first), b.get(second))
		}
		sleep(10 * time.Second)
		if diff := cmp.Diff([]string{first, second, first}, b.engine.order()); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
	})
}

func TestASubscriptionIsServedInOrderAndOthersBesideIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		for n := range 10 {
			l.add(1, n)
			l.add(2, n)
		}
		b := run(t, options{ledger: l})
		b.engine.set(after(100 * time.Millisecond))
		sleep(3 * time.Second)
		took := map[int64]time.Duration{}
		last := map[int64]string{}
		for _, c := range b.engine.calls {
			if c.EventID < last[c.SID] {
				t.Errorf("%s was started after %s", c.EventID, last[c.SID])
			}
			last[c.SID], took[c.SID] = c.EventID, c.at.Sub(b.began)
		}
		if b.open() != 0 || took[2]-took[1] > 200*time.Millisecond {
			t.Errorf("%d open, took %v", b.open(), took)
		}
	})
}

func TestAnOverloadedEngineIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Fallback: time.Hour}})
		overloaded := failing(engine.Overloaded, "busy")
		overloaded.Wait = 20 * time.Second
		b.engine.set(always(overloaded))
		first := b.add(1, 1)
		b.ring()
		synctest.Wait()
		b.engine.set(nil)
		second := b.add(2, 1)
		b.ring()
		sleep(19 * time.Second)
		if n := len(b.engine.order()); n != 1 {
			t.Fatalf("%d starts during the pause", n)
		}
		sleep(2 * time.Second)
		if b.get(first).status != trigger.StatusDispatched || b.get(second).status != trigger.StatusDispatched || b.get(first).Attempts != 2 {
			t.Errorf("first %+v, second %+v", b.get(first), b.get(second))
		}
		if b.count("engine.overloaded") != 1 {
			t.Errorf("log %v", b.logs.All())
		}
	})
}

// DESIGN §4.9: an outage does not burn every event's attempts.
func TestAnEngineThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Concurrency: 4}})
		gone := errors.New("connection refused")
		b.engine.ping = func() error { return gone }
		b.engine.set(always(failing(engine.Unreachable, "connection refused")))
		lone := b.add(0, 0)
		for sid := range int64(100) {
			b.add(sid+1, 1)
		}
		b.ring()
		sleep(10 * time.Minute)
		if starts := len(b.engine.order()); starts > 8 {
			t.Errorf("%d starts in ten minutes without an engine", starts)
		}
		if b.count("engine.unreachable") != 1 || b.engine.pings < 15 || b.engine.pings > 60 {
			t.Errorf("%d lines, %d pings", b.count("engine.unreachable"), b.engine.pings)
		}
		b.engine.mu.Lock()
		b.engine.ping, b.engine.do = nil, nil
		b.engine.mu.Unlock()
		sleep(time.Minute)
		if b.open() != 0 || b.get(lone).status != trigger.StatusDispatched || b.count("engine.reachable") != 1 {
			t.Errorf("%d open, lone %+v", b.open(), b.get(lone))
		}
	})
}

func TestALoneEventOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		b.engine.ping = func() error { return errors.New("no route") }
		b.engine.set(always(failing(engine.Unreachable, "no route")))
		id := b.add(1, 1)
		sleep(time.Hour)
		if e := b.get(id); e.Attempts >= trigger.MaxAttempts {
			t.Fatalf("%+v", e)
		}
		b.engine.mu.Lock()
		b.engine.ping, b.engine.do = nil, nil
		b.engine.mu.Unlock()
		sleep(2 * time.Minute)
		if e := b.get(id); e.status != trigger.StatusDispatched {
			t.Errorf("%+v", e)
		}
	})
}

// Something answers the ping, starts still fail: one event at a time pays.
func TestATrialRisksOneEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Concurrency: 2}})
		b.engine.set(always(failing(engine.Unreachable, "reset")))
		for sid := range int64(200) {
			b.add(sid, 1)
		}
		b.ring()
		sleep(time.Minute)
		if starts := len(b.engine.order()); starts > 15 {
			t.Errorf("%d starts in a minute", starts)
		}
		b.engine.set(nil)
		sleep(2 * time.Minute)
		if b.open() != 0 {
			t.Errorf("%d open", b.open())
		}
	})
}

func TestASlowStartKeepsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Lease: 30 * time.Second, EngineTimeout: time.Hour}})
		b.engine.set(after(10 * time.Minute))
		id := b.add(1, 1)
		sleep(11 * time.Minute)
		if e := b.get(id); e.status != trigger.StatusDispatched || e.Attempts != 1 || b.renewals < 50 {
			t.Errorf("%+v, %d renewals", e, b.renewals)
		}
	})
}

func TestALateWriterChangesNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{EngineTimeout: time.Hour}})
		b.engine.set(after(time.Hour))
		id := b.add(1, 1)
		sleep(5 * time.Second)
		b.revoke(1)
		sleep(time.Minute)
		if e := b.get(id); len(e.log) != 0 || b.count("event.lease_lost") != 1 {
			t.Errorf("%+v, log %v", e, b.logs.All())
		}
	})
}

func TestADeadDispatchersEventsAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		id := l.add(1, 1)
		if events, err := l.DrainPending(t.Context(), trigger.ClaimRequest{Limit: 1, Lease: 30 * time.Second}); len(events) != 1 || err != nil {
			t.Fatal(events, err)
		}
		b := run(t, options{ledger: l})
		sleep(34 * time.Second) // the lease, and not yet its wait
		if e := b.get(id); e.status != trigger.StatusReceived || b.count("event.lost") != 1 {
			t.Errorf("%+v", e)
		}
		sleep(2 * time.Second)
		if diff := cmp.Diff([]string{"lost", "delivered"}, b.get(id).log); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}

func TestAShutdownWaitsForStartsWithinItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Grace: 10 * time.Second}})
		b.engine.set(after(3 * time.Second))
		running, waiting := b.add(1, 1), b.add(1, 2)
		b.ring()
		sleep(time.Second)
		began := time.Now()
		b.stop()
		if took := time.Since(began); took.Round(100*time.Millisecond) != 2*time.Second {
			t.Errorf("took %s", took)
		}
		if b.get(running).status != trigger.StatusDispatched || b.get(waiting).status != trigger.StatusReceived || len(b.get(waiting).log) != 0 {
			t.Errorf("running %+v, waiting %+v", b.get(running), b.get(waiting))
		}
	})
}

// DESIGN §4.9: shutdown charges no attempt.
func TestAShutdownGivesBackWhatHangsAndChargesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Grace: 5 * time.Second}})
		b.engine.set(after(time.Hour))
		id := b.add(1, 1)
		b.ring()
		sleep(time.Second)
		began := time.Now()
		b.stop()
		if e := b.get(id); e.status != trigger.StatusReceived || e.Attempts != 0 || b.count("event.given_back") != 1 {
			t.Errorf("%+v", e)
		}
		if took := time.Since(began).Round(100 * time.Millisecond); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestABatchThatWaitsItsTurnIsGivenBackAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		for n := range 5 {
			l.add(1, n)
		}
		parse := func(ctx context.Context, event *trigger.PendingEvent) (json.RawMessage, *trigger.StepError) {
			<-ctx.Done()
			return nil, &trigger.StepError{Code: "hook_cancelled", Retryable: true}
		}
		b := run(t, options{ledger: l, batch: &batchEngine{}, parser: plain{parse}, serial: []string{"app/key"}})
		b.stop()
		for id := range l.events {
			if e := b.get(id); e.status != trigger.StatusReceived || e.Attempts != 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestAnOutcomeOutlivesATroubledDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Lease: 30 * time.Second}})
		b.engine.set(after(time.Second))
		id := b.add(1, 1)
		b.ring()
		sleep(500 * time.Millisecond)
		b.setDown(fmt.Errorf("settle: %w", trigger.ErrUnavailable))
		sleep(time.Minute)
		b.setDown(nil)
		sleep(5 * time.Second)
		e := b.get(id)
		// The lease ran out meanwhile; who comes first is open. The run was not
		// lost either way.
		if e.status != trigger.StatusDispatched || len(b.engine.order()) > 2 {
			t.Errorf("%+v, %d starts", e, len(b.engine.order()))
		}
		warnings := 0
		for _, line := range b.logs.All() {
			if line.Level >= zap.WarnLevel {
				warnings++
			}
		}
		if warnings > 6 || b.count("dispatch.database_available") != 1 {
			t.Errorf("%d warnings in a minute without a database, log %v", warnings, b.logs.All())
		}
		if asked := b.peeks + b.drains + b.marks + b.renewals; asked > 150 {
			t.Errorf("%d questions in a minute without a database", asked)
		}
	})
}

// A peer retried for ever because writing the log of the attempt failed.
func TestWordsThatCannotBeStoredDoNotKeepAnEventBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		b.refuse = func(o trigger.Outcome) error {
			if o.Err != nil && strings.Contains(o.Err.Message, "poison") {
				return errors.New("invalid byte sequence")
			}
			return nil
		}
		b.engine.set(func(_ context.Context, request engine.StartRequest) engine.StartResult {
			if request.SID == 1 && request.Attempt == 1 {
				return failing(engine.Retryable, "poison")
			}
			return started(request)
		})
		ids := []string{b.add(1, 1), b.add(2, 1), b.add(3, 1)}
		b.ring()
		sleep(time.Minute)
		for _, id := range ids {
			if e := b.get(id); e.status != trigger.StatusDispatched {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestErrorTextIsCutAndCleaned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		b.engine.set(always(failing(engine.NonRetryable, "dirty "+strings.Repeat("\x00\xff", 2_500_000))))
		id := b.add(1, 1)
		sleep(2 * time.Second)
		if e := b.get(id); e.err == nil || e.err.Message != "dirty …" {
			t.Errorf("%+v", e.err)
		}
	})
}

func TestAParseOutputThatThrowsIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		throws := true
		b := run(t, options{parser: plain{func(context.Context, *trigger.PendingEvent) (json.RawMessage, *trigger.StepError) {
			if throws {
				throws = false
				return nil, &trigger.StepError{Code: "hook_threw", Message: "no", Phase: "output", Retryable: true}
			}
			return json.RawMessage(`"parsed"`), nil
		}}})
		id := b.add(1, 1)
		sleep(10 * time.Second)
		if e := b.get(id); e.status != trigger.StatusDispatched || e.Attempts != 2 || len(b.engine.calls) != 1 {
			t.Fatalf("%+v", e)
		}
		if c := b.engine.calls[0]; string(c.Event) != `"parsed"` || !c.Parsed || c.Attempt != 2 || !strings.HasPrefix(c.AttemptID, "att_") {
			t.Errorf("%+v", c)
		}
	})
}

// Issue: idle cost of at most 2 queries a second for each dispatcher.
func TestAnIdleDispatcherAsksOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		sleep(time.Minute)
		if b.peeks > 70 || b.drains > 0 || b.renewals+b.marks > 0 {
			t.Errorf("%d peeks, %d claims, %d others in a minute", b.peeks, b.drains, b.renewals+b.marks)
		}
	})
}

func TestOneQuietEventCostsFewQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{})
		for n := range 100 {
			b.add(int64(n), 1)
			b.ring()
			sleep(50 * time.Millisecond)
		}
		if b.open() != 0 || b.drains > 210 || b.marks > 100 {
			t.Errorf("%d open, %d claims and %d marks for 100 events", b.open(), b.drains, b.marks)
		}
	})
}

func TestABatchEngineGetsBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		for n := range 500 {
			l.add(1, n)
			l.add(2, n)
		}
		e := &batchEngine{}
		b := run(t, options{ledger: l, batch: e, cfg: dispatch.Config{Batch: 100, Fallback: time.Hour}})
		sleep(time.Second)
		if b.open() != 0 || len(e.batches) > 15 || slices.Max(e.batches) > 100 {
			t.Errorf("%d open, batches %v", b.open(), e.batches)
		}
		last := map[int64]string{}
		for _, c := range e.calls {
			if c.EventID < last[c.SID] {
				t.Errorf("%s was started after %s", c.EventID, last[c.SID])
			}
			last[c.SID] = c.EventID
		}
	})
}

func TestABadEventInABatchIsItsOwnTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var ids []string
		for n := range 5 {
			ids = append(ids, l.add(1, n))
		}
		e := &batchEngine{}
		e.set(func(_ context.Context, request engine.StartRequest) engine.StartResult {
			if request.EventID == ids[2] {
				return failing(engine.NonRetryable, "no")
			}
			return started(request)
		})
		b := run(t, options{ledger: l, batch: e})
		sleep(time.Second)
		for i, id := range ids {
			if want := map[bool]trigger.Status{true: trigger.StatusFailed, false: trigger.StatusDispatched}[i == 2]; b.get(id).status != want {
				t.Errorf("event %d is %s, want %s", i, b.get(id).status, want)
			}
		}
	})
}

func TestBigPayloadsAreClaimedFewAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		big := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		for n := range 600 {
			id := l.add(int64(n), 1)
			l.events[id].Normalized = big
		}
		e := &batchEngine{}
		run(t, options{ledger: l, batch: e})
		sleep(time.Second)
		if len(e.batches) < 3 || slices.Max(e.batches[2:]) > 32 {
			t.Errorf("batches %v", e.batches)
		}
	})
}

// Several dispatchers, an engine that fails in every way, a database that comes
// and goes: everything ends, in order, never two at once.
func TestManyDispatchersUnderFire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := newLedger(), &fakeEngine{}
		var (
			mu    sync.Mutex
			tries int
		)
		e.set(func(ctx context.Context, request engine.StartRequest) engine.StartResult {
			mu.Lock()
			tries++
			n := tries
			mu.Unlock()
			switch {
			case n%7 == 0:
				return failing(engine.Retryable, "503")
			case n%11 == 0:
				return failing(engine.NonRetryable, "plan_error")
			case n%13 == 0:
				return failing(engine.Unreachable, "reset")
			}
			return after(time.Duration(n%50)*time.Millisecond)(ctx, request)
		})
		for n := range 25 {
			for sid := range int64(12) {
				l.add(sid, n)
			}
		}
		for i := range 4 {
			run(t, options{ledger: l, engine: e, cfg: dispatch.Config{Owner: fmt.Sprintf("d%d", i), Concurrency: 8}})
		}
		sleep(2 * time.Second)
		l.setDown(trigger.ErrUnavailable)
		sleep(10 * time.Second)
		l.setDown(nil)
		sleep(10 * time.Minute)
		if n := l.open(); n != 0 || e.overlaps != 0 {
			t.Errorf("%d open, %d overlaps", n, e.overlaps)
		}
		for id := range l.events {
			if got := l.get(id); got.Attempts > trigger.MaxAttempts {
				t.Errorf("%s: %v", id, got.log)
			}
		}
	})
}

func TestStoppingAtAnyTimeLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := newLedger(), &fakeEngine{}
		e.set(after(7 * time.Millisecond))
		for n := range 30 {
			for sid := range int64(10) {
				l.add(sid, n)
			}
		}
		for i := range 40 {
			b := run(t, options{ledger: l, engine: e, cfg: dispatch.Config{Owner: "d", Concurrency: 4, Grace: time.Duration(i%3) * 3 * time.Millisecond}})
			sleep(time.Duration(i) * time.Millisecond)
			b.stop()
			if held := len(l.claims); held != 0 {
				t.Fatalf("round %d: %d claims are left", i, held)
			}
		}
		run(t, options{ledger: l, engine: e})
		sleep(10 * time.Second)
		for id := range l.events {
			if got := l.get(id); got.status != trigger.StatusDispatched || got.Attempts != 1 {
				t.Errorf("%s: %s after %v", id, got.status, got.log)
			}
		}
	})
}

// A process that was stopped between the claim and the start finds its lease
// gone: it starts nothing.
func TestNothingIsStartedOnALeaseThatHasRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Lease: 30 * time.Second}, parser: plain{func(_ context.Context, event *trigger.PendingEvent) (json.RawMessage, *trigger.StepError) {
			if event.Attempts == 0 {
				time.Sleep(31 * time.Second) // by the bubble's clock
			}
			return event.Normalized, nil
		}}})
		id := b.add(1, 1)
		b.renewFails(true)
		sleep(32 * time.Second)
		if n := len(b.engine.order()); n != 0 {
			t.Errorf("%d starts", n)
		}
		b.renewFails(false)
		sleep(time.Minute)
		if e := b.get(id); e.status != trigger.StatusDispatched {
			t.Errorf("%+v", e)
		}
	})
}

// OpenWOP RFC 0083 §C-2: a subscription may have a retry policy of its own.
func TestASubscriptionsOwnPolicyIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := run(t, options{cfg: dispatch.Config{Fallback: time.Hour}})
		b.engine.set(always(failing(engine.Retryable, "no")))
		id := b.add(1, 1)
		b.events[id].Retry = &trigger.RetryPolicy{MaxAttempts: 3, Backoff: trigger.BackoffFixed}
		b.ring()
		sleep(time.Minute)
		want := []time.Duration{0, trigger.PolicyDelay, 2 * trigger.PolicyDelay}
		if diff := cmp.Diff(want, b.engine.times(id, b.began)); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
		if b.count("event.retry") != 2 || b.count("event.failed") != 1 {
			t.Errorf("log %v", b.logs.All())
		}
	})
}
