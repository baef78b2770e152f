package triggercall_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

const origin = "https://hooks.example"

func post(contentType, body string) *trigger.Call {
	call := &trigger.Call{Method: "POST", Path: "/triggers/webhooks/sub_x", Body: []byte(body)}
	if contentType != "" {
		call.Header = []trigger.Field{{Name: "content-type", Value: contentType}}
	}
	return call
}

func viewOf(t *testing.T, call *trigger.Call) map[string]json.RawMessage {
	t.Helper()
	raw := triggercall.HookView(call, origin)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatalf("the view is not JSON: %v\n%s", err, raw)
	}
	return fields
}

func TestJSONBodiesSurviveByteForByte(t *testing.T) {
	t.Parallel()

	for name, body := range map[string]string{
		"C01 NUL escape":   `{"diff":"a\u0000b"}`,
		"C03 order and LF": `{"zebra":1,"alpha":2.0, "mango":1e3,"u":"\u00e9"}` + "\n",
		"big number":       `[12345678901234567890.000000000000000001,1e400]`,
		"lone surrogate":   `"\ud800"`,
		"C06 null":         "null", "C06 zero": "0", "C06 false": "false", "C06 empty text": `""`, "C06 empty list": "[]", "C06 empty object": "{}",
		"C06 batch":     `[{"n":1},{"n":2}]`,
		"duplicate key": `{"a":1,"a":2}`,
	} {
		for _, contentType := range []string{
			"application/json", "Application/JSON; charset=utf-8", "application/vnd.github+json", "text/json", "application/json;", "application/json; charset=nonsense-1",
		} {
			call := post(contentType, body)
			if event := triggercall.BodyEvent(call); event != nil {
				t.Errorf("%s as %s: the event is %s, want the body as it stands", name, contentType, event)
			}
			view := string(triggercall.HookView(call, origin))
			if !strings.Contains(view, `,"body":`+body+`,"url":`) {
				t.Errorf("%s as %s: the body is not in the view as sent:\n%s", name, contentType, view)
			}
		}
	}
}

func TestBodiesByContentType(t *testing.T) {
	t.Parallel()

	const multipart = "--XBOUND\r\nContent-Disposition: form-data; name=\"timestamp\"\r\n\r\n1529006854\r\n" +
		"--XBOUND\r\nContent-Disposition: form-data; name=\"attachment-1\"; filename=\"a.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n\x25\xf3\xdb\x00\xff\r\n\r\n" +
		"--XBOUND\r\nContent-Disposition: form-data; name=\"attachment-2\"; filename=\"empty.txt\"\r\nContent-Type: text/plain\r\n\r\n\r\n--XBOUND--\r\n"
	for _, c := range []struct{ name, contentType, body, want, problem string }{
		{name: "C06 zero bytes", contentType: "application/json", want: `null`},
		{name: "C06 no content type, no bytes", want: `null`},
		{name: "C06 one space", contentType: "application/json", body: " ", want: `" "`, problem: "not valid JSON"},
		{name: "C06 broken", contentType: "application/json", body: `{"a":`, want: `"{\"a\":"`, problem: "not valid JSON"},
		{name: "two values", contentType: "application/json", body: `1 2`, want: `"1 2"`, problem: "not valid JSON"},
		{name: "JSON that is not UTF-8", contentType: "application/json", body: "\"\xff\"", want: "\"\\\"\uFFFD\\\"\"", problem: "not valid JSON"},
		{name: "JSON in a declared charset", contentType: "application/json; charset=iso-8859-1", body: "\"\xeb\"", want: `"ë"`},
		{name: "JSON in UTF-16", contentType: "application/json; charset=utf-16le", body: "[\x001\x00]\x00", want: `[1]`},
		{name: "JSON behind a BOM", contentType: "application/json", body: "\xef\xbb\xbf{\"a\": 1}", want: `{"a": 1}`},
		{name: "C02 Latin-1", contentType: "text/plain; charset=iso-8859-1", body: "\x48\xeb\x6c\x6c\x6f", want: `"Hëllo"`},
		{name: "C02 unknown charset", contentType: "text/plain; charset=nonsense-1", body: "\x48\xeb\x6c\x6c\x6f", want: "\"H\uFFFDllo\""},
		{name: "C02 octet-stream", contentType: "application/octet-stream", body: "\x48\xeb", want: "\"H\uFFFD\""},
		{name: "charset of a broken content type", contentType: "text/plain; charset=iso-8859-1; charset=x", body: "\xeb", want: `"ë"`},
		{name: "C11 JSON as text stays text", contentType: "text/plain; charset=UTF-8", body: `{"n":1}`, want: `"{\"n\":1}"`},
		{name: "no content type", body: `{"n":1}`, want: `"{\"n\":1}"`},
		{name: "XML", contentType: "application/xml", body: "<a b=\"c\">\n</a>", want: `"<a b=\"c\">\n</a>"`},
		{name: "control characters", contentType: "text/plain", body: "\x00\x1f\x7f\t\r\\", want: `"\u0000\u001f\u007f\t\r\\"`},
		{name: "C05 form", contentType: "application/x-www-form-urlencoded", body: "tag=x&tag=y&note=%2B+&empty=&bare&bad=%zz%", want: `{"tag":["x","y"],"note":["+ "],"empty":[""],"bare":[""],"bad":["%zz%"]}`},
		{name: "C04 GitHub's form", contentType: "application/x-www-form-urlencoded", body: "payload=%7B%22zen%22%3A1%7D", want: `{"payload":["{\"zen\":1}"]}`},
		{name: "form that is not UTF-8", contentType: "application/x-www-form-urlencoded", body: "a=%ff&\xff=1", want: "{\"a\":[\"\uFFFD\"],\"\uFFFD\":[\"1\"]}"},
		{
			name: "C07 multipart", contentType: "multipart/form-data; boundary=XBOUND", body: multipart,
			want: `{"fields":{"timestamp":["1529006854"]},"files":[{"name":"attachment-1","filename":"a.bin","contentType":"application/octet-stream","size":7,"base64":"JfPbAP8NCg=="},` +
				`{"name":"attachment-2","filename":"empty.txt","contentType":"text/plain","size":0,"text":""}]}`,
		},
		{name: "C07 boundary that never appears", contentType: "multipart/form-data; boundary=other", body: "--XBOUND", want: `"--XBOUND"`, problem: "not valid multipart/form-data"},
		{name: "multipart without boundary", contentType: "multipart/form-data", body: "x", want: `"x"`, problem: "not valid multipart/form-data"},
		{name: "multipart that stops", contentType: "multipart/form-data; boundary=XBOUND", body: multipart[:60], want: `"--XBOUND\r\nContent-Disposition: form-data; name=\"timestamp\"\r\n"`, problem: "not valid multipart/form-data"},
		{name: "file input without a file", contentType: "multipart/form-data; boundary=B", body: "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\"\r\n\r\n\r\n--B--", want: `{"fields":{},"files":[{"name":"f","filename":"","contentType":"","size":0,"text":""}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := post(c.contentType, c.body)
			fields := viewOf(t, call)
			if diff := cmp.Diff(c.want, string(fields["body"])); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, string(triggercall.BodyEvent(call))); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			var problem string
			if raw, ok := fields["bodyError"]; ok {
				if err := json.Unmarshal(raw, &problem); err != nil {
					t.Fatal(err)
				}
			}
			if problem != c.problem {
				t.Errorf("bodyError is %q, want %q", problem, c.problem)
			}
		})
	}
}

func TestABodyThatIsNotCompressedAsItSaysIsText(t *testing.T) {
	t.Parallel()

	call := post("application/json", `{"plain":true}`)
	call.Header = append(call.Header, trigger.Field{Name: "content-encoding", Value: "gzip"})
	fields := viewOf(t, call)
	if got := string(fields["bodyError"]); got != `"the body is not compressed as its content-encoding says"` {
		t.Errorf("bodyError is %s", got)
	}
}

func TestTheHookSeesTheWholeCallUnmasked(t *testing.T) {
	t.Parallel()

	call := &trigger.Call{
		Method: "REPORT", Path: "/triggers/webhooks/sub%5fx/", RawQuery: "a=1&a=2&b=&c&token=%2Bt+t",
		Header: []trigger.Field{{Name: "x-item", Value: "one"}, {Name: "authorization", Value: "Bearer x"}, {Name: "x-item", Value: "two"}, {Name: "x-latin", Value: "\xeb"}},
	}
	const want = `{"method":"REPORT","path":"/triggers/webhooks/sub%5fx/","query":{"a":"2","b":"","c":"","token":"+t t"},` +
		`"headers":{"x-item":"one, two","authorization":"Bearer x","x-latin":"ë"},"body":null,` +
		`"url":"https://hooks.example/triggers/webhooks/sub%5fx/?a=1&a=2&b=&c&token=%2Bt+t","rawQuery":"a=1&a=2&b=&c&token=%2Bt+t",` +
		`"headerValues":{"x-item":["one","two"],"authorization":["Bearer x"],"x-latin":["ë"]},` +
		`"queryValues":{"a":["1","2"],"b":[""],"c":[""],"token":["+t t"]}}`
	if diff := cmp.Diff(want, string(triggercall.HookView(call, origin))); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
}

func TestTheStoredViewIsMasked(t *testing.T) {
	t.Parallel()

	stored := &trigger.StoredCall{
		Method: "POST", Path: "/triggers/webhooks/sub_x", RawQuery: "token=CANARY&n=1", Body: []byte(`{"a":1}`),
		Header: []trigger.Field{{Name: "content-type", Value: "application/json"}, {Name: "x-hub-signature-256", Value: "CANARY"}},
	}
	const want = `{"method":"POST","path":"/triggers/webhooks/sub_x","query":{"token":"[redacted]","n":"1"},` +
		`"headers":{"content-type":"application/json","x-hub-signature-256":"[redacted]"},"body":{"a":1},` +
		`"url":"https://hooks.example/triggers/webhooks/sub_x?token=[redacted]&n=1","rawQuery":"token=[redacted]&n=1",` +
		`"headerValues":{"content-type":["application/json"],"x-hub-signature-256":["[redacted]"]},"queryValues":{"token":["[redacted]"],"n":["1"]}}`
	if diff := cmp.Diff(want, string(triggercall.StoredView(stored, origin))); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	if stored.Header[1].Value != "CANARY" {
		t.Error("the stored call itself was changed")
	}
}

func TestSensitiveHeaders(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-Auth-Token", "X-Gitlab-Token",
		"X-Telegram-Bot-Api-Secret-Token", "X-Goog-Channel-Token", "X-Hook-Secret", "Validation-Token", "X-Amz-Security-Token", "X-Vapi-Secret",
		"X-Webhook-Secret", "X-Shopify-Hmac-SHA256", "Stripe-Signature", "X-Hub-Signature-256", "X-Slack-Signature", "x_api_key", "apikey",
		"X-Twilio-Signature", "Webhook-Signature", "X-Password", "X-Credentials", "X-Trello-Webhook",
	} {
		if !triggercall.Sensitive(name) {
			t.Errorf("%s is not masked", name)
		}
	}
	for _, name := range []string{
		"X-GitHub-Delivery", "Webhook-Id", "Webhook-Timestamp", "Idempotency-Key", "X-Slack-Request-Timestamp", "X-Shopify-Webhook-Id", "Content-Type",
		"Host", "User-Agent", "X-GitHub-Event", "Traceparent",
	} {
		if triggercall.Sensitive(name) {
			t.Errorf("%s is masked; operators need it", name)
		}
	}
}

func TestMaskHeaderKeepsOrderNamesAndRepeats(t *testing.T) {
	t.Parallel()

	got := triggercall.MaskHeader([]trigger.Field{
		{Name: "x-item", Value: `one "1"`}, {Name: "cookie", Value: "a=b"}, {Name: "x-item", Value: "two"}, {Name: "x-tenant-pin", Value: "1234"}, {Name: "x-latin", Value: "\xeb"},
	}, "X-Tenant-Pin")
	const want = `[["x-item","one \"1\""],["cookie","[redacted]"],["x-item","two"],["x-tenant-pin","[redacted]"],["x-latin","ë"]]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := triggercall.MaskHeader(nil); string(got) != "[]" {
		t.Errorf("no header: %s", got)
	}
}

func TestMaskQueryKeepsEveryOtherByte(t *testing.T) {
	t.Parallel()

	for raw, want := range map[string]string{
		"":                              "",
		"a=1&a=2&b=&c&%zz=%zz&&=":       "a=1&a=2&b=&c&%zz=%zz&&=",
		"token=s3cret":                  "token=[redacted]",
		"a=%2B&key=x%20y&b=+":           "a=%2B&key=[redacted]&b=+",
		"to%6ben=x&TOKEN=y":             "to%6ben=[redacted]&TOKEN=[redacted]",
		"hub.verify_token=x&hub.mode=m": "hub.verify_token=[redacted]&hub.mode=m",
		"code=1&zipcode=2&monkey=3":     "code=[redacted]&zipcode=2&monkey=3",
		"a=1;token=x;b=2":               "a=1;token=[redacted];b=2",
		"token=a=b&x":                   "token=[redacted]&x",
		"token":                         "token",
		"token=[redacted]&a":            "token=[redacted]&a",
		"pin=1&a=\xff\x00é":             "pin=[redacted]&a=%FF%00é",
	} {
		if got := triggercall.MaskQuery(raw, "Pin"); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func TestGitHubsDeliveriesAreCarriedAsSent(t *testing.T) {
	t.Parallel()

	file, err := os.ReadFile(filepath.FromSlash("../../e2e/testdata/github-deliveries.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(file)) {
		n++
		if event := triggercall.BodyEvent(post("application/json", line)); event != nil {
			t.Fatalf("line %d is not carried as sent", n)
		}
	}
	if n < 100 {
		t.Errorf("only %d deliveries", n)
	}
}

func BenchmarkHookless(b *testing.B) {
	call := githubCall()
	b.ReportAllocs()
	for b.Loop() {
		if triggercall.BodyEvent(call) != nil || len(triggercall.MaskHeader(call.Header)) == 0 || triggercall.MaskQuery(call.RawQuery) != "" {
			b.Fatal("not the fast path")
		}
	}
}

func BenchmarkHookView(b *testing.B) {
	call := githubCall()
	b.ReportAllocs()
	for b.Loop() {
		if len(triggercall.HookView(call, origin)) == 0 {
			b.Fatal("no view")
		}
	}
}

func githubCall() *trigger.Call {
	call := post("application/json", `{"text":"`+strings.Repeat("0123456789", 100)+`"}`)
	for _, name := range []string{"host", "user-agent", "content-length", "accept", "x-github-delivery", "x-github-event", "x-github-hook-id", "x-hub-signature-256", "traceparent"} {
		call.Header = append(call.Header, trigger.Field{Name: name, Value: "0123456789012345678901234567890123456789"})
	}
	return call
}
