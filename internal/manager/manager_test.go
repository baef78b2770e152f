package manager_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/manager/managertest"
	"github.com/tocsin-dev/tocsin/internal/registry"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// oneWorkflow is an engine that knows "wf_known".
type oneWorkflow struct{}

func (oneWorkflow) WorkflowExists(_ context.Context, _, id string) (bool, error) {
	return id == "wf_known", nil
}

func TestTheManagerKeepsTheRFC(t *testing.T) {
	t.Parallel()
	pool, err := workerpool.New(workerpool.Options{Host: egress.NewHost(egress.Options{Log: zap.NewNop()}), Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	managertest.Exercise(t, func(t *testing.T) *managertest.Bundle {
		url := storetest.NewURL(t)
		s, other := storetest.Open(t, url), storetest.Open(t, url)
		conn := storetest.Conn(t, url)
		apps := registry.New(registry.Config{
			Dir: "testdata/apps", Bundler: registry.Bundles{}, Runtime: pool, States: s, Log: zaptest.NewLogger(t),
		})
		if err := apps.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		make := func(s *store.DB) *manager.TriggerManager {
			return manager.New(manager.Config{
				Store: s, Apps: apps, Hooks: apps, Workflows: oneWorkflow{}, HostURL: "https://tocsin.example/", Log: zaptest.NewLogger(t),
			})
		}
		return &managertest.Bundle{
			Manager: make(s), Other: make(other),
			Event: func(t *testing.T, id string) *trigger.EventDetail {
				t.Helper()
				detail, err := s.Event(t.Context(), "default", id)
				if err != nil {
					t.Fatal(err)
				}
				return detail
			},
			Rows: func(t *testing.T, id trigger.SubscriptionID) (n int) {
				t.Helper()
				err := conn.QueryRow(t.Context(), "SELECT count(*) FROM trigger_events JOIN subscriptions USING (sid) WHERE id = $1", id.Reveal()).Scan(&n)
				if err != nil {
					t.Fatal(err)
				}
				return n
			},
			Elapse: func(t *testing.T) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), "UPDATE trigger_queue SET due_at = now()"); err != nil {
					t.Fatal(err)
				}
			},
			ElapsePolls: func(t *testing.T) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), "UPDATE polls SET due_at = now()"); err != nil {
					t.Fatal(err)
				}
			},
			SetApp: func(t *testing.T, state trigger.AppState) {
				t.Helper()
				if err := s.SetAppState(t.Context(), "io.tocsin.test.suite", state); err != nil {
					t.Fatal(err)
				}
				if err := apps.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
