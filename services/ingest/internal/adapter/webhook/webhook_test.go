package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/adapter/webhook"
)

const known = "sub_0123456789abcdefghjkmnpqrstvwxyz"

// ingester stands for the TriggerManager: it knows one subscription.
type ingester struct {
	mu     sync.Mutex
	calls  []*trigger.Call
	answer func(context.Context, *trigger.Call) (trigger.IngestResult, error)
}

func (i *ingester) Ingest(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error) {
	if id != known {
		return trigger.IngestResult{}, fmt.Errorf("find subscription: %w", trigger.ErrUnknownSubscription)
	}
	i.mu.Lock()
	i.calls = append(i.calls, call)
	i.mu.Unlock()
	if i.answer != nil {
		return i.answer(ctx, call)
	}
	return trigger.IngestResult{EventIDs: []string{"evt_1"}, Status: trigger.StatusReceived}, nil
}

func (i *ingester) last(t *testing.T) *trigger.Call {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.calls) == 0 {
		t.Fatal("no call came through")
	}
	return i.calls[len(i.calls)-1]
}

func (i *ingester) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.calls)
}

type listener struct {
	*ingester
	addr    string
	metrics *prometheus.Registry
	log     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const limit = 1 << 20

// listen serves the adapter as main does.
func listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{ingester: &ingester{}, metrics: prometheus.NewRegistry(), log: &lockedBuffer{}}
	log, err := obs.NewLogger(l.log, obs.LogConfig{Level: "debug", Format: "json", Service: "ingest", Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	adapter := webhook.New(webhook.Config{Ingester: l.ingester, MaxBody: limit, Log: log, Metrics: l.metrics})
	server, err := obs.Listen(t.Context(), "ingest", "127.0.0.1:0", adapter.Handler(), obs.Limits{Body: time.Second}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	l.addr = server.Addr()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- obs.Serve(ctx, obs.Shutdown{Grace: 5 * time.Second}, server) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

type response struct {
	status int
	header http.Header
	body   string
}

// send writes the text as it is and reads one answer.
func (l *listener) send(t *testing.T, request string) response {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, request) }() // the answer may come before the end of a body
	method, _, _ := strings.Cut(request, " ")
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.60q: %v", request, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%.60q: %v", request, err)
	}
	return response{answer.StatusCode, answer.Header, string(body)}
}

func post(target, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s", target, len(body), header, body)
}

func TestTheWholeCallComesThroughAsSent(t *testing.T) {
	t.Parallel()

	l := listen(t)
	got := l.send(t, post("/triggers/webhooks/"+known+"?a=1&a=2&b=&c&x=%zz", "X-Item: one\r\nX-ITEM: two\r\nAuthorization: Bearer s\r\n"+
		"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n", "{\"z\":1, \"a\":\"\\u0000\"}\n"))
	if got.status != 200 || got.body != `{"eventIds":["evt_1"]}` || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("answer: %+v", got)
	}
	want := &trigger.Call{
		Source: trigger.SourceWebhook, Method: "POST", Path: "/triggers/webhooks/" + known, RawQuery: "a=1&a=2&b=&c&x=%zz",
		Header: []trigger.Field{
			{Name: "host", Value: "h"},
			{Name: "authorization", Value: "Bearer s"},
			{Name: "connection", Value: "close"},
			{Name: "content-length", Value: "22"},
			{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			{Name: "x-item", Value: "one"},
			{Name: "x-item", Value: "two"},
		},
		Body: []byte("{\"z\":1, \"a\":\"\\u0000\"}\n"), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	if diff := cmp.Diff(want, l.last(t)); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
}

// Amendment §Listener: "The HTTPS listener accepts any method".
func TestAnyMethodReachesTheListener(t *testing.T) {
	t.Parallel()

	l := listen(t)
	for _, method := range []string{"HEAD", "OPTIONS", "GET", "PUT", "PATCH", "DELETE", "REPORT", "PROPFIND", "TRACE", "LINK", "M-SEARCH"} {
		got := l.send(t, method+" /triggers/webhooks/"+known+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\nOrigin: https://x\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
		if got.status != 200 || l.last(t).Method != method {
			t.Errorf("%s: %d, method %s", method, got.status, l.last(t).Method)
		}
		if empty := got.body == ""; empty != (method == "HEAD") {
			t.Errorf("%s: body %q", method, got.body)
		}
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: the host answers CORS itself: %s", method, name)
			}
		}
	}
	bodies := map[string]bool{}
	for _, id := range []string{"sub_unknown", strings.Replace(known, "0", "1", 1), "x", "sub_" + strings.Repeat("0", 500)} {
		for _, method := range []string{"HEAD", "GET", "POST", "OPTIONS", "LINK"} {
			got := l.send(t, method+" /triggers/webhooks/"+id+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if got.status != 404 {
				t.Errorf("%s of an unknown id: %d", method, got.status)
			}
			if method != "HEAD" {
				bodies[got.body] = true
			}
		}
	}
	if len(bodies) != 1 {
		t.Errorf("unknown ids are answered differently: %v", bodies)
	}
}

// C13.
func TestURLForms(t *testing.T) {
	t.Parallel()

	l := listen(t)
	base := "/triggers/webhooks/"
	for target, path := range map[string]string{ // path "" means: not there
		base + known + "/":                           base + known + "/",
		base + "%73ub_" + known[4:]:                  base + "%73ub_" + known[4:],
		base + "sub%5F" + known[4:] + "?x=1":         base + "sub%5F" + known[4:],
		base + "sub%5f" + known[4:] + "/":            base + "sub%5f" + known[4:] + "/",
		"http://elsewhere" + base + known + "?a=%20": base + known,
		base + known + "//":                          "",
		base + "%2e%2e%2fadmin":                      "",
		base + "../admin":                            "",
		base + "a%2Fb":                               "",
		base + "%00":                                 "",
		base + known + "%00":                         "",
		base + known + "/x":                          "",
		base:                                         "",
		"/triggers/webhooks":                         "",
		"//triggers//webhooks//" + known:             "",
		"/triggers/./webhooks/" + known:              "",
		"/":                                          "",
		"/healthz":                                   "",
		"/metrics":                                   "",
		"/subscriptions":                             "",
		base + strings.Repeat("a", 4000):             "",
	} {
		before := l.count()
		got := l.send(t, post(target, "", "{}"))
		if path == "" {
			if got.status != 404 || l.count() != before {
				t.Errorf("%s: %d, want 404 and no call", target, got.status)
			}
			continue
		}
		if got.status != 200 || l.last(t).Path != path {
			t.Errorf("%s: %d, stored path %q, want %q", target, got.status, l.last(t).Path, path)
		}
	}
	if got := l.send(t, post(base+"%zz", "", "{}")); got.status != 400 && got.status != 404 {
		t.Errorf("bad escape: %d", got.status)
	}
	if got := l.send(t, "CONNECT h:1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); got.status != 404 {
		t.Errorf("CONNECT: %d", got.status)
	}
}

// C08: cut at the limit the body would still be valid JSON.
func TestOneByteOverTheLimitIsRefusedHoweverItIsFramed(t *testing.T) {
	t.Parallel()

	l := listen(t)
	target := "/triggers/webhooks/" + known
	exact := `{"a":1}` + strings.Repeat(" ", limit-7)
	chunked := func(body string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n", target)
		for len(body) > 0 {
			n := min(len(body), 50_000)
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return b.String() + "0\r\n\r\n"
	}
	for name, request := range map[string]string{"chunked": chunked(exact + " "), "with length": post(target, "", exact+" ")} {
		if got := l.send(t, request); got.status != 413 || !strings.Contains(got.body, "body_too_large") {
			t.Errorf("%s, one over: %d %s", name, got.status, got.body)
		}
		if l.count() != 0 {
			t.Fatalf("%s: a body over the limit came through", name)
		}
	}
	for name, request := range map[string]string{"chunked": chunked(exact), "with length": post(target, "", exact)} {
		if got := l.send(t, request); got.status != 200 || string(l.last(t).Body) != exact {
			t.Errorf("%s, exactly the limit: %d, %d bytes", name, got.status, len(l.last(t).Body))
		}
	}
}

func TestABodyThatEndsEarlyOrDoesNotComeIsNotACall(t *testing.T) {
	t.Parallel()

	l := listen(t)
	head := "POST /triggers/webhooks/" + known + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
	if got := l.send(t, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n"); got.status != 400 {
		t.Errorf("bad framing: %d", got.status)
	}
	if got := l.send(t, head+"Content-Length: 10\r\n\r\nabc"); got.status != 408 {
		t.Errorf("a body that stops: %d", got.status)
	}
	if l.count() != 0 {
		t.Error("a part of a body came through")
	}
}

func TestErrorsHaveTheirStatus(t *testing.T) {
	t.Parallel()

	l := listen(t)
	for name, c := range map[string]struct {
		err        error
		status     int
		retryAfter string
		outcome    string
	}{
		"back pressure":   {fmt.Errorf("x: %w", trigger.ErrBackPressure), 429, "1", "back_pressure"},
		"no database":     {fmt.Errorf("x: %w", trigger.ErrUnavailable), 503, "5", "unavailable"},
		"anything else":   {errors.New("postgres://u:CANARY@h"), 503, "5", "unavailable"},
		"gone meanwhile":  {trigger.ErrUnknownSubscription, 404, "", "unknown"},
		"too many chases": {trigger.ErrConflict, 503, "5", "unavailable"},
	} {
		l.mu.Lock()
		l.answer = func(context.Context, *trigger.Call) (trigger.IngestResult, error) {
			return trigger.IngestResult{}, c.err
		}
		l.mu.Unlock()
		got := l.send(t, post("/triggers/webhooks/"+known, "", "{}"))
		if got.status != c.status || got.header.Get("Retry-After") != c.retryAfter || strings.Contains(got.body, "CANARY") {
			t.Errorf("%s: %d, Retry-After %q, %s", name, got.status, got.header.Get("Retry-After"), got.body)
		}
	}
	want := `
# HELP tocsin_ingest_calls_total Calls to the public listener by what came of them.
# TYPE tocsin_ingest_calls_total counter
tocsin_ingest_calls_total{outcome="aborted"} 0
tocsin_ingest_calls_total{outcome="back_pressure"} 1
tocsin_ingest_calls_total{outcome="bad_request"} 0
tocsin_ingest_calls_total{outcome="failed"} 0
tocsin_ingest_calls_total{outcome="ignored"} 0
tocsin_ingest_calls_total{outcome="panic"} 0
tocsin_ingest_calls_total{outcome="received"} 0
tocsin_ingest_calls_total{outcome="too_large"} 0
tocsin_ingest_calls_total{outcome="unavailable"} 3
tocsin_ingest_calls_total{outcome="unknown"} 1
tocsin_ingest_calls_total{outcome="unwritten"} 0
`
	if err := testutil.GatherAndCompare(l.metrics, strings.NewReader(want), "tocsin_ingest_calls_total"); err != nil {
		t.Error(err)
	}
}

// Amendment: "an ingest-parser throw is no longer a 400. The call is recorded
// as one failed row in trigger_events and the listener answers 200."
func TestAParserThatThrowsIsAnswered200(t *testing.T) {
	t.Parallel()

	l := listen(t)
	l.answer = func(context.Context, *trigger.Call) (trigger.IngestResult, error) {
		return trigger.IngestResult{Status: trigger.StatusFailed, Reason: trigger.ReasonParserFailed, Err: &trigger.StepError{Code: "hook_threw", Message: "CANARY"}}, nil
	}
	if got := l.send(t, post("/triggers/webhooks/"+known, "", "{}")); got.status != 200 || got.body != `{"eventIds":[]}` {
		t.Errorf("%+v", got)
	}
	line := lineOf(t, l, "call.ingested")
	delete(line, "duration_ms")
	delete(line, "time")
	want := map[string]any{
		"level": "info", "msg": "call.ingested", "service": "ingest", "instance": "test", "subscription": "sub_012345…", "event_ids": []any{},
		"status": "failed", "reason": "parser_failed", "error.code": "hook_threw", "source": "webhook", "method": "POST", "bytes": 2.0, "http_status": 200.0,
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func lineOf(t *testing.T, l *listener, msg string) map[string]any {
	t.Helper()
	for text := range strings.Lines(l.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("not JSON: %s", text)
		}
		if line["msg"] == msg {
			return line
		}
	}
	t.Fatalf("no line %s in:\n%s", msg, l.log.String())
	return nil
}

func TestTheSubscriptionIDIsInNoLog(t *testing.T) {
	t.Parallel()

	l := listen(t)
	l.send(t, post("/triggers/webhooks/"+known+"?token=CANARY", "Authorization: CANARY\r\n", "CANARY"))
	l.send(t, post("/triggers/webhooks/"+known+"x", "", ""))
	l.answer = func(context.Context, *trigger.Call) (trigger.IngestResult, error) { panic("a bug") }
	l.send(t, post("/triggers/webhooks/"+known, "", ""))
	if text := l.log.String(); strings.Contains(text, known) || strings.Contains(text, "CANARY") || !strings.Contains(text, "a bug") {
		t.Errorf("log:\n%s", text)
	}
}

func TestAPanicIsOneCallsTrouble(t *testing.T) {
	t.Parallel()

	l := listen(t)
	l.answer = func(_ context.Context, call *trigger.Call) (trigger.IngestResult, error) {
		if len(call.Body) > 0 {
			panic("a bug")
		}
		return trigger.IngestResult{Status: trigger.StatusIgnored, Reason: trigger.ReasonEmpty}, nil
	}
	if got := l.send(t, post("/triggers/webhooks/"+known, "", "x")); got.status != 500 || strings.Contains(got.body, "bug") {
		t.Errorf("the call: %+v", got)
	}
	if got := l.send(t, post("/triggers/webhooks/"+known, "", "")); got.status != 200 {
		t.Errorf("the next: %+v", got)
	}
}

// RFC §Persist-first: "The HTTPS adapter returns 200 only after commit".
func TestNothingIsAnsweredBeforeIngestReturned(t *testing.T) {
	t.Parallel()

	l := listen(t)
	entered, commit := make(chan struct{}), make(chan struct{})
	l.answer = func(context.Context, *trigger.Call) (trigger.IngestResult, error) {
		close(entered)
		<-commit
		return trigger.IngestResult{EventIDs: []string{"evt_1"}}, nil
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, post("/triggers/webhooks/"+known, "", "{}"))
	<-entered
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("an answer came before the commit")
	}
	close(commit)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 200") {
		t.Errorf("after the commit: %q, %v", answer, err)
	}
}

func TestAnAppsAnswerIsGivenSafely(t *testing.T) {
	t.Parallel()

	l := listen(t)
	respond := func(wanted *trigger.Response) response {
		l.mu.Lock()
		l.answer = func(context.Context, *trigger.Call) (trigger.IngestResult, error) {
			return trigger.IngestResult{Status: trigger.StatusIgnored, Reason: trigger.ReasonHandshake, Response: wanted}, nil
		}
		l.mu.Unlock()
		return l.send(t, post("/triggers/webhooks/"+known, "", "{}"))
	}

	got := respond(&trigger.Response{Status: 200, Body: []byte("challenge <script>"), Header: []trigger.Field{
		{Name: "X-Hook-Secret", Value: "s"},
		{Name: "Connection", Value: "upgrade"},
		{Name: "Transfer-Encoding", Value: "chunked"},
		{Name: "Content-Length", Value: "1"},
		{Name: "Set-Cookie", Value: "a=b"},
		{Name: "X-Bad", Value: "a\r\nInjected: 1"},
		{Name: "Bad Name", Value: "x"},
		{Name: "", Value: "x"},
		{Name: "x-content-type-options", Value: "no"},
		{Name: "Content-Security-Policy", Value: "default-src *"},
	}})
	if got.status != 200 || got.body != "challenge <script>" {
		t.Errorf("answer: %d %q", got.status, got.body)
	}
	want := http.Header{
		"X-Hook-Secret": {"s"}, "Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"},
		"Content-Security-Policy": {"default-src 'none'; sandbox"}, "Content-Length": {"18"},
	}
	got.header.Del("Date")
	if diff := cmp.Diff(want, got.header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}

	got = respond(&trigger.Response{Status: 202, Body: []byte("<Response/>"), Header: []trigger.Field{{Name: "content-type", Value: "text/xml"}}})
	if got.status != 202 || got.header.Get("Content-Type") != "text/xml" {
		t.Errorf("typed: %d %q", got.status, got.header)
	}
	if got := respond(&trigger.Response{Status: 204, Body: []byte("x")}); got.status != 204 || got.body != "" {
		t.Errorf("204: %d %q", got.status, got.body)
	}
	if got := respond(&trigger.Response{Status: 101}); got.status != 200 {
		t.Errorf("101 is answered with %d", got.status)
	}
}

func TestATraceparentIsTakenOnlyWhole(t *testing.T) {
	t.Parallel()

	l := listen(t)
	for value, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": "",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "",
		"junk": "",
	} {
		l.send(t, post("/triggers/webhooks/"+known, "Traceparent: "+value+"\r\n", ""))
		if got := l.last(t).Trace; got != want {
			t.Errorf("%s: %q", value, got)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, path := range []string{known, known + "/", "%73ub", "%zz", "a%2Fb", "%00", "\xff", "%ff", "?", "#", " "} {
		f.Add("/triggers/webhooks/" + path)
	}
	seen := &ingester{}
	handler := webhook.New(webhook.Config{Ingester: seen, MaxBody: limit, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}).Handler()
	f.Fuzz(func(t *testing.T, target string) {
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Skip() // net/http answers 400
		}
		answer := &recorder{header: http.Header{}}
		handler.ServeHTTP(answer, request)
		if answer.status != 200 && answer.status != 404 {
			t.Errorf("%q: %d", target, answer.status)
		}
	})
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }
