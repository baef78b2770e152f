package vendors_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
	"github.com/tocsin-dev/tocsin/internal/vendors/sender"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

const callback = "https://bells.example.com/triggers/webhooks/sub_x?a=1&path=%2Fx%3F"

// now is a clock of the tests' own.
func now() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 123e6, time.UTC) }

// received is how a request arrives.
func received(t *testing.T, r sender.Request) (*trigger.Call, string) {
	t.Helper()
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	call := &trigger.Call{Method: r.Method, Path: u.EscapedPath(), RawQuery: u.RawQuery, Body: r.Body}
	for _, f := range r.Header {
		call.Header = append(call.Header, trigger.Field{Name: strings.ToLower(f.Name), Value: f.Value})
	}
	return call, r.URL
}

// certificates is a vendor's key server: it has one key, and it is asked.
type certificates struct{ pem []byte }

func (c certificates) Fetch(context.Context, string) ([]byte, error) {
	if c.pem == nil {
		return nil, errors.New("nothing here")
	}
	return c.pem, nil
}

func certify(t *testing.T, private secret.Text) []byte {
	t.Helper()
	block, _ := pem.Decode([]byte(private.Reveal()))
	if block == nil {
		return nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now().Add(-time.Hour), NotAfter: now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// isHandshake lists the senders' events that are handshakes, with their class.
func isHandshake(name, event string) handshake.Class {
	return map[string]handshake.Class{
		"asana heartbeat": "ping", "asana x-hook-secret": "header-echo", "cloudevents validation": "options",
		"discord ping": "ping", "discord webhook-ping": "ping", "dropbox challenge": "query-echo", "eventgrid validation": "body-echo",
		"github ping": "ping", "meta verification": "query-echo", "monday challenge": "body-echo", "msgraph validation": "post-query-echo",
		"okta verification": "body-echo", "ringcentral validation": "header-echo", "slack url_verification": "body-echo",
		"sns SubscriptionConfirmation": "confirm", "statsig url_verification": "body-echo", "surveymonkey probe": "probe",
		"trello probe": "probe", "twitch webhook_callback_verification": "body-echo", "websub verification": "query-echo",
		"woocommerce ping": "ping", "x crc": "computed", "xero intent-to-receive": "ping", "zoom endpoint.url_validation": "computed",
	}[name+" "+event]
}

type receiver struct {
	policy  *vendors.Policy
	private secret.Text
	keys    certificates
	params  json.RawMessage
}

func newReceiver(t *testing.T, name string) receiver {
	t.Helper()
	private, public, err := sender.GenerateSecret(name)
	if err != nil {
		t.Fatal(err)
	}
	params, err := json.Marshal(map[string]string{
		"secret": public.Reveal(), "jwks": public.Reveal(), "clientState": public.Reveal(), "verifyToken": "sample",
		"webhookId": "WH1", "email": "push@example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := vendors.Compile(json.RawMessage(`{"preset":"`+name+`"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	return receiver{policy, private, certificates{certify(t, private)}, params}
}

func (r receiver) build(t *testing.T, name, event string) sender.Request {
	t.Helper()
	request, err := sender.Build(name, sender.Options{
		Secret: r.private, Event: event, URL: callback, Time: now(),
		Values: map[string]string{"webhookId": "WH1", "email": "push@example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// receive does what an ingest does: handshakes that need no signature, then
// the signature, then the others.
func (r receiver) receive(t *testing.T, request sender.Request) (verify.Result, *handshake.Decision) {
	t.Helper()
	call, address := received(t, request)
	secrets := verify.Secrets{Params: r.params}
	input := handshake.Input{Call: call, Secrets: secrets}
	if r.policy.Handshake != nil {
		if decision, ok := r.policy.Handshake.Decide(input); ok {
			return verify.Result{}, &decision
		}
	}
	result := verify.Result{OK: true}
	if r.policy.Verify != nil {
		var err error
		result, err = r.policy.Verify.Verify(t.Context(), verify.Input{Call: call, URL: address, Secrets: secrets, Now: now(), Keys: r.keys})
		if err != nil {
			t.Fatal(err)
		}
	}
	if input.Verified = result.OK; result.OK && r.policy.Handshake != nil {
		if decision, ok := r.policy.Handshake.Decide(input); ok {
			return result, &decision
		}
	}
	return result, nil
}

func TestEveryVendorRoundTrips(t *testing.T) {
	t.Parallel()

	if diff := cmp.Diff(vendors.Names(), sender.Vendors()); diff != "" {
		t.Errorf("table and sender know different vendors (-table +sender):\n%s", diff)
	}
	for _, name := range vendors.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := newReceiver(t, name)
			for _, event := range sender.Events(name) {
				r.check(t, name, event)
			}
		})
	}
}

func (r receiver) check(t *testing.T, name, event string) {
	t.Helper()
	request := r.build(t, name, event)
	result, decision := r.receive(t, request)
	class := isHandshake(name, event)
	switch {
	case class == "" && decision != nil:
		t.Errorf("%s: taken for a handshake of class %s", event, decision.Class)
	case class == "" && !result.OK:
		t.Errorf("%s: refused for %s", event, result.Reason)
	case class != "" && decision == nil:
		t.Errorf("%s: no handshake, result %+v", event, result)
	case class != "" && (decision.Class != class || decision.Refused != ""):
		t.Errorf("%s: class %s refused %q, want class %s", event, decision.Class, decision.Refused, class)
	}
	if class == "" && r.policy.Verify != nil {
		r.checkTampering(t, event, request)
		r.checkStrangers(t, name, event)
	}
	if class == "" {
		r.checkRepeat(t, name, event)
	}
}

// checkTampering changes one byte of the body: where the preset claims
// integrity, that is seen.
func (r receiver) checkTampering(t *testing.T, event string, request sender.Request) {
	t.Helper()
	if len(request.Body) == 0 || !r.policy.Verify.Integrity() {
		return
	}
	at := len(request.Body) / 2
	request.Body = slices.Clone(request.Body)
	request.Body[at] ^= 1
	if result, decision := r.receive(t, request); decision == nil && result.OK {
		t.Errorf("%s: a changed byte goes unseen", event)
	}
}

// checkStrangers signs with another secret.
func (r receiver) checkStrangers(t *testing.T, name, event string) {
	t.Helper()
	stranger := newReceiver(t, name)
	if result, decision := r.receive(t, stranger.build(t, name, event)); decision == nil && result.OK {
		t.Errorf("%s: a stranger's signature is taken", event)
	}
}

// checkRepeat sends an event twice, and another: the keys say so.
func (r receiver) checkRepeat(t *testing.T, name, event string) {
	t.Helper()
	if r.policy.Dedup == nil {
		return
	}
	key := func(id string) string {
		request, err := sender.Build(name, sender.Options{Secret: r.private, Event: event, URL: callback, Time: now(), ID: id})
		if err != nil {
			t.Fatal(err)
		}
		call, _ := received(t, request)
		body := json.RawMessage(call.Body)
		if parsed, ok := r.policy.Event(call); ok && parsed != nil {
			body = parsed
		}
		return r.policy.Dedup.Keys(call, body, []json.RawMessage{nil})[0]
	}
	first, again, other := key("id-1"), key("id-1"), key("id-2")
	if first != again {
		t.Errorf("%s: a repeat has another key", event)
	}
	// Samples of a time and no id of their own have the same key, or none.
	if strings.HasPrefix(first, "header ") && first == other {
		t.Errorf("%s: two deliveries have the same key", event)
	}
}
