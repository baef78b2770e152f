package jsvm_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/jsvm"
)

// outcomes runs each hook of members once on one VM.
func outcomes(t *testing.T, members string, c hook.Call, names ...string) map[string]jsvm.Outcome {
	t.Helper()
	vm, host := newVM(t, members)
	got := map[string]jsvm.Outcome{}
	for _, name := range names {
		c.Hook = "t/" + name
		got[name] = call(t, vm, host, c)
	}
	return got
}

func TestResultsAreJSONOrInvalid(t *testing.T) {
	t.Parallel()
	members := `
		nothing() {}, nil() { return null; }, date() { return { d: new Date(0) }; }, nan() { return [NaN, undefined, -0]; }, nested() { return { f() {}, a: 1 }; },
		cycle() { const o = {}; o.o = o; return o; }, big() { return { n: 1n }; }, func() { return () => 1; }, symbol() { return Symbol("x"); },
		toJSON() { return { toJSON() { throw new Error("no"); } }; }, large() { return "x".repeat(5 << 20); },
		thenable() { return { then(resolve) { resolve(7); } }; },
	`
	names := []string{"nothing", "nil", "date", "nan", "nested", "cycle", "big", "func", "symbol", "toJSON", "large", "thenable"}
	got := outcomes(t, members, hook.Call{}, names...)
	for name, want := range map[string]string{
		"nothing": "null", "nil": "null", "date": `{"d":"1970-01-01T00:00:00.000Z"}`, "nan": "[null,null,0]", "nested": `{"a":1}`, "thenable": "7",
	} {
		if string(got[name].Output) != want || got[name].Err != nil {
			t.Errorf("%s: got %s, %v, want %s", name, got[name].Output, got[name].Err, want)
		}
	}
	for _, name := range []string{"cycle", "big", "func", "symbol", "toJSON"} {
		if err := got[name].Err; err == nil || err.Code != hook.CodeReturnedInvalid || err.Phase != "output" {
			t.Errorf("%s: got %v, want %s", name, err, hook.CodeReturnedInvalid)
		}
	}
	if err := got["large"].Err; err == nil || err.Code != hook.CodeTooLarge {
		t.Errorf("large: got %v, want %s", err, hook.CodeTooLarge)
	}
}

func TestThrownErrorsCarryNameMessageAndStack(t *testing.T) {
	t.Parallel()
	members := `
		plain() { throw new TypeError("bad thing"); },
		async rejected() { await null; throw new RangeError("later"); },
		subclass() { class ApiError extends Error { constructor(m) { super(m); this.name = "ApiError"; this.status = 5; } } throw new ApiError("api"); },
		text() { throw "just text"; }, nothing() { throw undefined; }, object() { throw { a: 1 }; },
		hostile() { throw { get message() { throw 1; }, toString() { throw 2; }, toJSON() { throw 3; } }; },
	`
	got := outcomes(t, members, hook.Call{}, "plain", "rejected", "subclass", "text", "nothing", "object", "hostile")
	for name, want := range map[string][2]string{
		"plain": {"TypeError", "bad thing"}, "rejected": {"RangeError", "later"}, "subclass": {"ApiError", "api"},
		"text": {"", "just text"}, "nothing": {"", "undefined"}, "object": {"", `{"a":1}`}, "hostile": {"", "the thrown value cannot be shown"},
	} {
		err := got[name].Err
		if err == nil || err.Code != hook.CodeThrew || err.Name != want[0] || err.Message != want[1] {
			t.Errorf("%s: got %+v, want %q", name, err, want)
		}
	}
	if stack := got["plain"].Err.Stack; !strings.Contains(stack, jsvm.AppFile+":2:") {
		t.Errorf("stack does not name the bundle: %q", stack)
	}
}

func TestJSONTextSurvivesTheVM(t *testing.T) {
	t.Parallel()
	members := `echo(input) { return input; }, lengths(input) { return [input.nul.length, input.lone.charCodeAt(0), input.emoji.length]; }`
	input := `{"nul":"a\u0000b","lone":"\ud800","emoji":"😀","number":1e400,"id":"12345678901234567890","big":9007199254740993,"z":1,"a":2,"__proto__":{"x":1}}`
	got := outcomes(t, members, hook.Call{Input: json.RawMessage(input)}, "echo", "lengths")
	// Numbers become doubles, as JSON.parse makes them; strings and key order
	// stay. What a number loses is still in rawBody.
	want := `{"nul":"a\u0000b","lone":"\ud800","emoji":"😀","number":null,"id":"12345678901234567890","big":9007199254740992,"z":1,"a":2,"__proto__":{"x":1}}`
	if diff := cmp.Diff(want, string(got["echo"].Output)); diff != "" {
		t.Errorf("echo (-want +got):\n%s", diff)
	}
	if s := string(got["lengths"].Output); s != "[3,55296,2]" {
		t.Errorf("lengths: %s", s)
	}
}

func TestRawBodyIsBesideTheInput(t *testing.T) {
	t.Parallel()
	members := `
		read(input) { const { raw } = input; return [raw.rawBody === undefined ? null : raw.rawBody, raw.rawBodyBase64, Object.keys(raw), raw.body]; },
		json(input) { return JSON.parse(JSON.stringify(input.raw)); },
		spread(input) { return { ...input.raw }; },
		clone(input) { return structuredClone(input.raw); },
		replace(input) { input.raw.rawBodyBase64 = "mine"; return input.raw.rawBodyBase64; },
		keep(input) { this.kept ??= input.raw; return [this.kept.rawBodyBase64 ?? null]; },
	`
	input := json.RawMessage(`{"raw":{"body":1}}`)
	text := outcomes(t, members, hook.Call{Input: input, RawBody: []byte("é\x00")}, "read", "json", "spread", "clone", "replace")
	for name, want := range map[string]string{
		"read":    `["é\u0000","w6kA",["body","rawBody","rawBodyBase64"],1]`,
		"json":    `{"body":1,"rawBody":"é\u0000","rawBodyBase64":"w6kA"}`,
		"spread":  `{"body":1,"rawBody":"é\u0000","rawBodyBase64":"w6kA"}`,
		"clone":   `{"body":1,"rawBody":"é\u0000","rawBodyBase64":"w6kA"}`,
		"replace": `"mine"`,
	} {
		if got := string(text[name].Output); got != want {
			t.Errorf("%s: got %s, want %s (%v)", name, got, want, text[name].Err)
		}
	}
	binary := outcomes(t, members, hook.Call{Input: input, RawBody: []byte{0xff, 0}}, "read")
	if got := string(binary["read"].Output); got != `[null,"/wA=",["body","rawBodyBase64"],1]` {
		t.Errorf("binary: %s", got)
	}
	absent := outcomes(t, members, hook.Call{Input: input}, "read")
	if got := string(absent["read"].Output); got != `[null,null,["body"],1]` {
		t.Errorf("absent: %s", got)
	}
	empty := outcomes(t, members, hook.Call{Input: input, RawBody: []byte{}}, "read")
	if got := string(empty["read"].Output); got != `["","",["body","rawBody","rawBodyBase64"],1]` {
		t.Errorf("empty: %s", got)
	}
}

func TestHooksOfAuthMethodsAndContext(t *testing.T) {
	t.Parallel()
	surface, err := prelude()
	if err != nil {
		t.Fatal(err)
	}
	program, err := jsvm.Compile([]byte(`var ` + hook.BundleGlobal + ` = {
		app: { app: {
			auth: [{ key: "oauth", type: "oauth2", prefix: "Bearer ", sign(input, ctx) { return { ...input.request, headers: { authorization: this.prefix + input.credential.token } }; }, async refresh() { return {}; } }],
			triggers: [
				{ key: "a/b", onSubscribe(input, ctx) { return [ctx.connection.id, ctx.extra]; }, handleIngest: "./t/h.ts", poll: "./missing.ts" },
				{ key: "dup", poll() { return 1; }, parseOutput() {} }, { key: "dup", poll() { return 2; } },
			],
		} },
		modules: { "./t/h.ts": { default(input) { return [this.key, input]; } } },
	}`))
	if err != nil {
		t.Fatal(err)
	}
	vm, err := jsvm.New(surface, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vm.Close)
	if err := vm.Load(program, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var description hook.Description
	if err := json.Unmarshal(vm.Describe().Output, &description); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/b/onSubscribe", "a/b/handleIngest", "dup/poll", "auth:oauth/sign", "auth:oauth/refresh"}, description.Hooks); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	want := `{"auth":[{"key":"oauth","type":"oauth2","prefix":"Bearer "}],"triggers":[{"key":"a/b","handleIngest":"./t/h.ts","poll":"./missing.ts"},{"key":"dup"},{"key":"dup"}]}`
	if diff := cmp.Diff(want, string(description.Definition)); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
	host := &recorder{}
	for _, test := range []struct{ hook, input, ctx, want string }{
		{"auth:oauth/sign", `{"request":{"url":"u","headers":{}},"credential":{"token":"t"}}`, ``, `{"url":"u","headers":{"authorization":"Bearer t"}}`},
		{"a/b/onSubscribe", `{}`, `{"connection":{"id":"c1"},"extra":2}`, `["c1",2]`},
		{"a/b/handleIngest", `5`, ``, `["a/b",5]`},
		{"dup/poll", `{}`, ``, `2`},
	} {
		outcome := call(t, vm, host, hook.Call{Hook: test.hook, Input: json.RawMessage(test.input), Ctx: json.RawMessage(test.ctx)})
		if string(outcome.Output) != test.want {
			t.Errorf("%s: got %s, %v, want %s", test.hook, outcome.Output, outcome.Err, test.want)
		}
	}
	for _, missing := range []string{"a/b/poll", "nope/poll", "dup/parseOutput"} {
		if err := call(t, vm, host, hook.Call{Hook: missing}).Err; err == nil || err.Code != hook.CodeNotDeclared || err.Phase != "resolution" {
			t.Errorf("%s: %v, want %s", missing, err, hook.CodeNotDeclared)
		}
	}
}

func TestContextHasNoFiles(t *testing.T) {
	t.Parallel()
	if got := outcomes(t, `async f(input, ctx) { try { await ctx.file.read("x"); } catch (e) { return e.name; } }`, hook.Call{}, "f")["f"]; string(got.Output) != `"NotSupportedError"` {
		t.Errorf("got %s, %v", got.Output, got.Err)
	}
}

func TestNothingOfACallReachesTheNext(t *testing.T) {
	t.Parallel()
	members := `
		pollute() {
			const tried = [];
			const attempt = (f) => { try { f(); tried.push("ok"); } catch (e) { tried.push(e.name); } };
			attempt(() => { Object.prototype.polluted = 1; });
			attempt(() => { Array.prototype.map = () => "evil"; });
			attempt(() => { JSON.parse = () => "evil"; });
			attempt(() => { Object.defineProperty(String.prototype, "trim", { value: 1 }); });
			attempt(() => { URL.prototype.toString = () => "evil"; });
			attempt(() => { globalThis.URL = 1; });
			attempt(() => { Object.getPrototypeOf(async function () {}).x = 1; });
			attempt(() => { Object.setPrototypeOf(Array.prototype, { evil: 1 }); });
			attempt(() => { crypto.subtle.digest = 1; });
			attempt(() => { ({}).__proto__.y = 1; });
			globalThis.secret = "tenant data";
			globalThis[Symbol.for("secret")] = 1;
			setTimeout(() => { globalThis.late = 1; }, 0);
			Promise.resolve().then(() => { globalThis.micro = 1; });
			return tried;
		},
		look() {
			return [typeof polluted, [1].map((x) => x), JSON.parse("1"), " x ".trim(), String(new URL("https://x.test")), ({}).y === undefined, [].evil === undefined,
				typeof secret, typeof late, typeof micro, Symbol.for("secret") in globalThis];
		},
		heirs() { const o = {}; o.toString = () => "own"; o.constructor = 1; class E extends Error {} const e = new E("m"); e.message = "changed"; e.name = "E2"; const m = {}; m.hasOwnProperty = 1; return [String(o), o.constructor, String(e), Object.keys(m), Object.keys(o)]; },
	`
	got := outcomes(t, members, hook.Call{}, "pollute", "look", "heirs")
	if s := string(got["pollute"].Output); s == "" || got["pollute"].Err != nil {
		t.Errorf("pollute: %s, %v", s, got["pollute"].Err)
	}
	if s := string(got["look"].Output); s != `["undefined",[1],1,"x","https://x.test/",true,true,"undefined","undefined","undefined",false]` {
		t.Errorf("look: %s, %v", s, got["look"].Err)
	}
	if s := string(got["heirs"].Output); s != `["own",1,"E2: changed",["hasOwnProperty"],["toString","constructor"]]` {
		t.Errorf("heirs: %s, %v", s, got["heirs"].Err)
	}
}

func TestVMIsKeptOnlyWhenItIsClean(t *testing.T) {
	t.Parallel()
	vm, host := newVM(t, `
		clean() { return 1; },
		global() { globalThis.x = 1; },
		timer() { setTimeout(() => {}, 1e6); setInterval(() => {}, 1e6); },
		fetch(input, ctx) { ctx.fetch("https://x.test"); return 1; },
	`)
	for _, test := range []struct {
		hook string
		kept bool
	}{{"clean", true}, {"global", true}, {"timer", true}, {"fetch", true}, {"clean", true}, {"recursion", false}, {"caught", false}, {"after", false}, {"stuck", false}} {
		if !test.kept {
			vm, host = newVM(t, `
				recursion() { const f = () => f(); f(); },
				caught() { try { const a = []; for (;;) a.push(new Uint8Array(1 << 22)); } catch { return "survived"; } },
				after() { const f = async () => { for (;;) await null; }; f(); return "result"; },
				stuck() { Object.defineProperty(globalThis, "y", { value: 1 }); },
			`)
		}
		vm.Start(hook.Call{Hook: "t/" + test.hook, Limits: limits()}, host, time.Now().Add(time.Minute), nil)
		if vm.Outcome() == nil {
			t.Errorf("%s: no outcome", test.hook)
		}
		if test.hook == "after" && string(vm.Outcome().Output) != `"result"` {
			t.Errorf("after: %+v", vm.Outcome())
		}
		if kept := vm.End(); kept != test.kept {
			t.Errorf("%s: kept %t, want %t", test.hook, kept, test.kept)
		}
	}
}

func TestLogFloodIsCutOff(t *testing.T) {
	t.Parallel()
	vm, host := newVM(t, `flood(input, ctx) { for (let i = 0; i < 100000; i++) ctx.log("info", "x".repeat(100)); return 1; }`)
	if outcome := call(t, vm, host, hook.Call{Hook: "t/flood"}); string(outcome.Output) != "1" {
		t.Fatalf("got %s, %v", outcome.Output, outcome.Err)
	}
	last := host.lines[len(host.lines)-1]
	if len(host.lines) > 4096/100 || last.Level != "warn" || !strings.Contains(last.Message, "too much") {
		t.Errorf("%d lines, the last %+v", len(host.lines), last)
	}
}
