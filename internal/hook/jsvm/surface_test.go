package jsvm_test

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/jsvm"
)

func TestURL(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`new URL("../b?x=1#h", "https://u:p@Example.COM:8443/a/c/").href`: `"https://u:p@example.com:8443/a/b?x=1#h"`,
		`(() => { const u = new URL("https://u:p@example.com:8443/a?b=c#d");
			return [u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash, String(u)]; })()`: `["https://example.com:8443","https:","u","p","example.com:8443","example.com","8443","/a","?b=c","#d","https://u:p@example.com:8443/a?b=c#d"]`,
		`new URL("https://example.com:443/ä b").href`: `"https://example.com/%C3%A4%20b"`,
		`new URL("https://bücher.example/").hostname`: `"xn--bcher-kva.example"`,
		`(() => { const u = new URL("https://x.test/p?a=1"); u.searchParams.append("b", "2 3"); u.searchParams.set("a", "&"); return u.href; })()`:                           `"https://x.test/p?a=%26&b=2+3"`,
		`(() => { const u = new URL("https://x.test/p?a=1"); const p = u.searchParams; u.search = "?z=9"; return [p.get("a"), p.get("z"), u.searchParams === p]; })()`:       `[null,"9",true]`,
		`(() => { const u = new URL("https://x.test/"); u.pathname = "/q r"; u.hash = "top"; u.port = "81"; u.protocol = "http"; u.hostname = "y.test"; return u.href; })()`: `"http://y.test:81/q%20r#top"`,
		`(() => { try { new URL("not a url"); } catch (e) { return [e instanceof TypeError, e.message, e.code]; } })()`:                                                      `[true,"Invalid URL","ERR_INVALID_URL"]`,
		`[URL.canParse("x:y"), URL.canParse("nope"), URL.parse("nope"), new URL("data:text/plain,x").origin]`:                                                                `[true,false,null,"null"]`,

		`JSON.stringify({ u: new URL("https://x.test/a") })`:        `"{\"u\":\"https://x.test/a\"}"`,
		`Object.prototype.toString.call(new URL("https://x.test"))`: `"[object URL]"`,
	})
}

func TestURLSearchParams(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`new URLSearchParams({ a: "1", b: "x y&=+%é~*'()" }).toString()`: `"a=1&b=x+y%26%3D%2B%25%C3%A9%7E*%27%28%29"`,
		`[...new URLSearchParams("?a=1&a=2&b=%E2%82%AC+%zz&c")]`:         `[["a","1"],["a","2"],["b","€ %zz"],["c",""]]`,
		`new URLSearchParams([["a", 1], ["b", true]]).toString()`:        `"a=1&b=true"`,
		`(() => { const p = new URLSearchParams("b=2&a=1&b=3"); p.sort(); p.delete("b", "2"); return [p.toString(), p.size, p.has("b"), p.has("b", "9"), p.getAll("a")]; })()`: `["a=1&b=3",2,true,false,["1"]]`,
		`(() => { const out = []; new URLSearchParams("a=1&b=2").forEach((v, k) => out.push(k + v)); return out; })()`:                                                         `["a1","b2"]`,
		`new URLSearchParams("a=%FF").get("a")`:              "\"\ufffd\"",
		`new URLSearchParams("a=\ud800").toString()`:         `"a=%EF%BF%BD"`,
		`Object.fromEntries(new URLSearchParams("x=1&y=2"))`: `{"x":"1","y":"2"}`,
	})
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`[...new TextEncoder().encode("aé€😀\u0000\ud800")]`:                                                                                                                                       `[97,195,169,226,130,172,240,159,152,128,0,239,191,189]`,
		`new TextDecoder().decode(new Uint8Array([0xef,0xbb,0xbf,97,0,0xe2,0x82,0xff,0xc3]))`:                                                                                                     `"a\u0000` + "\ufffd\ufffd\ufffd\"",
		`new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array([0xef,0xbb,0xbf,97]))`:                                                                                               "\"\ufeffa\"",
		`(() => { const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2,0x82]), {stream:true}) + "|" + d.decode(new Uint8Array([0xac,0xf0]), {stream:true}) + "|" + d.decode(); })()`: "\"|€|\ufffd\"",
		`(() => { try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff])); } catch (e) { return e instanceof TypeError; } })()`:                                            `true`,
		`new TextDecoder("utf-16le").decode(new Uint8Array([0x3d,0xd8,0x00,0xde]))`:                                                                                                               `"😀"`,
		`new TextDecoder("latin1").decode(new Uint8Array([0xe9,0x80]))`:                                                                                                                           `"é€"`,
		`new TextDecoder().decode(new Uint8Array([1,97,98,2]).subarray(1,3))`:                                                                                                                     `"ab"`,
		`[btoa("hi\u0000\u00ff"), atob(" aGkA\n/w== ").charCodeAt(3)]`:                                                                                                                            `["aGkA/w==",255]`,
		`(() => { const out = []; for (const f of [() => btoa("€"), () => atob("a"), () => atob("a===")]) try { f(); out.push("no"); } catch (e) { out.push(e.name); } return out; })()`:          `["InvalidCharacterError","InvalidCharacterError","InvalidCharacterError"]`,
		`new TextEncoder().encodeInto("aé", new Uint8Array(2))`:                                                                                                                                   `{"read":1,"written":1}`,
	})
}

func TestHeadersRequestResponse(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`(() => { const h = new Headers({ "X-B": " 1 ", a: "2" }); h.append("x-b", "3"); h.append("Set-Cookie", "c=1"); h.append("set-cookie", "d=2"); return [[...h], h.get("X-b"), h.getSetCookie(), h.has("nope"), h.get("nope")]; })()`: `[[["a","2"],["set-cookie","c=1"],["set-cookie","d=2"],["x-b","1, 3"]],"1, 3",["c=1","d=2"],false,null]`,
		`(() => { const out = []; for (const f of [() => new Headers({ "a b": "x" }), () => new Headers({ a: "x\ny" })]) try { f(); } catch (e) { out.push(e.name); } return out; })()`:                                                     `["TypeError","TypeError"]`,
		`(() => { const r = new Request("https://x.test/a", { method: "post", body: new URLSearchParams({ a: "1" }) }); return [r.method, r.url, r.headers.get("content-type")]; })()`:                                                      `["POST","https://x.test/a","application/x-www-form-urlencoded;charset=UTF-8"]`,
		`await new Request("https://x.test/a", { method: "PUT", body: "é" }).text()`:                                                                                                                                                        `"é"`,
		`(() => { try { new Request("https://x.test", { body: "x" }); } catch (e) { return e.name; } })()`:                                                                                                                                  `"TypeError"`,
		`await (async () => { const r = new Response(JSON.stringify({ a: 1 }), { status: 201, statusText: "Made" }); const c = r.clone(); return [r.ok, r.status, r.statusText, await r.json(), r.bodyUsed, await c.text()]; })()`:          `[true,201,"Made",{"a":1},true,"{\"a\":1}"]`,
		`await (async () => { const r = new Response("x"); await r.text(); try { await r.text(); } catch (e) { return e.name; } })()`:                                                                                                       `"TypeError"`,
		`await (async () => { const r = new Response(new Uint8Array([1, 2])); await r.body?.cancel(); return r.bodyUsed; })()`:                                                                                                              `true`,
		`await (async () => { let n = 0; for await (const c of new Response("abc").body) n += c.length; return n; })()`:                                                                                                                     `3`,
		`await Response.json({ a: 1 }).json()`: `{"a":1}`,
		`new Response(null).body`:              `null`,
		`[...new Uint8Array(await new Response(new Blob(["ab", new Uint8Array([99])])).arrayBuffer())]`:                                                                   `[97,98,99]`,
		`await (async () => { const b = new Blob(["hello"], { type: "Text/Plain" }); return [b.size, b.type, await b.slice(1, 3).text(), (await b.bytes()).length]; })()`: `[5,"text/plain","el",5]`,
		`await (async () => { const f = new FormData(); f.append("a", "1"); f.append("a", "2"); f.set("b", new File(["x"], "n.txt", { type: "text/plain" })); const back = await new Response(f).formData(); const file = back.get("b"); return [back.getAll("a"), file.name, file.type, await file.text(), back.has("c")]; })()`: `[["1","2"],"n.txt","text/plain","x",false]`,
	})
}

func TestEventsTimersAndClones(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`(() => { const c = new AbortController(); const seen = []; c.signal.addEventListener("abort", (e) => seen.push(e.type)); c.signal.onabort = () => seen.push("on"); c.abort(); c.abort(); return [seen, c.signal.aborted, c.signal.reason.name]; })()`: `[["on","abort"],true,"AbortError"]`,
		`await new Promise((resolve) => AbortSignal.timeout(5).addEventListener("abort", function () { resolve(this.reason.name); }))`:                                                                                                                         `"TimeoutError"`,
		`AbortSignal.any([AbortSignal.abort("why")]).reason`: `"why"`,
		`await new Promise((resolve) => { const out = []; setTimeout((x) => { out.push(x); resolve(out); }, 20, "late"); setTimeout(() => out.push("early"), 5); clearTimeout(setTimeout(() => out.push("never"), 1)); queueMicrotask(() => out.push("micro")); out.push("sync"); })`:                             `["sync","micro","early","late"]`,
		`await new Promise((resolve) => { let n = 0; const id = setInterval(() => { if (++n === 3) { clearInterval(id); resolve(n); } }, 1); })`:                                                                                                                                                                  `3`,
		`(() => { const o = { d: new Date(0), m: new Map([[1, { x: 2 }]]), s: new Set([3]), u: new Uint8Array([4]), r: /a/gi, n: null }; o.self = o; const c = structuredClone(o); return [c.d.getTime(), c.m.get(1).x, [...c.s], [...c.u], String(c.r), c.self === c, c !== o, c.m.get(1) !== o.m.get(1)]; })()`: `[0,2,[3],[4],"/a/gi",true,true,true]`,
		`(() => { try { structuredClone({ f() {} }); } catch (e) { return [e.name, e instanceof DOMException, e instanceof Error, e.code]; } })()`:                                                                                                                                                                `["DataCloneError",true,true,25]`,
		`(() => { const t = new EventTarget(); let n = 0; t.addEventListener("x", () => n++, { once: true }); t.dispatchEvent(new Event("x")); t.dispatchEvent(new Event("x")); return n; })()`:                                                                                                                   `1`,
		`[typeof Symbol.dispose, typeof Symbol.asyncDispose]`:                                                   `["symbol","symbol"]`,
		`[typeof SharedArrayBuffer, typeof Atomics, typeof process, typeof require, typeof fetch, typeof host]`: `["undefined","undefined","undefined","undefined","undefined","undefined"]`,
	})
}

func TestLocale(t *testing.T) {
	t.Parallel()
	expect(t, map[string]string{
		`[(1234567.891).toLocaleString("en-US"), (0).toLocaleString(), (-1234).toLocaleString("en-US"), (1e21).toLocaleString(), NaN.toLocaleString()]`:                                              `["1,234,567.891","0","-1,234","1,000,000,000,000,000,000,000","NaN"]`,
		`[(12.5).toLocaleString("en-US", { style: "currency", currency: "USD" }), (0.256).toLocaleString("en-US", { style: "percent" }), (5).toLocaleString("en-US", { minimumFractionDigits: 2 })]`: `["$12.50","26%","5.00"]`,
		`(12345678901234567890n).toLocaleString("en-US")`: `"12,345,678,901,234,567,890"`,
		`(() => { const d = new Date(Date.UTC(2026, 0, 5, 15, 4, 9)); return [d.toLocaleString("en-US"), d.toLocaleDateString("en-US"), d.toLocaleTimeString("en-US"), d.toLocaleDateString("en-US", { weekday: "long", year: "numeric", month: "long", day: "numeric" }), d.toLocaleString("en-US", { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" }), d.toLocaleTimeString("en-US", { hour: "2-digit", minute: "2-digit", hour12: false })]; })()`: `["1/5/2026, 3:04:09 PM","1/5/2026","3:04:09 PM","Monday, January 5, 2026","Jan 5, 2026, 3:04 PM","15:04"]`,
		`(() => { try { new Date(0).toLocaleString("en-US", { timeZone: "Europe/Berlin" }); } catch (e) { return e.name; } })()`: `"RangeError"`,
		`[new Intl.NumberFormat("en-US").format(1234.5), new Intl.DateTimeFormat("en-US").format(new Date(0))]`:                  `["1,234.5","1/1/1970"]`,
	})
}

func TestConsoleAndLog(t *testing.T) {
	t.Parallel()
	vm, host := newVM(t, `run(input, ctx) { ctx.log("warn", "careful", { a: 1 }); ctx.log("loud", "x"); console.log("n", 1, { b: 2 }, new TypeError("bad")); console.error("e"); }`)
	if outcome := call(t, vm, host, hook.Call{Hook: "t/run"}); outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	want := []hook.LogLine{
		{Level: "warn", Message: "careful", Data: json.RawMessage(`{"a":1}`)},
		{Level: "info", Message: "x"},
		{Level: "info", Message: `n 1 {"b":2} TypeError: bad`},
		{Level: "error", Message: "e"},
	}
	if diff := cmp.Diff(want, host.lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestFetchBodiesReachTheHost(t *testing.T) {
	t.Parallel()
	vm, host := newVM(t, `async run(input, ctx) {
		const form = new FormData();
		form.append("field", "väl\nue");
		form.append('fi"le', new Blob([new Uint8Array([0, 255])], { type: "image/png" }), "a\"b.png");
		const [a, b] = await Promise.all([
			ctx.fetch(new URL("https://x.test/form"), { method: "POST", body: form }),
			ctx.fetch("https://x.test/get", { headers: { Accept: "a/b", "X-N": 5 } }),
		]);
		return [a.status, a.ok, a.statusText, a.headers.get("X-Thing"), a.url, a.redirected, await a.text(), await b.json()];
	}`)
	deadline := time.Now().Add(time.Minute)
	vm.Start(hook.Call{Hook: "t/run", Limits: limits()}, host, deadline, nil)
	if vm.Outcome() != nil || len(host.fetches) != 2 {
		t.Fatalf("outcome %v, %d fetches", vm.Outcome(), len(host.fetches))
	}
	for id, request := range host.fetches {
		if request.URL == "https://x.test/get" {
			if diff := cmp.Diff([][2]string{{"accept", "a/b"}, {"x-n", "5"}}, request.Headers); diff != "" || request.Body != nil || request.Method != http.MethodGet {
				t.Errorf("GET %v: %s", request, diff)
			}
			vm.Reply(id, hook.FetchResponse{Status: 200, URL: request.URL, Body: []byte(`{"ok":1}`)}, nil)
			continue
		}
		checkForm(t, request)
		vm.Reply(id, hook.FetchResponse{
			Status: 404, StatusText: "Gone fishing", URL: "https://x.test/moved", Headers: [][2]string{{"x-thing", "1"}}, Body: []byte("nö"),
		}, nil)
	}
	want := `[404,false,"Gone fishing","1","https://x.test/moved",true,"nö",{"ok":1}]`
	if outcome := vm.Outcome(); outcome == nil || string(outcome.Output) != want {
		t.Errorf("got %+v, want %s", outcome, want)
	}
	vm.End()
}

// checkForm reads a multipart body as a server would.
func checkForm(t *testing.T, request hook.FetchRequest) {
	t.Helper()
	var contentType string
	for _, h := range request.Headers {
		if h[0] == "content-type" {
			contentType = h[1]
		}
	}
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatalf("content type %q: %v", contentType, err)
	}
	reader := multipart.NewReader(strings.NewReader(string(request.Body)), parameters["boundary"])
	var got []string
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(part)
		got = append(got, part.Header.Get("Content-Disposition"), part.Header.Get("Content-Type"), string(content))
	}
	want := []string{
		`form-data; name="field"`, "", "väl\r\nue",
		`form-data; name="fi%22le"; filename="a%22b.png"`, "image/png", "\x00\xff",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestFetchErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	vm, host := newVM(t, `
		async caught(input, ctx) { try { await ctx.fetch("https://x.test"); } catch (e) { return [e instanceof TypeError, e.code, e.message]; } },
		async uncaught(input, ctx) { await ctx.fetch("https://x.test"); },
		async aborted(input, ctx) { const c = new AbortController(); const p = ctx.fetch("https://x.test", { signal: c.signal }); c.abort(); try { await p; } catch (e) { return e.name; } },
		async flood(input, ctx) { const all = await Promise.allSettled(Array.from({ length: 5 }, () => ctx.fetch("https://x.test"))); return all.map((r) => r.reason?.message ?? "sent"); },
		async invalid(input, ctx) { try { await ctx.fetch("nope"); } catch (e) { return e.message; } },
	`)
	denied := &hook.Error{Code: hook.CodeEgressDenied, Message: "not allowed"}
	run := func(name string) *jsvm.Outcome {
		vm.Start(hook.Call{Hook: "t/" + name, Limits: limits()}, host, time.Now().Add(time.Minute), nil)
		for id := range host.fetches {
			vm.Reply(id, hook.FetchResponse{}, denied)
		}
		clear(host.fetches)
		defer vm.End()
		return vm.Outcome()
	}
	if got := string(run("caught").Output); got != `[true,"egress_denied","not allowed"]` {
		t.Errorf("caught: %s", got)
	}
	if err := run("uncaught").Err; err == nil || err.Code != hook.CodeEgressDenied || err.Name != "TypeError" {
		t.Errorf("uncaught: %v", err)
	}
	if got := string(run("aborted").Output); got != `"AbortError"` {
		t.Errorf("aborted: %s", got)
	}
	if got := string(run("flood").Output); got != `["not allowed","not allowed","not allowed","not allowed","too many requests are under way"]` {
		t.Errorf("flood: %s", got)
	}
	if got := string(run("invalid").Output); got != `"Invalid URL"` {
		t.Errorf("invalid: %s", got)
	}
}
