package workerpool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fakeHost answers fetches with answer and keeps the log.
type fakeHost struct {
	answer func(ctx context.Context, request hook.FetchRequest) (hook.FetchResponse, error)

	mu    sync.Mutex
	lines []hook.LogLine
}

func (h *fakeHost) Fetch(ctx context.Context, request hook.FetchRequest) (hook.FetchResponse, error) {
	if h.answer == nil {
		return hook.FetchResponse{Status: 200, URL: request.URL, Body: []byte(`{"ok":true}`)}, nil
	}
	return h.answer(ctx, request)
}

func (h *fakeHost) Log(_ *hook.Call, line hook.LogLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
}

func (h *fakeHost) logged() []hook.LogLine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]hook.LogLine(nil), h.lines...)
}

// newPool starts a pool that ends with the test.
func newPool(tb testing.TB, host hook.Host, options workerpool.Options) *workerpool.Pool {
	tb.Helper()
	options.Host = host
	options.Log = zaptest.NewLogger(tb)
	pool, err := workerpool.New(options)
	if err != nil {
		tb.Fatalf("start pool: %v", err)
	}
	tb.Cleanup(func() {
		if err := pool.Close(); err != nil {
			tb.Errorf("close pool: %v", err)
		}
	})
	return pool
}

// loadHooks loads an app with one trigger, "t", whose hooks are given as the
// body of an object literal.
func loadHooks(tb testing.TB, pool *workerpool.Pool, id, hooks string) hook.AppRef {
	tb.Helper()
	return loadScript(tb, pool, id, `({ default: { triggers: [{ key: "t", label: "the trigger", `+hooks+` }] } })`)
}

func loadScript(tb testing.TB, pool *workerpool.Pool, id, namespace string) hook.AppRef {
	tb.Helper()
	ref := hook.AppRef{ID: id, Version: "1", Tenant: "default"}
	script := "var " + hook.BundleGlobal + " = { app: " + namespace + " };"
	if _, err := pool.Load(tb.Context(), ref, hook.Bundle{JS: []byte(script), Hash: id + "/1"}); err != nil {
		tb.Fatalf("load %s: %v", id, err)
	}
	return ref
}

func invoke(tb testing.TB, pool *workerpool.Pool, ref hook.AppRef, name, input string) (string, error) {
	tb.Helper()
	result, err := pool.Invoke(tb.Context(), hook.Call{App: ref, Hook: "t/" + name, Input: json.RawMessage(input)})
	return string(result.Output), err
}

func TestHookIsCalledOnItsTriggerWithInputAndContext(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	pool := newPool(t, host, workerpool.Options{Workers: 1})
	ref := loadHooks(t, pool, "app.call", `
		sync(input, ctx) { return [this.label, input.n, Object.keys(ctx)]; },
		async asynchronous(input) { await null; return input; },
		async fetching(input, ctx) { const r = await ctx.fetch("https://x.test/a"); return [r.status, await r.json()]; },
		zone() { return new Date(0).getTimezoneOffset(); },
		nothing(input, ctx) { ctx.log("warn", "called", { n: input.n }); },
	`)
	for name, want := range map[string]string{
		"sync":         `["the trigger",1,["fetch","log","file"]]`,
		"asynchronous": `{"n":1}`,
		"fetching":     `[200,{"ok":true}]`,
		"zone":         `0`,
		"nothing":      `null`,
	} {
		if got, err := invoke(t, pool, ref, name, `{"n":1}`); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
	want := []hook.LogLine{{Level: "warn", Message: "called", Data: json.RawMessage(`{"n":1}`)}}
	if diff := cmp.Diff(want, host.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
