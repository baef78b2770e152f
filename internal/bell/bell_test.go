package bell_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/bell"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type dsn string

func (d dsn) Reveal() string { return string(d) }

const soon = 10 * time.Second // what a loaded machine may take

type started struct {
	*bell.Listener
	logs *observer.ObservedLogs
	stop func()
}

// start runs a listener until the test ends or stop is called.
func start(t *testing.T, cfg bell.Config) *started {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	cfg.Log = zap.New(core)
	listener := bell.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := listener.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop := func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return &started{Listener: listener, logs: logs, stop: stop}
}

func (s *started) wait(t *testing.T, what string) {
	t.Helper()
	select {
	case <-s.Wake():
	case <-time.After(soon):
		t.Fatalf("%s: no wake-up", what)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(soon); !is(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not so after %s", what, soon)
		}
	}
}

func ring(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, '')", db.Channel); err != nil {
		t.Fatal(err)
	}
}

const listeners = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bell-test'"

func TestEachRingWakes(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	l := start(t, bell.Config{URL: dsn(url)})
	l.wait(t, "after LISTEN")
	for range 3 {
		ring(t, conn)
		l.wait(t, "after a ring")
	}
	if !l.Up() || !l.First() || l.Pooled() {
		t.Errorf("up %t, first %t, pooled %t", l.Up(), l.First(), l.Pooled())
	}
}

// Peers lost rings for good when a reconnect handed back the dead connection,
// or read before LISTEN stood.
func TestRingsDuringAGapAreCaughtUpWith(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	l := start(t, bell.Config{URL: dsn(url), Application: "bell-test"})
	l.wait(t, "after LISTEN")
	for cut := range 10 {
		if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM ("+listeners+") AS l"); err != nil {
			t.Fatal(err)
		}
		ring(t, conn) // nobody hears it
		l.wait(t, fmt.Sprintf("cut %d: the gap", cut))
		ring(t, conn)
		l.wait(t, fmt.Sprintf("cut %d: after it", cut))
	}
	var connections int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM ("+listeners+") AS l").Scan(&connections); err != nil || connections != 1 {
		t.Errorf("%d connections, %v; want 1", connections, err)
	}
	if n := l.logs.FilterMessage("bell.lost").Len(); n != 10 {
		t.Errorf("%d warnings for 10 cuts", n)
	}
}

func TestAHalfOpenConnectionIsNoticed(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	p := newProxy(t, url, nil)
	l := start(t, bell.Config{URL: p.through(t, url), Heartbeat: 50 * time.Millisecond, Answer: 500 * time.Millisecond})
	l.wait(t, "after LISTEN")
	p.stall()
	ring(t, conn)
	l.wait(t, "after the connection went dead")
	ring(t, conn)
	l.wait(t, "on the new connection")
	if n := l.logs.FilterMessage("bell.lost").Len(); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

func TestAPoolerIsNamedOnce(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	p := newProxy(t, url, otherBackend)
	l := start(t, bell.Config{URL: p.through(t, url)})
	eventually(t, "pooled", l.Pooled)
	var locks int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database WHERE l.locktype = 'advisory' AND d.datname = current_database()").Scan(&locks); err != nil || locks != 0 {
		t.Errorf("%d advisory locks left with the pooler, %v", locks, err)
	}
	if l.Up() || l.logs.FilterMessage("bell.pooled").Len() != 1 {
		t.Errorf("up %t, log %v", l.Up(), l.logs.All())
	}
}

func TestAServerThatIsAwayIsWaitedForQuietly(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	p := newProxy(t, url, nil)
	p.refuse.Store(true)
	l := start(t, bell.Config{URL: p.through(t, url), Backoff: time.Millisecond})
	eventually(t, "many tries", func() bool { return p.refused.Load() > 20 })
	if n := l.logs.FilterMessage("bell.lost").Len(); n != 1 {
		t.Errorf("%d warnings for one outage", n)
	}
	p.refuse.Store(false)
	l.wait(t, "once it is back")
	if l.logs.FilterMessage("bell.listening").Len() != 1 {
		t.Errorf("log %v", l.logs.All())
	}
}

func TestTheLogShowsNoPassword(t *testing.T) {
	t.Parallel()

	for _, url := range []dsn{"postgres://u:p4ss-CANARY@127.0.0.1:1/none", "postgres://u:p4ss-CANARY@h:bad/db"} {
		l := start(t, bell.Config{URL: url})
		eventually(t, "a warning", func() bool { return l.logs.FilterMessage("bell.lost").Len() > 0 })
		if text := fmt.Sprint(l.logs.All()); strings.Contains(text, "CANARY") {
			t.Errorf("%s", text)
		}
	}
}

func TestTheFirstListenerWakesAtOnceAndTheNextTakesOver(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	one := start(t, bell.Config{URL: dsn(url), Heartbeat: 50 * time.Millisecond})
	one.wait(t, "after LISTEN")
	two := start(t, bell.Config{URL: dsn(url), Heartbeat: 50 * time.Millisecond, Second: 300 * time.Millisecond})
	two.wait(t, "after LISTEN")
	if !one.First() || two.First() {
		t.Fatalf("first: %t and %t", one.First(), two.First())
	}
	for range 20 { // one wake-up in all for the second
		ring(t, conn)
		one.wait(t, "the first")
	}
	select {
	case <-two.Wake():
		t.Log("the machine is slow: the second woke before 20 rings were heard")
	default:
	}
	two.wait(t, "the second")
	one.stop()
	eventually(t, "the second is the first", two.First)
}

func TestWithoutAURLItOnlyPolls(t *testing.T) {
	t.Parallel()

	l := start(t, bell.Config{})
	l.stop()
	if l.Up() || l.logs.FilterMessage("bell.poll_only").Len() != 1 {
		t.Errorf("up %t, log %v", l.Up(), l.logs.All())
	}
}

func TestStoppingAtAnyTimeLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	for i := range 30 {
		l := start(t, bell.Config{URL: dsn(url), Application: "bell-test"})
		if i%3 == 0 {
			l.wait(t, "after LISTEN")
		} else {
			<-time.After(time.Duration(i) * 200 * time.Microsecond) // somewhere in the middle of connecting
		}
		l.stop()
	}
	eventually(t, "no connection is left", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM ("+listeners+") AS l").Scan(&n)
		return err == nil && n == 0
	})
}
