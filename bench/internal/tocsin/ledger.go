package tocsin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Ledger is the store in this process, with subscriptions to call.
type Ledger struct {
	*store.DB
	Subscriptions []*trigger.Subscription
}

// Migrate makes the schema.
func Migrate(ctx context.Context, url string) error {
	_, err := store.Migrate(ctx, secret.Text(url))
	return err
}

// OpenLedger opens the store and makes n subscriptions.
func OpenLedger(ctx context.Context, url string, n int) (*Ledger, error) {
	keys, err := secret.ParseKeyring(secret.DevKeys)
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Config{URL: secret.Text(url), Application: "bench", Keys: keys, Log: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	l := &Ledger{DB: db}
	for range n {
		s := &trigger.Subscription{
			ID: trigger.NewSubscriptionID(), Tenant: "bench", AppID: App, TriggerKey: "plain", WorkflowID: "wf_bench",
		}
		if err := db.ReserveSubscription(ctx, s); err != nil {
			return nil, err
		}
		if err := db.ActivateSubscription(ctx, s, nil); err != nil {
			return nil, err
		}
		l.Subscriptions = append(l.Subscriptions, s)
	}
	return l, nil
}

// Call stores a call of the i-th subscription as ingest does, its body as the
// event.
func (l *Ledger) Call(ctx context.Context, i int, body []byte) error {
	saved, err := l.SaveCall(ctx, &trigger.CallRecord{
		Subscription: l.Subscriptions[i%len(l.Subscriptions)],
		Call:         &trigger.Call{Source: trigger.SourceWebhook, Method: "POST", Body: body},
		MaskedHeader: []byte(`[["host","127.0.0.1"],["content-type","application/json"],["content-length","1024"]]`),
		Events:       []trigger.EventRecord{{}},
	})
	if err == nil && len(saved.EventIDs) != 1 {
		err = fmt.Errorf("stored %d events", len(saved.EventIDs))
	}
	return err
}

// Fill stores n calls, in turn for each subscription.
func (l *Ledger) Fill(ctx context.Context, n int, bodies [][]byte) error {
	var (
		wait  sync.WaitGroup
		next  atomic.Int64
		first atomic.Pointer[error]
	)
	for range 256 {
		wait.Go(func() {
			for first.Load() == nil {
				i := int(next.Add(1) - 1)
				if i >= n {
					return
				}
				if err := l.Call(ctx, i, bodies[i%len(bodies)]); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wait.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// Drain claims and settles without an engine, as a dispatcher does whose engine
// takes no time, until ctx ends or nothing is due. worked is told of every
// event.
func (l *Ledger) Drain(ctx context.Context, claimers, limit int, worked func(n int)) error {
	var wait sync.WaitGroup
	errs := make([]error, claimers)
	for c := range claimers {
		wait.Go(func() {
			for ctx.Err() == nil {
				n, err := l.drainOnce(context.WithoutCancel(ctx), fmt.Sprintf("bench-%d", c), limit)
				if err != nil || n == 0 {
					errs[c] = err
					return
				}
				worked(n)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) drainOnce(ctx context.Context, owner string, limit int) (int, error) {
	events, err := l.ClaimDue(ctx, trigger.ClaimRequest{Owner: owner, Limit: limit, PerSubscription: limit, Lease: 30 * time.Second})
	if err != nil || len(events) == 0 {
		return 0, err
	}
	outcomes := make([]trigger.Outcome, len(events))
	for i, event := range events {
		outcomes[i] = trigger.Outcome{Event: event, AttemptID: ident.New(ident.Attempt), RunID: "run_bench", Started: time.Now()}
	}
	lost, err := l.Settle(ctx, outcomes)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("%d events were lost", len(lost))
	}
	return len(events), err
}
