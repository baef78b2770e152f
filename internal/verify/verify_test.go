package verify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

func at(seconds int64) time.Time { return time.Unix(seconds, 0) }

func parse(t *testing.T, spec string) *verify.Verifier {
	t.Helper()
	v, err := verify.Parse(json.RawMessage(spec))
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return v
}

// post is a call with headers given as name, value, name, value.
func post(body string, header ...string) *trigger.Call {
	call := &trigger.Call{Method: "POST", Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		call.Header = append(call.Header, trigger.Field{Name: header[i], Value: header[i+1]})
	}
	return call
}

func verified(t *testing.T, v *verify.Verifier, in verify.Input) verify.Result {
	t.Helper()
	got, err := v.Verify(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func sum(key, text string) []byte {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(text))
	return m.Sum(nil)
}

// C03: what is signed are the bytes, not what a parser makes of them.
func TestBytesAreNotReserialized(t *testing.T) {
	t.Parallel()

	const body = `{"zebra":1,"alpha":2.0, "mango":1e3,"u":"\u00e9"}` + "\n"
	if len(body) != 50 {
		t.Fatalf("the case has 50 bytes, this has %d", len(body))
	}
	v := parse(t, `{"scheme":"hmac-sha256","header":"X-Signature","encoding":"hex","secret":"case-04-secret"}`)
	for signature, want := range map[string]bool{
		"017bfb5c27f4b1d09dc07af29f43730d2fde1ef01bcb3a74a47b46e0fa31b476": true,
		"1bb7793410f07ec4c6f198a477a65deaa7a24e1b386849fec67abe97891ae02c": false, // over the tidied form
		"744c17d7ddb23670a764027b49c40412bc73abfca0af567bcfc9f45dbc9aae1d": false, // over the body without LF
	} {
		got := verified(t, v, verify.Input{Call: post(body, "content-type", "application/json", "x-signature", signature)})
		if got.OK != want || got.OK && !got.Integrity {
			t.Errorf("%s: %+v, want ok=%t", signature[:8], got, want)
		}
	}
}

// C04: GitHub signs the form's bytes, not the JSON inside.
func TestGitHubInFormMode(t *testing.T) {
	t.Parallel()

	const body = "payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%2C%22hook_id%22%3A1%7D"
	call := post(body, "content-type", "application/x-www-form-urlencoded",
		"x-hub-signature-256", "sha256=fddacfb7d7106fd32f5d94dc8846df6694e2ed5e2aed3806b11ab82cccff8d01")
	v := parse(t, `{"preset":"github","secret":{"param":"secret"}}`)
	got := verified(t, v, verify.Input{Call: call, Secrets: verify.Secrets{Params: json.RawMessage(`{"secret":"It's a Secret to Everybody"}`)}})
	if !got.OK || got.Preset != "github" || got.KeyID == "" {
		t.Errorf("got %+v", got)
	}
}

// C14: two signatures at once, and every malformed header of the case.
func TestSecretRotation(t *testing.T) {
	t.Parallel()

	const (
		body   = `{"id":"evt_1","object":"event","type":"ping"}`
		newSum = "3cb1712a9cdb58ef5070a9c42da9349603a90af9a5edb50036708f0485a93f6b"
		oldSum = "b86c603f0acf1229c267ac27abb434cfef62d04e544a1a61161db3612a1c85a2"
	)
	onlyNew := parse(t, `{"preset":"stripe","secret":"whsec_new"}`)
	both := parse(t, `{"preset":"stripe","secret":["whsec_new",{"state":"/old"}]}`)
	secrets := verify.Secrets{State: json.RawMessage(`{"old":"whsec_old"}`)}
	for _, c := range []struct {
		header  string
		onlyNew verify.Reason // "" is accepted
		both    verify.Reason
	}{
		{"t=1700000000,v1=" + oldSum + ",v1=" + newSum, "", ""},
		{"t=1700000000,v1=" + newSum + ",v0=zzz", "", ""},
		{"v1=" + newSum + ",t=1700000000", "", ""},
		{"t=1700000000,v1=" + oldSum, verify.ReasonSignatureMismatch, ""},
		{"v1=" + newSum, verify.ReasonTimestampMissing, verify.ReasonTimestampMissing},
		{"t=Infinity,v1=" + newSum, verify.ReasonSignatureMismatch, verify.ReasonSignatureMismatch},
		{"t=1700000000,v0=" + newSum, verify.ReasonSignatureMissing, verify.ReasonSignatureMissing},
		{"", verify.ReasonSignatureMissing, verify.ReasonSignatureMissing},
		{"t=1700000000,t=1700000000,v1=" + newSum, verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed},
		{"t=1700000000", verify.ReasonSignatureMissing, verify.ReasonSignatureMissing},
		{"t=1700000000,v1=", verify.ReasonSignatureMalformed, verify.ReasonSignatureMalformed},
		{"t=1700000000,v1=" + newSum[:63], verify.ReasonSignatureMalformed, verify.ReasonSignatureMalformed},
		{"t=1700000000,v1=" + newSum[:62], verify.ReasonSignatureMismatch, verify.ReasonSignatureMismatch},
		{"t=1700000000,v1=" + newSum + "00", verify.ReasonSignatureMismatch, verify.ReasonSignatureMismatch},
		{"t=+1700000000,v1=" + newSum, verify.ReasonSignatureMismatch, verify.ReasonSignatureMismatch},
		{"t=1700000000;v1=" + newSum, verify.ReasonSignatureMissing, verify.ReasonSignatureMissing},
		{"t=1700000000" + strings.Repeat(",v1="+oldSum, 17), verify.ReasonSignatureAmbiguous, verify.ReasonSignatureAmbiguous},
		{"t=1700000000,v1=" + strings.Repeat("ab", 9<<10), verify.ReasonSignatureMalformed, verify.ReasonSignatureMalformed},
		{"t=1700000000,v1=\xff\xfe", verify.ReasonSignatureMalformed, verify.ReasonSignatureMalformed},
	} {
		in := verify.Input{Call: post(body, "stripe-signature", c.header), Secrets: secrets, Now: at(1700000100)}
		if got := verified(t, onlyNew, in); got.Reason != c.onlyNew || got.OK != (c.onlyNew == "") {
			t.Errorf("only new, %.60q: %+v, want %q", c.header, got, c.onlyNew)
		}
		if got := verified(t, both, in); got.Reason != c.both || got.OK != (c.both == "") {
			t.Errorf("both, %.60q: %+v, want %q", c.header, got, c.both)
		}
	}
	if got := verified(t, onlyNew, verify.Input{Call: post(body), Now: at(1700000100)}); got.Reason != verify.ReasonSignatureMissing {
		t.Errorf("without the header: %+v", got)
	}
	twice := post(body, "stripe-signature", "t=1700000000,v1="+newSum, "stripe-signature", "t=1700000000,v1="+newSum)
	if got := verified(t, onlyNew, verify.Input{Call: twice, Now: at(1700000100)}); got.Reason != verify.ReasonSignatureAmbiguous {
		t.Errorf("with the header twice: %+v", got)
	}
}

// C14: a preset without a secret refuses, whatever comes.
func TestWithoutASecretNothingPasses(t *testing.T) {
	t.Parallel()

	for _, preset := range verify.Presets() {
		v := parse(t, `{"preset":"`+preset+`"}`)
		for _, secrets := range []verify.Secrets{
			{},
			{Params: json.RawMessage(`{"secret":"","clientState":""}`), State: json.RawMessage(`{"secret":null}`)},
			{Params: json.RawMessage(`not JSON`), State: json.RawMessage(`[]`)},
		} {
			call := post(`{"value":[{"clientState":""}]}`, "authorization", "Bearer a.b.c")
			got, err := v.Verify(t.Context(), verify.Input{Call: call, URL: "https://example.com/", Secrets: secrets, Now: at(0)})
			if err == nil && (got.OK || got.Reason == "") {
				t.Errorf("%s passes without a secret: %+v", preset, got)
			}
		}
	}
}

// An empty HMAC key is a key that everybody has.
func TestAnEmptySecretIsNoSecret(t *testing.T) {
	t.Parallel()

	v := parse(t, `{"preset":"github","secret":{"param":"secret"}}`)
	call := post("x", "x-hub-signature-256", "sha256="+hex.EncodeToString(sum("", "x")))
	got := verified(t, v, verify.Input{Call: call, Secrets: verify.Secrets{Params: json.RawMessage(`{"secret":""}`)}})
	if got.OK || got.Reason != verify.ReasonNoSecret {
		t.Errorf("got %+v", got)
	}
	whsec := parse(t, `{"preset":"svix","secret":"whsec_"}`)
	signed := "v1," + base64.StdEncoding.EncodeToString(sum("", "m.0.x"))
	got = verified(t, whsec, verify.Input{Call: post("x", "svix-id", "m", "svix-timestamp", "0", "svix-signature", signed), Now: at(0)})
	if got.OK || got.Reason != verify.ReasonBadSecret {
		t.Errorf("got %+v", got)
	}
}

func TestTimestamps(t *testing.T) {
	t.Parallel()

	v := parse(t, `{"scheme":"hmac-sha256","header":"X-Sig","signed":"{timestamp}.{body}","timestamp":{"header":"X-Time"},"secret":"s"}`)
	off := parse(t, `{"scheme":"hmac-sha256","header":"X-Sig","signed":"{timestamp}.{body}","timestamp":{"header":"X-Time"},"tolerance":"off","secret":"s"}`)
	for _, c := range []struct {
		time string
		want verify.Reason
		off  verify.Reason
		skew int64
	}{
		{"1700000000", "", "", 0},
		{"1699999700", "", "", 300_000},
		{"1699999699", verify.ReasonTimestampOutside, "", 301_000},
		{"1700000300", "", "", -300_000},
		{"1700000301", verify.ReasonTimestampOutside, "", -301_000},
		{"", verify.ReasonTimestampMissing, verify.ReasonTimestampMissing, 0},
		{"Infinity", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"NaN", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"-1700000000", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"1.7e9", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{" 1700000000", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"17000000000000000000000000", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"0x6553f100", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
		{"١٧", verify.ReasonTimestampMalformed, verify.ReasonTimestampMalformed, 0},
	} {
		call := post("b", "x-sig", hex.EncodeToString(sum("s", c.time+".b")), "x-time", c.time)
		got := verified(t, v, verify.Input{Call: call, Now: at(1700000000)})
		if got.Reason != c.want || got.OK != (c.want == "") {
			t.Errorf("%q: %+v, want %q", c.time, got, c.want)
		}
		if got.SkewMS != nil && *got.SkewMS != c.skew {
			t.Errorf("%q: skew %d, want %d", c.time, *got.SkewMS, c.skew)
		}
		if got := verified(t, off, verify.Input{Call: call, Now: at(1700000000)}); got.Reason != c.off {
			t.Errorf("%q without a tolerance: %+v, want %q", c.time, got, c.off)
		}
	}
	// A stale time is only said of what was rightly signed.
	forged := post("b", "x-sig", hex.EncodeToString(sum("other", "1.b")), "x-time", "1")
	if got := verified(t, v, verify.Input{Call: forged, Now: at(1700000000)}); got.Reason != verify.ReasonSignatureMismatch || got.SkewMS != nil {
		t.Errorf("forged and stale: %+v", got)
	}
}

func TestEncodingsAreStrict(t *testing.T) {
	t.Parallel()

	right := sum("s", "b")
	std := base64.StdEncoding.EncodeToString(right)
	for _, c := range []struct {
		encoding, prefix, value string
		want                    verify.Reason
	}{
		{"hex", "", hex.EncodeToString(right), ""},
		{"hex", "", strings.ToUpper(hex.EncodeToString(right)), ""},
		{"hex", "", std, verify.ReasonSignatureMalformed},
		{"hex", "sha256=", hex.EncodeToString(right), verify.ReasonSignatureMalformed}, // the prefix is required
		{"hex", "sha256=", "SHA256=" + hex.EncodeToString(right), verify.ReasonSignatureMalformed},
		{"hex", "", "sha256=" + hex.EncodeToString(right), verify.ReasonSignatureMalformed},
		{"base64", "", std, ""},
		{"base64", "", strings.TrimRight(std, "="), verify.ReasonSignatureMalformed},
		{"base64", "", std[:8] + "\n" + std[8:], verify.ReasonSignatureMalformed},
		{"base64", "", hex.EncodeToString(right), verify.ReasonSignatureMismatch},
		{"base64url", "", base64.RawURLEncoding.EncodeToString(right), ""},
		{"base64url", "", base64.URLEncoding.EncodeToString(right), ""},
		{"base64url", "", "!!", verify.ReasonSignatureMalformed},
	} {
		v := parse(t, `{"scheme":"hmac-sha256","header":"X-Sig","encoding":"`+c.encoding+`","prefix":"`+c.prefix+`","secret":"s"}`)
		if got := verified(t, v, verify.Input{Call: post("b", "x-sig", c.value)}); got.Reason != c.want {
			t.Errorf("%s %q: %+v, want %q", c.encoding, c.value, got, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()

	header := parse(t, `{"preset":"telegram","secret":"tok"}`)
	query := parse(t, `{"scheme":"token","query":"token","secret":"tok"}`)
	bearer := parse(t, `{"scheme":"token","header":"Authorization","prefix":"Bearer ","secret":["old","tok"]}`)
	graph := parse(t, `{"preset":"msgraph","secret":"tok"}`)
	basic := parse(t, `{"preset":"postmark","secret":"user:pass:word"}`)
	for name, c := range map[string]struct {
		v    *verify.Verifier
		call *trigger.Call
		want verify.Reason
	}{
		"header":                {header, post("", "x-telegram-bot-api-secret-token", "tok"), ""},
		"header, longer":        {header, post("", "x-telegram-bot-api-secret-token", "token"), verify.ReasonSignatureMismatch},
		"header, shorter":       {header, post("", "x-telegram-bot-api-secret-token", "to"), verify.ReasonSignatureMismatch},
		"header, empty":         {header, post("", "x-telegram-bot-api-secret-token", ""), verify.ReasonSignatureMissing},
		"header, missing":       {header, post(""), verify.ReasonSignatureMissing},
		"header, twice":         {header, post("", "x-telegram-bot-api-secret-token", "tok", "x-telegram-bot-api-secret-token", "x"), verify.ReasonSignatureAmbiguous},
		"query":                 {query, &trigger.Call{RawQuery: "a=1&token=t%6Fk"}, ""},
		"query, twice":          {query, &trigger.Call{RawQuery: "token=tok&token=x"}, verify.ReasonSignatureAmbiguous},
		"query, missing":        {query, &trigger.Call{RawQuery: "a=tok"}, verify.ReasonSignatureMissing},
		"bearer, second":        {bearer, post("", "authorization", "Bearer tok"), ""},
		"bearer, bare":          {bearer, post("", "authorization", "tok"), verify.ReasonSignatureMalformed},
		"graph":                 {graph, post(`{"value":[{"clientState":"tok"},{"clientState":"tok"}]}`), ""},
		"graph, one is wrong":   {graph, post(`{"value":[{"clientState":"tok"},{"clientState":"x"}]}`), verify.ReasonSignatureMismatch},
		"graph, none":           {graph, post(`{"value":[]}`), verify.ReasonSignatureMissing},
		"graph, empty":          {graph, post(`{"value":[{"clientState":""}]}`), verify.ReasonSignatureMissing},
		"graph, no JSON":        {graph, post(`{"value":[{"clientState":"tok"}]`), verify.ReasonBodyMalformed},
		"graph, an object":      {graph, post(`{"value":[{"clientState":{}}]}`), verify.ReasonBodyMalformed},
		"basic":                 {basic, post("", "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass:word"))), ""},
		"basic, other case":     {basic, post("", "authorization", "basic "+base64.StdEncoding.EncodeToString([]byte("user:pass:word"))), ""},
		"basic, other password": {basic, post("", "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass"))), verify.ReasonSignatureMismatch},
		"basic, no base64":      {basic, post("", "authorization", "Basic user:pass"), verify.ReasonSignatureMalformed},
	} {
		got := verified(t, c.v, verify.Input{Call: c.call})
		if got.Reason != c.want || got.OK != (c.want == "") {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		if got.Integrity {
			t.Errorf("%s: a token says nothing of the body", name)
		}
	}
}

// A batch leaves out its token in one element: nothing vouches for that one.
func TestEveryElementOfABatchNeedsItsToken(t *testing.T) {
	t.Parallel()

	v := parse(t, `{"preset":"msgraph","secret":"tok"}`)
	got := verified(t, v, verify.Input{Call: post(`{"value":[{"clientState":"tok"},{"id":"smuggled"}]}`)})
	if got.OK {
		t.Errorf("got %+v", got)
	}
}

func TestTwilioBodyMustBeCovered(t *testing.T) {
	t.Parallel()

	v := parse(t, `{"preset":"twilio","secret":"12345"}`)
	const url = "https://mycompany.com/myapp.php?foo=1&bar=2"
	for name, call := range map[string]*trigger.Call{
		// The signature of twilio-4's URL and form, with a body that is neither.
		"json without a digest": post(`{"x":1}`, "content-type", "application/json", "x-twilio-signature", "NBdBDr/T/lgjI+tlgpXjKZQZs/k="),
		"xml":                   post(`<x/>`, "content-type", "text/xml", "x-twilio-signature", "NBdBDr/T/lgjI+tlgpXjKZQZs/k="),
	} {
		if got := verified(t, v, verify.Input{Call: call, URL: url}); got.Reason != verify.ReasonBodyNotCovered {
			t.Errorf("%s: %+v", name, got)
		}
	}
	digest := post(`{"x":1}`, "x-twilio-signature", "a9nBmqA0ju/hNViExpshrM61xv4=")
	digest.RawQuery = "foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
	if got := verified(t, v, verify.Input{Call: digest, URL: "https://mycompany.com/myapp.php?" + digest.RawQuery}); got.OK {
		t.Errorf("another body passes with the digest of the first: %+v", got)
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	for _, spec := range []string{
		``, `null`, `[]`, `"github"`, `{}`,
		`{"preset":"nope","secret":"s"}`,
		`{"preset":"github","secret":"s","header":"X-Mine"}`,
		`{"preset":"github","secret":"s","signed":"x"}`,
		`{"preset":"github","secret":"s","values":{"nope":"x"}}`,
		`{"preset":"github","secret":""}`,
		`{"preset":"github","secret":[]}`,
		`{"preset":"github","secret":{"param":"a","state":"/b"}}`,
		`{"preset":"github","secret":{"env":"HOME"}}`,
		`{"preset":"github","secret":{"state":"no-slash"}}`,
		`{"preset":"github","secret":7}`,
		`{"preset":"github","secret":"s","tolerance":"soon"}`,
		`{"preset":"github","secret":"s","tolerance":"-5m"}`,
		`{"preset":"github","secret":"s","tolerance":"1000h"}`,
		`{"scheme":"md5","header":"X","secret":"s"}`,
		`{"scheme":"none","header":"X","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X"}`,
		`{"scheme":"hmac-sha256","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","query":"y","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","encoding":"rot13","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","secretEncoding":"rot13","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","signed":"{nope}","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","signed":"{body","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","signed":"{body}","timestamp":{"header":"T"},"secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","signed":"{timestamp}{body}","timestamp":{"pair":"t"},"secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","tolerance":"5m","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","format":"pairs","secret":"s"}`,
		`{"header":"X","format":"pairs","secret":"s"}`,
		`{"header":"X","format":"tables","versions":{"v1":"hmac-sha256"},"secret":"s"}`,
		`{"header":"X","format":"list","versions":{"v1":"sha"},"secret":"s"}`,
		`{"scheme":"token","header":"X","signed":"{body}","secret":"s"}`,
		`{"scheme":"hmac-sha256","header":"X","secret":"s","keyURL":"https://example.com"}`,
	} {
		if _, err := verify.Parse(json.RawMessage(spec)); err == nil {
			t.Errorf("%s is taken", spec)
		}
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()

	const canary = "canary-7731"
	for _, spec := range []string{
		`{"preset":"github","secret":{"` + canary + `":1}}`,
		`{"preset":"github","secret":{"param":{"x":"` + canary + `"}}}`,
		`{"preset":"github","secret":["` + canary + `",7]}`,
		`{"preset":"github","secret":["` + canary + `"],"tolerance":"` + canary + `"}`,
		`{"preset":"github","values":"` + canary + `","secret":"s"}`,
		`{"preset":"github","secret":"` + canary + `","header":7}`,
	} {
		if _, err := verify.Parse(json.RawMessage(spec)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestResultIsStoredAsItReads(t *testing.T) {
	t.Parallel()

	v := parse(t, `{"scheme":"hmac-sha256","header":"X-Sig","signed":"{timestamp}.{body}","timestamp":{"header":"X-Time"},"secret":"s"}`)
	got := verified(t, v, verify.Input{Call: post("b", "x-sig", hex.EncodeToString(sum("s", "9.b")), "x-time", "9"), Now: at(10)})
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"ok":true,"scheme":"hmac-sha256","keyId":"` + got.KeyID + `","skewMs":1000,"integrity":true}`; string(text) != want || len(got.KeyID) != 4 {
		t.Errorf("got %s, want %s", text, want)
	}
	text, _ = json.Marshal(verified(t, v, verify.Input{Call: post("b"), Now: at(10)}))
	if want := `{"ok":false,"scheme":"hmac-sha256","integrity":false,"reason":"signature_missing"}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestSecretsFromEverywhere(t *testing.T) {
	t.Parallel()

	secrets := verify.Secrets{
		Params: json.RawMessage(`{"secret":["p1","p2"]}`), State: json.RawMessage(`{"hook":{"keys":["k"],"deep/er":"d"}}`), Stored: "st",
	}
	v := parse(t, `{"scheme":"hmac-sha256","header":"X-Sig","secret":[{"param":"secret"},{"state":"/hook/deep~1er"},{"stored":true},"lit"]}`)
	for _, key := range []string{"p1", "p2", "d", "st", "lit"} {
		if got := verified(t, v, verify.Input{Call: post("b", "x-sig", hex.EncodeToString(sum(key, "b"))), Secrets: secrets}); !got.OK {
			t.Errorf("%s: %+v", key, got)
		}
	}
	if got := verified(t, v, verify.Input{Call: post("b", "x-sig", hex.EncodeToString(sum("k", "b"))), Secrets: secrets}); got.OK {
		t.Error("a state that was not named opens")
	}
}
