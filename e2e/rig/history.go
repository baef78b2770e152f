package rig

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

//go:embed audit.sql
var auditSQL string

// Audit makes the database note every state that an event goes through.
func Audit(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, auditSQL)
	return err
}

// ReadHistory adds to a history what the ledger and the engine know; a nil
// engine is the embedded one. final are the error codes after which nothing is
// tried again.
func ReadHistory(ctx context.Context, pool *pgxpool.Pool, engine *fakeengine.Engine, h *checker.History, final ...string) error {
	rows, err := pool.Query(ctx, `SELECT v.event_id, s.id, v.received_at, v.status, coalesce(v.reason, ''), coalesce(v.error_code, ''), v.attempts
		FROM trigger_event_status AS v JOIN subscriptions AS s USING (sid) ORDER BY v.event_id`)
	if err != nil {
		return err
	}
	h.Events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e checker.Event, err error) {
		err = row.Scan(&e.ID, &e.Subscription, &e.Received, &e.Status, &e.Reason, &e.Code, &e.Attempts)
		e.Retryable = e.Code != "" && !slices.Contains(final, e.Code)
		return e, err
	})
	if err != nil {
		return err
	}
	rows, err = pool.Query(ctx, `SELECT event_id, attempt, outcome, ended_at FROM trigger_attempts ORDER BY event_id, ended_at, attempt`)
	if err != nil {
		return err
	}
	h.Attempts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a checker.Attempt, err error) {
		return a, row.Scan(&a.EventID, &a.Attempt, &a.Outcome, &a.Ended)
	})
	if err != nil {
		return err
	}
	if engine != nil {
		h.Starts = startsOf(engine)
	} else if h.Starts, err = embeddedStarts(ctx, pool); err != nil {
		return err
	}
	h.Changes, err = readChanges(ctx, pool)
	return err
}

func startsOf(engine *fakeengine.Engine) []checker.Start {
	var list []checker.Start
	for _, s := range engine.Starts() {
		list = append(list, checker.Start{
			Subscription: s.Subscription, EventID: s.EventID, IdempotencyKey: s.IdempotencyKey, At: s.At, Ended: s.Ended, RunID: s.RunID,
			Told: s.RunID != "" && s.Did == fakeengine.DoOK,
		})
	}
	return list
}

// embeddedStarts reads the starts that the embedded engine recorded: one run an
// event, whoever asked for it.
func embeddedStarts(ctx context.Context, pool *pgxpool.Pool) ([]checker.Start, error) {
	rows, err := pool.Query(ctx, `SELECT s.id, r.event_id, r.started_at, r.run_id FROM runs AS r JOIN subscriptions AS s USING (sid)
		WHERE r.event_id IS NOT NULL ORDER BY r.started_at, r.run_id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s checker.Start, err error) {
		err = row.Scan(&s.Subscription, &s.EventID, &s.At, &s.RunID)
		s.IdempotencyKey, s.Ended, s.Told = s.EventID, s.At, true
		return s, err
	})
}

// noted is one row of the audit.
type noted struct {
	tx           string
	began, at    time.Time
	what         string
	gone         bool
	subscription string
	events       []string
	attempts     int
	due, lease   *time.Time
	status       *string
}

// readChanges turns what the audit noted into the states of events; none when
// there is no audit.
func readChanges(ctx context.Context, pool *pgxpool.Pool) ([]checker.Change, error) {
	var there bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass('audit') IS NOT NULL").Scan(&there); err != nil || !there {
		return nil, err
	}
	// A later transaction can only touch a row once an earlier one has let go of
	// it, so the last number of each gives the order for any one event.
	rows, err := pool.Query(ctx, `SELECT a.tx, a.began, a.at, a.what, a.gone, s.id, a.event_ids, a.attempts, a.due_at, a.lease, a.status
		FROM (SELECT *, max(seq) OVER (PARTITION BY tx) AS last FROM audit) AS a JOIN subscriptions AS s USING (sid) ORDER BY a.last, a.seq`)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n noted, err error) {
		return n, row.Scan(&n.tx, &n.began, &n.at, &n.what, &n.gone, &n.subscription, &n.events, &n.attempts, &n.due, &n.lease, &n.status)
	})
	if err != nil {
		return nil, err
	}
	ledger := ledger{}
	var changes []checker.Change
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].tx == list[0].tx {
			n++
		}
		changes = append(changes, ledger.apply(list[:n])...)
		list = list[n:]
	}
	return changes, nil
}

// where is in which tables an event lies.
type where struct {
	queued, claimed bool
	ended           trigger.Status
	attempts        int
	due, lease      time.Time
}

// status reads a status off the tables, as the view trigger_event_status does.
func (w *where) status() trigger.Status {
	switch {
	case w.ended != "":
		return w.ended
	case w.claimed:
		return trigger.StatusDispatching
	}
	return trigger.StatusReceived
}

// ledger follows where events lie.
type ledger map[string]*where

// apply takes one transaction and gives the states it led to.
func (l ledger) apply(tx []noted) []checker.Change {
	var touched []string
	last := map[string]*noted{}
	before := map[string]where{}
	for i := range tx {
		for _, id := range tx[i].events {
			w := l[id]
			if w == nil {
				w = &where{}
				l[id] = w
			}
			if last[id] == nil {
				touched = append(touched, id)
				before[id] = *w
			}
			last[id] = &tx[i]
			w.note(&tx[i])
		}
	}
	var changes []checker.Change
	for _, id := range touched {
		w, n := l[id], last[id]
		if !w.queued && w.ended == "" || *w == before[id] {
			continue // a lease ended, and the event had been over before
		}
		changes = append(changes, checker.Change{
			EventID: id, Subscription: n.subscription, Status: w.status(), At: n.at, Began: n.began, Due: w.due, Attempts: w.attempts,
			Lease: w.lease, Tx: n.tx,
		})
	}
	return changes
}

func (w *where) note(n *noted) {
	switch n.what {
	case "queue":
		if w.queued = !n.gone; w.queued {
			w.attempts, w.due = n.attempts, *n.due
		}
	case "claim":
		w.claimed, w.lease = !n.gone, *n.lease
	case "delivery":
		w.ended, w.attempts = "", n.attempts
		if !n.gone {
			w.ended = trigger.Status(*n.status)
		} else {
			w.attempts = 0 // a requeue
		}
	}
}
