package sender_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors/sender"
)

func options(event string) sender.Options {
	return sender.Options{Secret: "a sample secret", Event: event, URL: "https://bells.example.com/x", Time: time.Unix(1700000000, 0), ID: "id-1"}
}

func TestTheSameOptionsMakeTheSameBytes(t *testing.T) {
	t.Parallel()

	for _, vendor := range []string{"stripe", "github", "slack", "twilio", "mailgun", "hubspot", "twitch", "square"} {
		a, err := sender.Build(vendor, options(""))
		if err != nil {
			t.Fatal(err)
		}
		b, err := sender.Build(vendor, options(""))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s:\n%s", vendor, diff)
		}
	}
}

func TestEachRequestHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()

	o := options("")
	o.ID = ""
	a, errA := sender.Build("github", o)
	b, errB := sender.Build("github", o)
	if errA != nil || errB != nil || cmp.Equal(a.Header, b.Header) {
		t.Errorf("two requests with the same ids: %v (%v, %v)", a.Header, errA, errB)
	}
}

func TestABodyOfOnesOwnIsSignedAsItIs(t *testing.T) {
	t.Parallel()

	o := options("push")
	o.Secret, o.Body = "It's a Secret to Everybody", []byte("Hello, World!")
	got, err := sender.Build("github", o)
	if err != nil {
		t.Fatal(err)
	}
	// The vector of GitHub's documentation.
	want := trigger.Field{Name: "X-Hub-Signature-256", Value: "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
	if string(got.Body) != "Hello, World!" || got.Header[len(got.Header)-1] != want {
		t.Errorf("got %+v", got)
	}
}

func TestNoPlaceholderIsLeft(t *testing.T) {
	t.Parallel()

	for _, vendor := range sender.Vendors() {
		private, _, err := sender.GenerateSecret(vendor)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range sender.Events(vendor) {
			o := options(event)
			o.Secret = private
			r, err := sender.Build(vendor, o)
			if err != nil {
				t.Fatal(err)
			}
			texts := []string{r.URL, string(r.Body)}
			for _, f := range r.Header {
				texts = append(texts, f.Value)
			}
			text := strings.Join(texts, "\n")
			for _, left := range []string{"{id}", "{unix}", "{ms}", "{iso}", "{event}", "{token}", "{signature}", "{clientState}"} {
				if strings.Contains(text, left) {
					t.Errorf("%s %s: %s is left", vendor, event, left)
				}
			}
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()

	const canary = "canary-7731"
	for name, c := range map[string]struct {
		vendor string
		change func(*sender.Options)
	}{
		"an unknown vendor":   {"nope", func(*sender.Options) {}},
		"an unknown event":    {"github", func(o *sender.Options) { o.Event = "nope" }},
		"no secret":           {"github", func(o *sender.Options) { o.Secret = "" }},
		"no URL":              {"github", func(o *sender.Options) { o.URL = "" }},
		"another scheme":      {"github", func(o *sender.Options) { o.URL = "file:///etc/passwd" }},
		"no private key":      {"discord", func(o *sender.Options) { o.Secret = canary }},
		"no RSA key":          {"sns", func(o *sender.Options) { o.Secret = canary }},
		"no base64":           {"svix", func(o *sender.Options) { o.Secret = "whsec_" + canary + "%" }},
		"a body of no form":   {"twilio", func(o *sender.Options) { o.Secret, o.Body = canary, []byte("%zz") }},
		"a body of no fields": {"sns", func(o *sender.Options) { o.Secret, o.Body = canary, []byte("[]") }},
	} {
		o := options("")
		c.change(&o)
		if _, err := sender.Build(c.vendor, o); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReplayKeepsEveryByte(t *testing.T) {
	t.Parallel()

	for name, r := range map[string]sender.Request{
		"text":    {Method: "POST", URL: "https://example.com/a?b=%2F", Header: []trigger.Field{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "<2>&"}}, Body: []byte("{\"a\":\"<\\u0000>\"}\r\n")},
		"binary":  {Method: "PUT", Header: []trigger.Field{}, Body: []byte{0x25, 0xf3, 0xdb, 0x00, 0xff}},
		"nothing": {Method: "GET", Header: []trigger.Field{}, Body: []byte{}},
	} {
		var file bytes.Buffer
		if err := sender.WriteReplay(&file, r); err != nil {
			t.Fatal(err)
		}
		got, err := sender.ReadReplay(&file)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Header) == 0 {
			r.Header = nil
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	for _, bad := range []string{"", "{}", `{"format":"tocsin-request/2"}`, `{"format":"tocsin-request/1","body":"a","bodyBase64":"YQ=="}`, `{"format":"tocsin-request/1","nope":1}`} {
		if r, err := sender.ReadReplay(strings.NewReader(bad)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s is taken: %+v, %v", bad, r, err)
		}
	}
}

func FuzzReadReplay(f *testing.F) {
	f.Add(`{"format":"tocsin-request/1","method":"POST","headers":[["a","b"]],"body":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := sender.ReadReplay(strings.NewReader(text))
		if err != nil {
			return
		}
		var file bytes.Buffer
		if err := sender.WriteReplay(&file, r); err != nil {
			t.Fatal(err)
		}
		again, err := sender.ReadReplay(&file)
		if err != nil || !bytes.Equal(again.Body, r.Body) {
			t.Errorf("%q became %q (%v)", r.Body, again.Body, err)
		}
	})
}
