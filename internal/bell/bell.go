// Package bell hears the ledger's NOTIFY and turns it into a wake-up. The bell
// is a hint and no more: it carries nothing, and whoever waits for it looks by a
// timer as well. The package knows nothing of events or claims.
package bell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/obs"
)

// Config of a Listener. URL and Log are required; zero fields take the defaults.
type Config struct {
	// URL is a direct connection to PostgreSQL, or nil to poll only. It is an
	// interface, since the types that hide a password have it.
	URL interface{ Reveal() string }
	// Channel is what to listen on; "" is the bell's own. On another channel every
	// listener wakes at once.
	Channel string
	// Application names the connection in pg_stat_activity.
	Application string
	// Heartbeat is how long a quiet connection is trusted before the server is
	// asked a question: 10 s. It is also how often a listener that is not the
	// first tries to become it.
	Heartbeat time.Duration
	// Answer is how long the server has for that question, and for each step of
	// connecting: 5 s.
	Answer time.Duration
	// Second is how long after a ring a listener wakes that is not the first:
	// 250 ms. Rings within that time are one.
	Second time.Duration
	// Backoff bounds the wait between two attempts to connect, which doubles
	// from 100 ms on: 5 s.
	Backoff time.Duration
	Log     *zap.Logger
}

const (
	firstBackoff = 100 * time.Millisecond
	stable       = time.Second     // a connection that lived this long starts the backoff anew
	flapping     = time.Second     // the longest wait while connecting works and staying does not
	reminder     = time.Minute     // between two lines about one outage
	recheck      = 5 * time.Minute // whether a pooler is still in between
	firstLock    = int64(0x746f6373_696e_0001)
)

var (
	errPooled  = errors.New("a connection pooler answers for the server")
	errNotOurs = errors.New("the server no longer has this connection's LISTEN")
)

// Listener owns one LISTEN connection. Run keeps it; Wake is its voice.
//
// Of all listeners on a database one is the first: it holds an advisory lock
// and wakes at once. The others wake Second later, so that one event does not
// make every dispatcher ask the database for it.
type Listener struct {
	cfg    Config
	wake   chan struct{} // cap 1: wake-ups that nobody has taken yet are one
	up     atomic.Bool
	first  atomic.Bool
	pooled atomic.Bool
}

// New makes a Listener that does nothing until Run.
func New(cfg Config) *Listener {
	if cfg.Channel == "" {
		cfg.Channel = db.Channel
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	if cfg.Answer == 0 {
		cfg.Answer = 5 * time.Second
	}
	if cfg.Second == 0 {
		cfg.Second = 250 * time.Millisecond
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 5 * time.Second
	}
	return &Listener{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Wake gives a value when it is worth looking: after a ring, and after each
// (re)connect, for what was rung meanwhile.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// Up says whether rings are heard.
func (l *Listener) Up() bool { return l.up.Load() }

// First says whether this listener is the one that wakes at once.
func (l *Listener) First() bool { return l.first.Load() }

// Pooled says that LISTEN cannot work, since a pooler stands in between.
func (l *Listener) Pooled() bool { return l.pooled.Load() }

// ring never blocks: a wake-up that waits already stands for this one too.
func (l *Listener) ring() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run listens until ctx ends, and connects again for as long as that takes. The
// error is nil.
func (l *Listener) Run(ctx context.Context) error {
	if l.cfg.URL == nil {
		l.cfg.Log.Info("bell.poll_only")
		<-ctx.Done()
		return nil
	}
	outage := outage{log: l.cfg.Log}
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := l.session(ctx, &outage)
		heard := l.up.Swap(false)
		l.first.Store(false)
		if ctx.Err() != nil {
			break
		}
		if heard && time.Since(began) > stable {
			backoff = firstBackoff
		}
		wait := backoff/2 + rand.N(backoff) // half to one and a half of it: replicas do not come back together
		backoff = min(2*backoff, l.cfg.Backoff)
		if heard {
			backoff = min(backoff, flapping)
		}
		if errors.Is(err, errPooled) {
			l.sayPooled()
			wait = recheck
		} else {
			outage.note(err)
		}
		pause(ctx, wait)
	}
	return nil //nolint:nilerr // how the last session ended is no error of Run, which was told to end
}

// sayPooled says it once in the life of the process.
func (l *Listener) sayPooled() {
	if l.pooled.Swap(true) {
		return
	}
	l.cfg.Log.Warn("bell.pooled", zap.String("advice",
		"LISTEN does not work through a connection pooler; polling instead. Set LISTEN_DATABASE_URL to a direct connection to hear the bell"))
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// session is one connection's life. It returns why it ended.
func (l *Listener) session(ctx context.Context, outage *outage) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer l.hangUp(ctx, conn)
	if err := l.listen(ctx, conn); err != nil {
		return err
	}
	l.pooled.Store(false)
	l.up.Store(true)
	outage.over()
	// Only now that LISTEN stands is there nothing that both the bell and this
	// look could miss.
	l.ring()
	return l.hear(ctx, conn)
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.cfg.URL.Reveal())
	if err != nil {
		// pgx's message holds parts of the URL.
		return nil, errors.New("LISTEN_DATABASE_URL is not a valid PostgreSQL URL or DSN")
	}
	if l.cfg.Application != "" {
		config.RuntimeParams["application_name"] = l.cfg.Application
	}
	config.ConnectTimeout = l.cfg.Answer
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may be there: prepare nothing
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	config.DialFunc = dialer.DialContext
	ctx, cancel := context.WithTimeout(ctx, 2*l.cfg.Answer)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// hangUp closes the connection; a server that does not answer is not waited for.
func (l *Listener) hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx) // the connection is of no more use either way
}

// listen subscribes, once it is sure that it talks to the server itself: a
// pooler would keep the LISTEN on a connection that others use next.
func (l *Listener) listen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Answer)
	defer cancel()
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return fmt.Errorf("ask for the backend: %w", err)
	}
	if pid != conn.PgConn().PID() {
		return errPooled // a pooler makes up the process id that it gives at connect
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.cfg.Channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return l.ask(ctx, conn)
}

// ask is the heartbeat: it shows that the server answers and still knows of the
// LISTEN. The same question tries to become the first listener; whoever is it
// stays it for as long as the session lasts.
func (l *Listener) ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Answer)
	defer cancel()
	var listening, isFirst bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_listening_channels() AS c WHERE c = $1),
		CASE WHEN $2::bool THEN true ELSE pg_try_advisory_lock($3) END`, l.cfg.Channel, l.first.Load() || l.cfg.Channel != db.Channel, firstLock).Scan(&listening, &isFirst)
	switch {
	case err != nil:
		return fmt.Errorf("heartbeat: %w", err)
	case !listening:
		return errNotOurs
	}
	l.first.Store(isFirst)
	return nil
}

// hear turns notifications into wake-ups until the connection is lost.
func (l *Listener) hear(ctx context.Context, conn *pgx.Conn) error {
	var late time.Time // when a wake-up that was put off is due; zero when there is none
	asked := time.Now()
	for {
		until := asked.Add(l.cfg.Heartbeat)
		if !late.IsZero() && late.Before(until) {
			until = late
		}
		wait, cancel := context.WithDeadline(ctx, until)
		_, err := conn.WaitForNotification(wait)
		timedOut := wait.Err() != nil && ctx.Err() == nil
		cancel()
		now := time.Now()
		switch {
		case err == nil && l.first.Load():
			l.ring()
		case err == nil && late.IsZero():
			late = now.Add(l.cfg.Second)
		case err != nil && !timedOut:
			return fmt.Errorf("wait for a notification: %w", err)
		}
		if !late.IsZero() && !now.Before(late) {
			late = time.Time{}
			l.ring()
		}
		// Notifications alone do not prove that this side is heard, so the
		// question is asked on a busy connection, too; it is one query.
		if now.Sub(asked) >= l.cfg.Heartbeat {
			if err := l.ask(ctx, conn); err != nil {
				return err
			}
			asked = time.Now()
		}
	}
}

// outage writes one line when rings stop being heard, few while that lasts, and
// one when it is over.
type outage struct {
	log   *zap.Logger
	since time.Time // zero: there is none
	said  time.Time
	tries int
}

func (o *outage) note(err error) {
	now := time.Now()
	o.tries++
	if o.since.IsZero() {
		o.since = now
	} else if now.Sub(o.said) < reminder {
		return
	}
	o.said = now
	o.log.Warn("bell.lost", obs.Err(err), zap.Int("tries", o.tries), obs.Duration(now.Sub(o.since)))
}

func (o *outage) over() {
	if o.since.IsZero() {
		o.log.Info("bell.listening")
		return
	}
	o.log.Info("bell.listening", zap.Int("tries", o.tries), obs.Duration(time.Since(o.since)))
	o.since, o.said, o.tries = time.Time{}, time.Time{}, 0
}
