// Package rig starts the real binaries on a real PostgreSQL for end-to-end
// tests. It speaks HTTP to them, as users do, and SQL only to look.
package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

// Binaries are the built programs.
type Binaries struct{ Ingest, Dispatcher, CLI string }

var build = sync.OnceValues(func() (Binaries, error) {
	dir, err := os.MkdirTemp("", "tocsin-e2e-*")
	if err != nil {
		return Binaries{}, err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir+"/", "./services/ingest", "./services/dispatcher", "./cmd/tocsin")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	return Binaries{filepath.Join(dir, "ingest"), filepath.Join(dir, "dispatcher"), filepath.Join(dir, "tocsin")}, nil
})

// Build builds the programs once per test binary.
func Build(t testing.TB) Binaries {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Mutant builds a dispatcher in which some texts of some source files, named
// from the root, are replaced: to see whether a test notices. The tree itself
// is left alone.
func Mutant(t testing.TB, file string, replace ...string) string {
	t.Helper()
	path := filepath.Join(Root(), filepath.FromSlash(file))
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for i := 0; i+1 < len(replace); i += 2 {
		if strings.Count(text, replace[i]) != 1 {
			t.Fatalf("%s holds %q %d times, want once", file, replace[i], strings.Count(text, replace[i]))
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutated: []byte(text), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "dispatcher")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, "./services/dispatcher")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a mutant of %s: %v\n%s", file, err, out)
	}
	return binary
}

// Cleanup deletes what Build made; call it at the end of TestMain.
func Cleanup() {
	if b, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(b.Ingest))
	}
}

// Root is the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Options of Start. The zero value is one ingest and one dispatcher on the
// embedded engine with the example apps.
type Options struct {
	Dispatchers int               // 0 means 1; negative means none
	Env         map[string]string // added to every process
	Apps        string            // APPS_DIR; "" means examples/apps
	Database    string            // DATABASE_URL; "" makes one
}

// System is a running Tocsin.
type System struct {
	t           testing.TB
	Binaries    Binaries
	Database    string
	Pool        *pgxpool.Pool
	Ingest      *Process
	Dispatchers []*Process
	PublicURL   string
	APIURL      string
	Key         string
	env         map[string]string
}

// BootstrapKey is the management key of every System; it opens nothing else.
const BootstrapKey = "e2e-bootstrap-key-of-a-test"

// Start brings a system up and waits until it is ready; it stops with the test.
func Start(t testing.TB, o Options) *System {
	t.Helper()
	s := &System{t: t, Binaries: Build(t), Database: o.Database, Key: BootstrapKey}
	if s.Database == "" {
		s.Database = storetest.NewURL(t)
	}
	pool, err := pgxpool.New(t.Context(), s.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.Pool = pool
	public, api := FreeAddr(t), FreeAddr(t)
	s.PublicURL, s.APIURL = "http://"+public, "http://"+api
	if o.Apps == "" {
		o.Apps = filepath.Join(Root(), "examples", "apps")
	}
	s.env = map[string]string{
		"DATABASE_URL": s.Database, "HOST_URL": s.PublicURL, "APPS_DIR": o.Apps, "TOCSIN_DEV": "1", "BOOTSTRAP_API_KEY": s.Key,
		"ALLOW_PRIVATE_EGRESS": "true", "LOG_LEVEL": "debug", "TOCSIN_API_URL": s.APIURL, "TOCSIN_API_KEY": s.Key,
		"FALLBACK_INTERVAL": "1s", "SHUTDOWN_GRACE": "10s",
	}
	maps.Copy(s.env, o.Env)
	s.Ingest = s.start("ingest", s.Binaries.Ingest, map[string]string{"INGEST_ADDR": public, "API_ADDR": api}, s.APIURL)
	for range max(o.Dispatchers, 1) {
		if o.Dispatchers >= 0 {
			s.StartDispatcher(nil)
		}
	}
	return s
}

// StartDispatcher adds a dispatcher and waits until it is ready.
func (s *System) StartDispatcher(env map[string]string) *Process {
	s.t.Helper()
	addr := FreeAddr(s.t)
	own := map[string]string{"DISPATCHER_ADDR": addr}
	maps.Copy(own, env)
	p := s.start(fmt.Sprintf("dispatcher-%d", len(s.Dispatchers)+1), s.Binaries.Dispatcher, own, "http://"+addr)
	s.Dispatchers = append(s.Dispatchers, p)
	return p
}

// StartIngest adds an ingest on addresses of its own and waits until it is
// ready.
func (s *System) StartIngest() *Process {
	s.t.Helper()
	api := FreeAddr(s.t)
	return s.start("ingest at "+api, s.Binaries.Ingest, map[string]string{"INGEST_ADDR": FreeAddr(s.t), "API_ADDR": api}, "http://"+api)
}

// RestartIngest starts ingest anew on the same addresses.
func (s *System) RestartIngest() {
	s.t.Helper()
	s.Ingest = s.start("ingest", s.Binaries.Ingest, map[string]string{
		"INGEST_ADDR": strings.TrimPrefix(s.PublicURL, "http://"), "API_ADDR": strings.TrimPrefix(s.APIURL, "http://"),
	}, s.APIURL)
}

func (s *System) start(name, binary string, env map[string]string, healthURL string) *Process {
	s.t.Helper()
	all := maps.Clone(s.env)
	maps.Copy(all, env)
	p := StartProcess(s.t, name, all, binary)
	p.URL = healthURL
	Eventually(s.t, 60*time.Second, name+" is ready", func() bool {
		if p.Exited() {
			s.t.Fatalf("%s exited:\n%s", name, p.Tail(40))
		}
		status, _ := get(healthURL + "/readyz")
		return status == http.StatusOK
	})
	return p
}

func get(url string) (int, []byte) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url) //nolint:noctx // bounded by the client
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, body
}

// CLI runs the operator's CLI and gives its standard output; it must succeed.
func (s *System) CLI(args ...string) string {
	s.t.Helper()
	out, stderr, err := s.RunCLI(args...)
	if err != nil {
		s.t.Fatalf("tocsin %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out
}

// RunCLI runs the operator's CLI.
func (s *System) RunCLI(args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Binaries.CLI, args...)
	cmd.Env = environ(s.env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// API calls the management API and decodes the answer.
func (s *System) API(method, path string, body any) (int, map[string]any) {
	s.t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.APIURL+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	answer := map[string]any{}
	if err := decoder.Decode(&answer); err != nil && len(text) > 0 {
		s.t.Fatalf("%s %s: %d, not JSON: %s", method, path, response.StatusCode, text)
	}
	return response.StatusCode, answer
}

// Subscribe creates a subscription and gives its id; the callback URL is
// PublicURL + /triggers/webhooks/ + id.
func (s *System) Subscribe(app, key, workflow string, params map[string]any) string {
	s.t.Helper()
	status, answer := s.API(http.MethodPost, "/apps/"+app+"/triggers/"+key+"/subscriptions",
		map[string]any{"workflowId": workflow, "params": params})
	if status != http.StatusCreated {
		s.t.Fatalf("subscribe: %d %v", status, answer)
	}
	subscription, _ := answer["subscription"].(map[string]any)
	id, _ := subscription["id"].(string)
	if id == "" {
		s.t.Fatalf("subscribe: no id in %v", answer)
	}
	return id
}

// SubscriptionID reads the id off the answer to a subscribe.
func SubscriptionID(t testing.TB, answer Answer) string {
	t.Helper()
	var doc struct {
		Subscription struct {
			ID string `json:"id"`
		} `json:"subscription"`
	}
	if err := json.Unmarshal(answer.Body, &doc); err != nil || doc.Subscription.ID == "" {
		t.Fatalf("subscribe: no id in %s", answer.Body)
	}
	return doc.Subscription.ID
}

// Receiver subscribes a workflow to the example receiver without hooks.
func (s *System) Receiver(workflow string) string {
	s.t.Helper()
	return s.Subscribe("io.tocsin.example.receiver", "call", workflow, nil)
}

// Callback is a subscription's callback URL.
func (s *System) Callback(id string) string { return s.PublicURL + "/triggers/webhooks/" + id }

// Answer is what the listener said.
type Answer struct {
	Status   int
	Header   http.Header
	Body     []byte
	EventIDs []string
}

// Post sends one call to a subscription. It may be called from any goroutine; a
// call that gets no answer is an error of the test and has status 0.
func (s *System) Post(id string, body []byte, header ...string) Answer {
	s.t.Helper()
	answer, err := Send(s.t.Context(), http.MethodPost, s.Callback(id), body, header...)
	if err != nil {
		s.t.Error(err)
	}
	return answer
}

// Send makes one request; header holds names and values in turn.
func Send(ctx context.Context, method, url string, body []byte, header ...string) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	response, err := sender.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Status: response.StatusCode, Header: response.Header, Body: text}
	var ids struct {
		EventIDs []string `json:"eventIds"`
	}
	if json.Unmarshal(text, &ids) == nil {
		answer.EventIDs = ids.EventIDs
	}
	return answer, nil
}

var sender = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 256},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Detail reads all that the API knows of one event.
func (s *System) Detail(id string) map[string]any {
	s.t.Helper()
	status, answer := s.API(http.MethodGet, "/trigger-events/"+id, nil)
	if status != http.StatusOK {
		s.t.Fatalf("event %s: %d %v", id, status, answer)
	}
	return answer
}

// Event reads one event's record over the API.
func (s *System) Event(id string) map[string]any {
	s.t.Helper()
	event, _ := s.Detail(id)["event"].(map[string]any)
	return event
}

// WaitStatus waits until an event has a status.
func (s *System) WaitStatus(id, want string, within time.Duration) map[string]any {
	s.t.Helper()
	var event map[string]any
	Eventually(s.t, within, fmt.Sprintf("%s is %s", id, want), func() bool {
		event = s.Event(id)
		return event["status"] == want
	})
	return event
}

// Count asks the database for one number.
func (s *System) Count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.Pool.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Open counts the events that are not at their end.
func (s *System) Open() int {
	return s.Count("SELECT (SELECT count(*) FROM trigger_queue) + (SELECT count(*) FROM trigger_claims)")
}

// Eventually polls until done or fails the test at the deadline.
func Eventually(t testing.TB, within time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for wait := 2 * time.Millisecond; !done(); wait = min(2*wait, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		timer := time.NewTimer(wait)
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended before: %s", what)
		case <-timer.C:
		}
	}
}

// FreeAddr gives a loopback address that nobody listened on a moment ago.
func FreeAddr(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// environ is what a process sees: its settings, and what Go programs need.
func environ(env map[string]string) []string {
	list := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
