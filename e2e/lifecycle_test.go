package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

const (
	pair   = "io.tocsin.test.pair"
	poller = "io.tocsin.test.poller"
)

func fixtures(t *testing.T, o rig.Options) *rig.System {
	t.Helper()
	o.Apps = rig.Root() + "/e2e/testdata/triggers"
	return rig.Start(t, o)
}

// Issue 3, “must show” 2, webhook form: onSubscribe's state, the whole call,
// many events of one call, a refused call, the masked call in parseOutput, a
// destroy that throws.
func TestTheWebhookFormFromSubscribeToDestroy(t *testing.T) {
	t.Parallel()
	s := fixtures(t, rig.Options{})
	id := s.Subscribe(pair, "paired", "wf", map[string]any{"stubborn": true})

	one := s.Post(id, []byte(`{"a":1}`), "Content-Type", "application/json", "Authorization", "Bearer CANARY")
	many := s.Post(id, []byte(`[{"n":1},{"n":2},{"n":3}]`), "Content-Type", "application/json")
	if len(one.EventIDs) != 1 || len(many.EventIDs) != 3 {
		t.Fatalf("%s and %s", one.Body, many.Body)
	}
	want := fmt.Sprintf(`{"masked":true,"method":"POST","parsed":{"body":{"a":1},"hook":"hook of %s","method":"POST","seen":true}}`, id)
	if got := runEvent(t, s, one.EventIDs[0]); got != want {
		t.Errorf("the run's event is %s, want %s", got, want)
	}
	for i, event := range many.EventIDs {
		if got, want := runEvent(t, s, event), fmt.Sprintf(`{"masked":false,"method":"POST","parsed":{"n":%d}}`, i+1); got != want {
			t.Errorf("event %d is %s, want %s", i, got, want)
		}
	}
	if empty := s.Post(id, []byte(`[]`), "Content-Type", "application/json"); empty.Status != http.StatusOK || len(empty.EventIDs) != 0 {
		t.Errorf("no event: %d %s", empty.Status, empty.Body)
	}

	if status, answer := s.API(http.MethodDelete, "/subscriptions/"+id, nil); status != http.StatusOK {
		t.Errorf("delete: %d %v", status, answer)
	}
	if after := s.Post(id, []byte(`{}`)); after.Status != http.StatusNotFound {
		t.Errorf("a call after the delete: %d", after.Status)
	}
	if lines := s.Ingest.Logged("subscription.unsubscribe_failed"); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]), "it stays") {
		t.Errorf("the log says %v", lines)
	}
	tells(t, "CANARY", append(s.Dispatchers, s.Ingest)...)
	tells(t, id, append(s.Dispatchers, s.Ingest)...)
}

// Issue 3: “JS stack with source-mapped file and line in the event's error”.
func TestAHooksErrorShowsTheAuthorsFileAndLine(t *testing.T) {
	t.Parallel()
	s := fixtures(t, rig.Options{Dispatchers: -1})
	id := s.Subscribe(pair, "paired", "wf", nil)
	answer, err := rig.Send(t.Context(), http.MethodPost, s.Callback(id)+"?fail=1", []byte(`{}`))
	if err != nil || answer.Status != http.StatusOK || len(answer.EventIDs) != 0 {
		t.Fatalf("a call that is refused: %d %s %v", answer.Status, answer.Body, err)
	}
	_, list := s.API(http.MethodGet, "/subscriptions/"+id+"/events?status=failed", nil)
	events, _ := list["events"].([]any)
	if len(events) != 1 {
		t.Fatalf("failed rows: %v", list)
	}
	row, _ := events[0].(map[string]any)
	event := s.Event(fmt.Sprint(row["id"]))
	failure, _ := event["error"].(map[string]any)
	if failure["code"] != "hook_threw" || failure["phase"] != "execute" || !strings.Contains(fmt.Sprint(failure["message"]), "this call is refused") {
		t.Errorf("the error is %v", failure)
	}
	// The line of `throw` in e2e/testdata/triggers/pair/index.ts.
	if stack := fmt.Sprint(event["errorStack"]); !strings.Contains(stack, "index.ts:20:") {
		t.Errorf("the stack is %s", stack)
	}
	if out := s.CLI("events", "show", fmt.Sprint(row["id"])); !strings.Contains(out, "index.ts:20:") {
		t.Errorf("the CLI shows %s", out)
	}
}

// C26: the vendor refuses to be unsubscribed from: 403, a hang, 404. “Persists
// deletion even if the hook fails (logs the error)” (RFC §unsubscribe).
func TestC26AVendorThatWillNotLetGo(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	release := make(chan struct{})
	defer close(release)
	const limit = 2 * time.Second
	s := rig.Start(t, rig.Options{Dispatchers: -1, Env: map[string]string{"HOOK_TIMEOUT": limit.String()}})
	v.connect(t, s, "conn_1", nil)
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		reason string // in the one warning; "" when there is nothing to warn of
	}{
		{"403", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "answered 403"},
		{"hang", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}, "hook_timeout"},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, ""},
	} {
		v.set(func() { v.onDelete = nil })
		status, answer := subscribeSold(s, "wf", "conn_1")
		id := idOf(t, status, answer)
		v.set(func() { v.onDelete = c.answer })
		before := len(s.Ingest.Logged("subscription.unsubscribe_failed"))

		started := time.Now()
		if status, answer := s.API(http.MethodDelete, "/subscriptions/"+id, nil); status != http.StatusOK {
			t.Errorf("%s: delete: %d %v", c.name, status, answer)
		}
		if took := time.Since(started); took > limit+2*time.Second {
			t.Errorf("%s: it took %v, the hook has %v", c.name, took, limit)
		}
		if call := s.Post(id, []byte(`{}`)); call.Status != http.StatusNotFound {
			t.Errorf("%s: a later call: %d, want 404", c.name, call.Status)
		}
		asked := len(v.seen())
		if status, answer := s.API(http.MethodDelete, "/subscriptions/"+id, nil); status != http.StatusNotFound {
			t.Errorf("%s: a second delete: %d %v", c.name, status, answer)
		}
		if len(v.seen()) != asked {
			t.Errorf("%s: the second delete called the vendor", c.name)
		}
		warnings := s.Ingest.Logged("subscription.unsubscribe_failed")[before:]
		switch {
		case c.reason == "" && len(warnings) != 0:
			t.Errorf("%s: warned of %v", c.name, warnings)
		case c.reason != "" && (len(warnings) != 1 || !strings.Contains(fmt.Sprint(warnings[0]), c.reason)):
			t.Errorf("%s: the warnings are %v, want one with %q", c.name, warnings, c.reason)
		}
		tells(t, id, s.Ingest)
	}
	tells(t, "CANARY", s.Ingest)
}

func (v *vendor) checksOf(name string) []pollSeen {
	var list []pollSeen
	for _, check := range v.checks() {
		if check.name == name {
			list = append(list, check)
		}
	}
	return list
}

// counted subscribes to the counting poll.
func counted(s *rig.System, v *vendor, name string) string {
	return s.Subscribe(poller, "counted", "wf", map[string]any{"url": v.url, "name": name})
}

// due makes a subscription's next check due, and none that is running overlap.
func due(t *testing.T, s *rig.System, id string) {
	t.Helper()
	if _, err := s.Pool.Exec(t.Context(), "UPDATE polls SET due_at = now() WHERE sid = (SELECT sid FROM subscriptions WHERE id = $1)", id); err != nil {
		t.Fatal(err)
	}
}

func (v *vendor) waitChecks(t *testing.T, name string, n int) []pollSeen {
	t.Helper()
	var list []pollSeen
	rig.Eventually(t, 20*time.Second, fmt.Sprintf("%d checks of %s", n, name), func() bool {
		list = v.checksOf(name)
		return len(list) >= n
	})
	return list
}

// settled waits until a check's outcome is recorded.
func settled(t *testing.T, s *rig.System, id string) {
	t.Helper()
	rig.Eventually(t, 20*time.Second, "the check is recorded", func() bool {
		return s.Count("SELECT count(*) FROM polls JOIN subscriptions USING (sid) WHERE id = $1 AND token IS NULL AND checked_at IS NOT NULL", id) == 1
	})
}

func events(s *rig.System, id string) int {
	return s.Count("SELECT count(*) FROM trigger_events JOIN subscriptions USING (sid) WHERE id = $1", id)
}

// C27 (a) a commit that fails, (b) a check that throws, (c) an edit and a
// restart: “nextState is persisted atomically with the events it accompanies”
// (amendment §Polling).
func TestC27ACursorMovesWithItsEventsAlone(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := fixtures(t, rig.Options{})
	v.set(func() {
		v.onPoll = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	})
	id := counted(s, v, "a")
	v.waitChecks(t, "a", 1)
	settled(t, s, id)
	if n := events(s, id); n != 0 {
		t.Errorf("(b) %d events of a check that threw", n)
	}

	// (a) The events are written, the cursor cannot be: neither may be there.
	exec := func(sql string) {
		if _, err := s.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION no_cursor() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	exec(`CREATE TRIGGER no_cursor BEFORE UPDATE OF hook_state ON subscriptions FOR EACH ROW EXECUTE FUNCTION no_cursor()`)
	v.set(func() { v.onPoll = nil })
	due(t, s, id)
	v.waitChecks(t, "a", 2)
	rig.Eventually(t, 20*time.Second, "the failure is recorded", func() bool { return len(s.Ingest.Logged("poll.failed")) >= 2 })
	if n := events(s, id); n != 0 {
		t.Errorf("(a) %d events whose cursor was not saved", n)
	}
	exec(`DROP TRIGGER no_cursor ON subscriptions`)
	due(t, s, id)
	v.waitChecks(t, "a", 3)
	rig.Eventually(t, 20*time.Second, "the events are there", func() bool { return events(s, id) == 3 })

	// (c) Disabling, enabling and a restart keep the cursor.
	for _, enabled := range []bool{false, true} {
		if status, answer := s.API(http.MethodPatch, "/subscriptions/"+id, map[string]any{"enabled": enabled}); status != http.StatusOK {
			t.Fatalf("enabled %t: %d %v", enabled, status, answer)
		}
	}
	s.Ingest.Stop(15 * time.Second)
	s.RestartIngest()
	due(t, s, id)
	checks := v.waitChecks(t, "a", 4)
	rig.Eventually(t, 20*time.Second, "the next events are there", func() bool { return events(s, id) == 6 })
	var cursors []string
	for _, check := range checks {
		cursors = append(cursors, check.cursor)
	}
	if got := strings.Join(cursors, " "); got != "0 0 0 3" {
		t.Errorf("the vendor was asked from cursors %s, want 0 0 0 3", got)
	}
	first := s.Count("SELECT count(*) FROM trigger_events")
	if got := runEvent(t, s, firstEvent(t, s, id)); got != `{"n":1,"polled":1}` || first != 6 {
		t.Errorf("the first run saw %s of %d events", got, first)
	}
}

func firstEvent(t *testing.T, s *rig.System, id string) (event string) {
	t.Helper()
	err := s.Pool.QueryRow(t.Context(), "SELECT event_id FROM trigger_events JOIN subscriptions USING (sid) WHERE id = $1 ORDER BY received_at, event_id LIMIT 1", id).Scan(&event)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// C27 (d) three ingests: one check an interval, and no overlap when a check
// takes two of them.
func TestC27ThreeIngestsMakeOneCheckAnInterval(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	const interval = time.Second
	s := fixtures(t, rig.Options{Dispatchers: -1, Env: map[string]string{"POLL_INTERVAL": interval.String(), "POLL_MIN_INTERVAL": "100ms"}})
	s.StartIngest()
	s.StartIngest()
	counted(s, v, "quick")
	checks := v.waitChecks(t, "quick", 5)
	for i := 1; i < len(checks); i++ {
		// A check is due an interval after the last was taken; the vendor sees both a little later.
		if gap := checks[i].at.Sub(checks[i-1].at); gap < interval/2 {
			t.Errorf("checks %d and %d are %v apart", i-1, i, gap)
		}
		if checks[i].cursor == checks[i-1].cursor {
			t.Errorf("checks %d and %d both asked from %s", i-1, i, checks[i].cursor)
		}
	}

	v.set(func() {
		v.onPoll = func(_ http.ResponseWriter, r *http.Request) {
			timer := time.NewTimer(2 * interval)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
			}
		}
	})
	slow := len(v.checks())
	v.waitChecks(t, "quick", slow+4)
	for i, check := range v.checks()[slow+1:] {
		if check.overlaps {
			t.Errorf("slow check %d began while one was running", i)
		}
	}
}

// C27 (e) and issue 3: “archived or disabled apps: calls stored and ignored,
// polls not run, subscriptions kept”, and no burst afterwards.
func TestC27NoPollWhileDisabledOrArchivedAndNoBurstAfter(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := fixtures(t, rig.Options{Dispatchers: -1, Env: map[string]string{"POLL_INTERVAL": "1h"}})
	id := counted(s, v, "e")
	hook := s.Subscribe(pair, "paired", "wf", nil)
	tick := s.Subscribe(pair, "ticking", "wf", map[string]any{"url": v.url})
	v.waitChecks(t, "e", 1)
	v.waitChecks(t, "tick", 1)
	settled(t, s, id)
	// Once another subscription was checked twice, due checks were looked for twice.
	pass := func() {
		for range 2 {
			settled(t, s, tick)
			n := len(v.checksOf("tick"))
			due(t, s, tick)
			v.waitChecks(t, "tick", n+1)
		}
	}

	for _, pause := range []struct{ stop, start func() }{
		{func() { s.CLI("subscriptions", "pause", id) }, func() { s.CLI("subscriptions", "resume", id) }},
		{func() { s.CLI("apps", "archive", poller) }, func() { s.CLI("apps", "enable", poller) }},
		{func() { s.CLI("apps", "disable", poller) }, func() { s.CLI("apps", "enable", poller) }},
	} {
		before := len(v.checksOf("e"))
		pause.stop()
		if _, err := s.Pool.Exec(t.Context(), "UPDATE polls SET due_at = now() - interval '10 hours' WHERE sid = (SELECT sid FROM subscriptions WHERE id = $1)", id); err != nil { // ten checks were missed
			t.Fatal(err)
		}
		pass()
		if n := len(v.checksOf("e")); n != before {
			t.Errorf("%d checks during the pause", n-before)
		}
		pause.start()
		v.waitChecks(t, "e", before+1)
		settled(t, s, id)
		pass()
		if n := len(v.checksOf("e")); n != before+1 {
			t.Errorf("%d checks after the pause, want one", n-before)
		}
	}

	s.CLI("apps", "disable", pair)
	answer := s.Post(hook, []byte(`{"a":1}`), "Content-Type", "application/json")
	if answer.Status != http.StatusOK || len(answer.EventIDs) != 0 {
		t.Errorf("a call of a disabled app: %d %s", answer.Status, answer.Body)
	}
	if n := s.Count("SELECT count(*) FROM trigger_events WHERE initial_status = 'ignored' AND reason = 'app_disabled'"); n != 1 {
		t.Errorf("%d rows say so, want 1", n)
	}
	s.CLI("apps", "enable", pair)
	if answer := s.Post(hook, []byte(`{"a":1}`), "Content-Type", "application/json"); len(answer.EventIDs) != 1 {
		t.Errorf("enabled again: %d %s", answer.Status, answer.Body)
	}
}
