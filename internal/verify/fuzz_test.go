package verify_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// fuzzSpecs are all presets, and schemes that no preset has.
func fuzzSpecs(f *testing.F) []*verify.Verifier {
	f.Helper()
	var all []*verify.Verifier
	add := func(spec string) {
		v, err := verify.Parse(json.RawMessage(spec))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, v)
	}
	for _, preset := range verify.Presets() {
		add(`{"preset":"` + preset + `","secret":{"param":"secret"},"tolerance":"off"}`)
	}
	for _, scheme := range []string{"ed25519", "ecdsa-p256", "ecdsa-p256-raw", "rsa-sha1", "rsa-sha256", "hmac-sha384", "hmac-sha512", "token", "jwt", "basic"} {
		add(`{"scheme":"` + scheme + `","header":"X-Sig","secret":{"param":"secret"}}`)
		add(`{"scheme":"` + scheme + `","form":"sig","secret":{"param":"secret"}}`)
	}
	return all
}

// FuzzVerify sends anything to every verifier. Nobody guesses a secret of 256
// bits, so nothing may pass, and nothing may panic.
func FuzzVerify(f *testing.F) {
	const secret = `{"secret":"5f1c7a90d3b24e86f7a1c09b8d6e42335f1c7a90d3b24e86f7a1c09b8d6e4233","email":"x@example.com","webhookId":"w"}`
	all := fuzzSpecs(f)
	names := []string{
		"x-sig", "authorization", "x-hub-signature-256", "x-hub-signature", "stripe-signature", "webhook-signature", "webhook-id", "webhook-timestamp",
		"x-slack-signature", "x-slack-request-timestamp", "x-twilio-signature", "paypal-cert-url", "paypal-transmission-sig", "paypal-transmission-id",
		"paypal-transmission-time", "x-signature-ed25519", "x-signature-timestamp", "paddle-signature", "x-pagerduty-signature",
	}
	f.Add(uint16(0), "sha256=00", "1700000000", "application/json", []byte(`{"signature":{"timestamp":"1","token":"t","signature":"00"}}`), "token=x")
	f.Add(uint16(1), "t=1,v1=00", "Infinity", "application/x-www-form-urlencoded", []byte("signature=00&token=t&timestamp=1&sig=x"), "bodySHA256=00")
	f.Add(uint16(2), "v1,AA== v1a,AA==", "", "multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"signature\"\r\n\r\n00\r\n--b--"), "")
	f.Add(uint16(3), "Bearer e30.e30.AA", "9", "text/plain", []byte(`{"Type":"Notification","Signature":"AA==","SigningCertURL":"https://sns.x.amazonaws.com/"}`), "&=&")
	f.Add(uint16(4), "\xff\x00", "\xff", "", []byte("\xff\xfe"), "%zz=%")
	f.Fuzz(func(t *testing.T, which uint16, value, time, contentType string, body []byte, query string) {
		call := &trigger.Call{Method: "POST", Body: body, RawQuery: query}
		call.Header = append(call.Header, trigger.Field{Name: "content-type", Value: contentType})
		for i, name := range names {
			text := value
			if i%3 == int(which)%3 {
				text = time
			}
			call.Header = append(call.Header, trigger.Field{Name: name, Value: text})
		}
		keys := &fetched{answer: body}
		for _, v := range []*verify.Verifier{all[int(which)%len(all)], all[len(value)%len(all)]} {
			got, err := v.Verify(t.Context(), verify.Input{
				Call: call, URL: "https://example.com/?" + query, Now: at(1700000000), Keys: keys, Secrets: verify.Secrets{Params: json.RawMessage(secret)},
			})
			if err != nil && !errors.Is(err, verify.ErrKeysUnavailable) {
				t.Error(err)
			}
			if got.OK {
				t.Errorf("%s passes: %+v", v.Preset(), got)
			}
			if err == nil && got.Reason == "" {
				t.Errorf("%s refuses without a reason", v.Preset())
			}
		}
	})
}

// FuzzParse reads anything as a spec, and verifies with what it is taken for.
func FuzzParse(f *testing.F) {
	f.Add(`{"preset":"stripe","secret":["a",{"state":"/x/0"},{"param":"p"},{"stored":true}]}`, `{"p":["x"]}`)
	f.Add(`{"scheme":"hmac-sha256","header":["A","B"],"signed":"{method}{url}{header.x}{query.y}{timestamp}{body}","timestamp":{"query":"t"},"secret":"s"}`, ``)
	f.Add(`{"format":"pairs","separator":"","header":"A","versions":{"v1":"ed25519"},"fields":{"id":{"pair":"id"}},"signed":"{id}","secret":{"state":""}}`, `"s"`)
	f.Fuzz(func(t *testing.T, spec, params string) {
		v, err := verify.Parse(json.RawMessage(spec))
		if err != nil {
			return
		}
		secrets := verify.Secrets{Params: json.RawMessage(params), State: json.RawMessage(params)}
		call := post("b", "a", "v1=00", "x", "y")
		if got, err := v.Verify(t.Context(), verify.Input{Call: call, Secrets: secrets, Now: at(0)}); err == nil && !got.OK && got.Reason == "" {
			t.Errorf("%s refuses without a reason", spec)
		}
	})
}
