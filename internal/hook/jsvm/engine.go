package jsvm

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"modernc.org/libc"
	quickjs "modernc.org/libquickjs"
)

// value is a JS value. The engine counts references: whoever holds a value
// made by the engine must release it with free.
type value = quickjs.TJSValue

// engine is one QuickJS runtime with one context: values in, values out, no
// knowledge of apps. It is not safe for concurrent use, but may move between
// goroutines.
//
// It uses the transpiled library directly, not through modernc.org/quickjs:
// that wrapper passes every value through reflection and cannot hand over an
// ArrayBuffer, which would double the cost of a call.
type engine struct {
	tls       *libc.TLS
	rt, ctx   uintptr
	deadline  time.Time    // running JS stops here; zero is never
	cancelled *atomic.Bool // so does it once this turns true; may be nil
	stopped   bool         // one of the two interrupted JS

	memoryLimit int64
	starvedAt   uintptr // C memory: not zero once an allocation was refused

	// hostCall answers a host function; it owns nothing it is given.
	hostCall func(op int32, args []value) value
}

// engines finds the engine of a context: the library calls back with nothing
// but the context's address.
var engines sync.Map // ctx uintptr -> *engine

func engineOf(ctx uintptr) *engine {
	found, _ := engines.Load(ctx)
	e, _ := found.(*engine)
	return e
}

const evalFlags = quickjs.MJS_EVAL_TYPE_GLOBAL

func newEngine(memoryLimit int64) (*engine, error) {
	e := &engine{tls: libc.NewTLS()}
	e.rt = quickjs.XJS_NewRuntime(e.tls)
	if e.rt == 0 {
		e.tls.Close()
		return nil, errors.New("create JS runtime: out of memory")
	}
	e.watchMemory()
	e.limitMemory(memoryLimit)
	// Slots of the emulated C stack, about one per JS call: the depth at which
	// recursion throws instead of growing the goroutine's stack for ever.
	quickjs.XJS_SetMaxStackSize(e.tls, e.rt, quickjs.MaxStackSlots)
	e.ctx = quickjs.XJS_NewContext(e.tls, e.rt)
	if e.ctx == 0 {
		quickjs.XJS_FreeRuntime(e.tls, e.rt)
		libc.Xfree(nil, e.starvedAt)
		e.tls.Close()
		return nil, errors.New("create JS context: out of memory")
	}
	engines.Store(e.ctx, e)
	quickjs.XJS_SetInterruptHandler(e.tls, e.rt, funcPointer(interruptCallback), e.ctx)
	return e, nil
}

// close frees the engine. All values must have been freed, except after an
// out-of-memory error, when the engine may hold more than it should.
func (e *engine) close() {
	engines.Delete(e.ctx)
	quickjs.XJS_FreeContext(e.tls, e.ctx)
	quickjs.XJS_FreeRuntime(e.tls, e.rt)
	libc.Xfree(nil, e.starvedAt)
	e.tls.Close()
}

// watchMemory makes the engine remember that memory ran out. JS may catch the
// error, and with no memory left for one the engine throws null.
func (e *engine) watchMemory() {
	runtime := (*quickjs.TJSRuntime)(memoryAt(e.rt))
	e.starvedAt = libc.Xcalloc(nil, 1, quickjs.Tsize_t(unsafe.Sizeof(e.starvedAt)))
	if e.starvedAt == 0 {
		panic("jsvm: out of memory")
	}
	runtime.Fmalloc_ctx.Fmalloc_state.Fopaque = e.starvedAt
	runtime.Fmalloc_ctx.Fmf.Fjs_malloc = funcPointer(allocate)
	runtime.Fmalloc_ctx.Fmf.Fjs_realloc = funcPointer(reallocate)
}

// starved reports whether an allocation was refused since the last forgive.
func (e *engine) starved() bool { return *(*uintptr)(memoryAt(e.starvedAt)) != 0 }

func (e *engine) forgive() { *(*uintptr)(memoryAt(e.starvedAt)) = 0 }

// blockOverhead is what the engine counts for each block beside its size.
const blockOverhead = quickjs.MMALLOC_OVERHEAD

func allocate(tls *libc.TLS, state uintptr, size quickjs.Tsize_t) uintptr {
	s := (*quickjs.TJSMallocState)(memoryAt(state))
	if s.Fmalloc_size+size <= s.Fmalloc_limit {
		if p := libc.Xmalloc(tls, size); p != 0 {
			s.Fmalloc_count++
			s.Fmalloc_size += libc.Xmalloc_usable_size(tls, p) + blockOverhead
			return p
		}
	}
	*(*uintptr)(memoryAt(s.Fopaque)) = 1
	return 0
}

func reallocate(tls *libc.TLS, state, block uintptr, size quickjs.Tsize_t) uintptr {
	s := (*quickjs.TJSMallocState)(memoryAt(state))
	switch {
	case block == 0 && size == 0:
		return 0
	case block == 0:
		return allocate(tls, state, size)
	}
	old := libc.Xmalloc_usable_size(tls, block)
	if size == 0 {
		s.Fmalloc_count--
		s.Fmalloc_size -= old + blockOverhead
		libc.Xfree(tls, block)
		return 0
	}
	if s.Fmalloc_size+size-old <= s.Fmalloc_limit {
		if p := libc.Xrealloc(tls, block, size); p != 0 {
			s.Fmalloc_size += libc.Xmalloc_usable_size(tls, p) - old
			return p
		}
	}
	*(*uintptr)(memoryAt(s.Fopaque)) = 1
	return 0
}

func (e *engine) limitMemory(limit int64) {
	if limit != e.memoryLimit {
		e.memoryLimit = limit
		quickjs.XJS_SetMemoryLimit(e.tls, e.rt, quickjs.Tsize_t(limit))
	}
}

// memoryUsed is what the engine's allocator has handed out, in bytes.
func (e *engine) memoryUsed() int64 {
	runtime := (*quickjs.TJSRuntime)(memoryAt(e.rt))
	return int64(runtime.Fmalloc_ctx.Fmalloc_state.Fmalloc_size)
}

// propertyCount is the number of own properties of an object, without
// building the list.
func propertyCount(object value) int32 {
	o := (*quickjs.TJSObject)(*(*unsafe.Pointer)(unsafe.Pointer(&object)))
	shape := (*quickjs.TJSShape)(memoryAt(o.Fshape))
	return shape.Fprop_count - shape.Fdeleted_prop_count
}

// memoryAt is C memory, which the Go collector neither owns nor moves.
func memoryAt(address uintptr) unsafe.Pointer { return unsafe.Add(nil, address) }

func funcPointer(f any) uintptr {
	type funcInterface struct{ typ, data uintptr }
	return (*funcInterface)(unsafe.Pointer(&f)).data
}

func interruptCallback(_ *libc.TLS, _, opaque uintptr) int32 {
	if e := engineOf(opaque); e != nil && e.due() {
		return 1
	}
	return 0
}

// due reports whether JS must stop now, and remembers that it was told to.
func (e *engine) due() bool {
	if !e.deadline.IsZero() && time.Now().After(e.deadline) || e.cancelled != nil && e.cancelled.Load() {
		e.stopped = true
	}
	return e.stopped
}

func hostCallback(_ *libc.TLS, ctx uintptr, _ value, argc int32, argv uintptr, op int32) value {
	e := engineOf(ctx)
	if e == nil {
		return undefined
	}
	return e.hostCall(op, unsafe.Slice((*value)(memoryAt(argv)), argc))
}

var (
	undefined = value{Ftag: quickjs.EJS_TAG_UNDEFINED}
	null      = value{Ftag: quickjs.EJS_TAG_NULL}
)

func isException(v value) bool { return v.Ftag == quickjs.EJS_TAG_EXCEPTION }
func isString(v value) bool {
	return v.Ftag == quickjs.EJS_TAG_STRING || v.Ftag == quickjs.EJS_TAG_STRING_ROPE
}

func boolean(b bool) value {
	v := value{Ftag: quickjs.EJS_TAG_BOOL}
	if b {
		*(*uint64)(unsafe.Pointer(&v)) = 1
	}
	return v
}

func (e *engine) integer(n int) value {
	return quickjs.XNewInt32(e.tls, e.ctx, int32(n))
}

func (e *engine) free(v value) { quickjs.XFreeValue(e.tls, e.ctx, v) }

// cString copies s to C memory with a NUL behind it. Go memory may not be lent
// instead: a small buffer can live on the goroutine's stack, which moves when
// the engine recurses.
func cString(s string) uintptr {
	p := libc.Xmalloc(nil, quickjs.Tsize_t(len(s)+1))
	if p == 0 {
		panic("jsvm: out of memory")
	}
	memory := unsafe.Slice((*byte)(memoryAt(p)), len(s)+1)
	copy(memory, s)
	memory[len(s)] = 0
	return p
}

// str makes a JS string. Every byte that is not valid UTF-8 becomes U+FFFD.
func (e *engine) str(s string) value {
	if !utf8.ValidString(s) {
		s = decodeUTF8(s)
	}
	p := cString(s)
	defer libc.Xfree(nil, p)
	return quickjs.XJS_NewStringLen(e.tls, e.ctx, p, quickjs.Tsize_t(len(s)))
}

// buffer makes an ArrayBuffer holding a copy of b.
func (e *engine) buffer(b []byte) value {
	p := cString(unsafe.String(unsafe.SliceData(b), len(b)))
	defer libc.Xfree(nil, p)
	return quickjs.XJS_NewArrayBufferCopy(e.tls, e.ctx, p, quickjs.Tsize_t(len(b)))
}

// parseJSON parses JSON text without making a JS string of it first.
func (e *engine) parseJSON(text []byte) value {
	if !utf8.Valid(text) {
		text = []byte(decodeUTF8(string(text)))
	}
	p := cString(unsafe.String(unsafe.SliceData(text), len(text)))
	defer libc.Xfree(nil, p)
	name := cString("input")
	defer libc.Xfree(nil, name)
	return quickjs.XJS_ParseJSON(e.tls, e.ctx, p, quickjs.Tsize_t(len(text)), name)
}

// goString reads a JS string (or what toString makes of another value). Lone
// surrogates become U+FFFD. It reports false and drops the exception when the
// conversion threw.
func (e *engine) goString(v value) (string, bool) {
	// The out-parameter lives on the emulated C stack, as the callee holds its
	// address as a plain number.
	size := int(unsafe.Sizeof(quickjs.Tsize_t(0)))
	length := e.tls.Alloc(size)
	defer e.tls.Free(size)
	p := quickjs.XJS_ToCStringLen2(e.tls, e.ctx, length, v, 0)
	if p == 0 {
		e.free(quickjs.XJS_GetException(e.tls, e.ctx))
		return "", false
	}
	defer quickjs.XJS_FreeCString(e.tls, e.ctx, p)
	n := *(*quickjs.Tsize_t)(memoryAt(length))
	s := strings.Clone(unsafe.String((*byte)(memoryAt(p)), int(n)))
	if !utf8.ValidString(s) {
		s = wellFormed(s)
	}
	return s, true
}

// number reads a JS number, 0 when v is none.
func (e *engine) number(v value) float64 {
	size := 8
	p := e.tls.Alloc(size)
	defer e.tls.Free(size)
	if quickjs.XJS_ToFloat64(e.tls, e.ctx, p, v) != 0 {
		e.free(quickjs.XJS_GetException(e.tls, e.ctx))
		return 0
	}
	return *(*float64)(memoryAt(p))
}

// bytes copies the contents of a typed array; false when v is none.
func (e *engine) bytes(v value) ([]byte, bool) {
	const word = 8
	out := e.tls.Alloc(4 * word)
	defer e.tls.Free(4 * word)
	array := quickjs.XJS_GetTypedArrayBuffer(e.tls, e.ctx, v, out, out+word, out+2*word)
	if isException(array) {
		e.free(quickjs.XJS_GetException(e.tls, e.ctx))
		return nil, false
	}
	defer e.free(array)
	p := quickjs.XJS_GetArrayBuffer(e.tls, e.ctx, out+3*word, array)
	if p == 0 {
		e.free(quickjs.XJS_GetException(e.tls, e.ctx))
		return []byte{}, true
	}
	at := func(i uintptr) uintptr { return *(*uintptr)(memoryAt(out + i*word)) }
	offset, length, size := at(0), at(1), at(3)
	if offset > size || length > size-offset {
		return nil, false
	}
	return append([]byte(nil), unsafe.Slice((*byte)(memoryAt(p+offset)), length)...), true
}

// function makes the host function that reaches hostCall with op.
func (e *engine) function(name string, op int32) value {
	p := cString(name)
	defer libc.Xfree(nil, p)
	return quickjs.XJS_NewCFunction2(e.tls, e.ctx, funcPointer(hostCallback), p, 0, quickjs.EJS_CFUNC_generic_magic, op)
}

func (e *engine) setProperty(object value, name string, v value) {
	p := cString(name)
	defer libc.Xfree(nil, p)
	quickjs.XJS_SetPropertyStr(e.tls, e.ctx, object, p, v)
}

func (e *engine) property(object value, name string) value {
	p := cString(name)
	defer libc.Xfree(nil, p)
	return quickjs.XJS_GetPropertyStr(e.tls, e.ctx, object, p)
}

// throw makes err the exception of the running host function.
func (e *engine) throw(message string) value {
	format := cString("%s")
	defer libc.Xfree(nil, format)
	p := cString(message)
	defer libc.Xfree(nil, p)
	args := libc.NewVaList(p)
	defer libc.Xfree(nil, args)
	return quickjs.XJS_ThrowTypeError(e.tls, e.ctx, format, args)
}

// call calls function f; the exception, if any, is taken as *thrown.
func (e *engine) call(f, this value, args ...value) (value, error) {
	const size = unsafe.Sizeof(value{})
	argv := e.tls.Alloc(int(size) * max(len(args), 1))
	defer e.tls.Free(int(size) * max(len(args), 1))
	copy(unsafe.Slice((*value)(memoryAt(argv)), len(args)), args)
	return e.result(quickjs.XJS_Call(e.tls, e.ctx, f, this, int32(len(args)), argv))
}

func (e *engine) result(v value) (value, error) {
	if isException(v) {
		return undefined, e.takeException()
	}
	return v, nil
}

// compile turns a script into bytecode that load runs on any engine of this
// process.
func (e *engine) compile(name, script string) ([]byte, error) {
	code, err := e.result(e.eval(name, script, evalFlags|quickjs.MJS_EVAL_FLAG_COMPILE_ONLY))
	if err != nil {
		return nil, err
	}
	defer e.free(code)
	const size = 8
	length := e.tls.Alloc(size)
	defer e.tls.Free(size)
	p := quickjs.XJS_WriteObject(e.tls, e.ctx, length, code, quickjs.MJS_WRITE_OBJ_BYTECODE)
	if p == 0 {
		return nil, e.takeException()
	}
	defer quickjs.Xjs_free(e.tls, e.ctx, p)
	n := *(*quickjs.Tsize_t)(memoryAt(length))
	return append([]byte(nil), unsafe.Slice((*byte)(memoryAt(p)), n)...), nil
}

// load runs bytecode made by compile in this process.
func (e *engine) load(bytecode []byte) (value, error) {
	p := cString(unsafe.String(unsafe.SliceData(bytecode), len(bytecode)))
	defer libc.Xfree(nil, p)
	code, err := e.result(quickjs.XJS_ReadObject(e.tls, e.ctx, p, quickjs.Tsize_t(len(bytecode)), quickjs.MJS_READ_OBJ_BYTECODE))
	if err != nil {
		return undefined, err
	}
	return e.result(quickjs.XJS_EvalFunction(e.tls, e.ctx, code)) // takes over code
}

func (e *engine) eval(name, script string, flags int32) value {
	source, file := cString(script), cString(name)
	defer libc.Xfree(nil, source)
	defer libc.Xfree(nil, file)
	return quickjs.XJS_Eval(e.tls, e.ctx, source, quickjs.Tsize_t(len(script)), file, flags)
}

// runJobs runs queued promise reactions until there are none or the deadline
// has passed. The exception of a job belongs to nobody and is dropped.
func (e *engine) runJobs() {
	if quickjs.XJS_IsJobPending(e.tls, e.rt) == 0 {
		return
	}
	const size = 8
	context := e.tls.Alloc(size)
	defer e.tls.Free(size)
	for n := 0; ; n++ {
		status := quickjs.XJS_ExecutePendingJob(e.tls, e.rt, context)
		if status == 0 {
			return
		}
		if status < 0 {
			e.free(quickjs.XJS_GetException(e.tls, e.ctx))
		}
		// A job that is short enough never meets the engine's own check.
		if e.stopped || n%64 == 63 && e.due() {
			return
		}
	}
}

// thrown is a JS exception.
type thrown struct{ Name, Message, Stack string }

func (t *thrown) Error() string { return t.Name + ": " + t.Message }

func (e *engine) takeException() *thrown {
	v := quickjs.XJS_GetException(e.tls, e.ctx)
	defer e.free(v)
	t := &thrown{}
	if quickjs.XJS_IsError(e.tls, e.ctx, v) == 0 {
		t.Message, _ = e.goString(v)
		return t
	}
	for name, to := range map[string]*string{"name": &t.Name, "message": &t.Message, "stack": &t.Stack} {
		p := e.property(v, name)
		if isException(p) {
			e.free(quickjs.XJS_GetException(e.tls, e.ctx))
			continue
		}
		if isString(p) {
			*to, _ = e.goString(p)
		}
		e.free(p)
	}
	return t
}
