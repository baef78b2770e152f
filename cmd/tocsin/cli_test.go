package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// fakeAPI answers "METHOD path" with a body, and notes what it was asked.
type fakeAPI struct {
	mu      sync.Mutex
	answers map[string]string
	status  int // for all, when set
	asked   []string
	url     string
}

func newAPI(t *testing.T, answers map[string]string) *fakeAPI {
	t.Helper()
	api := &fakeAPI{answers: answers}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	api.url = server.URL
	return api
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
	answer, ok := f.answers[r.Method+" "+r.RequestURI]
	switch {
	case f.status != 0:
		w.WriteHeader(f.status)
		_, _ = w.Write([]byte(`{"error":{"code":"some_code","message":"what is wrong","details":[{"path":"a.b","message":"is bad"},{"path":"c","message":"is too"}]}}`))
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":{"code":"unknown","message":"there is none"}}`))
	default:
		_, _ = w.Write([]byte(answer))
	}
}

func (f *fakeAPI) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// tool runs a command with an environment of its own.
type tool struct {
	env   map[string]string
	stdin string
	after func(time.Duration) <-chan time.Time
}

func (f *fakeAPI) tool() *tool {
	return &tool{env: map[string]string{"TOCSIN_API_URL": f.url, "TOCSIN_API_KEY": "tk_x_y"}}
}

func (c *tool) run(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	clock := time.Date(2026, 7, 3, 9, 0, 0, 0, time.UTC)
	code := run(ctx, args, system{
		in: strings.NewReader(c.stdin), out: &out, err: &errs, getenv: func(name string) string { return c.env[name] },
		now: func() time.Time { return clock }, after: c.after,
	})
	return result{code, out.String(), errs.String()}
}

// expect fails unless the command's whole output is as given.
func expect(t *testing.T, got, want result) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want.out), strings.TrimSpace(got.out)); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(strings.TrimSpace(want.err), strings.TrimSpace(got.err)); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
	if got.code != want.code {
		t.Errorf("exit code %d, want %d", got.code, want.code)
	}
}

const (
	subscriptionJSON = `{"id":"sub_1","appId":"io.x","triggerKey":"push","connectionId":null,"workflowId":"wf","params":{"secret":"[redacted]"},` +
		`"state":null,"enabled":true,"delivery":"active","createdAt":"2026-07-03T09:00:00.123Z","updatedAt":"2026-07-03T09:00:00.123Z","callbackUrl":"http://h/triggers/webhooks/sub_1"}`
	eventJSON = `{"id":"evt_1","subscriptionId":"sub_1","status":"failed","attempts":5,"receivedAt":"2026-07-03T09:00:00.000Z","dispatchedAt":null,"runId":null`
)

func TestTablesAndDocuments(t *testing.T) {
	t.Parallel()

	api := newAPI(t, map[string]string{
		"GET /apps":                   `{"apps":[{"id":"io.x","title":"X","version":"1","state":"active","triggerCount":2},{"id":"io.y","version":"","state":"disabled","triggerCount":0,"loadError":"bad"}]}`,
		"GET /apps/io.x":              `{"app":{"id":"io.x","title":"X","version":"1","state":"active"},"triggers":[{"key":"push","title":"Push","type":"webhook","requiresAuth":true}]}`,
		"GET /subscriptions?limit=50": `{"subscriptions":[` + subscriptionJSON + `],"nextCursor":"abc"}`,
		"GET /workflows/w%2Ff/subscriptions?cursor=abc&limit=50": `{"subscriptions":[]}`,
		"GET /subscriptions/sub_1":                               `{"subscription":` + subscriptionJSON + `}`,
		"PATCH /subscriptions/sub_1":                             `{"subscription":` + strings.Replace(subscriptionJSON, `"active"`, `"paused"`, 1) + `}`,
		"DELETE /subscriptions/sub_1":                            `{"ok":true}`,
		"GET /subscriptions/sub_1/events?limit=2&status=failed":  `{"events":[` + eventJSON + `,"reason":"parser_failed"}]}`,
		"GET /trigger-events/evt_1": `{"event":` + eventJSON + `,"workflowId":"wf","error":{"code":"hook_threw","message":"no\u001b[31m"},"errorStack":"at a.ts:1\nat b.ts:2"},` +
			`"call":{"method":"POST","path":"/p","rawQuery":"q=1","headers":{"b":"2","a":"1"},"body":"text\tof\nit"},"payload":{"n":12345678901234567890},"attempts":[{"attempt":1,"outcome":"retrying","runId":null,"error":{"code":"x","message":"y"},"endedAt":"2026-07-03T09:00:01.000Z","durationMs":7}],"explain":"It failed."}`,
		"GET /trigger-events/evt_1/raw": "\x00raw",
		"GET /subscriptions/sub_2": `{"subscription":{"id":"sub_2","appId":"io.y","triggerKey":"item","workflowId":"wf","enabled":true,"delivery":"active",` +
			`"poll":{"intervalMs":90000,"nextAt":"2026-07-03T09:02:00.000Z","lastAt":"2026-07-03T09:00:00.000Z","failures":2,"running":false,"error":{"code":"hook_threw","message":"away"}}}}`,
		"POST /trigger-events/evt_1/requeue":  `{"ok":true}`,
		"POST /trigger-events/requeue":        `{"operation":{"id":"op_1","state":"running","total":130,"requeued":0,"createdAt":"2026-07-03T09:00:00.000Z","endedAt":null}}`,
		"GET /operations/op_1":                `{"operation":{"id":"op_1","state":"done","total":130,"requeued":130,"createdAt":"2026-07-03T09:00:00.000Z","endedAt":"2026-07-03T09:00:01.000Z"}}`,
		"DELETE /operations/op_1":             `{"operation":{"id":"op_1","state":"cancelled","total":130,"requeued":50,"createdAt":"2026-07-03T09:00:00.000Z","endedAt":"2026-07-03T09:00:01.000Z"}}`,
		"POST /trigger-events/evt_1/reingest": `{"eventIds":["evt_2","evt_3"],"status":"received"}`,
		"PATCH /apps/io.x":                    `{"app":{"id":"io.x","version":"1","title":"X","state":"disabled","triggerCount":2}}`,
		"POST /apps/reload":                   `{"apps":[{"id":"io.x","version":"2","title":"X","state":"active","triggerCount":2}]}`,
		"GET /workflows/wf/runs?limit=50":     `{"runs":[{"runId":"run_1","status":"succeeded","trigger":"webhook","startedAt":"2026-07-03T09:00:00.000Z","finishedAt":null}]}`,
		"GET /runs/run_1":                     `{"run":{"runId":"run_1","workflowId":"wf","status":"succeeded","trigger":"webhook","eventId":"evt_1"}}`,
	})
	for _, test := range []struct {
		args string
		want result
	}{
		{"apps list", result{out: "APP   VERSION  STATE             TRIGGERS  TITLE\nio.x  1        active            2         X\nio.y  -        disabled, broken  0"}},
		{"apps show io.x", result{out: "app      io.x\ntitle    X\nversion  1\nstate    active\n\nTRIGGER  TYPE     AUTH  TITLE\npush     webhook  yes   Push"}},
		{"subscriptions list", result{
			out: "SUBSCRIPTION  APP   TRIGGER  WORKFLOW  STATE   CREATED\nsub_1         io.x  push     wf        active  2026-07-03 09:00:00Z",
			err: "There is more: --cursor abc",
		}},
		{"subscriptions list --workflow w/f --cursor abc", result{out: "SUBSCRIPTION  APP  TRIGGER  WORKFLOW  STATE  CREATED"}},
		{"subscriptions show sub_1", result{out: "subscription  sub_1\napp           io.x\ntrigger       push\nworkflow      wf\nstate         active\n" +
			"callback      http://h/triggers/webhooks/sub_1\ncreated       2026-07-03 09:00:00Z\n\nparams\n  {\n    \"secret\": \"[redacted]\"\n  }"}},
		{"subscriptions show sub_2", result{out: "subscription       sub_2\napp                io.y\ntrigger            item\nworkflow           wf\nstate              active\n" +
			"polls every        1m30s\nlast check         2026-07-03 09:00:00Z\nnext check         2026-07-03 09:02:00Z\nfailures in a row  2\nlast failure       hook_threw: away"}},
		{"subscriptions delete sub_1", result{out: "deleted  sub_1"}},
		{"events list --subscription sub_1 --status failed --limit 2", result{out: "EVENT  RECEIVED              STATUS  ATTEMPTS  RUN  REASON\nevt_1  2026-07-03 09:00:00Z  failed  5         -    parser_failed"}},
		{"events show evt_1", result{out: "event         evt_1\nsubscription  sub_1\nworkflow      wf\nstatus        failed\nreceived      2026-07-03 09:00:00Z\n" +
			"error         hook_threw: no·[31m\nwhy           It failed.\n\nstack\n  at a.ts:1\n  at b.ts:2\n\n" +
			"ATTEMPT  OUTCOME   ENDED                 TOOK  RUN OR ERROR\n1        retrying  2026-07-03 09:00:01Z  7 ms  x: y\n\n" +
			"call\n  POST /p?q=1\n  a: 1\n  b: 2\n\n  text·of\n  it\n\npayload\n  {\n    \"n\": 12345678901234567890\n  }"}},
		{"events show evt_1 --raw", result{out: "\x00raw"}},
		{"requeue evt_1", result{out: "requeued  evt_1"}},
		{"requeue evt_1 --json", result{out: "{\n  \"ok\": true\n}"}},
		{"requeue --subscription sub_1 --error plan_error", result{out: "operation  op_1\nstate      running\nrequeued   0 of 130"}},
		{"operations show op_1", result{out: "operation  op_1\nstate      done\nrequeued   130 of 130\nended      2026-07-03 09:00:01Z"}},
		{"operations cancel op_1", result{out: "operation  op_1\nstate      cancelled\nrequeued   50 of 130\nended      2026-07-03 09:00:01Z"}},
		{"reingest evt_1", result{out: "status  received\nevents  evt_2 evt_3"}},
		{"apps disable io.x", result{out: "APP   VERSION  STATE     TRIGGERS  TITLE\nio.x  1        disabled  2         X"}},
		{"apps reload", result{out: "APP   VERSION  STATE   TRIGGERS  TITLE\nio.x  2        active  2         X"}},
		{"runs list --workflow wf", result{out: "RUN    STATUS     TRIGGER  STARTED               FINISHED\nrun_1  succeeded  webhook  2026-07-03 09:00:00Z  -"}},
		{"subscriptions list --json --workflow w/f --cursor abc", result{out: "{\n  \"subscriptions\": []\n}"}},
		{"runs show run_1 --json", result{out: "{\n  \"run\": {\n    \"runId\": \"run_1\",\n    \"workflowId\": \"wf\",\n    \"status\": \"succeeded\",\n    \"trigger\": \"webhook\",\n    \"eventId\": \"evt_1\"\n  }\n}"}},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			expect(t, api.tool().run(t.Context(), strings.Fields(test.args)...), test.want)
		})
	}
	t.Run("pause", func(t *testing.T) {
		t.Parallel()
		got := api.tool().run(t.Context(), "subscriptions", "pause", "sub_1")
		if got.code != 0 || !strings.Contains(got.out, "state         paused") {
			t.Errorf("%+v", got)
		}
	})
}

func TestExitCodesAndHints(t *testing.T) {
	t.Parallel()

	const usage = "\ntocsin --help, or --help behind any command, says how it is used."
	for _, test := range []struct {
		args   string
		status int
		env    map[string]string
		want   result
	}{
		{args: "subscriptions show x", want: result{code: 3, err: "tocsin: unknown: there is none"}},
		{args: "apps list", status: 401, want: result{code: 4, err: "tocsin: some_code: what is wrong\n  a.b: is bad\n  c: is too\nSet TOCSIN_API_KEY, or make a key: DATABASE_URL=… tocsin keys create --tenant T --scopes admin"}},
		{args: "apps list", status: 403, want: result{code: 4, err: "tocsin: some_code: what is wrong\n  a.b: is bad\n  c: is too\nThe key lacks a scope; tocsin keys create --scopes makes one that has it."}},
		{args: "apps list", status: 503, want: result{code: 5, err: "tocsin: some_code: what is wrong\n  a.b: is bad\n  c: is too\nTry again in a moment."}},
		{args: "apps list", status: 409, want: result{code: 1, err: "tocsin: some_code: what is wrong\n  a.b: is bad\n  c: is too"}},
		{args: "apps lisst", want: result{code: 2, err: `tocsin: tocsin apps has no command "lisst"; did you mean list?` + usage}},
		{args: "apps list --nope", want: result{code: 2, err: "tocsin: unknown flag: --nope" + usage}},
		{args: "apps show", want: result{code: 2, err: "tocsin: accepts 1 arg(s), received 0" + usage}},
		{args: "events list", want: result{code: 2, err: "tocsin: the subscription is missing" + usage}},
		{args: "events list s --status done", want: result{code: 2, err: "tocsin: --status done: want one of [received dispatching dispatched failed ignored]" + usage}},
		{args: "runs list", want: result{code: 2, err: "tocsin: --workflow is missing" + usage}},
		{args: "migrate", want: result{code: 2, err: "tocsin: DATABASE_URL is not set; this command works on the database itself" + usage}},
		{args: "apps list", env: map[string]string{"TOCSIN_API_URL": "localhost:1"}, want: result{code: 2, err: `tocsin: TOCSIN_API_URL: the scheme "localhost" is not known; expected a URL that starts with http: or https:` + usage}},
		{args: "send sub_1 --sign stripe", want: result{code: 2, err: `tocsin: --sign "stripe" is not known; want github` + usage}},
		{args: "apps check /nowhere", want: result{code: 2, err: "tocsin: /nowhere is no directory" + usage}},
	} {
		t.Run(fmt.Sprintf("%s %d", test.args, test.status), func(t *testing.T) {
			t.Parallel()
			api := newAPI(t, nil)
			api.status = test.status
			tool := api.tool()
			maps.Copy(tool.env, test.env)
			expect(t, tool.run(t.Context(), strings.Fields(test.args)...), test.want)
		})
	}
}

func TestAnAPIThatIsNotThere(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	got := (&tool{env: map[string]string{"TOCSIN_API_URL": server.URL}}).run(t.Context(), "events", "show", "evt_1")
	if got.code != exitUnavailable || !strings.HasSuffix(got.err, "Is ingest running? Set TOCSIN_API_URL to where its API_ADDR is.\n") {
		t.Errorf("%+v", got)
	}
}

func TestHelpNamesEnvironmentAndExitCodes(t *testing.T) {
	t.Parallel()

	got := (&tool{}).run(t.Context(), "--help")
	for _, want := range []string{"TOCSIN_API_URL", "http://localhost:8081", "TOCSIN_API_KEY", "DATABASE_URL", "  5    the API or the database does not answer", "subscriptions"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("--help lacks %q:\n%s", want, got.out)
		}
	}
	if got := (&tool{}).run(t.Context(), "completion", "bash"); got.code != 0 || !strings.Contains(got.out, "__start_tocsin") {
		t.Errorf("completion: %d", got.code)
	}
}

func TestParamsTakeTheirDeclaredType(t *testing.T) {
	t.Parallel()

	declared := `{"triggers":[{"key":"push","params":[{"key":"n","type":"number"},{"key":"on","type":"boolean"},{"key":"s","type":"string"},
		{"type":"section","children":[{"key":"tags","type":"string","repeat":true}]},{"key":"ids","type":"array","item":{"type":"number"}},
		{"key":"kinds","type":"multiselect"},{"key":"g","type":"group"}]}]}`
	file := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := newAPI(t, map[string]string{
		"GET /apps/io.x/triggers": declared, "POST /apps/io.x/triggers/push/subscriptions": `{"subscription":` + subscriptionJSON + `}`,
	})
	for _, test := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{args: nil, want: `{"workflowId":"wf"}`},
		{args: []string{"--param", "n=5", "--param", "on=true", "--param", "s=5", "--param", "unknown=true"}, want: `{"workflowId":"wf","params":{"n":5,"on":true,"s":"5","unknown":"true"}}`},
		{args: []string{"--param", "n=five"}, want: `{"workflowId":"wf","params":{"n":"five"}}`}, // the server says what is wrong
		{args: []string{"--param", "tags=a", "--param", "tags=b", "--param", "ids=1", "--param", "ids=2", "--param", "kinds=x"}, want: `{"workflowId":"wf","params":{"ids":[1,2],"kinds":["x"],"tags":["a","b"]}}`},
		{args: []string{"--param", `g:={"a":1}`, "--param", "s=a=b"}, want: `{"workflowId":"wf","params":{"g":{"a":1},"s":"a=b"}}`},
		{args: []string{"--params", "-", "--param", "n=2"}, stdin: `{"n":1,"s":"x"}`, want: `{"workflowId":"wf","params":{"n":2,"s":"x"}}`},
		{args: []string{"--param-file", "s=" + file, "--connection", "conn_1"}, want: `{"workflowId":"wf","connectionId":"conn_1","params":{"s":"hush"}}`},
	} {
		tool := api.tool()
		tool.stdin = test.stdin
		got := tool.run(t.Context(), append([]string{"subscriptions", "create", "io.x", "push", "--workflow", "wf"}, test.args...)...)
		asked := api.took()
		if got.code != 0 || len(asked) == 0 {
			t.Errorf("%q: %+v", test.args, got)
			continue
		}
		if diff := cmp.Diff("POST /apps/io.x/triggers/push/subscriptions "+test.want, asked[len(asked)-1]); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.args, diff)
		}
	}
	for _, args := range [][]string{{"--param", "x"}, {"--param", "a:={"}, {"--params", "[]"}, {"--param-file", "s=/nowhere"}, {"--trigger", "t"}, {"extra"}} {
		if got := api.tool().run(t.Context(), append([]string{"subscriptions", "create", "io.x", "push", "--workflow", "wf"}, args...)...); got.code != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestTailPrintsWhatIsNewAndWhatChanged(t *testing.T) {
	t.Parallel()

	event := func(id, status string) string {
		return fmt.Sprintf(`{"id":%q,"status":%q,"attempts":0,"receivedAt":"2026-07-03T09:00:00.000Z"}`, id, status)
	}
	looks := []string{
		event("evt_2", "received") + "," + event("evt_1", "dispatched"),
		event("evt_3", "received") + "," + event("evt_2", "dispatched") + "," + event("evt_1", "dispatched"),
		event("evt_3", "received") + "," + event("evt_2", "dispatched") + "," + event("evt_1", "dispatched"),
	}
	path := "GET /subscriptions/sub_1/events?limit=200"
	api := newAPI(t, map[string]string{path: `{"events":[` + looks[0] + `]}`})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tool, tick, look := api.tool(), make(chan time.Time, 1), 0
	tool.after = func(time.Duration) <-chan time.Time {
		if look++; look == len(looks) {
			cancel()
			return nil
		}
		api.mu.Lock()
		api.answers[path] = `{"events":[` + looks[look] + `]}`
		api.mu.Unlock()
		tick <- time.Time{}
		return tick
	}
	expect(t, tool.run(ctx, "events", "tail", "sub_1"), result{out: `2026-07-03 09:00:00Z  evt_1  dispatched   0  -
2026-07-03 09:00:00Z  evt_2  received     0  -
2026-07-03 09:00:00Z  evt_2  dispatched   0  -
2026-07-03 09:00:00Z  evt_3  received     0  -`})
}

func TestSend(t *testing.T) {
	t.Parallel()

	var mu sync.Mutex
	var got []http.Header
	var bodies []string
	status := http.StatusOK
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		got, bodies = append(got, r.Header), append(bodies, r.Method+" "+r.URL.Path+" "+string(body))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"eventIds":["evt_1"]}`))
	}))
	t.Cleanup(vendor.Close)
	api := newAPI(t, map[string]string{
		"GET /subscriptions/sub_1": `{"subscription":{"id":"sub_1","callbackUrl":"` + vendor.URL + `/triggers/webhooks/sub_1"}}`,
		"GET /subscriptions/sub_2": `{"subscription":{"id":"sub_2"}}`,
	})
	tool := api.tool()
	tool.stdin = `{"a":1}`
	result := tool.run(t.Context(), "send", "sub_1", "--body", "-", "--sign", "github", "--secret", "It's a Secret", "--event", "issues", "--count", "2", "--header", "X-One: 1", "--json")
	var document struct{ Calls []sent }
	if err := json.Unmarshal([]byte(result.out), &document); err != nil || result.code != 0 || len(document.Calls) != 2 {
		t.Fatalf("%+v: %v", result, err)
	}
	if diff := cmp.Diff([]string{"evt_1"}, document.Calls[0].EventIDs); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if want := `POST /triggers/webhooks/sub_1 {"a":1}`; bodies[0] != want || bodies[1] != want {
		t.Errorf("calls %q", bodies)
	}
	want := map[string]string{
		"X-Hub-Signature-256": opensslSignature,
		"X-Github-Event":      "issues", "X-One": "1", "Content-Type": "application/json",
	}
	for name, value := range want {
		if got[0].Get(name) != value {
			t.Errorf("%s: %q, want %q", name, got[0].Get(name), value)
		}
	}
	if got[0].Get("X-GitHub-Delivery") == got[1].Get("X-GitHub-Delivery") {
		t.Error("two deliveries have one id")
	}

	status = http.StatusServiceUnavailable
	if result := tool.run(t.Context(), "send", vendor.URL+"/x"); result.code != exitUnavailable || !strings.Contains(result.out, "503 Service Unavailable") {
		t.Errorf("a refused call: %+v", result)
	}
	if result := tool.run(t.Context(), "send", "sub_2"); result.code != exitFailure || !strings.Contains(result.err, "it has no callback URL") {
		t.Errorf("a poll subscription: %+v", result)
	}
}

// opensslSignature is what openssl makes of {"a":1} under "It's a Secret".
const opensslSignature = "sha256=4421084d4ddd44ecda74169eb0ef2c261e99950cff108a2cd12088d09298be9c"

func TestAppsCheckOnTheExamples(t *testing.T) {
	t.Parallel()

	dir := filepath.Join("..", "..", "examples", "apps", "github")
	got := (&tool{}).run(t.Context(), "apps", "check", dir)
	if got.code != 0 || !strings.Contains(got.out, "delivery  webhook  no    handleIngest") || !strings.Contains(got.out, "nothing is wrong") {
		t.Errorf("%+v", got)
	}

	signed := &tool{stdin: `{"headers":{"content-type":"application/json","x-hub-signature-256":"` + opensslSignature + `"},"rawBody":"{\"a\":1}","body":{"a":1}}`}
	got = signed.run(t.Context(), "apps", "check", dir, "--hook", "delivery/handleIngest", "--call", "-", "--params", `{"secret":"It's a Secret"}`, "--json")
	var document checkJSON
	if err := json.Unmarshal([]byte(got.out), &document); err != nil || got.code != 0 || document.Run == nil {
		t.Fatalf("%+v: %v", got, err)
	}
	var output bytes.Buffer
	_ = json.Compact(&output, document.Run.Output)
	if output.String() != `[{"a":1}]` {
		t.Errorf("output %s", document.Run.Output)
	}

	signed.stdin = strings.Replace(signed.stdin, `{\"a\":1}`, `{\"a\":2}`, 1)
	got = signed.run(t.Context(), "apps", "check", dir, "--hook", "delivery/handleIngest", "--call", "-", "--params", `{"secret":"It's a Secret"}`)
	if got.code != exitFailure || !strings.Contains(got.out, "hook_threw") || !strings.Contains(got.out, "lib/signature.ts:") || got.err != "" {
		t.Errorf("a wrong signature: %+v", got)
	}

	for _, args := range [][]string{{"--hook", "delivery/poll"}, {"--call", "-"}, {"--hook", "delivery/handleIngest", "--params", `{"secret":"short"}`}} {
		if got := signed.run(t.Context(), append([]string{"apps", "check", dir}, args...)...); got.code != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestAppsCheckNamesFileAndLine(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	for name, content := range map[string]string{
		"package.json": `{"name":"x","version":"1","license":"MIT","author":"A","w6w":{"id":"a.b","displayName":"X","categories":["x"],"appearance":{}}}`,
		"index.ts":     "import { a } from './a.ts';\nexport default { triggers: [a] };",
		"a.ts":         "export const a = {\n  key: ,\n};",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := (&tool{}).run(t.Context(), "apps", "check", dir)
	if got.code != exitFailure || !strings.Contains(got.out, `a.ts:2:8: Unexpected ","`) || !strings.Contains(got.out, "The app does not load.") {
		t.Errorf("%+v", got)
	}
}

func TestKeysAndMigrations(t *testing.T) {
	t.Parallel()

	tool := &tool{env: map[string]string{"DATABASE_URL": storetest.NewURL(t)}}
	if got := tool.run(t.Context(), "migrate"); got.code != 0 || !strings.HasPrefix(got.out, "The schema is at version ") {
		t.Errorf("migrate: %+v", got)
	}
	if got := tool.run(t.Context(), "migrate", "status", "--json"); got.code != 0 || !strings.Contains(got.out, `"dirty": false`) {
		t.Errorf("migrate status: %+v", got)
	}

	got := tool.run(t.Context(), "keys", "create", "--tenant", "acme", "--scopes", "events:read,subscriptions:write", "--name", "ci", "--expires", "24h", "--json")
	var made keyJSON
	if err := json.Unmarshal([]byte(got.out), &made); err != nil || got.code != 0 || !strings.HasPrefix(made.Key, "tk_"+made.ID+"_") {
		t.Fatalf("create: %+v: %v", got, err)
	}
	if got := tool.run(t.Context(), "keys", "revoke", made.Key); got.code != 0 {
		t.Errorf("revoke: %+v", got)
	}
	if got := tool.run(t.Context(), "keys", "revoke", "nobody"); got.code != exitNotFound {
		t.Errorf("revoke nobody's: %+v", got)
	}
	got = tool.run(t.Context(), "keys", "list", "--tenant", "acme")
	if lines := strings.Split(strings.TrimSpace(got.out), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "events:read, subscriptions:write") || strings.Contains(got.out, made.Key) {
		t.Errorf("list: %+v", got)
	}
	for _, args := range [][]string{{"--scopes", "events:read"}, {"--tenant", "a"}, {"--tenant", "a", "--scopes", "all"}} {
		if got := tool.run(t.Context(), append([]string{"keys", "create"}, args...)...); got.code != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestADatabaseThatIsNotThereIsUnavailableAndItsPasswordUnsaid(t *testing.T) {
	t.Parallel()

	tool := &tool{env: map[string]string{"DATABASE_URL": "postgres://u:hush@127.0.0.1:1/x"}}
	for _, args := range [][]string{{"migrate"}, {"keys", "list"}} {
		got := tool.run(t.Context(), args...)
		if got.code != exitUnavailable || strings.Contains(got.out+got.err, "hush") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestCtrlCEndsACommandCleanly(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancelCause(t.Context())
	api := newAPI(t, nil)
	cancel(errors.New("interrupt"))
	if got := api.tool().run(ctx, "apps", "list"); got.code != exitInterrupted || got.err != "" {
		t.Errorf("%+v", got)
	}
	if slices.Contains(api.took(), "GET /apps") {
		t.Error("the API was asked all the same")
	}
}
