// Package peers holds what Tocsin is measured against: job queues on PostgreSQL
// as libraries, and what PostgreSQL does at most with nothing around it.
package peers

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// conns is how many connections each peer gets.
const conns = 32

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// Work is told each job's payload.
type Work func(ctx context.Context, payload []byte) error

// RiverSettings are how River is run.
type RiverSettings struct {
	Cooldown, Poll time.Duration
	Workers        int
}

// River at its defaults, and as its own benchmark tunes it.
var (
	RiverDefault = RiverSettings{Cooldown: river.FetchCooldownDefault, Poll: river.FetchPollIntervalDefault, Workers: 100}
	RiverTuned   = RiverSettings{Cooldown: 2 * time.Millisecond, Poll: 20 * time.Millisecond, Workers: 2000}
)

type riverArgs struct {
	Payload json.RawMessage `json:"payload"`
}

func (riverArgs) Kind() string { return "event" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	work Work
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.work(ctx, job.Args.Payload)
}

// River is a client with its pool.
type River struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// MigrateRiver makes River's schema.
func MigrateRiver(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// OpenRiver opens a client; without work it inserts only.
func OpenRiver(ctx context.Context, url string, settings RiverSettings, work Work) (*River, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	config := &river.Config{Logger: quiet}
	if work != nil {
		config.FetchCooldown, config.FetchPollInterval = settings.Cooldown, settings.Poll
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: settings.Workers}}
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &riverWorker{work: work})
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &River{pool: pool, client: client}, nil
}

// Insert stores one job.
func (r *River) Insert(ctx context.Context, payload []byte) error {
	_, err := r.client.Insert(ctx, riverArgs{payload}, nil)
	return err
}

// InsertManyFast stores many jobs by COPY.
func (r *River) InsertManyFast(ctx context.Context, payloads [][]byte) error {
	_, err := r.client.InsertManyFast(ctx, riverParams(payloads))
	return err
}

// InsertMany stores many jobs and returns their rows.
func (r *River) InsertMany(ctx context.Context, payloads [][]byte) error {
	_, err := r.client.InsertMany(ctx, riverParams(payloads))
	return err
}

func riverParams(payloads [][]byte) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(payloads))
	for i, p := range payloads {
		params[i].Args = riverArgs{p}
	}
	return params
}

// Start works jobs until Stop.
func (r *River) Start(ctx context.Context) error { return r.client.Start(ctx) }

// Stop ends the work at once: a drain that is cut short leaves a full queue.
func (r *River) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	_ = r.client.StopAndCancel(ctx)
}

// Close lets go of the connections.
func (r *River) Close() { r.pool.Close() }

// openPool opens a pool whose connections are all there.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = conns, conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	held := make([]*pgxpool.Conn, conns)
	for i := range held {
		if held[i], err = pool.Acquire(ctx); err != nil {
			pool.Close()
			return nil, err
		}
	}
	for _, conn := range held {
		conn.Release()
	}
	return pool, nil
}
