package peers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

const gueSchema = `CREATE TABLE gue_jobs (
  job_id text NOT NULL PRIMARY KEY, priority smallint NOT NULL, run_at timestamptz NOT NULL, job_type text NOT NULL,
  args bytea NOT NULL, error_count int NOT NULL DEFAULT 0, last_error text, queue text NOT NULL,
  created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority);`

// Gue takes one job a transaction, and polls.
type Gue struct {
	pool   *pgxpool.Pool
	client *gue.Client
	stop   func()
}

// OpenGue makes the schema, if asked to, and opens a client.
func OpenGue(ctx context.Context, url string, schema bool) (*Gue, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	if schema {
		if _, err := pool.Exec(ctx, gueSchema); err != nil {
			return nil, err
		}
	}
	client, err := gue.NewClient(pgxv5.NewConnPool(pool))
	return &Gue{pool: pool, client: client}, err
}

// Insert stores one job.
func (g *Gue) Insert(ctx context.Context, payload []byte) error {
	return g.client.Enqueue(ctx, &gue.Job{Type: "event", Args: payload})
}

// InsertMany stores many.
func (g *Gue) InsertMany(ctx context.Context, payloads [][]byte) error {
	jobs := make([]*gue.Job, len(payloads))
	for i, p := range payloads {
		jobs[i] = &gue.Job{Type: "event", Args: p}
	}
	return g.client.EnqueueBatch(ctx, jobs)
}

// Start works jobs with 16 workers, each polling every 100 ms.
func (g *Gue) Start(ctx context.Context, work Work) error {
	pool, err := gue.NewWorkerPool(g.client, gue.WorkMap{"event": func(ctx context.Context, job *gue.Job) error {
		return work(ctx, job.Args)
	}}, 16, gue.WithPoolPollInterval(100*time.Millisecond), gue.WithPoolPollStrategy(gue.RunAtPollStrategy))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	g.stop = func() { cancel(); <-done }
	return nil
}

// Close ends the work and lets go of the connections.
func (g *Gue) Close() {
	if g.stop != nil {
		g.stop()
	}
	g.pool.Close()
}
