package workerpool_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

// hostileLimits are short enough to test with. Grace is long: on a busy
// machine the soft limit must still be the one that ends what it can end.
func hostileLimits() hook.Limits {
	return hook.Limits{Wall: slowdown * 500 * time.Millisecond, Grace: slowdown * time.Second, MemBytes: 16 << 20, MaxHostOps: 8, MaxTimers: 100, MaxLog: 4096}
}

// TestHostileHooksAreStopped runs each hook beside good calls of another app:
// it must end with one of its codes within its limits, the good calls must go
// on, and the app must work again afterwards.
func TestHostileHooksAreStopped(t *testing.T) {
	t.Parallel()
	timeout, memory := []string{hook.CodeTimeout}, []string{hook.CodeMemory, hook.CodeTimeout}
	for name, test := range map[string]struct {
		body  string
		codes []string // empty: any, or none
	}{
		"endless loop":           {`for (;;) {}`, timeout},
		"loop that catches":      {`for (;;) { try { for (;;) {} } catch {} }`, timeout},
		"endless microtasks":     {`return (async () => { for (;;) await null; })()`, timeout},
		"self-feeding microtask": {`const f = () => Promise.resolve().then(f); f(); return new Promise(() => {})`, memory},
		"async restarts":         {`const f = async () => { try { for (;;) {} } finally { f(); } }; return f()`, timeout},
		"arrays":                 {`const a = []; for (;;) a.push(new Array(1e6).fill(1))`, memory},
		"objects":                {`const a = []; for (;;) a.push({ x: 1, y: 2 })`, memory},
		"strings":                {`let s = "x"; for (;;) s += s + s.toUpperCase()`, append(memory, hook.CodeThrew)},
		"typed arrays":           {`const a = []; for (;;) a.push(new Uint8Array(1 << 20))`, memory},
		"swallowed memory error": {`const a = []; for (;;) { try { a.push(new Array(1e5).fill({})); } catch {} }`, memory},
		"huge join":              {`return (new Array(3e8) + "").length`, append(memory, hook.CodeThrew)},
		"endless builtin":        {`return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)`, timeout},
		"deep recursion":         {`const f = () => f() + 1; return f()`, []string{hook.CodeThrew}},
		"deep JSON out":          {`let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; return o`, append(memory, hook.CodeThrew, hook.CodeReturnedInvalid)},
		"deep JSON in":           {`return JSON.parse("[".repeat(2e5))`, []string{hook.CodeThrew}},
		"catastrophic regexp":    {`return /^(a+)+$/.test("a".repeat(40) + "b")`, timeout},
		"big integers":           {`let n = 3n; for (;;) n *= n`, append(memory, hook.CodeThrew)},
		"never settles":          {`return new Promise(() => {})`, []string{hook.CodeUnsettled}},
		"timer flood":            {`for (let i = 0; i < 1e6; i++) setTimeout(() => {}, 1e6)`, []string{hook.CodeThrew}},
		"interval for ever":      {`setInterval(() => {}, 1); return new Promise(() => {})`, timeout},
		"waits too long":         {`return new Promise((r) => setTimeout(r, 1e7))`, timeout},
		"fetch flood":            {`for (let i = 0; i < 1e4; i++) ctx.fetch("https://x.test/" + i).catch(() => {}); return "done"`, nil},
		"log flood":              {`for (let i = 0; i < 1e5; i++) ctx.log("info", "x".repeat(1000)); return "done"`, nil},
		"100 MB result":          {`return "x".repeat(100 << 20)`, []string{hook.CodeMemory, hook.CodeTooLarge, hook.CodeTimeout}},
		"large result":           {`return "x".repeat(6 << 20)`, []string{hook.CodeTooLarge}},
		"hostile thrown value":   {`throw { get message() { for (;;) {} }, toString() { for (;;) {} }, toJSON() { for (;;) {} } }`, timeout},
		"endless toJSON":         {`return { toJSON() { for (;;) {} } }`, timeout},
		"endless global getter":  {`Object.defineProperty(globalThis, "x", { get() { for (;;) {} }, configurable: false }); return 1`, nil},
		"pollution":              {`try { Object.prototype.evil = 1; } catch {} Array.prototype.push = null`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkHostile(t, test.body, test.codes)
		})
	}
}

func checkHostile(t *testing.T, body string, codes []string) {
	t.Helper()
	limits := hostileLimits()
	pool := newPool(t, &fakeHost{}, workerpool.Options{Workers: 1, Limits: limits})
	bad := loadHooks(t, pool, "app.bad", `run(input, ctx) { `+body+` }, ok() { return "still fine"; }`)
	good := loadHooks(t, pool, "app.good", `ok() { return [typeof evil, [].push.length]; }`)

	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			if got, err := invoke(t, pool, good, "ok", `null`); err != nil || got != `["undefined",1]` {
				t.Errorf("a good call beside it: %s, %v", got, err)
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond): // leave the processor to the other
			}
		}
	})
	started := time.Now()
	_, err := pool.Invoke(t.Context(), hook.Call{App: bad, Hook: "t/run", Input: json.RawMessage(`null`)})
	took := time.Since(started)
	close(ended)
	group.Wait()

	if slowdown > 1 && len(codes) > 0 {
		codes = append(slices.Clone(codes), hook.CodeTimeout) // nothing is fast enough to be sure
	}
	if len(codes) > 0 && !slices.Contains(codes, hook.CodeOf(err)) {
		t.Errorf("got %v, want one of %v", err, codes)
	}
	if most := limits.Wall + limits.Grace + 5*time.Second; took > most {
		t.Errorf("took %s, more than %s", took, most)
	}
	if got, err := invoke(t, pool, bad, "ok", `null`); err != nil || got != `"still fine"` {
		t.Errorf("the same app afterwards: %s, %v", got, err)
	}
}

func TestHungAppsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	pool := newPool(t, &fakeHost{}, workerpool.Options{Workers: 1, PerApp: 4, Limits: hook.Limits{Wall: slowdown * 2 * time.Second, Grace: 5 * time.Second}})
	bad := loadHooks(t, pool, "app.bad", `loop() { for (;;) {} }`)
	good := loadHooks(t, pool, "app.good", `ok() { return 1; }`)
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			_, err := invoke(t, pool, bad, "loop", `null`)
			if code := hook.CodeOf(err); code != hook.CodeTimeout && code != hook.CodeWorkerLost {
				t.Errorf("hung call: %v", err)
			}
		})
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), slowdown*2*time.Second)
		if _, err := pool.Invoke(ctx, hook.Call{App: good, Hook: "t/ok"}); err != nil {
			t.Errorf("a good call waited: %v", err)
		}
		cancel()
	}
	pool.Unload(bad)
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
}
