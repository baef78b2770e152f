package jsvm_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/jsvm"
)

var prelude = sync.OnceValues(jsvm.CompilePrelude)

func limits() hook.Limits {
	return hook.Limits{MemBytes: 64 << 20, MaxOut: 4 << 20, MaxHostOps: 4, MaxTimers: 100, MaxLog: 4096}
}

// recorder is a jsvm.Host that keeps what it is asked for.
type recorder struct {
	fetches map[int]hook.FetchRequest
	lines   []hook.LogLine
}

func (r *recorder) Fetch(id int, request hook.FetchRequest) { r.fetches[id] = request }
func (r *recorder) Log(line hook.LogLine)                   { r.lines = append(r.lines, line) }

// newVM makes a VM whose app has trigger "t" with the given members.
func newVM(t *testing.T, members string) (*jsvm.VM, *recorder) {
	t.Helper()
	surface, err := prelude()
	if err != nil {
		t.Fatalf("compile prelude: %v", err)
	}
	program, err := jsvm.Compile([]byte("var " + hook.BundleGlobal + " = { app: { default: { triggers: [{ key: 't', " + members + " }] } } };"))
	if err != nil {
		t.Fatalf("compile app: %v", err)
	}
	vm, err := jsvm.New(surface, 64<<20)
	if err != nil {
		t.Fatalf("new VM: %v", err)
	}
	t.Cleanup(vm.Close)
	if err := vm.Load(program, time.Now().Add(time.Minute)); err != nil {
		t.Fatalf("load: %v", err)
	}
	return vm, &recorder{fetches: map[int]hook.FetchRequest{}}
}

// call runs a hook that needs nothing from outside to its end.
func call(t *testing.T, vm *jsvm.VM, host *recorder, c hook.Call) jsvm.Outcome {
	t.Helper()
	if c.Limits == (hook.Limits{}) {
		c.Limits = limits()
	}
	deadline := time.Now().Add(time.Minute)
	vm.Start(c, host, deadline, nil)
	for vm.Outcome() == nil && !vm.Wake().IsZero() {
		vm.Tick(vm.Wake())
	}
	outcome := vm.Outcome()
	if outcome == nil {
		t.Fatal("the call waits")
	}
	vm.End()
	return *outcome
}

// eval gives the JSON of a JS expression, which may await.
func eval(t *testing.T, expression string) string {
	t.Helper()
	vm, host := newVM(t, "async run(input, ctx) { return ("+expression+"); }")
	outcome := call(t, vm, host, hook.Call{Hook: "t/run", Input: json.RawMessage(`null`)})
	if outcome.Err != nil {
		t.Errorf("%s: %v\n%s", expression, outcome.Err, outcome.Err.Stack)
	}
	return string(outcome.Output)
}

// expect checks that expressions have the given JSON.
func expect(t *testing.T, table map[string]string) {
	t.Helper()
	for expression, want := range table {
		if got := eval(t, expression); got != want {
			t.Errorf("%s\n got %s\nwant %s", expression, got, want)
		}
	}
}
