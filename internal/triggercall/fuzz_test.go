package triggercall_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

// FuzzBody: whatever the bytes and their declared type, the event is JSON in
// UTF-8 and JSON bodies are the bytes themselves.
func FuzzBody(f *testing.F) {
	for _, contentType := range []string{
		"application/json", "application/json; charset=utf-16", "text/plain; charset=shift_jis", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=B", "", "; charset", "a/b; charset=\"",
	} {
		for _, body := range []string{"", " ", `{"a":"\u0000"}`, "\xef\xbb\xbf1", "a=%ff&a", "--B\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--B--", "\xff\xfe"} {
			f.Add(contentType, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, raw []byte) {
		call := post(contentType, string(raw))
		event := triggercall.BodyEvent(call)
		if event == nil {
			event = call.Body
		}
		if !json.Valid(event) || !utf8.Valid(event) {
			t.Errorf("the event is not JSON: %q", event)
		}
		if view := triggercall.HookView(call, origin); !json.Valid(view) || !bytes.Contains(view, event) {
			t.Errorf("the view does not hold the event: %q", view)
		}
		if !bytes.Equal(call.Body, raw) {
			t.Error("the bytes were changed")
		}
	})
}

// FuzzView: whatever method, path, query and header, both views are JSON in
// UTF-8 and what is stored can be stored.
func FuzzView(f *testing.F) {
	f.Add("POST", "/triggers/webhooks/sub%5f", "a=1&a=%zz;b", "x-item", "one")
	f.Add("", "\xff\x00", "\xff=\x00", "\xeb", "\xeb\"\\\n")
	f.Fuzz(func(t *testing.T, method, path, query, name, value string) {
		header := []trigger.Field{{Name: name, Value: value}, {Name: "x", Value: "y"}, {Name: name, Value: value}}
		view := triggercall.HookView(&trigger.Call{Method: method, Path: path, RawQuery: query, Header: header}, origin)
		stored := triggercall.StoredView(&trigger.StoredCall{Method: method, Path: path, RawQuery: query, Header: header}, origin)
		masked := triggercall.MaskHeader(header)
		for _, text := range [][]byte{view, stored, masked} {
			if !json.Valid(text) || !utf8.Valid(text) {
				t.Errorf("not JSON: %q", text)
			}
		}
		var pairs [][2]string
		if err := json.Unmarshal(masked, &pairs); err != nil || len(pairs) != 3 || pairs[0] != pairs[2] {
			t.Errorf("header came back as %q, %v", pairs, err)
		}
		if utf8.ValidString(value) && !triggercall.Sensitive(name) && pairs[0][1] != value {
			t.Errorf("header value %q came back as %q", value, pairs[0][1])
		}
	})
}

// FuzzMask: no secret gets through, nothing else is lost, and masking twice is
// masking once.
func FuzzMask(f *testing.F) {
	f.Add("a=1&token=x;b", "CANARY")
	f.Add("%74oken=x&", "a=b")
	f.Fuzz(func(t *testing.T, query, secret string) {
		masked := triggercall.MaskQuery(query)
		if !utf8.ValidString(masked) || strings.Contains(masked, "\x00") {
			t.Errorf("cannot be stored: %q", masked)
		}
		if again := triggercall.MaskQuery(masked); again != masked {
			t.Errorf("masked twice: %q, once: %q", again, masked)
		}
		if strings.Count(masked, "&") != strings.Count(query, "&") {
			t.Errorf("a pair was lost: %q from %q", masked, query)
		}
		if secret == "" || strings.ContainsAny(secret, "&;") || strings.HasPrefix(triggercall.Redacted, secret) { //nolint:gocritic // the needle is the input
			return
		}
		if masked := triggercall.MaskQuery(query + "&api_key=" + secret); strings.HasSuffix(masked, "&api_key="+secret) {
			t.Errorf("the secret got through: %q", masked)
		}
	})
}
