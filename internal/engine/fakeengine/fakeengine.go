// Package fakeengine is an HTTP engine for tests and fault drills (DESIGN §8's
// w6w host API): it does what its script says and remembers every start. One
// event id gives one run id, as an engine that honours the idempotency key does.
package fakeengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kinds of Step.
const (
	DoOK      = "ok"      // 202 with a run id
	DoStatus  = "status"  // Status, with Code, Message, Retryable and RetryAfter where set
	DoHang    = "hang"    // no answer until the caller gives up
	DoDrop    = "drop"    // the connection is reset without an answer
	DoGarbage = "garbage" // 200 with a body that is no JSON
	DoNoRunID = "norunid" // 200 with {}
	DoDirty   = "dirty"   // Status (503) with 5 MiB of 00 ff
	DoCut     = "cut"     // 200, and the connection breaks within the body
	DoLate    = "late"    // the run starts, the answer never comes
)

// Step says what to do with one start.
type Step struct {
	Do string `json:"do"`
	// Latency comes first, Jitter is the most that is added to it at random.
	Latency Duration `json:"latency,omitzero"`
	Jitter  Duration `json:"jitter,omitzero"`

	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
	Retryable  *bool  `json:"retryable,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	// Times is how many starts in a row the step is for; 0 is one.
	Times int `json:"times,omitempty"`
}

// Script is a list of steps, taken one a start; when they are used up comes
// Then for ever, or the list anew when Loop is set. The zero Script is ok.
type Script struct {
	Steps []Step `json:"steps,omitempty"`
	Loop  bool   `json:"loop,omitempty"`
	Then  Step   `json:"then,omitzero"`
	// Known lists the workflows that exist; none means all.
	Known []string `json:"known,omitempty"`
	// NoWorkflowRoute answers 405 to GET /workflows/{id}.
	NoWorkflowRoute bool `json:"noWorkflowRoute,omitempty"`
	// Up and Down, when both are set, let the engine come and go: for Down all
	// connections are reset, for Up the script holds.
	Up   Duration `json:"up,omitzero"`
	Down Duration `json:"down,omitzero"`
}

// Duration reads "20ms" from JSON.
type Duration time.Duration

// UnmarshalText reads Go's form.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	*d = Duration(value)
	return err
}

// MarshalText writes Go's form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Start is one call that asked for a run.
type Start struct {
	At             time.Time       `json:"at"`
	Ended          time.Time       `json:"ended,omitzero"`
	WorkflowID     string          `json:"workflowId"`
	IdempotencyKey string          `json:"idempotencyKey"`
	Trace          string          `json:"traceparent,omitempty"`
	Authorization  bool            `json:"authorization"`
	EventID        string          `json:"eventId"`
	Subscription   string          `json:"subscriptionId"`
	Attempt        int             `json:"attempt"`
	CausationID    string          `json:"causationId"`
	Event          json.RawMessage `json:"event"`
	Remote         string          `json:"remote"`
	Did            string          `json:"did"`
	RunID          string          `json:"runId,omitempty"`
	// Overlaps counts the starts of the subscription that were running.
	Overlaps int `json:"overlaps,omitempty"`
}

// Engine is the server. Its zero value is not usable; see New.
type Engine struct {
	log io.Writer // each start as a line of JSON, when not nil

	mu       sync.Mutex
	script   Script
	at, used int // the step that is next, and how often it was
	since    time.Time
	starts   []*Start
	running  map[string]int    // subscription → starts not answered yet
	runs     map[string]string // event → run
	overlaps int
	changed  chan struct{} // closed and made anew with every start and end
}

// New makes an engine that answers ok. log, which may be nil, gets each ended
// start as a line of JSON.
func New(log io.Writer) *Engine {
	return &Engine{log: log, since: time.Now(), running: map[string]int{}, runs: map[string]string{}, changed: make(chan struct{})}
}

// Play replaces the script.
func (e *Engine) Play(script Script) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script, e.at, e.used, e.since = script, 0, 0, time.Now()
}

// Starts gives a copy of what was asked so far, in order.
func (e *Engine) Starts() []Start {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Start, len(e.starts))
	for i, s := range e.starts {
		out[i] = *s
	}
	return out
}

// Stats sums the starts up.
type Stats struct {
	Starts     int `json:"starts"`     // calls
	Runs       int `json:"runs"`       // distinct events that were started
	Duplicates int `json:"duplicates"` // ok answers for an event that had a run
	Overlaps   int `json:"overlaps"`   // starts of a subscription that was being started
	Running    int `json:"running"`
}

// Stats gives the sums so far.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{Starts: len(e.starts), Runs: len(e.runs), Overlaps: e.overlaps}
	answered := 0
	for _, start := range e.starts {
		if start.RunID != "" {
			answered++
		}
	}
	for _, n := range e.running {
		s.Running += n
	}
	s.Duplicates = answered - len(e.runs)
	return s
}

// Reset forgets starts and runs; the script stays.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starts, e.runs, e.overlaps = nil, map[string]string{}, 0
}

// Changed gives a channel that is closed at the next start or end.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// ServeHTTP serves the host API, and under /_fake/ the engine's own controls:
// PUT script, GET starts, GET stats, DELETE starts.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if control, ok := strings.CutPrefix(path, "/_fake/"); ok {
		e.control(w, r, control)
		return
	}
	if e.isDown() {
		drop(w)
		return
	}
	workflow, isRun := strings.CutSuffix(path[strings.LastIndex(path, "/workflows/")+1:], "/run")
	workflow = strings.TrimPrefix(workflow, "workflows/")
	switch {
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
	case isRun && r.Method == http.MethodPost:
		e.run(w, r, workflow)
	case strings.Contains(path, "/workflows/") && r.Method == http.MethodGet:
		e.workflow(w, workflow)
	default:
		fail(w, http.StatusNotFound, Step{Code: "not_found"})
	}
}

func (e *Engine) isDown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	up, down := time.Duration(e.script.Up), time.Duration(e.script.Down)
	return up > 0 && down > 0 && time.Since(e.since)%(up+down) >= up
}

func (e *Engine) workflow(w http.ResponseWriter, id string) {
	e.mu.Lock()
	script := e.script
	e.mu.Unlock()
	switch {
	case script.NoWorkflowRoute:
		fail(w, http.StatusMethodNotAllowed, Step{Code: "method_not_allowed"})
	case !knows(script.Known, id):
		fail(w, http.StatusNotFound, Step{Code: "unknown_workflow"})
	default:
		answer(w, http.StatusOK, map[string]any{"workflow": map[string]string{"id": id}})
	}
}

func knows(known []string, id string) bool {
	return len(known) == 0 || slices.Contains(known, id)
}

func (e *Engine) run(w http.ResponseWriter, r *http.Request, workflow string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	start := &Start{
		At: time.Now(), WorkflowID: workflow, IdempotencyKey: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get("Traceparent"),
		Authorization: r.Header.Get("Authorization") != "", Remote: r.RemoteAddr,
	}
	if err := json.Unmarshal(body, start); err != nil || start.EventID == "" {
		fail(w, http.StatusBadRequest, Step{Code: "invalid_body", Message: "want the body of a start"})
		return
	}
	start.Event = payload(body)
	step := e.begin(start)
	defer e.end(start)
	if wait := step.wait(); wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			e.did(start, "gave up")
			return
		}
	}
	e.do(w, r, start, step)
}

// payload cuts the event out of the body's text: decoding could hide a change.
func payload(body []byte) json.RawMessage {
	const before, after = `"event":`, `,"eventId":`
	from, to := bytes.Index(body, []byte(before)), bytes.LastIndex(body, []byte(after))
	if from < 0 || to < from {
		return nil
	}
	return json.RawMessage(bytes.Clone(body[from+len(before) : to]))
}

func (s *Step) wait() time.Duration {
	wait := time.Duration(s.Latency)
	if s.Jitter > 0 {
		wait += rand.N(time.Duration(s.Jitter))
	}
	return wait
}

func (e *Engine) begin(start *Start) Step {
	e.mu.Lock()
	defer e.mu.Unlock()
	start.Overlaps = e.running[start.Subscription]
	if start.Overlaps > 0 {
		e.overlaps++
	}
	e.running[start.Subscription]++
	e.starts = append(e.starts, start)
	step := e.next()
	start.Did = step.Do
	e.tell()
	return step
}

// next takes a step off the script.
func (e *Engine) next() Step {
	if e.at >= len(e.script.Steps) && e.script.Loop && len(e.script.Steps) > 0 {
		e.at, e.used = 0, 0
	}
	step := e.script.Then
	if e.at < len(e.script.Steps) {
		step = e.script.Steps[e.at]
		e.used++
		if e.used >= step.Times {
			e.at, e.used = e.at+1, 0
		}
	}
	if step.Do == "" {
		step.Do = DoOK
	}
	return step
}

func (e *Engine) end(start *Start) {
	e.mu.Lock()
	defer e.mu.Unlock()
	start.Ended = time.Now()
	e.running[start.Subscription]--
	if e.running[start.Subscription] == 0 {
		delete(e.running, start.Subscription)
	}
	if e.log != nil {
		_ = json.NewEncoder(e.log).Encode(start) // the log is the caller's; a full disk must not stop the engine
	}
	e.tell()
}

// tell wakes whoever waits for a change; e.mu is held.
func (e *Engine) tell() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *Engine) did(start *Start, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	start.Did = what
}

// runOf gives the event's run, and makes it at the first time.
func (e *Engine) runOf(start *Start) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.runs[start.EventID]
	if !ok {
		id = "run_" + strings.TrimPrefix(start.EventID, "evt_")
		e.runs[start.EventID] = id
	}
	start.RunID = id
	return id
}

func (e *Engine) do(w http.ResponseWriter, r *http.Request, start *Start, step Step) {
	switch step.Do {
	case DoOK:
		answer(w, http.StatusAccepted, map[string]string{"runId": e.runOf(start), "status": "queued"})
	case DoStatus:
		fail(w, step.Status, step)
	case DoHang:
		<-r.Context().Done()
	case DoLate:
		e.runOf(start)
		<-r.Context().Done()
	case DoDrop:
		drop(w)
	case DoGarbage:
		_, _ = w.Write([]byte("<html>\x00\xff"))
	case DoNoRunID:
		answer(w, http.StatusOK, struct{}{})
	case DoCut:
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"runId":"`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // net/http breaks the connection off
	case DoDirty:
		dirty(w, step)
	default:
		fail(w, http.StatusInternalServerError, Step{Code: "bad_script", Message: "no such step: " + step.Do})
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	text, _ := json.Marshal(body) // maps of strings
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the caller may be gone
}

func fail(w http.ResponseWriter, status int, step Step) {
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	if step.RetryAfter != "" {
		w.Header().Set("Retry-After", step.RetryAfter)
	}
	if step.Code == "" && step.Message == "" && step.Retryable == nil {
		w.WriteHeader(status)
		return
	}
	doc := map[string]any{"code": step.Code, "message": step.Message}
	if step.Retryable != nil {
		doc["retryable"] = *step.Retryable
	}
	answer(w, status, map[string]any{"error": doc})
}

// drop resets the connection.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2, or the header is out: net/http breaks the stream off
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func dirty(w http.ResponseWriter, step Step) {
	status := step.Status
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	chunk := bytes.Repeat([]byte{0x00, 0xff}, 32<<10)
	for range 5 << 20 / len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func (e *Engine) control(w http.ResponseWriter, r *http.Request, what string) {
	switch r.Method + " " + what {
	case "PUT script":
		var script Script
		if err := json.NewDecoder(r.Body).Decode(&script); err != nil {
			fail(w, http.StatusBadRequest, Step{Code: "invalid_body", Message: err.Error()})
			return
		}
		e.Play(script)
		answer(w, http.StatusOK, struct{}{})
	case "GET starts":
		starts := e.Starts()
		if from, err := strconv.Atoi(r.URL.Query().Get("from")); err == nil && from >= 0 {
			starts = starts[min(from, len(starts)):]
		}
		answer(w, http.StatusOK, map[string]any{"starts": starts})
	case "GET stats":
		answer(w, http.StatusOK, e.Stats())
	case "DELETE starts":
		e.Reset()
		answer(w, http.StatusOK, struct{}{})
	default:
		fail(w, http.StatusNotFound, Step{Code: "not_found", Message: fmt.Sprintf("no control %s %s", r.Method, what)})
	}
}
