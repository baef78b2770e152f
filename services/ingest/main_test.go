package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/config"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// logTap keeps what is logged and hands on where the listeners are.
type logTap struct {
	mu    sync.Mutex
	text  bytes.Buffer
	addrs chan [2]string // listener, address
}

func (l *logTap) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct{ Msg, Listener, Addr string }
	if json.Unmarshal(p, &line) == nil && line.Msg == "http.listening" {
		l.addrs <- [2]string{line.Listener, line.Addr}
	}
	return l.text.Write(p)
}

func (l *logTap) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ingest is the service, running on a database of its own.
type ingest struct {
	t           testing.TB
	public, api string
	log         *logTap
	stop        func() error
}

func startIngest(tb testing.TB) *ingest {
	tb.Helper()
	env := map[string]string{
		"DATABASE_URL": storetest.NewURL(tb), "TOCSIN_DEV": "1", "BOOTSTRAP_API_KEY": "local", "APPS_DIR": filepath.FromSlash("../../examples/apps"),
		"INGEST_ADDR": "127.0.0.1:0", "API_ADDR": "127.0.0.1:0", "HOST_URL": "https://hooks.example", "SHUTDOWN_GRACE": "5s", "MAX_BODY_BYTES": "65536",
	}
	cfg, err := config.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	s := &ingest{t: tb, log: &logTap{addrs: make(chan [2]string, 2)}}
	log, err := obs.NewLogger(s.log, obs.LogConfig{Level: "debug", Format: "json", Service: service, Instance: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cfg, log) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	tb.Cleanup(func() {
		if err := s.stop(); err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	addrs := map[string]string{}
	for len(addrs) < 2 {
		select {
		case pair := <-s.log.addrs:
			addrs[pair[0]] = "http://" + pair[1]
		case err := <-ended:
			ended <- err
			tb.Fatalf("ended at start: %v\n%s", err, s.log)
		}
	}
	s.public, s.api = addrs["ingest"], addrs["management"]
	return s
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func (s *ingest) send(method, url, contentType string, body []byte) reply {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if strings.HasPrefix(url, s.api) {
		request.Header.Set("Authorization", "Bearer local")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, text}
}

// decode asks the API and decodes its answer.
func (s *ingest) decode(method, path, body string, want int, into any) {
	s.t.Helper()
	got := s.send(method, s.api+path, "application/json", []byte(body))
	if got.status != want {
		s.t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, got.body)
	}
}

// subscribe gives the id of a new subscription.
func (s *ingest) subscribe(app, trigger, params string) string {
	s.t.Helper()
	var created struct {
		Subscription struct{ ID, CallbackURL string }
	}
	s.decode("POST", "/apps/"+app+"/triggers/"+trigger+"/subscriptions", `{"workflowId":"wf_1","params":`+params+`}`, 201, &created)
	if want := "https://hooks.example/triggers/webhooks/" + created.Subscription.ID; created.Subscription.CallbackURL != want {
		s.t.Errorf("callbackUrl %s, want %s", created.Subscription.CallbackURL, want)
	}
	return created.Subscription.ID
}

// call sends a call and gives the id of its one event.
func (s *ingest) call(id, contentType string, body []byte) string {
	s.t.Helper()
	got := s.send("POST", s.public+"/triggers/webhooks/"+id, contentType, body)
	var answer struct{ EventIDs []string }
	if err := json.Unmarshal(got.body, &answer); err != nil || got.status != 200 || len(answer.EventIDs) != 1 {
		s.t.Fatalf("call: %d %s", got.status, got.body)
	}
	return answer.EventIDs[0]
}

// payload is an event's payload as the API's answer spells it.
func (s *ingest) payload(event string) string {
	s.t.Helper()
	var detail struct{ Payload json.RawMessage }
	s.decode("GET", "/trigger-events/"+event, "", 200, &detail)
	return string(detail.Payload)
}

const receiver = "io.tocsin.example.receiver"

// C01, C02, C03, C06, C07 with the app that has no hooks.
func TestBodiesReachTheLedgerAsSent(t *testing.T) {
	t.Parallel()

	s := startIngest(t)
	id := s.subscribe(receiver, "call", "{}")
	for name, c := range map[string]struct{ contentType, body, payload string }{
		"C01":             {"application/json", `{"diff":"a\u0000b"}`, ""},
		"C02":             {"text/plain; charset=iso-8859-1", "\x48\xeb\x6c\x6c\x6f", `"Hëllo"`},
		"C02 octets":      {"application/octet-stream", "\x48\xeb\x00", "\"H\uFFFD\\u0000\""},
		"C02 nonsense":    {"text/plain; charset=nonsense-1", "\xeb", "\"\uFFFD\""},
		"C03":             {"application/json", "{\"zebra\":1,\"alpha\":2.0, \"mango\":1e3,\"u\":\"\\u00e9\"}\n", ""},
		"C06 empty":       {"application/json", "", "null"},
		"C06 blank":       {"application/json", " ", `" "`},
		"C06 null":        {"application/json", "null", ""},
		"C06 zero":        {"application/json", "0", ""},
		"C06 false":       {"application/json", "false", ""},
		"C06 text":        {"application/json", `""`, ""},
		"C06 list":        {"application/json", `[{"n":1},{"n":2}]`, ""},
		"C06 untyped":     {"", "", "null"},
		"C06 broken":      {"application/json", `{"a":`, `"{\"a\":"`},
		"lone surrogate":  {"application/json", `{"a":"\ud800"}`, ""},
		"C04 form":        {"application/x-www-form-urlencoded", "payload=%7B%7D&a=1&a=2", `{"payload":["{}"],"a":["1","2"]}`},
		"C07 no boundary": {"multipart/form-data; boundary=X", "--Y", `"--Y"`},
		"NUL bytes":       {"application/json", "\x00", `"\u0000"`},
	} {
		event := s.call(id, c.contentType, []byte(c.body))
		want := c.payload
		if want == "" {
			want = strings.TrimSpace(c.body)
		}
		if got := s.payload(event); got != want {
			t.Errorf("%s: payload %s, want %s", name, got, want)
		}
		raw := s.send("GET", s.api+"/trigger-events/"+event+"/raw", "", nil)
		if raw.status != 200 || string(raw.body) != c.body {
			t.Errorf("%s: raw %d %q", name, raw.status, raw.body)
		}
	}
}

func TestASubscriptionsLife(t *testing.T) {
	t.Parallel()

	s := startIngest(t)
	id := s.subscribe(receiver, "call", "{}")
	url := s.public + "/triggers/webhooks/" + id
	event := s.call(id, "application/json", []byte(`{"a":1}`))

	var history struct {
		Events []struct {
			ID, Status string
			Attempts   int
		}
	}
	s.decode("GET", "/subscriptions/"+id+"/events", "", 200, &history)
	if len(history.Events) != 1 || history.Events[0].ID != event || history.Events[0].Status != "received" {
		t.Errorf("history: %+v", history)
	}
	if got := s.send("POST", s.api+"/trigger-events/"+event+"/requeue", "", nil); got.status != 409 {
		t.Errorf("requeue of a received event: %d %s", got.status, got.body)
	}
	if got := s.send("POST", s.api+"/trigger-events/evt_x/requeue", "", nil); got.status != 404 {
		t.Errorf("requeue of no event: %d %s", got.status, got.body)
	}

	var paused struct{ Subscription struct{ Enabled bool } }
	s.decode("PATCH", "/subscriptions/"+id, `{"enabled":false}`, 200, &paused)
	if paused.Subscription.Enabled {
		t.Error("still enabled")
	}
	var detail struct{ Explain string }
	s.decode("GET", "/trigger-events/"+s.call(id, "application/json", []byte("2")), "", 200, &detail)
	if !strings.Contains(detail.Explain, "paused") {
		t.Errorf("explain: %s", detail.Explain)
	}

	var tested struct{ EventIDs []string }
	s.decode("POST", "/subscriptions/"+id+"/test", "", 200, &tested)
	if len(tested.EventIDs) != 1 || s.payload(tested.EventIDs[0]) != `{"hello":"world"}` {
		t.Errorf("test call: %+v", tested)
	}

	if got := s.send("POST", url, "application/json", bytes.Repeat([]byte(" "), 65537)); got.status != 413 {
		t.Errorf("one byte over the limit: %d", got.status)
	}
	if got := s.send("DELETE", s.api+"/subscriptions/"+id, "", nil); got.status != 200 {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	if got := s.send("POST", url, "", nil); got.status != 404 {
		t.Errorf("call after it: %d %s", got.status, got.body)
	}
	if text := s.log.String(); strings.Contains(text, id) {
		t.Errorf("the log holds the subscription's id:\n%s", text)
	}
}

func TestCredentialsOfACallAreMaskedAndSeenByTheHook(t *testing.T) {
	t.Parallel()

	s := startIngest(t)
	id := s.subscribe("io.tocsin.example.github", "delivery", `{"secret":"It's a Secret to Everybody"}`)
	call := func(signature, contentType, body string) reply {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.public+"/triggers/webhooks/"+id+"?token=CANARY", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Hub-Signature-256", signature)
		request.Header.Set("Content-Type", contentType)
		request.Header.Set("Authorization", "CANARY")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return reply{response.StatusCode, response.Header, text}
	}
	// GitHub's own example. The body is no JSON, so the hook throws after it has
	// checked the signature, or because of it.
	call("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "text/plain", "Hello, World!")
	call("sha256=0000000000000000000000000000000000000000000000000000000000000000", "text/plain", "Hello, World!")
	// C04: the signature covers the form, not the JSON in it.
	form := call("sha256=fddacfb7d7106fd32f5d94dc8846df6694e2ed5e2aed3806b11ab82cccff8d01", "application/x-www-form-urlencoded",
		"payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%2C%22hook_id%22%3A1%7D")
	var accepted struct{ EventIDs []string }
	if err := json.Unmarshal(form.body, &accepted); err != nil || len(accepted.EventIDs) != 1 {
		t.Fatalf("C04: %d %s", form.status, form.body)
	}
	if got := s.payload(accepted.EventIDs[0]); got != `{"zen":"Keep it logically awesome.","hook_id":1}` {
		t.Errorf("C04: payload %s", got)
	}
	var history struct {
		Events []struct{ ID, Status, Reason string }
	}
	s.decode("GET", "/subscriptions/"+id+"/events", "", 200, &history)
	if len(history.Events) != 3 {
		t.Fatalf("history: %+v", history)
	}
	for i, mentions := range []string{"signature", "SyntaxError"} { // newest first
		row := history.Events[i+1]
		got := s.send("GET", s.api+"/trigger-events/"+row.ID, "", nil)
		if row.Status != "failed" || row.Reason != "parser_failed" || bytes.Contains(got.body, []byte("CANARY")) || !bytes.Contains(got.body, []byte(`"authorization":"[redacted]"`)) {
			t.Errorf("%+v %s", row, got.body)
		}
		if !bytes.Contains(got.body, []byte(mentions)) {
			t.Errorf("the error does not speak of %s: %s", mentions, got.body)
		}
	}
	if strings.Contains(s.log.String(), "CANARY") {
		t.Error("the log holds a credential")
	}
}

func TestStopping(t *testing.T) {
	t.Parallel()

	s := startIngest(t)
	if got := s.send("GET", s.api+"/readyz", "", nil); got.status != 200 {
		t.Errorf("readyz: %d %s", got.status, got.body)
	}
	metrics := s.send("GET", s.api+"/metrics", "", nil)
	for _, name := range []string{"tocsin_ingest_calls_total", "tocsin_hook_workers", "tocsin_build_info"} {
		if !bytes.Contains(metrics.body, []byte(name)) {
			t.Errorf("metrics lack %s", name)
		}
	}
	if got := s.send("GET", s.public+"/metrics", "", nil); got.status != 404 {
		t.Errorf("the public listener serves metrics: %d", got.status)
	}
	started := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("stopping an idle service took %s", took)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		code int
		out  string
		err  string
	}{
		"help":         {args: []string{"--help"}, out: "INGEST_ADDR"},
		"version":      {args: []string{"--version"}, out: "ingest "},
		"argument":     {args: []string{"serve"}, code: 2, err: `"serve" is not an argument`},
		"no database":  {code: 2, err: "DATABASE_URL: is not set"},
		"C29 bad DSN":  {env: map[string]string{"DATABASE_URL": "postgres://u:p4ss-CANARY-7731%21@h:bad/db"}, code: 2, err: "host=h:bad database=db user=u"},
		"C29 no host":  {env: map[string]string{"DATABASE_URL": "postgres://u:p4ss-CANARY-7731%21@nowhere.invalid/db", "TOCSIN_DEV": "1", "LOG_LEVEL": "debug"}, code: 1, out: "host=nowhere.invalid database=db user=u"},
		"wrong engine": {env: map[string]string{"DATABASE_URL": "postgres://h/db", "TOCSIN_DEV": "1", "ENGINE_URL": "carrier-pigeon:"}, code: 2, err: "ENGINE_URL"},
	} {
		var out, errs strings.Builder
		code := start(c.args, func(name string) string { return c.env[name] }, &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: %d\nout: %s\nerr: %s", name, code, out.String(), errs.String())
		}
		if text := fmt.Sprint(out.String(), errs.String()); strings.Contains(text, "CANARY") || strings.Contains(text, "p4ss") {
			t.Errorf("%s: the password is shown: %s", name, text)
		}
	}
}
