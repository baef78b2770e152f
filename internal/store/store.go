// Package store keeps the ledger in PostgreSQL: subscriptions, calls, events,
// claims, deliveries and runs. It is the only package that knows SQL, and it
// owns the pool. Queries are in db/queries; what they mean is decided in
// package manager.
package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
)

// Config of Open.
type Config struct {
	// URL is a PostgreSQL URL or DSN; a transaction-pooling PgBouncer is
	// allowed.
	URL secret.Text
	// Application names the connections in pg_stat_activity.
	Application string
	Keys        *secret.Keyring
	Log         *zap.Logger
	// MaxConns bounds the pool; 0 means 16. The two writers have theirs from it.
	MaxConns int
	// Queue bounds how many calls wait for a commit; 0 means 4096. Their bytes
	// are bounded by QueueBytes; 0 means 64 MiB.
	Queue      int
	QueueBytes int64
}

// DB is the ledger. It is safe for concurrent use.
type DB struct {
	pool    *pgxpool.Pool
	queries *dbsqlc.Queries
	keys    *secret.Keyring
	log     *zap.Logger
	cache   *subscriptionCache
	bell    *bell
	writers []*writer
	queued  atomic.Int64 // bytes waiting for a commit
	limit   int64
	cursor  atomic.Int64 // where the next claim starts to look
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Open connects to the ledger and starts its writers. The error wraps
// trigger.ErrUnavailable when the server cannot be reached, and never holds the
// password.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	pool, err := openPool(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Queue == 0 {
		cfg.Queue = 4096
	}
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 64 << 20
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx)) // until Close
	db := &DB{
		pool: pool, queries: dbsqlc.New(), keys: cfg.Keys, log: cfg.Log, cache: newSubscriptionCache(),
		limit: cfg.QueueBytes, stop: stop,
	}
	db.cursor.Store(rand.Int64N(1 << 20)) // dispatchers start at different lanes
	db.bell = newBell(db)
	db.done.Go(func() { db.bell.run(run) })
	for range writerCount {
		w := newWriter(db, cfg.Queue/writerCount)
		db.writers = append(db.writers, w)
		db.done.Go(func() { w.run(run) })
	}
	return db, nil
}

// openPool opens the pool and looks whether a pooler stands in between.
func openPool(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(cfg.URL.Reveal())
	if err != nil {
		// pgx's message holds parts of the URL.
		return nil, errors.New("open database: not a valid PostgreSQL URL or DSN; want postgres://user:password@host:5432/database")
	}
	config.MaxConns = int32(16)
	if cfg.MaxConns > 0 {
		config.MaxConns = int32(min(cfg.MaxConns, 1000))
	}
	config.ConnConfig.RuntimeParams["application_name"] = cfg.Application
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	config.MaxConnLifetimeJitter = 5 * time.Minute
	// A look a second keeps the connections in use; a ping before each would
	// double an idle service's queries.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > 15*time.Second }
	pooled, err := behindPooler(ctx, config.ConnConfig)
	if err != nil {
		return nil, unavailable("open database", err)
	}
	if pooled {
		// Statements prepared on one server connection are unknown on the next.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailable("open database", err)
	}
	return pool, nil
}

// behindPooler says whether a pooler such as PgBouncer answers for the server:
// it makes up the process id that it gives at connect.
func behindPooler(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	probe := config.Copy()
	probe.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, probe)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return false, err
	}
	return pid != conn.PgConn().PID(), nil
}

// Close commits what is queued and lets go of the connections.
func (db *DB) Close() {
	for _, w := range db.writers {
		w.close()
	}
	db.stop()
	db.done.Wait()
	db.pool.Close()
}

// Ping says whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.Ping(ctx); err != nil {
		return unavailable("ping database", err)
	}
	return nil
}

// inTx runs f in one transaction.
func (db *DB) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db.pool, f)
}

// purposes of sealed columns; see secret.Keyring.
const (
	sealParams     = "subscriptions.params"
	sealState      = "subscriptions.hook_state"
	sealBody       = "trigger_events.body"
	sealNormalized = "trigger_events.normalized"
	sealRunInput   = "runs.input"
	sealHostData   = "subscriptions.host"
	sealKept       = "subscriptions.handshake_secret"
	sealSecret     = "subscriptions.ingest_secret"
	sealResponse   = "idempotency_keys.response"
	sealCredential = "connections.credential"
)

func (db *DB) open(purpose string, sealed []byte) ([]byte, error) {
	plain, err := db.keys.Open(purpose, sealed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", purpose, err)
	}
	return plain, nil
}
