// Package jsvm is one app in one JavaScript VM: the engine, the Web surface
// hooks may use, and the calling convention of hooks. It knows nothing of
// processes, sockets or the rest of the host: what leaves the VM goes through
// Host.
package jsvm

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	quickjs "modernc.org/libquickjs"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

//go:embed prelude/*.js
var preludeFiles embed.FS

// AppFile is the name of the bundle in JS stacks.
const AppFile = "app.js"

// appGlobal is the variable a bundle leaves its exports in.
const appGlobal = hook.BundleGlobal

// Host takes what a running hook asks for. Its methods are called while JS
// runs and must not block.
type Host interface {
	// Fetch starts a request; Reply brings its answer.
	Fetch(id int, request hook.FetchRequest)
	Log(line hook.LogLine)
}

// Program is code compiled once and loaded into many VMs of this process.
type Program struct{ bytecode []byte }

// Compile compiles a bundle's script.
func Compile(script []byte) (*Program, error) { return compile(AppFile, string(script)) }

// CompilePrelude compiles the Web surface, which New needs.
func CompilePrelude() (*Program, error) {
	entries, err := preludeFiles.ReadDir("prelude")
	if err != nil {
		return nil, fmt.Errorf("read prelude: %w", err)
	}
	var script strings.Builder
	script.WriteString("(function (host) { \"use strict\";\n")
	for _, entry := range entries {
		text, err := preludeFiles.ReadFile("prelude/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read prelude: %w", err)
		}
		script.Write(text)
	}
	script.WriteString("})")
	return compile("host", script.String())
}

func compile(name, script string) (*Program, error) {
	e, err := newEngine(compileMemory)
	if err != nil {
		return nil, err
	}
	defer e.close()
	bytecode, err := e.compile(name, script)
	if err != nil {
		return nil, err
	}
	return &Program{bytecode: bytecode}, nil
}

// compileMemory bounds the engine that only compiles.
const compileMemory = 256 << 20

// VM holds one app and runs one call at a time.
type VM struct {
	engine *engine
	host   Host
	entry  struct{ load, describe, invoke, settleFetch, fireTimer, reset value }

	call       hook.Call
	callNumber int // names the current call, for what a call may leave behind
	outcome    *Outcome
	timers     []timer
	fetches    []int // ids under way
	nextID     int
	logBytes   int
	globals    int32 // own properties of the global object when at rest
	broken     bool
}

type timer struct {
	id int
	at time.Time
}

// Outcome is how a call ended: Output, or Err.
type Outcome struct {
	Output []byte
	Err    *hook.Error
}

// New makes a VM with the Web surface and no app.
func New(prelude *Program, memoryLimit int64) (*VM, error) {
	e, err := newEngine(memoryLimit)
	if err != nil {
		return nil, err
	}
	vm := &VM{engine: e}
	e.hostCall = vm.hostCall
	if err := vm.install(prelude); err != nil {
		e.close()
		return nil, fmt.Errorf("install the Web surface: %w", err)
	}
	return vm, nil
}

func (vm *VM) install(prelude *Program) error {
	e := vm.engine
	surface, err := e.load(prelude.bytecode)
	if err != nil {
		return err
	}
	defer e.free(surface)
	host := quickjs.XJS_NewObject(e.tls, e.ctx)
	defer e.free(host)
	for i := range hostFunctions {
		e.setProperty(host, hostFunctions[i].name, e.function(hostFunctions[i].name, int32(i)))
	}
	entry, err := e.call(surface, undefined, host)
	if err != nil {
		return err
	}
	defer e.free(entry)
	vm.entry.load = e.property(entry, "load")
	vm.entry.describe = e.property(entry, "describe")
	vm.entry.invoke = e.property(entry, "invoke")
	vm.entry.settleFetch = e.property(entry, "settleFetch")
	vm.entry.fireTimer = e.property(entry, "fireTimer")
	vm.entry.reset = e.property(entry, "reset")
	return nil
}

// Close frees the VM.
func (vm *VM) Close() {
	e := vm.engine
	for _, f := range []value{vm.entry.load, vm.entry.describe, vm.entry.invoke, vm.entry.settleFetch, vm.entry.fireTimer, vm.entry.reset} {
		e.free(f)
	}
	e.close()
}

// Load runs the app's module code, which may take until deadline, and finds
// its hooks.
func (vm *VM) Load(app *Program, deadline time.Time) *hook.Error {
	e := vm.engine
	e.deadline = deadline
	defer vm.leave()
	result, err := e.load(app.bytecode)
	if err != nil {
		return vm.loadError(err)
	}
	e.free(result)
	e.runJobs()
	global := quickjs.XJS_GetGlobalObject(e.tls, e.ctx)
	defer e.free(global)
	exported := e.property(global, appGlobal)
	defer e.free(exported)
	loaded, err := e.call(vm.entry.load, undefined, exported)
	if err != nil {
		return vm.loadError(err)
	}
	e.free(loaded)
	vm.globals = propertyCount(global)
	return nil
}

func (vm *VM) loadError(err error) *hook.Error {
	failure := vm.errorOf(err)
	failure.Phase = "load"
	if failure.Code == hook.CodeThrew {
		failure.Code = hook.CodeInvalidBundle
	}
	return failure
}

// Describe says what the app declares, as JSON of hook.Description's shape.
func (vm *VM) Describe() Outcome {
	e := vm.engine
	text, err := e.call(vm.entry.describe, undefined)
	if err != nil {
		return Outcome{Err: vm.loadError(err)}
	}
	defer e.free(text)
	s, ok := e.goString(text)
	if !ok {
		return Outcome{Err: vm.loadError(errors.New("out of memory"))}
	}
	return Outcome{Output: []byte(s)}
}

// Start begins a call, which must end (Outcome, then End) before the next. It
// is cut off at deadline, or when cancelled turns true.
func (vm *VM) Start(call hook.Call, host Host, deadline time.Time, cancelled *atomic.Bool) {
	e := vm.engine
	vm.call, vm.host, vm.outcome, vm.logBytes = call, host, nil, 0
	vm.callNumber++
	e.deadline, e.cancelled, e.stopped = deadline, cancelled, false
	e.limitMemory(call.Limits.MemBytes)
	e.forgive()

	input := null
	if len(call.Input) > 0 {
		input = e.parseJSON(call.Input)
	}
	if isException(input) {
		vm.fail(e.takeException(), "the hook's input is not JSON")
		return
	}
	defer e.free(input)
	extra := undefined
	if len(call.Ctx) > 0 {
		extra = e.parseJSON(call.Ctx)
	}
	if isException(extra) {
		vm.fail(e.takeException(), "the hook's context is not JSON")
		return
	}
	defer e.free(extra)
	raw := undefined
	if call.RawBody != nil && utf8.Valid(call.RawBody) {
		raw = e.str(string(call.RawBody))
	}
	defer e.free(raw)
	name := e.str(call.Hook)
	defer e.free(name)
	vm.enter(vm.entry.invoke, name, input, extra, boolean(call.RawBody != nil), raw)
}

// Reply settles a fetch. Replies to a fetch of an earlier call are dropped.
func (vm *VM) Reply(id int, response hook.FetchResponse, failure *hook.Error) {
	at := slices.Index(vm.fetches, id)
	if at < 0 || vm.outcome != nil {
		return
	}
	vm.fetches = slices.Delete(vm.fetches, at, at+1)
	e := vm.engine
	if failure != nil {
		text, _ := json.Marshal(map[string]string{"code": failure.Code, "message": failure.Message})
		problem := e.parseJSON(text)
		defer e.free(problem)
		vm.enter(vm.entry.settleFetch, e.integer(id), problem, undefined, undefined)
		return
	}
	head, _ := json.Marshal(map[string]any{
		"status": response.Status, "statusText": response.StatusText, "url": response.URL, "headers": nonNil(response.Headers),
	})
	answer := e.parseJSON(head)
	defer e.free(answer)
	body := undefined
	if response.Body != nil {
		body = e.buffer(response.Body)
	}
	defer e.free(body)
	if isException(answer) || isException(body) {
		vm.fail(e.takeException(), "")
		return
	}
	vm.enter(vm.entry.settleFetch, e.integer(id), undefined, answer, body)
}

func nonNil(headers [][2]string) [][2]string {
	if headers == nil {
		return [][2]string{}
	}
	return headers
}

// Tick fires the timers that are due.
func (vm *VM) Tick(now time.Time) {
	for vm.outcome == nil && len(vm.timers) > 0 && !vm.timers[0].at.After(now) {
		id := vm.timers[0].id
		vm.timers = slices.Delete(vm.timers, 0, 1)
		vm.enter(vm.entry.fireTimer, vm.engine.integer(id))
	}
}

// Wake is when Tick has something to do; zero when there are no timers.
func (vm *VM) Wake() time.Time {
	if len(vm.timers) == 0 {
		return time.Time{}
	}
	return vm.timers[0].at
}

// enter runs JS until it has nothing left to do, and notices when the call
// can never end.
func (vm *VM) enter(f value, args ...value) {
	e := vm.engine
	result, err := e.call(f, undefined, args...)
	if err != nil {
		vm.fail(err, "")
	} else {
		e.free(result)
		e.runJobs()
	}
	switch {
	case e.stopped:
		// What was running is cut off anywhere: the VM's state means nothing
		// any more. A result that was there before still counts.
		vm.broken = true
		if vm.outcome == nil {
			vm.outcome = &Outcome{Err: timeoutError()}
		}
	case vm.outcome == nil && len(vm.fetches) == 0 && len(vm.timers) == 0:
		vm.outcome = &Outcome{Err: &hook.Error{
			Code: hook.CodeUnsettled, Phase: phaseExecute, Message: "the hook waits for a promise that nothing can settle",
		}}
	}
	if e.starved() {
		vm.broken = true
		if vm.outcome != nil && vm.outcome.Err != nil && vm.outcome.Err.Code != hook.CodeTimeout {
			vm.outcome = &Outcome{Err: memoryError()}
		}
	}
}

// Expire ends a call whose deadline passed while it waited.
func (vm *VM) Expire() {
	vm.broken = true
	if vm.outcome == nil {
		vm.outcome = &Outcome{Err: timeoutError()}
	}
}

// Idle reports whether no call has been started since the last End.
func (vm *VM) Idle() bool { return vm.host == nil }

// Outcome is how the call ended, nil while it waits.
func (vm *VM) Outcome() *Outcome { return vm.outcome }

// End forgets the call. It reports whether the VM may serve another one.
func (vm *VM) End() bool {
	e := vm.engine
	left := len(vm.timers) > 0 || len(vm.fetches) > 0
	vm.timers, vm.fetches = vm.timers[:0], vm.fetches[:0]
	vm.call, vm.host = hook.Call{}, nil
	if vm.broken || e.memoryUsed() > e.memoryLimit*3/4 {
		return false
	}
	global := quickjs.XJS_GetGlobalObject(e.tls, e.ctx)
	defer e.free(global)
	if left || propertyCount(global) != vm.globals {
		e.deadline, e.cancelled = time.Now().Add(resetTime), nil
		defer vm.leave()
		clean, err := e.call(vm.entry.reset, undefined)
		if err != nil || e.stopped || e.number(clean) == 0 {
			return false
		}
	}
	return true
}

// resetTime bounds the clean-up after a call, where an app's getters may run.
const resetTime = 20 * time.Millisecond

// MemoryUsed is what the VM holds, in bytes.
func (vm *VM) MemoryUsed() int64 { return vm.engine.memoryUsed() }

func (vm *VM) leave() {
	vm.engine.deadline, vm.engine.cancelled, vm.engine.stopped = time.Time{}, nil, false
}

const phaseExecute = "execute"

func timeoutError() *hook.Error {
	return &hook.Error{Code: hook.CodeTimeout, Phase: phaseExecute, Message: "the hook ran out of time"}
}

// errorOf says what an exception that came out of the engine means.
func (vm *VM) errorOf(err error) *hook.Error {
	vm.broken = true
	var t *thrown
	switch {
	case vm.engine.stopped:
		return timeoutError()
	case vm.engine.starved():
		return memoryError()
	case !errors.As(err, &t):
		return &hook.Error{Code: hook.CodeThrew, Phase: phaseExecute, Message: err.Error()}
	}
	return &hook.Error{Code: hook.CodeThrew, Phase: phaseExecute, Name: t.Name, Message: t.Message, Stack: t.Stack}
}

func memoryError() *hook.Error {
	return &hook.Error{Code: hook.CodeMemory, Phase: phaseExecute, Message: "the hook ran out of memory"}
}

func (vm *VM) fail(err error, message string) {
	failure := vm.errorOf(err)
	if message != "" && failure.Code == hook.CodeThrew {
		failure.Code, failure.Message = hook.CodeReturnedInvalid, message
	}
	if vm.outcome == nil {
		vm.outcome = &Outcome{Err: failure}
	}
}
