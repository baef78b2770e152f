package manager

import (
	"context"
	"errors"
	"sync"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// destroyAtOnce bounds how many onUnsubscribe hooks one deletion has in flight.
const destroyAtOnce = 4

// UnsubscribeWorkflow destroys the subscriptions of a workflow that is being
// deleted (RFC §Destroy: “delete of the subscription or of any dependency”) and
// says how many there were. Each one's onUnsubscribe comes first, bounded as
// ever. It may be asked again after a failure.
func (m *TriggerManager) UnsubscribeWorkflow(ctx context.Context, tenant, workflowID string) (int, error) {
	return m.destroy(ctx, tenant, func() ([]*trigger.Subscription, error) {
		list, _, err := m.store.SubscriptionsForWorkflow(ctx, tenant, workflowID, trigger.Page{Limit: trigger.MaxPage})
		return list, err
	})
}

// DeleteConnection destroys the subscriptions that use a connection, while their
// hooks still have it, and then forgets it with its credential (RFC §Destroy).
func (m *TriggerManager) DeleteConnection(ctx context.Context, tenant, id string) (int, error) {
	n, err := m.destroy(ctx, tenant, func() ([]*trigger.Subscription, error) {
		return m.store.SubscriptionsOfConnection(ctx, tenant, id, trigger.MaxPage)
	})
	if err != nil {
		return n, err
	}
	return n, m.store.DeleteConnection(context.WithoutCancel(ctx), tenant, id)
}

// destroy unsubscribes until there is nothing left: what is subscribed meanwhile
// goes, too.
func (m *TriggerManager) destroy(ctx context.Context, tenant string, dependents func() ([]*trigger.Subscription, error)) (n int, err error) {
	for {
		list, err := dependents()
		if err != nil || len(list) == 0 {
			return n, err
		}
		done, err := m.unsubscribeAll(ctx, tenant, list)
		if n += done; err != nil {
			return n, err
		}
	}
}

func (m *TriggerManager) unsubscribeAll(ctx context.Context, tenant string, list []*trigger.Subscription) (int, error) {
	errs := make([]error, len(list))
	slots := make(chan struct{}, destroyAtOnce)
	var wg sync.WaitGroup
	for i, s := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = m.Unsubscribe(ctx, tenant, s.ID)
		})
	}
	wg.Wait()
	done := 0
	for i, err := range errs {
		switch {
		case err == nil:
			done++
		case errors.Is(err, trigger.ErrUnknownSubscription):
			errs[i] = nil // somebody else was first
		}
	}
	return done, errors.Join(errs...)
}
