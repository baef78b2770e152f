package workerpool

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

func TestFramesSurviveTheWire(t *testing.T) {
	t.Parallel()
	call := request{id: 7, app: 1 << 40, bundle: 3, describe: true, call: hook.Call{
		Hook: "t/poll", Input: []byte(`{"a":1}`), RawBody: []byte{0, 255}, Ctx: []byte(`{}`),
		Limits: hook.Limits{Wall: time.Second, MemBytes: 64 << 20, MaxOut: 5, MaxHostOps: 6, MaxTimers: 7, MaxLog: 8},
	}}
	good := result{id: 9, output: []byte("[1]"), cpu: time.Millisecond, fresh: true, vms: 4, tired: true}
	bad := result{id: 10, err: &hook.Error{Code: "c", Phase: "p", Name: "n", Message: "m", Stack: "s"}}
	answer := reply{call: 1, op: 2, response: hook.FetchResponse{Status: 200, StatusText: "OK", URL: "u", Headers: [][2]string{{"a", "b"}}, Body: []byte{}}}
	refusal := reply{call: 1, op: 2, err: &hook.Error{Code: "c", Message: "m"}}
	fetch := hook.FetchRequest{Method: "GET", URL: "u", Headers: [][2]string{{"a", ""}, {"", "b"}}, Body: []byte("x")}
	line := hook.LogLine{Level: "info", Message: "m", Data: []byte(`1`)}

	var f frames
	f.request(call)
	f.result(good)
	f.result(bad)
	f.reply(answer)
	f.reply(refusal)
	f.fetch(5, 6, fetch)
	f.log(8, line)
	f.config(config{dataLimit: 1, idleVMs: 2, idleBytes: 3})
	f.script(4, []byte("js"))
	f.number(frameCancel, 11)

	// One byte at a time, as the worst socket would give them.
	var r frameReader
	var got []any
	for _, b := range f {
		r.space()[0] = b
		r.filled(1)
		kind, p, ok, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		p.rest = slices.Clone(p.rest) // the next read reuses it
		switch kind {
		case frameCall:
			got = append(got, p.request())
		case frameResult:
			got = append(got, p.result())
		case frameReply:
			got = append(got, p.reply())
		case frameFetch:
			number, op, request := p.fetch()
			got = append(got, number, op, request)
		case frameLog:
			number, l := p.log()
			got = append(got, number, l)
		case frameConfig:
			got = append(got, p.config())
		case frameBundle:
			got = append(got, p.uint(), p.text())
		case frameCancel:
			got = append(got, p.uint())
		case frameForget, frameForgetApp, frameHello:
			t.Errorf("frame of kind %d", kind)
		}
		if err := p.err(); err != nil || len(p.rest) > 0 {
			t.Errorf("frame of kind %d: %v, %d bytes left", kind, err, len(p.rest))
		}
	}
	want := []any{
		call, good, bad, answer, refusal, uint64(5), 6, fetch, uint64(8), line,
		config{dataLimit: 1, idleVMs: 2, idleBytes: 3},
		uint64(4), "js", uint64(11),
	}
	options := cmp.Options{cmp.AllowUnexported(request{}, result{}, reply{}, config{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestFrameReaderRefusesHugeFrames(t *testing.T) {
	t.Parallel()
	var r frameReader
	r.filled(copy(r.space(), []byte{0xff, 0xff, 0xff, 0xff, byte(frameResult)}))
	if _, _, _, err := r.next(); !errors.Is(err, errFrame) {
		t.Errorf("got %v, want errFrame", err)
	}
}

// FuzzFrames feeds the decoder what a broken worker could send: it may fail,
// but not panic, and not make more of a frame than the frame holds.
func FuzzFrames(f *testing.F) {
	var seed frames
	seed.result(result{id: 1, output: []byte("[]")})
	seed.result(result{id: 2, err: &hook.Error{Code: "x"}})
	seed.fetch(1, 2, hook.FetchRequest{Method: "GET", URL: "https://x.test", Headers: [][2]string{{"a", "b"}}})
	seed.log(1, hook.LogLine{Level: "info", Message: "m", Data: []byte("{}")})
	seed.request(request{id: 1, call: hook.Call{Hook: "t/poll", RawBody: []byte("x")}})
	seed.reply(reply{call: 1, op: 1, response: hook.FetchResponse{Status: 200, Headers: [][2]string{{"a", "b"}}}})
	f.Add([]byte(seed))
	f.Add([]byte{1, 0, 0, 0, byte(frameResult), 0x80})
	f.Fuzz(func(t *testing.T, stream []byte) {
		var r frameReader
		for len(stream) > 0 {
			n := copy(r.space(), stream)
			r.filled(n)
			stream = stream[n:]
			for {
				kind, p, ok, err := r.next()
				if err != nil {
					return
				}
				if !ok {
					break
				}
				size := len(p.rest)
				decode(t, kind, p, size)
			}
		}
	})
}

func decode(t *testing.T, kind frameKind, p fields, size int) {
	t.Helper()
	var held int
	switch kind {
	case frameResult:
		held = len(p.result().output)
	case frameFetch:
		_, _, r := p.fetch()
		held = len(r.Body) + len(r.Headers)
	case frameLog:
		_, line := p.log()
		held = len(line.Message) + len(line.Data)
	case frameCall:
		r := p.request()
		held = len(r.call.Input) + len(r.call.RawBody)
	case frameReply:
		r := p.reply()
		held = len(r.response.Body) + len(r.response.Headers)
	case frameConfig, frameBundle, frameForget, frameForgetApp, frameCancel, frameHello:
		_ = p.uint()
	}
	if held > size {
		t.Errorf("frame of %d bytes gave %d", size, held)
	}
}

func TestSourceMapsPointAtTheAuthorsFiles(t *testing.T) {
	t.Parallel()
	// Line 1 of the bundle: column 0 -> a.ts 1:1, column 4 -> a.ts 1:9.
	// Line 3: column 2 -> b.ts 3:1 (differences run on).
	text := []byte(`{"version":3,"sources":["a.ts","lib/b.ts"],"mappings":"AAAA,IAAQ;;ECER"}`)
	for stack, want := range map[string]string{
		"    at f (app.js:1:1)":                             "    at f (a.ts:1:1)",
		"    at f (app.js:1:7)":                             "    at f (a.ts:1:9)",
		"    at f (app.js:3:3)":                             "    at f (lib/b.ts:3:1)",
		"    at f (app.js:2:3)":                             "    at f (app.js:2:3)",
		"    at f (app.js:99:3)":                            "    at f (app.js:99:3)",
		"    at f (app.js:1:1)\n    at invoke (host:1:2)\n": "    at f (a.ts:1:1)",
		"": "",
	} {
		if got := mapStack(stack, text); got != want {
			t.Errorf("mapStack(%q) = %q, want %q", stack, got, want)
		}
	}
	for _, bad := range []string{"", "{", `{"sources":[],"mappings":"AAAA"}`} {
		if got := mapStack("at f (app.js:1:1)", []byte(bad)); got != "at f (app.js:1:1)" {
			t.Errorf("with map %q: %q", bad, got)
		}
	}
}
