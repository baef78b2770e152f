package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// schedule registers a schedule on the OpenWOP surface.
func (b *bridge) schedule(schedule map[string]any) string {
	b.t.Helper()
	a := b.call(http.MethodPost, "/v1/trigger-subscriptions", map[string]any{
		"source": "schedule", "workflowId": "conformance-noop", "inputMapping": map[string]any{"schedule": schedule},
	}).want(b.t, http.StatusCreated)
	b.validValue("trigger-subscription.schema.json", a.at("subscription"))
	return a.string("subscription", "subscriptionId")
}

// tick is what a tick's event says.
type tick struct {
	FiredAt      time.Time `json:"firedAt"`
	ScheduledFor time.Time `json:"scheduledFor"`
	IsCatchUp    bool      `json:"isCatchUp"`
}

// ticks reads the events of a schedule, oldest first.
func ticks(t *testing.T, b *bridge, ledger *store.DB, subscription string) []tick {
	t.Helper()
	rows, err := b.system.Pool.Query(t.Context(), `SELECT e.event_id FROM trigger_events AS e JOIN subscriptions AS s ON s.sid = e.sid WHERE s.id = $1 ORDER BY e.event_id`, subscription)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	list := make([]tick, len(ids))
	for i, id := range ids {
		event, err := ledger.Event(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(event.Normalized, &list[i]); err != nil || event.Source != trigger.SourceSchedule {
			t.Fatalf("%s from %s: %s", id, event.Source, event.Normalized)
		}
	}
	return list
}

// "3 replicas, 50 schedules of one second for a minute, one killed every ten
// seconds: each slot fired once."
func TestEverySlotIsFiredOnceAcrossReplicas(t *testing.T) {
	t.Parallel()

	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	b := startBridge(t, rig.Options{})
	replicas := []*rig.Process{b.system.StartIngest(), b.system.StartIngest()}
	var ids []string
	for i := range 50 {
		every := map[string]any{"cron": "* * * * * *", "timezone": "Europe/Berlin"}
		if i%2 == 0 {
			ids = append(ids, b.schedule(every))
			continue
		}
		ids = append(ids, b.system.Subscribe("tocsin", "schedule", "conformance-noop", every))
	}
	for round := range rounds {
		wait := time.NewTimer(10 * time.Second)
		select {
		case <-wait.C:
		case <-t.Context().Done():
			t.Fatal("the test ended early")
		}
		i := round % (len(replicas) + 1)
		if i == len(replicas) {
			b.system.Ingest.Kill()
			b.system.RestartIngest()
			continue
		}
		replicas[i].Kill()
		replicas[i] = b.system.StartIngest()
	}
	ended := time.Now()
	b.system.Ingest.Stop(20 * time.Second)
	for _, replica := range replicas {
		replica.Stop(20 * time.Second)
	}
	rig.Eventually(t, 30*time.Second, "every event has run", func() bool { return b.system.Open() == 0 })

	ledger := storetest.Open(t, b.system.Database)
	for _, id := range ids {
		fired := ticks(t, b, ledger, id)
		slices.SortFunc(fired, func(a, b tick) int { return a.ScheduledFor.Compare(b.ScheduledFor) })
		for i := 1; i < len(fired); i++ {
			if step := fired[i].ScheduledFor.Sub(fired[i-1].ScheduledFor); step != time.Second {
				t.Errorf("%s: from slot %s to %s", trigger.ShortSubscription(id), fired[i-1].ScheduledFor, fired[i].ScheduledFor)
			}
		}
		if n := len(fired); n < 10*rounds-2 || ended.Sub(fired[n-1].ScheduledFor) > 5*time.Second {
			t.Errorf("%s: %d slots", trigger.ShortSubscription(id), n)
		}
		if runs := b.runsOf(id); runs != len(fired) {
			t.Errorf("%s: %d slots, %d runs", trigger.ShortSubscription(id), len(fired), runs)
		}
	}
}

// OpenWOP RFC 0052 §B and RFC 0083, question 5: missed ticks are fired once or
// skipped, never one after the other; paused skips, and resume starts afresh.
func TestMissedTicksAreNoBacklog(t *testing.T) {
	t.Parallel()

	b := startBridge(t, rig.Options{})
	ledger := storetest.Open(t, b.system.Database)
	const hourly = "0 * * * *"
	once := b.schedule(map[string]any{"cron": hourly, "missedFirePolicy": "fire-once"})
	skip := b.schedule(map[string]any{"cron": hourly, "missedFirePolicy": "skip"})
	paused := b.schedule(map[string]any{"cron": hourly})
	b.call(http.MethodPatch, "/v1/trigger-subscriptions/"+paused, map[string]any{"state": "paused"}).want(t, http.StatusOK)
	soon := b.schedule(map[string]any{"at": time.Now().Add(1200 * time.Millisecond).UTC().Format(time.RFC3339Nano)})
	if _, err := b.system.Pool.Exec(t.Context(), `UPDATE schedules AS p SET due_at = date_trunc('hour', now()) - interval '5 hours' WHERE cron <> ''`); err != nil {
		t.Fatal(err)
	}
	isSet := func(id string) bool {
		return b.system.Count(`SELECT count(*) FROM schedules AS p JOIN subscriptions AS s ON s.sid = p.sid
			WHERE s.id = $1 AND p.due_at > now() AND p.due_at <= now() + interval '1 hour'`, id) == 1
	}
	rig.Eventually(t, 10*time.Second, "the missed ticks are dealt with", func() bool { return isSet(once) && isSet(skip) })
	if got := ticks(t, b, ledger, once); len(got) != 1 || !got[0].IsCatchUp {
		t.Errorf("fire-once fired %+v", got)
	}
	if got := ticks(t, b, ledger, skip); len(got) != 0 {
		t.Errorf("skip fired %+v", got)
	}
	if isSet(paused) {
		t.Error("a paused schedule moved")
	}
	b.call(http.MethodPatch, "/v1/trigger-subscriptions/"+paused, map[string]any{"state": "active"}).want(t, http.StatusOK)
	rig.Eventually(t, 10*time.Second, "the schedule starts afresh", func() bool { return isSet(paused) })
	if got := ticks(t, b, ledger, paused); len(got) != 0 {
		t.Errorf("resume caught up: %+v", got)
	}
	rig.Eventually(t, 10*time.Second, "the one time has fired", func() bool { return b.runsOf(soon) == 1 })
	if got := ticks(t, b, ledger, soon); len(got) != 1 || got[0].IsCatchUp || b.system.Count(`SELECT count(*) FROM schedules WHERE cron = '' AND due_at < 'infinity'`) != 0 {
		t.Errorf("once fired %+v", got)
	}
}
