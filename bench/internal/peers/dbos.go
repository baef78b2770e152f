package peers

import (
	"context"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DBOS records each workflow's input and output. Here a workflow has no steps,
// and its queue polls every 100 ms (1 s is the default).
type DBOS struct {
	pool *pgxpool.Pool
	dbos dbos.Context
	work Work
}

// OpenDBOS makes the schema and opens a client that works nothing yet.
func OpenDBOS(ctx context.Context, url string, work Work) (*DBOS, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	d := &DBOS{pool: pool, work: work}
	if d.dbos, err = dbos.NewContext(ctx, dbos.Config{AppName: "bench", SystemDBPool: pool, Logger: quiet}); err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(d.dbos, d.event, dbos.WithWorkflowName("event"))
	if _, err := dbos.RegisterQueue(d.dbos, "events", dbos.WithQueueBasePollingInterval(100*time.Millisecond)); err != nil {
		return nil, err
	}
	d.dbos.ListenQueues(d.dbos, "nothing")
	return d, dbos.Launch(d.dbos)
}

func (d *DBOS) event(ctx dbos.Context, payload string) (string, error) {
	return "", d.work(ctx, []byte(payload))
}

// Insert stores one workflow.
func (d *DBOS) Insert(_ context.Context, payload []byte) error {
	_, err := dbos.Enqueue[string](d.dbos, "events", "event", string(payload))
	return err
}

// Start works what is queued.
func (d *DBOS) Start() { d.dbos.ListenQueues(d.dbos, "events") }

// Close ends it.
func (d *DBOS) Close() {
	dbos.Shutdown(d.dbos, 3*time.Second)
	d.pool.Close()
}
