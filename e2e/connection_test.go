package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// Issue 3, “must show” 2: subscribe, call, parse, poll, destroy, all through
// HTTP, with an app that registers its webhook with a connection and fetches its
// records when the run starts.
func TestAnAppWithAConnectionRegistersReadsAndFetches(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := rig.Start(t, rig.Options{})
	v.set(func() {
		v.orders["o_1"] = map[string]any{"id": "o_1", "buyer": "Ada", "tickets": 2}
		v.webhooks["wh_stranger"] = "https://elsewhere.example/hook"
	})
	v.connect(t, s, "conn_1", nil)

	status, answer := subscribeSold(s, "wf_sold", "conn_1")
	id := idOf(t, status, answer)
	want := map[string]string{"wh_stranger": "https://elsewhere.example/hook", "wh_1": s.Callback(id)}
	if diff := cmp.Diff(want, v.registered()); diff != "" {
		t.Fatalf("registered (-want +got):\n%s", diff)
	}

	send := func(body string) rig.Answer { return s.Post(id, []byte(body), "Content-Type", "application/json") }
	sold := send(`{"webhookId":"wh_1","action":"order.placed","orderId":"o_1"}`)
	gone := send(`{"webhookId":"wh_1","action":"order.refunded","orderId":"o_none"}`)
	if ping := send(`{"action":"test"}`); ping.Status != http.StatusOK || len(ping.EventIDs) != 0 {
		t.Errorf("the test button: %d %s", ping.Status, ping.Body)
	}
	if foreign := send(`{"webhookId":"wh_9","action":"order.placed","orderId":"o_1"}`); foreign.Status != http.StatusOK || len(foreign.EventIDs) != 0 {
		t.Errorf("another webhook's delivery: %d %s", foreign.Status, foreign.Body)
	}
	for event, want := range map[string]string{
		sold.EventIDs[0]: `{"action":"order.placed","order":{"buyer":"Ada","id":"o_1","tickets":2},"orderId":"o_1"}`,
		gone.EventIDs[0]: `{"action":"order.refunded","order":null,"orderId":"o_none"}`,
	} {
		if got := runEvent(t, s, event); got != want {
			t.Errorf("the run's event is %s, want %s", got, want)
		}
	}

	if status, answer := s.API(http.MethodDelete, "/subscriptions/"+id, nil); status != http.StatusOK {
		t.Errorf("delete: %d %v", status, answer)
	}
	if left := v.registered(); len(left) != 1 || left["wh_stranger"] == "" {
		t.Errorf("left at the vendor: %v", left)
	}
	if i := slices.IndexFunc(v.seen(), func(r string) bool { return strings.HasPrefix(r, "unsigned") }); i >= 0 {
		t.Errorf("a request left unsigned: %s", v.seen()[i])
	}
	tells(t, "CANARY", append(s.Dispatchers, s.Ingest)...)
	if _, shown := s.API(http.MethodGet, "/connections/conn_1", nil); strings.Contains(fmt.Sprint(shown), "CANARY") {
		t.Errorf("the API shows the credential: %v", shown)
	}
}

// runEvent waits for an event's run and gives what it saw.
func runEvent(t *testing.T, s *rig.System, event string) string {
	t.Helper()
	run, _ := s.WaitStatus(event, "dispatched", 30*time.Second)["runId"].(string)
	status, answer := s.API(http.MethodGet, "/runs/"+run, nil)
	if status != http.StatusOK {
		t.Fatalf("run %s: %d %v", run, status, answer)
	}
	got, _ := answer["run"].(map[string]any)
	text, err := json.Marshal(got["event"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// w6w contract §5: gates at subscribe, and “connection_required … the host must
// enforce requiresAuth itself”.
func TestAConnectionThatCannotBeUsedIsRefusedAtSubscribe(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	for _, state := range []string{"pending", "broken", "revoked"} {
		v.connect(t, s, "conn_"+state, map[string]any{"state": state})
		if status, answer := subscribeSold(s, "wf", "conn_"+state); status != http.StatusBadRequest || codeOf(answer) != "connection_"+state {
			t.Errorf("%s: %d %v", state, status, answer)
		}
	}
	if status, answer := subscribeSold(s, "wf", ""); status != http.StatusBadRequest || codeOf(answer) != "connection_required" {
		t.Errorf("none: %d %v", status, answer)
	}
	if status, answer := subscribeSold(s, "wf", "conn_none"); status != http.StatusNotFound || codeOf(answer) != "unknown_connection" {
		t.Errorf("unknown: %d %v", status, answer)
	}
	if status, answer := s.API(http.MethodPut, "/connections/conn_feed", map[string]any{"app": "io.tocsin.example.feed", "credential": 1}); status != http.StatusCreated {
		t.Fatalf("another app's connection: %d %v", status, answer)
	}
	if status, answer := subscribeSold(s, "wf", "conn_feed"); status != http.StatusNotFound || codeOf(answer) != "unknown_connection" {
		t.Errorf("another app's: %d %v", status, answer)
	}
	if len(v.seen()) != 0 || s.Count("SELECT count(*) FROM subscriptions WHERE lifecycle = 'live'") != 0 {
		t.Errorf("something came of it: %v", v.seen())
	}
}

// “refresh when due”: expiresAt is past, one refresh, and the call goes on with
// the new token. A connection that breaks later fails the call as a row that
// says so, and a mended one lets it be ingested again.
func TestAnExpiredConnectionIsRefreshedAndABrokenOneIsSaidSo(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := rig.Start(t, rig.Options{})
	v.set(func() { v.orders["o_1"] = map[string]any{"id": "o_1"} })
	v.connect(t, s, "conn_1", map[string]any{"expiresAt": time.Now().Add(-time.Hour).UTC()})
	v.set(func() { v.token = "CANARY-nobody-has-this" })
	status, answer := subscribeSold(s, "wf", "conn_1")
	id := idOf(t, status, answer)
	if n := len(slices.DeleteFunc(v.seen(), func(r string) bool { return r != "POST /token" })); n != 1 {
		t.Errorf("%d refreshes, want one: %v", n, v.seen())
	}

	v.connect(t, s, "conn_1", map[string]any{"state": "broken"})
	body := []byte(`{"webhookId":"wh_1","action":"order.placed","orderId":"o_1"}`)
	if answer := s.Post(id, body, "Content-Type", "application/json"); answer.Status != http.StatusOK || len(answer.EventIDs) != 0 {
		t.Fatalf("while broken: %d %s", answer.Status, answer.Body)
	}
	_, list := s.API(http.MethodGet, "/subscriptions/"+id+"/events", nil)
	events, _ := list["events"].([]any)
	failed, _ := events[0].(map[string]any)
	event, _ := failed["id"].(string)
	failure, _ := s.Event(event)["error"].(map[string]any)
	if failed["status"] != "failed" || failure["code"] != "connection_broken" || failure["phase"] != "auth" {
		t.Errorf("the row says %v, %v", failed, failure)
	}

	v.connect(t, s, "conn_1", nil)
	out := s.CLI("reingest", event, "--json")
	var again struct{ EventIDs []string }
	if err := json.Unmarshal([]byte(out), &again); err != nil || len(again.EventIDs) != 1 {
		t.Fatalf("reingest: %s, %v", out, err)
	}
	if got, want := runEvent(t, s, again.EventIDs[0]), `{"action":"order.placed","order":{"id":"o_1"},"orderId":"o_1"}`; got != want {
		t.Errorf("the run's event is %s, want %s", got, want)
	}
	tells(t, "CANARY", append(s.Dispatchers, s.Ingest)...)
}

// RFC §Destroy: “delete of the subscription or of any dependency”.
func TestDeletingAWorkflowOrAConnectionDestroysWhatDepends(t *testing.T) {
	t.Parallel()
	v := startVendor(t)
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	v.connect(t, s, "conn_1", nil)
	v.connect(t, s, "conn_2", nil)
	var ids []string
	for _, c := range [][2]string{{"wf_1", "conn_1"}, {"wf_1", "conn_2"}, {"wf_2", "conn_2"}, {"wf_3", "conn_1"}} {
		status, answer := subscribeSold(s, c[0], c[1])
		ids = append(ids, idOf(t, status, answer))
	}
	if status, answer := s.API(http.MethodDelete, "/workflows/wf_1", nil); status != http.StatusOK || fmt.Sprint(answer["subscriptions"]) != "2" {
		t.Errorf("delete the workflow: %d %v", status, answer)
	}
	if status, answer := s.API(http.MethodDelete, "/connections/conn_2", nil); status != http.StatusOK || fmt.Sprint(answer["subscriptions"]) != "1" {
		t.Errorf("delete the connection: %d %v", status, answer)
	}
	for i, id := range ids {
		want := http.StatusNotFound
		if i == 3 {
			want = http.StatusOK
		}
		if answer := s.Post(id, []byte(`{"action":"test"}`), "Content-Type", "application/json"); answer.Status != want {
			t.Errorf("subscription %d: %d, want %d", i, answer.Status, want)
		}
	}
	if left := v.registered(); len(left) != 1 {
		t.Errorf("left at the vendor: %v", left)
	}
	if status, _ := s.API(http.MethodGet, "/connections/conn_2", nil); status != http.StatusNotFound {
		t.Errorf("the connection: %d", status)
	}
	if n := s.Count("SELECT count(*) FROM connections WHERE connection_id = 'conn_2'"); n != 0 {
		t.Error("its credential is still there")
	}
}
