package workerpool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/bundle"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

// gate is a host whose fetches wait until the test lets them go on.
type gate struct {
	fakeHost
	arrived chan hook.FetchRequest
	release chan hook.FetchResponse
}

func newGate() *gate {
	g := &gate{arrived: make(chan hook.FetchRequest, 64), release: make(chan hook.FetchResponse)}
	g.answer = func(ctx context.Context, r hook.FetchRequest) (hook.FetchResponse, error) {
		g.arrived <- r
		select {
		case response := <-g.release:
			return response, nil
		case <-ctx.Done():
			return hook.FetchResponse{}, ctx.Err()
		}
	}
	return g
}

type invoked struct {
	output string
	err    error
}

// start invokes a hook in the background.
func start(ctx context.Context, pool *workerpool.Pool, ref hook.AppRef, name string) <-chan invoked {
	done := make(chan invoked, 1)
	go func() {
		result, err := pool.Invoke(ctx, hook.Call{App: ref, Hook: "t/" + name, Input: json.RawMessage(`null`)})
		done <- invoked{string(result.Output), err}
	}()
	return done
}

// workerPIDs lists the worker processes of this test process.
func workerPIDs(tb testing.TB) []int {
	tb.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		tb.Skip("needs /proc")
	}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		if err != nil {
			continue // it ended meanwhile
		}
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		parent, _ := strconv.Atoi(after[1])
		if parent == os.Getpid() && after[0] != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			pids = append(pids, pid)
		}
	}
	return pids
}

const fetching = `
	async wait(input, ctx) { const r = await ctx.fetch("https://x.test/wait"); return await r.text(); },
	ok() { return "ok"; },
`

// Not parallel: they kill every worker process of this test binary.
func TestCallOfAKilledWorkerRunsAgain(t *testing.T) { //nolint:paralleltest // see above
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 1})
	ref := loadHooks(t, pool, "app", fetching)
	done := start(t.Context(), pool, ref, "wait")
	<-host.arrived
	killAll(t)
	if again := <-host.arrived; again.URL != "https://x.test/wait" {
		t.Errorf("retried fetch: %v", again)
	}
	host.release <- hook.FetchResponse{Status: 200, Body: []byte("answered")}
	if got := <-done; got.err != nil || got.output != `"answered"` {
		t.Errorf("got %+v", got)
	}
	if got, err := invoke(t, pool, ref, "ok", `null`); err != nil || got != `"ok"` {
		t.Errorf("afterwards: %s, %v", got, err)
	}
}

func TestCallIsLostWhenItsWorkerIsKilledTwice(t *testing.T) { //nolint:paralleltest // see above
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 1})
	ref := loadHooks(t, pool, "app", fetching)
	done := start(t.Context(), pool, ref, "wait")
	for range 2 {
		<-host.arrived
		killAll(t)
	}
	if got := <-done; hook.CodeOf(got.err) != hook.CodeWorkerLost {
		t.Errorf("got %+v, want %s", got, hook.CodeWorkerLost)
	}
	if got, err := invoke(t, pool, ref, "ok", `null`); err != nil || got != `"ok"` {
		t.Errorf("afterwards: %s, %v", got, err)
	}
}

func killAll(t *testing.T) {
	t.Helper()
	for _, pid := range workerPIDs(t) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("kill %d: %v", pid, err)
		}
	}
}

func TestAppThatMustBeKilledIsQuarantinedThenRefused(t *testing.T) {
	t.Parallel()
	pool := newPool(t, &fakeHost{}, workerpool.Options{
		Workers: 1, BreakAfter: 2, CoolDown: time.Hour, Limits: hook.Limits{Wall: slowdown * slowdown * 300 * time.Millisecond, Grace: slowdown * 400 * time.Millisecond},
	})
	// The engine cannot interrupt this built-in.
	bad := loadHooks(t, pool, "app.bad", `hang() { return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1); }, ok() { return 1; }`)
	good := loadHooks(t, pool, "app.good", `ok() { return 1; }`)

	for i, want := range []string{hook.CodeTimeout, "", hook.CodeTimeout, hook.CodeQuarantined} {
		name := map[bool]string{true: "ok", false: "hang"}[want != hook.CodeTimeout]
		if _, err := invoke(t, pool, bad, name, `null`); hook.CodeOf(err) != want {
			t.Errorf("call %d: %v, want %q", i, err, want)
		}
	}
	if got, err := invoke(t, pool, good, "ok", `null`); err != nil || got != "1" {
		t.Errorf("another app: %s, %v", got, err)
	}
	if stats := pool.Stats(); stats.Kills != 2 {
		t.Errorf("%d kills, want 2", stats.Kills)
	}
}

func TestWaitingCallsLeaveTheWorkerToOthers(t *testing.T) {
	t.Parallel()
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 1})
	ref := loadHooks(t, pool, "app", fetching)
	const waiting = 5
	var done []<-chan invoked
	for range waiting {
		done = append(done, start(t.Context(), pool, ref, "wait"))
	}
	for range waiting {
		<-host.arrived
	}
	if got, err := invoke(t, pool, ref, "ok", `null`); err != nil || got != `"ok"` {
		t.Errorf("call beside waiting ones: %s, %v", got, err)
	}
	for range waiting {
		host.release <- hook.FetchResponse{Status: 200, Body: []byte("x")}
	}
	for _, d := range done {
		if got := <-d; got.err != nil || got.output != `"x"` {
			t.Errorf("waiting call: %+v", got)
		}
	}
}

func TestQueueOfAnAppIsBounded(t *testing.T) {
	t.Parallel()
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 1, PerApp: 1, Queue: 1})
	ref := loadHooks(t, pool, "app", fetching)
	other := loadHooks(t, pool, "other", fetching)
	running := start(t.Context(), pool, ref, "wait")
	<-host.arrived
	queued := start(t.Context(), pool, ref, "ok")
	for pool.Stats().Queued == 0 { // it is on its way
		select {
		case got := <-queued:
			t.Fatalf("the second call ran beside the first: %+v", got)
		default:
		}
	}
	if _, err := invoke(t, pool, ref, "ok", `null`); hook.CodeOf(err) != hook.CodeOverloaded {
		t.Errorf("third call: %v, want %s", err, hook.CodeOverloaded)
	}
	if _, err := invoke(t, pool, other, "ok", `null`); err != nil {
		t.Errorf("another app: %v", err)
	}
	if queued := pool.Stats().Queued; queued != 1 {
		t.Errorf("%d calls queued, want 1", queued)
	}
	host.release <- hook.FetchResponse{Status: 200}
	for _, d := range []<-chan invoked{running, queued} {
		if got := <-d; got.err != nil {
			t.Errorf("got %+v", got)
		}
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 1, PerApp: 1})
	ref := loadHooks(t, pool, "app", fetching+`loop() { for (;;) {} },`)

	ctx, cancel := context.WithCancel(t.Context())
	done := start(ctx, pool, ref, "wait")
	<-host.arrived
	cancel()
	if got := <-done; hook.CodeOf(got.err) != hook.CodeCancelled {
		t.Errorf("waiting call: %+v", got)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := <-start(ctx, pool, ref, "loop"); hook.CodeOf(got.err) != hook.CodeTimeout {
		t.Errorf("running call: %+v", got)
	}
	// PerApp is 1: this runs only once the worker has given both up.
	if got, err := invoke(t, pool, ref, "ok", `null`); err != nil || got != `"ok"` {
		t.Errorf("afterwards: %s, %v", got, err)
	}
}

func TestLoadReplacesAndUnloadForgets(t *testing.T) {
	t.Parallel()
	pool := newPool(t, &fakeHost{}, workerpool.Options{Workers: 1})
	ref := loadHooks(t, pool, "app", `v() { return 1; }`)
	if got, err := invoke(t, pool, ref, "v", `null`); err != nil || got != "1" {
		t.Fatalf("got %s, %v", got, err)
	}
	script := "var " + hook.BundleGlobal + " = { app: { default: { triggers: [{ key: 't', v() { return 2; } }] } } };"
	description, err := pool.Load(t.Context(), ref, hook.Bundle{JS: []byte(script), Hash: "second"})
	if err != nil {
		t.Fatal(err)
	}
	want := hook.Description{Definition: json.RawMessage(`{"triggers":[{"key":"t"}]}`), Hooks: []string{"t/v"}}
	if diff := cmp.Diff(want, description); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	if got, err := invoke(t, pool, ref, "v", `null`); err != nil || got != "2" {
		t.Errorf("after the second load: %s, %v", got, err)
	}
	for name, bad := range map[string]string{"syntax": "var (", "throws": "throw new Error('at load')", "no export": "var x", "endless": "for (;;) {}"} {
		ctx, cancel := context.WithTimeout(t.Context(), slowdown*slowdown*500*time.Millisecond)
		_, err := pool.Load(ctx, ref, hook.Bundle{JS: []byte(bad), Hash: name})
		cancel()
		if code := hook.CodeOf(err); code != hook.CodeInvalidBundle && (name != "endless" || code != hook.CodeTimeout) {
			t.Errorf("load of %s: %v", name, err)
		}
	}
	if got, err := invoke(t, pool, ref, "v", `null`); err != nil || got != "2" {
		t.Errorf("after failed loads: %s, %v", got, err)
	}
	pool.Unload(ref)
	if _, err := invoke(t, pool, ref, "v", `null`); hook.CodeOf(err) != hook.CodeUnknownApp {
		t.Errorf("after unload: %v", err)
	}
}

func TestTenantsAndVersionsShareNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t, &fakeHost{}, workerpool.Options{Workers: 1})
	script := []byte("let n = 0; var " + hook.BundleGlobal + " = { app: { default: { triggers: [{ key: 't', count() { globalThis.seen = (globalThis.seen ?? 0) + 1; return [++n, globalThis.seen]; } }] } } };")
	for _, ref := range []hook.AppRef{{ID: "a", Version: "1", Tenant: "x"}, {ID: "a", Version: "1", Tenant: "y"}, {ID: "a", Version: "2", Tenant: "x"}, {ID: "b", Version: "1", Tenant: "x"}} {
		if _, err := pool.Load(t.Context(), ref, hook.Bundle{JS: script, Hash: "same"}); err != nil {
			t.Fatal(err)
		}
		if got, err := invoke(t, pool, ref, "count", `null`); err != nil || got != "[1,1]" {
			t.Errorf("%v: %s, %v", ref, got, err)
		}
	}
}

func TestWorkersAreReplacedAfterTheirShareOfCalls(t *testing.T) {
	t.Parallel()
	pool := newPool(t, &fakeHost{}, workerpool.Options{Workers: 1, RecycleCalls: 20})
	ref := loadHooks(t, pool, "app", `ok() { return 1; }`)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				if got, err := invoke(t, pool, ref, "ok", `null`); err != nil || got != "1" {
					t.Errorf("got %s, %v", got, err)
				}
			}
		})
	}
	group.Wait()
	if stats := pool.Stats(); stats.Calls != 201 || stats.Kills != 0 || stats.Respawns != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestCloseEndsEveryCall(t *testing.T) {
	t.Parallel()
	host := newGate()
	pool := newPool(t, host, workerpool.Options{Workers: 2, PerApp: 2})
	ref := loadHooks(t, pool, "app", fetching+`loop() { for (;;) {} },`)
	calls := []<-chan invoked{start(t.Context(), pool, ref, "wait"), start(t.Context(), pool, ref, "loop"), start(t.Context(), pool, ref, "ok")}
	<-host.arrived
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if got := <-c; hook.CodeOf(got.err) != hook.CodeWorkerLost && got.output != `"ok"` {
			t.Errorf("got %+v", got)
		}
	}
	if _, err := invoke(t, pool, ref, "ok", `null`); hook.CodeOf(err) != hook.CodeWorkerLost {
		t.Errorf("after close: %v", err)
	}
	if _, err := pool.Load(t.Context(), ref, hook.Bundle{}); hook.CodeOf(err) != hook.CodeWorkerLost {
		t.Errorf("load after close: %v", err)
	}
}

func TestInputAndHostOperationsAreBounded(t *testing.T) {
	t.Parallel()
	var most, now atomic.Int64
	host := &fakeHost{answer: func(context.Context, hook.FetchRequest) (hook.FetchResponse, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		return hook.FetchResponse{Status: 200}, nil
	}}
	pool := newPool(t, host, workerpool.Options{Workers: 1, Limits: hook.Limits{MaxIn: 100, MaxHostOps: 3}})
	ref := loadHooks(t, pool, "app", `
		async flood(input, ctx) { const all = await Promise.allSettled(Array.from({ length: 2000 }, (_, i) => ctx.fetch("https://x.test/" + i))); return all.filter((r) => r.status === "fulfilled").length; },
		async none(input, ctx) { try { await ctx.fetch("https://x.test/"); } catch (e) { return e.name; } },
	`)
	if got, err := invoke(t, pool, ref, "flood", `null`); err != nil || got != "3" || most.Load() > 3 {
		t.Errorf("flood: %s, %v, %d at once", got, err, most.Load())
	}
	_, err := pool.Invoke(t.Context(), hook.Call{App: ref, Hook: "t/flood", Input: json.RawMessage(`""`), RawBody: make([]byte, 99)})
	if hook.CodeOf(err) != hook.CodeTooLarge {
		t.Errorf("large input: %v", err)
	}
	result, err := pool.Invoke(t.Context(), hook.Call{App: ref, Hook: "t/none", Limits: hook.Limits{MaxHostOps: -1}})
	if err != nil || string(result.Output) != `"TypeError"` {
		t.Errorf("no host operations: %s, %v", result.Output, err)
	}
}

func TestErrorsPointAtTheAuthorsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"w6w":{"network":{"allow":["api.example.com"]}}}`,
		"index.ts":     "import { fail } from \"./lib/fail.ts\";\n\nexport default { triggers: [{ key: \"t\",\n  async handleIngest(input: { a: number }, ctx: any) { await ctx.fetch(\"https://x.test\"); return fail(input.a); },\n  poll: \"./poll.ts\" }] };\n",
		"lib/fail.ts":  "interface Unused { a: string }\n\nexport const fail = (n: number): never => {\n  throw new RangeError(`bad ${n}`);\n};\n",
		"poll.ts":      "export default () => ({ events: [1] });\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var allow atomic.Value
	host := &fakeHost{answer: func(_ context.Context, r hook.FetchRequest) (hook.FetchResponse, error) {
		allow.Store(fmt.Sprint(r.Allow, r.Call.App.ID))
		return hook.FetchResponse{Status: 200}, nil
	}}
	pool := newPool(t, host, workerpool.Options{Workers: 1})
	ref := hook.AppRef{ID: "app"}
	made, err := bundle.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	description, err := pool.Load(t.Context(), ref, made)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := bundle.PathHooks(description.Definition)
	if err != nil {
		t.Fatal(err)
	}
	if made, err = bundle.Dir(dir, paths...); err != nil {
		t.Fatal(err)
	}
	if description, err = pool.Load(t.Context(), ref, made); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"t/handleIngest", "t/poll"}, description.Hooks); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if got, err := invoke(t, pool, ref, "poll", `null`); err != nil || got != `{"events":[1]}` {
		t.Errorf("path hook: %s, %v", got, err)
	}
	_, err = invoke(t, pool, ref, "handleIngest", `{"a":7}`)
	var failure *hook.Error
	if !errors.As(err, &failure) || failure.Code != hook.CodeThrew || failure.Name != "RangeError" || failure.Message != "bad 7" {
		t.Fatalf("got %v", err)
	}
	for _, place := range []string{"lib/fail.ts:4:", "index.ts:4:"} {
		if !strings.Contains(failure.Stack, place) {
			t.Errorf("stack lacks %s:\n%s", place, failure.Stack)
		}
	}
	if strings.Contains(failure.Stack, "host:") || allow.Load() != "[api.example.com]app" {
		t.Errorf("stack %q, allow %v", failure.Stack, allow.Load())
	}
}
