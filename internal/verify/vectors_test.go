package verify_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// vector is a line of testdata/vectors.jsonl.
type vector struct {
	ID       string `json:"id"`
	Vendor   string `json:"vendor"`
	Secret   string `json:"secret"`
	Time     string `json:"ts"`
	URL      string `json:"url"`
	Method   string `json:"method"`
	Message  string `json:"msg_id"`
	Token    string `json:"token"`
	CRCToken string `json:"crc_token"`
	Plain    string `json:"plain_token"`
	Body     string `json:"body_b64"`
	Length   int    `json:"body_len"`
	Header   string `json:"header"`
	Value    string `json:"value"`
	Accept   bool   `json:"accept"`
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	file, err := os.Open("testdata/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	var vectors []vector
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, v)
	}
	if len(vectors) != 39 {
		t.Fatalf("%d vectors, want 39", len(vectors))
	}
	return vectors
}

// preset of a vector's vendor, and where the vendor puts time and id.
func (v vector) preset() (name string, extra []trigger.Field) {
	field := func(name, value string) trigger.Field { return trigger.Field{Name: name, Value: value} }
	switch v.Vendor {
	case "slack":
		return "slack", []trigger.Field{field("x-slack-request-timestamp", v.Time)}
	case "zoom":
		return "zoom", []trigger.Field{field("x-zm-request-timestamp", v.Time)}
	case "standard-webhooks":
		return "standard-webhooks", []trigger.Field{field("webhook-id", v.Message), field("webhook-timestamp", v.Time)}
	case "twitch":
		return "twitch", []trigger.Field{
			field("twitch-eventsub-message-id", v.Message), field("twitch-eventsub-message-timestamp", v.Time),
		}
	case "discord":
		return "discord", []trigger.Field{field("x-signature-timestamp", v.Time)}
	case "box":
		return "box", []trigger.Field{field("box-delivery-timestamp", v.Time)}
	case "sendgrid":
		return "sendgrid", []trigger.Field{field("x-twilio-email-event-webhook-timestamp", v.Time)}
	case "hubspot-v3":
		return "hubspot", []trigger.Field{field("x-hubspot-request-timestamp", v.Time)}
	case "convoy":
		if strings.HasPrefix(v.Value, "t=") {
			return "convoy-advanced", nil
		}
	}
	return v.Vendor, nil
}

// now is a clock that stands at the vector's timestamp.
func (v vector) now() time.Time {
	if at, err := time.Parse(time.RFC3339Nano, v.Time); err == nil {
		return at
	}
	n, _ := strconv.ParseInt(v.Time, 10, 64)
	if n > 1e11 {
		return time.UnixMilli(n)
	}
	return time.Unix(n, 0)
}

func (v vector) call(t *testing.T, extra []trigger.Field) *trigger.Call {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(v.Body)
	if err != nil || len(body) != v.Length {
		t.Fatalf("%d bytes, want %d (%v)", len(body), v.Length, err)
	}
	contentType := "application/json"
	if v.Vendor == "twilio" && body[0] != '{' {
		contentType = "application/x-www-form-urlencoded"
	}
	call := &trigger.Call{
		Method: "POST", Body: body,
		Header: append(extra, trigger.Field{Name: "content-type", Value: contentType}, trigger.Field{Name: strings.ToLower(v.Header), Value: v.Value}),
	}
	if u, err := url.Parse(v.URL); err == nil {
		call.RawQuery = u.RawQuery
	}
	if v.Vendor == "mailgun" { // its signature is in the body, which is not signed
		call.Body, err = json.Marshal(map[string]any{
			"signature": map[string]string{"timestamp": v.Time, "token": v.Token, "signature": v.Value},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return call
}

// The two replies that are computed, x-crc-1 and zoom-crc, are checked where
// they are made: package handshake.
func TestVectors(t *testing.T) {
	t.Parallel()

	for _, v := range readVectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()

			if v.CRCToken != "" || v.Plain != "" {
				if v.Header != "(response body)" {
					t.Fatal("this vector is of a kind that is not known")
				}
				return
			}
			preset, extra := v.preset()
			verifier, err := verify.New(verify.Spec{Preset: preset, Secret: verify.Literal(v.Secret)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := verifier.Verify(t.Context(), verify.Input{Call: v.call(t, extra), URL: v.URL, Now: v.now()})
			if err != nil {
				t.Fatal(err)
			}
			if got.OK != v.Accept {
				t.Errorf("got %+v, want ok=%t", got, v.Accept)
			}
			if !v.Accept && got.Reason != verify.ReasonSignatureMismatch {
				t.Errorf("refused for %q, want signature_mismatch", got.Reason)
			}
		})
	}
}
