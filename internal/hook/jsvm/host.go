package jsvm

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// hostFunction is one primitive of the prelude's `host` object. An error is
// thrown in JS as a TypeError.
type hostFunction struct {
	name string
	call func(vm *VM, args arguments) (value, error)
}

// hostFunctions is the whole way out of a VM.
var hostFunctions = []hostFunction{
	{"settle", (*VM).settle},
	{"fail", (*VM).failed},
	{"callNumber", func(vm *VM, _ arguments) (value, error) { return vm.engine.integer(vm.callNumber), nil }},
	{"rawBodyBase64", (*VM).rawBodyBase64},
	{"fetch", (*VM).fetch},
	{"log", (*VM).log},
	{"setTimer", (*VM).setTimer},
	{"clearTimer", (*VM).clearTimer},
	{"utf8Encode", func(vm *VM, args arguments) (value, error) { return vm.engine.buffer([]byte(args.text(0))), nil }},
	{"utf8Decode", func(vm *VM, args arguments) (value, error) { return vm.engine.str(string(args.bytes(0))), nil }},
	{"decode", (*VM).decode},
	{"btoa", (*VM).btoa},
	{"atob", (*VM).atob},
	{"percentDecode", func(vm *VM, args arguments) (value, error) { return vm.engine.str(percentDecode(args.text(0))), nil }},
	{"urlParse", (*VM).urlParse},
	{"urlSet", (*VM).urlSet},
	{"random", (*VM).random},
	{"randomUUID", func(vm *VM, _ arguments) (value, error) { return vm.engine.str(uuid.NewString()), nil }},
	{"digest", (*VM).digest},
	{"hmac", (*VM).hmac},
	{"hmacVerify", (*VM).hmacVerify},
	{"importKey", (*VM).importKey},
	{"exportKey", (*VM).exportKey},
	{"sign", (*VM).sign},
	{"verify", (*VM).verify},
}

// arguments are what JS passed. The prelude is the only caller, so a missing
// or odd one reads as zero instead of being an error.
type arguments struct {
	engine *engine
	values []value
}

func (a arguments) at(i int) value {
	if i >= len(a.values) {
		return undefined
	}
	return a.values[i]
}

func (a arguments) text(i int) string {
	s, _ := a.engine.goString(a.at(i))
	return s
}

func (a arguments) bytes(i int) []byte {
	b, _ := a.engine.bytes(a.at(i))
	return b
}

func (a arguments) isText(i int) bool    { return isString(a.at(i)) }
func (a arguments) number(i int) float64 { return a.engine.number(a.at(i)) }
func (a arguments) truth(i int) bool     { return a.number(i) != 0 }

func (vm *VM) hostCall(op int32, values []value) (result value) {
	// A panic must not unwind through the engine, which would be left half
	// done: it becomes an exception, and the VM is not used again.
	defer func() {
		if r := recover(); r != nil {
			vm.broken = true
			result = vm.engine.throw("internal error in host function " + hostFunctions[op].name)
		}
	}()
	result, err := hostFunctions[op].call(vm, arguments{engine: vm.engine, values: values})
	if err != nil {
		return vm.engine.throw(err.Error())
	}
	return result
}

func (vm *VM) settle(args arguments) (value, error) {
	if vm.outcome != nil {
		return undefined, nil
	}
	vm.hurry()
	text, ok := vm.engine.goString(args.at(0))
	switch {
	case !ok:
		vm.broken = true
		vm.outcome = &Outcome{Err: memoryError()}
	case int64(len(text)) > vm.call.Limits.MaxOut && vm.call.Limits.MaxOut > 0:
		vm.outcome = &Outcome{Err: &hook.Error{Code: hook.CodeTooLarge, Phase: "output", Message: "the hook's result is too large"}}
	default:
		vm.outcome = &Outcome{Output: []byte(text)}
	}
	return undefined, nil
}

// hurry gives what the app still has queued a little time only: the result is
// there, and nobody waits for the rest.
func (vm *VM) hurry() {
	if soon := time.Now().Add(afterlife); soon.Before(vm.engine.deadline) {
		vm.engine.deadline = soon
	}
}

// afterlife is how long an app may go on after its result.
const afterlife = 20 * time.Millisecond

// What a hook throws is kept up to these lengths.
const maxMessage, maxStack = 4 << 10, 16 << 10

func (vm *VM) failed(args arguments) (value, error) {
	if vm.outcome != nil {
		return undefined, nil
	}
	overdue := vm.engine.due()
	vm.hurry()
	failure := &hook.Error{
		Code: cmp.Or(args.text(0), hook.CodeThrew), Phase: phaseExecute,
		Name: clip(args.text(1), 256), Message: clip(args.text(2), maxMessage), Stack: clip(args.text(3), maxStack),
	}
	switch failure.Code {
	case hook.CodeReturnedInvalid:
		failure.Phase = "output"
	case hook.CodeNotDeclared:
		failure.Phase = "resolution"
	}
	if failure.Name == "InternalError" {
		// Out of time or stack: the app may be anywhere in its own code.
		vm.broken = true
		if overdue {
			failure = timeoutError()
		}
	}
	vm.outcome = &Outcome{Err: failure}
	return undefined, nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func (vm *VM) rawBodyBase64(args arguments) (value, error) {
	if int(args.number(0)) != vm.callNumber || vm.call.RawBody == nil {
		return undefined, nil
	}
	return vm.engine.str(base64.StdEncoding.EncodeToString(vm.call.RawBody)), nil
}

func (vm *VM) fetch(args arguments) (value, error) {
	if vm.host == nil || vm.outcome != nil || len(vm.fetches) >= vm.call.Limits.MaxHostOps {
		return vm.engine.integer(-1), nil
	}
	request := hook.FetchRequest{Method: args.text(0), URL: args.text(1), Body: args.bytes(3)}
	if err := json.Unmarshal([]byte(args.text(2)), &request.Headers); err != nil {
		return undefined, err
	}
	vm.nextID++
	vm.fetches = append(vm.fetches, vm.nextID)
	vm.host.Fetch(vm.nextID, request)
	return vm.engine.integer(vm.nextID), nil
}

// log counts bytes even for what it drops, so a flood stays cheap.
func (vm *VM) log(args arguments) (value, error) {
	if vm.host == nil || vm.logBytes > vm.call.Limits.MaxLog {
		return undefined, nil
	}
	line := hook.LogLine{Level: args.text(0), Message: clip(args.text(1), maxMessage)}
	if args.isText(2) {
		line.Data = json.RawMessage(args.text(2))
	}
	const overhead = 32
	vm.logBytes += len(line.Message) + len(line.Data) + overhead
	if vm.logBytes > vm.call.Limits.MaxLog {
		line = hook.LogLine{Level: "warn", Message: "the hook logs too much; the rest of this call's lines is dropped"}
	}
	vm.host.Log(line)
	return undefined, nil
}

func (vm *VM) setTimer(args arguments) (value, error) {
	if len(vm.timers) >= vm.call.Limits.MaxTimers {
		return undefined, errTooManyTimers
	}
	const longest = float64(24 * time.Hour / time.Millisecond)
	vm.nextID++
	t := timer{id: vm.nextID, at: time.Now().Add(time.Duration(min(args.number(0), longest) * float64(time.Millisecond)))}
	at, _ := slices.BinarySearchFunc(vm.timers, t, func(a, b timer) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id))
	})
	vm.timers = slices.Insert(vm.timers, at, t)
	return vm.engine.integer(t.id), nil
}

func (vm *VM) clearTimer(args arguments) (value, error) {
	id := int(args.number(0))
	vm.timers = slices.DeleteFunc(vm.timers, func(t timer) bool { return t.id == id })
	return undefined, nil
}

func (vm *VM) decode(args arguments) (value, error) {
	b := args.bytes(0)
	switch args.text(1) {
	case "utf-16le":
		units := make([]uint16, len(b)/2)
		for i := range units {
			units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
		}
		return vm.engine.str(string(utf16.Decode(units))), nil
	case "latin1":
		return vm.engine.str(latin1(b)), nil
	case "windows-1252":
		return vm.engine.str(windows1252(b)), nil
	}
	if args.truth(2) && !utf8.Valid(b) {
		return undefined, errNotUTF8
	}
	return vm.engine.str(string(b)), nil
}

func (vm *VM) btoa(args arguments) (value, error) {
	text := args.text(0)
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return null, nil
		}
		b = append(b, byte(r))
	}
	return vm.engine.str(base64.StdEncoding.EncodeToString(b)), nil
}

func (vm *VM) atob(args arguments) (value, error) {
	text := strings.Map(func(r rune) rune {
		if strings.ContainsRune("\t\n\f\r ", r) {
			return -1
		}
		return r
	}, args.text(0))
	if len(text)%4 == 0 {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return null, nil //nolint:nilerr // the prelude makes the error
	}
	return vm.engine.str(latin1(b)), nil
}

func (vm *VM) random(args arguments) (value, error) {
	b := make([]byte, int(args.number(0)))
	_, _ = rand.Read(b) // never fails
	return vm.engine.buffer(b), nil
}

func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}
