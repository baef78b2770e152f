package workerpool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// Frames cross the socket both ways: a little-endian length of four bytes, a
// kind, then fields. A field is an unsigned varint, or bytes behind their
// length as one.
type frameKind byte

const (
	// From the pool to a worker.
	frameConfig    frameKind = iota + 1
	frameBundle              // a script, by number
	frameForget              // a bundle number that no app uses any more
	frameForgetApp           // an app number whose VMs are to go
	frameCall
	frameCancel
	frameReply // the answer to a frameFetch

	// From a worker to the pool.
	frameHello
	frameResult
	frameFetch
	frameLog
)

// maxFrame is more than any honest frame: a call's or a result's limit plus
// its headers.
const maxFrame = 64 << 20

const headSize = 5

var errFrame = errors.New("malformed frame")

// frames is a queue of encoded frames.
type frames []byte

func (f *frames) begin(kind frameKind) (at int) {
	at = len(*f)
	*f = append(*f, 0, 0, 0, 0, byte(kind))
	return at
}

func (f *frames) end(at int) {
	binary.LittleEndian.PutUint32((*f)[at:], uint32(len(*f)-at-headSize))
}

func (f *frames) uint(n uint64)        { *f = binary.AppendUvarint(*f, n) }
func (f *frames) bytes(b []byte)       { f.uint(uint64(len(b))); *f = append(*f, b...) }
func (f *frames) text(s string)        { f.uint(uint64(len(s))); *f = append(*f, s...) }
func (f *frames) flag(set bool)        { f.uint(map[bool]uint64{true: 1}[set]) }
func (f *frames) int(n int)            { f.uint(uint64(max(n, 0))) }
func (f *frames) span(d time.Duration) { f.uint(uint64(max(d, 0))) }

// frameReader cuts a stream into frames.
type frameReader struct {
	buffer []byte
	start  int // first byte not yet given out
}

// space is where the next read goes. It moves what is left to the front, so
// payloads given out before are no longer valid.
func (r *frameReader) space() []byte {
	const chunk = 64 << 10
	if r.start > 0 {
		r.buffer = r.buffer[:copy(r.buffer, r.buffer[r.start:])]
		r.start = 0
	}
	if cap(r.buffer) > 16*chunk && len(r.buffer) < chunk {
		r.buffer = append(make([]byte, 0, 2*chunk), r.buffer...) // one large frame should not stay for ever
	}
	r.buffer = slices.Grow(r.buffer, chunk)
	return r.buffer[len(r.buffer):cap(r.buffer)]
}

// filled says that n bytes of space were read.
func (r *frameReader) filled(n int) { r.buffer = r.buffer[:len(r.buffer)+n] }

// next gives the next whole frame; ok is false when more must be read. The
// payload is valid until space is called.
func (r *frameReader) next() (kind frameKind, payload fields, ok bool, err error) {
	rest := r.buffer[r.start:]
	if len(rest) < headSize {
		return 0, fields{}, false, nil
	}
	size := binary.LittleEndian.Uint32(rest)
	if size > maxFrame {
		return 0, fields{}, false, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	if len(rest) < headSize+int(size) {
		return 0, fields{}, false, nil
	}
	r.start += headSize + int(size)
	return frameKind(rest[4]), fields{rest: rest[headSize : headSize+int(size)]}, true, nil
}

// fields reads a frame's payload. After the first field that does not fit all
// others read as zero and bad is set.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 {
		f.bad, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[size:]
	return n
}

func (f *fields) bytes() []byte {
	n := f.uint()
	if n > uint64(len(f.rest)) {
		f.bad, f.rest = true, nil
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) text() string        { return string(f.bytes()) }
func (f *fields) flag() bool          { return f.uint() != 0 }
func (f *fields) int() int            { return int(min(f.uint(), 1<<62)) }
func (f *fields) span() time.Duration { return time.Duration(f.int()) }

func (f *fields) err() error {
	if f.bad {
		return errFrame
	}
	return nil
}

// config is what a worker is told first.
type config struct {
	dataLimit int // RLIMIT_DATA in bytes
	idleVMs   int // VMs kept between calls
	idleBytes int // and the memory they may hold together
}

func (f *frames) config(c config) {
	at := f.begin(frameConfig)
	f.int(c.dataLimit)
	f.int(c.idleVMs)
	f.int(c.idleBytes)
	f.end(at)
}

func (f *fields) config() config {
	return config{dataLimit: f.int(), idleVMs: f.int(), idleBytes: f.int()}
}

// request is one call on its way to a worker.
type request struct {
	id       uint64
	app      uint64 // a number, new for each Load
	bundle   uint64 // a number, one for each script
	describe bool   // say what the app declares instead of calling a hook
	call     hook.Call
}

func (f *frames) request(r request) {
	at := f.begin(frameCall)
	f.uint(r.id)
	f.uint(r.app)
	f.uint(r.bundle)
	f.flag(r.describe)
	f.text(r.call.Hook)
	f.bytes(r.call.Input)
	f.flag(r.call.RawBody != nil)
	f.bytes(r.call.RawBody)
	f.bytes(r.call.Ctx)
	limits := r.call.Limits
	f.span(limits.Wall)
	f.int(int(limits.MemBytes))
	f.int(int(limits.MaxOut))
	f.int(limits.MaxHostOps)
	f.int(limits.MaxTimers)
	f.int(limits.MaxLog)
	f.end(at)
}

func (f *fields) request() request {
	r := request{id: f.uint(), app: f.uint(), bundle: f.uint(), describe: f.flag()}
	r.call.Hook = f.text()
	r.call.Input = f.bytes()
	hasRaw := f.flag()
	if raw := f.bytes(); hasRaw {
		r.call.RawBody = append([]byte{}, raw...)
	}
	r.call.Ctx = f.bytes()
	r.call.Limits = hook.Limits{
		Wall: f.span(), MemBytes: int64(f.int()), MaxOut: int64(f.int()),
		MaxHostOps: f.int(), MaxTimers: f.int(), MaxLog: f.int(),
	}
	return r
}

// result is how a call ended in a worker.
type result struct {
	id     uint64
	output []byte
	err    *hook.Error
	cpu    time.Duration
	fresh  bool
	vms    int  // the worker holds this many now
	tired  bool // the worker has grown and wants to be replaced
}

func (f *frames) result(r result) {
	at := f.begin(frameResult)
	f.uint(r.id)
	f.span(r.cpu)
	f.flag(r.fresh)
	f.int(r.vms)
	f.flag(r.tired)
	f.flag(r.err != nil)
	if r.err != nil {
		f.failure(r.err)
	} else {
		f.bytes(r.output)
	}
	f.end(at)
}

func (f *fields) result() result {
	r := result{id: f.uint(), cpu: f.span(), fresh: f.flag(), vms: f.int(), tired: f.flag()}
	if f.flag() {
		r.err = f.failure()
	} else {
		r.output = append([]byte(nil), f.bytes()...)
	}
	return r
}

func (f *frames) failure(e *hook.Error) {
	f.text(e.Code)
	f.text(e.Phase)
	f.text(e.Name)
	f.text(e.Message)
	f.text(e.Stack)
}

func (f *fields) failure() *hook.Error {
	return &hook.Error{Code: f.text(), Phase: f.text(), Name: f.text(), Message: f.text(), Stack: f.text()}
}

func (f *frames) headers(headers [][2]string) {
	f.int(len(headers))
	for _, h := range headers {
		f.text(h[0])
		f.text(h[1])
	}
}

func (f *fields) headers() [][2]string {
	var headers [][2]string
	for range f.int() {
		if f.bad {
			return nil
		}
		headers = append(headers, [2]string{f.text(), f.text()})
	}
	return headers
}

func (f *frames) fetch(call uint64, op int, r hook.FetchRequest) {
	at := f.begin(frameFetch)
	f.uint(call)
	f.int(op)
	f.text(r.Method)
	f.text(r.URL)
	f.headers(r.Headers)
	f.flag(r.Body != nil)
	f.bytes(r.Body)
	f.end(at)
}

func (f *fields) fetch() (call uint64, op int, r hook.FetchRequest) {
	call, op = f.uint(), f.int()
	r = hook.FetchRequest{Method: f.text(), URL: f.text(), Headers: f.headers()}
	hasBody := f.flag()
	if body := f.bytes(); hasBody {
		r.Body = append([]byte{}, body...)
	}
	return call, op, r
}

// reply is the answer to a fetch: response, or err.
type reply struct {
	call     uint64
	op       int
	response hook.FetchResponse
	err      *hook.Error
}

func (f *frames) reply(r reply) {
	at := f.begin(frameReply)
	f.uint(r.call)
	f.int(r.op)
	f.flag(r.err != nil)
	if r.err != nil {
		f.failure(r.err)
	} else {
		f.int(r.response.Status)
		f.text(r.response.StatusText)
		f.text(r.response.URL)
		f.headers(r.response.Headers)
		f.flag(r.response.Body != nil)
		f.bytes(r.response.Body)
	}
	f.end(at)
}

func (f *fields) reply() reply {
	r := reply{call: f.uint(), op: f.int()}
	if f.flag() {
		r.err = f.failure()
		return r
	}
	r.response = hook.FetchResponse{Status: f.int(), StatusText: f.text(), URL: f.text(), Headers: f.headers()}
	hasBody := f.flag()
	if body := f.bytes(); hasBody {
		r.response.Body = append([]byte{}, body...)
	}
	return r
}

func (f *frames) log(call uint64, line hook.LogLine) {
	at := f.begin(frameLog)
	f.uint(call)
	f.text(line.Level)
	f.text(line.Message)
	f.bytes(line.Data)
	f.end(at)
}

func (f *fields) log() (call uint64, line hook.LogLine) {
	call = f.uint()
	line = hook.LogLine{Level: f.text(), Message: f.text()}
	if data := f.bytes(); len(data) > 0 {
		line.Data = append([]byte(nil), data...)
	}
	return call, line
}

func (f *frames) script(bundle uint64, script []byte) {
	at := f.begin(frameBundle)
	f.uint(bundle)
	f.bytes(script)
	f.end(at)
}

// number is a frame whose only field is a number.
func (f *frames) number(kind frameKind, n uint64) {
	at := f.begin(kind)
	f.uint(n)
	f.end(at)
}
