package verify_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/verify"
)

func part(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

type claims map[string]any

func with(base claims, name string, value any) claims {
	out := maps.Clone(base)
	if out[name] = value; value == nil {
		delete(out, name)
	}
	return out
}

func hs256(t *testing.T, header map[string]any, c claims, key string) string {
	t.Helper()
	text := part(t, header) + "." + part(t, c)
	return text + "." + base64.RawURLEncoding.EncodeToString(sum(key, text))
}

func rs256(t *testing.T, header map[string]any, c claims, key *rsa.PrivateKey) string {
	t.Helper()
	text := part(t, header) + "." + part(t, c)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func es256(t *testing.T, header map[string]any, c claims, key *ecdsa.PrivateKey) string {
	t.Helper()
	text := part(t, header) + "." + part(t, c)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func jwk(kid string, key *rsa.PublicKey) map[string]string {
	return map[string]string{
		"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}
}

func TestJWT(t *testing.T) {
	t.Parallel()

	const now = 1700000000
	rk, other, ek := rsaKey(t), rsaKey(t), p256Key(t)
	rsaPEM, ecPEM := publicPEM(t, &rk.PublicKey), publicPEM(t, &ek.PublicKey)
	good := claims{"iss": "https://issuer.example.com", "aud": "bells", "exp": now + 300, "iat": now - 1, "email": "push@example.com", "email_verified": true}
	alg := func(name string) map[string]any { return map[string]any{"alg": name, "typ": "JWT"} }
	set, err := json.Marshal(map[string]any{"keys": []any{
		map[string]string{"kty": "oct", "k": base64.RawURLEncoding.EncodeToString([]byte("s"))},
		map[string]string{"kty": "OKP", "crv": "Ed25519", "x": "AA"},
		jwk("k2", &other.PublicKey), jwk("k1", &rk.PublicKey),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key, token string
		want       verify.Reason
	}{
		"HS256":                         {"s", hs256(t, alg("HS256"), good, "s"), ""},
		"HS256, another key":            {"s", hs256(t, alg("HS256"), good, "x"), verify.ReasonSignatureMismatch},
		"RS256":                         {rsaPEM, rs256(t, alg("RS256"), good, rk), ""},
		"RS256, another key":            {rsaPEM, rs256(t, alg("RS256"), good, other), verify.ReasonSignatureMismatch},
		"ES256":                         {ecPEM, es256(t, alg("ES256"), good, ek), ""},
		"key set":                       {string(set), rs256(t, map[string]any{"alg": "RS256", "kid": "k1"}, good, rk), ""},
		"key set, no kid":               {string(set), rs256(t, alg("RS256"), good, rk), ""},
		"key set, another kid":          {string(set), rs256(t, map[string]any{"alg": "RS256", "kid": "k2"}, good, rk), verify.ReasonSignatureMismatch},
		"key set, unknown kid":          {string(set), rs256(t, map[string]any{"alg": "RS256", "kid": "k9"}, good, rk), verify.ReasonTokenAlgorithm},
		"key set, a shared secret":      {string(set), hs256(t, alg("HS256"), good, "s"), verify.ReasonTokenAlgorithm},
		"an empty key set":              {`{"keys":[]}`, rs256(t, alg("RS256"), good, rk), verify.ReasonBadSecret},
		"none":                          {"s", part(t, alg("none")) + "." + part(t, good) + ".", verify.ReasonTokenMalformed},
		"none, with a signature":        {"s", part(t, alg("none")) + "." + part(t, good) + ".AAAA", verify.ReasonTokenAlgorithm},
		"the RSA key as an HMAC secret": {rsaPEM, hs256(t, alg("HS256"), good, rsaPEM), verify.ReasonTokenAlgorithm},
		"HS512":                         {"s", hs256(t, alg("HS512"), good, "s"), verify.ReasonTokenAlgorithm},
		"lower case":                    {"s", hs256(t, alg("hs256"), good, "s"), verify.ReasonTokenAlgorithm},
		"critical":                      {"s", hs256(t, map[string]any{"alg": "HS256", "crit": []string{"exp"}}, good, "s"), verify.ReasonTokenMalformed},
		"expired":                       {"s", hs256(t, alg("HS256"), with(good, "exp", now-61), "s"), verify.ReasonTokenExpired},
		"expired, within the leeway":    {"s", hs256(t, alg("HS256"), with(good, "exp", now-60), "s"), ""},
		"no end":                        {"s", hs256(t, alg("HS256"), with(good, "exp", nil), "s"), verify.ReasonTokenExpired},
		"an end that is text":           {"s", hs256(t, alg("HS256"), with(good, "exp", "soon"), "s"), verify.ReasonTokenMalformed},
		"an end beyond all time":        {"s", hs256(t, alg("HS256"), with(good, "exp", 1e300), "s"), verify.ReasonTokenExpired},
		"not yet":                       {"s", hs256(t, alg("HS256"), with(good, "nbf", now+61), "s"), verify.ReasonTokenNotYet},
		"issued in the future":          {"s", hs256(t, alg("HS256"), with(good, "iat", now+61), "s"), verify.ReasonTokenNotYet},
		"audience in a list":            {"s", hs256(t, alg("HS256"), with(good, "aud", []string{"x", "bells"}), "s"), ""},
		"another audience":              {"s", hs256(t, alg("HS256"), with(good, "aud", "bell"), "s"), verify.ReasonTokenClaims},
		"no audience":                   {"s", hs256(t, alg("HS256"), with(good, "aud", nil), "s"), verify.ReasonTokenClaims},
		"another issuer":                {"s", hs256(t, alg("HS256"), with(good, "iss", "https://issuer.example.com.evil"), "s"), verify.ReasonTokenClaims},
		"another email":                 {"s", hs256(t, alg("HS256"), with(good, "email", "x@example.com"), "s"), verify.ReasonTokenClaims},
		"an email not verified":         {"s", hs256(t, alg("HS256"), with(good, "email_verified", false), "s"), verify.ReasonTokenClaims},
		"an email verified as text":     {"s", hs256(t, alg("HS256"), with(good, "email_verified", "true"), "s"), verify.ReasonTokenClaims},
		"two parts":                     {"s", "a.b", verify.ReasonTokenMalformed},
		"four parts":                    {"s", hs256(t, alg("HS256"), good, "s") + ".x", verify.ReasonTokenMalformed},
		"padding":                       {"s", hs256(t, alg("HS256"), good, "s") + "=", verify.ReasonTokenMalformed},
		"no header":                     {"s", "!." + part(t, good) + ".AAAA", verify.ReasonTokenMalformed},
		"overlong":                      {"s", strings.Repeat("a", 20<<10), verify.ReasonTokenMalformed},
	} {
		v := parse(t, `{"scheme":"jwt","secret":`+literal(t, c.key)+`,"values":{"issuer":"https://issuer.example.com","audience":"bells","email":"push@example.com"}}`)
		got := verified(t, v, verify.Input{Call: post("{}", "authorization", "Bearer "+c.token), Now: at(now)})
		if got.Reason != c.want || got.OK != (c.want == "") || got.Integrity {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

func TestJWTPlaces(t *testing.T) {
	t.Parallel()

	token := hs256(t, map[string]any{"alg": "HS256"}, claims{"exp": 200}, "s")
	v := parse(t, `{"scheme":"jwt","secret":"s"}`)
	for value, want := range map[string]verify.Reason{
		"Bearer " + token: "", "bearer " + token: "", token: "", "Basic " + token: verify.ReasonTokenMalformed, "": verify.ReasonSignatureMissing,
		"Bearer": verify.ReasonTokenMalformed,
	} {
		if got := verified(t, v, verify.Input{Call: post("", "authorization", value), Now: at(100)}); got.Reason != want {
			t.Errorf("%.20q: %+v, want %q", value, got, want)
		}
	}
	own := parse(t, `{"scheme":"jwt","header":"X-Token","secret":"s"}`)
	if got := verified(t, own, verify.Input{Call: post("", "x-token", token), Now: at(100)}); !got.OK {
		t.Errorf("in a header of its own: %+v", got)
	}
}

// Google's keys are fetched from Google, and only the configured account is
// let in.
func TestGooglePubsub(t *testing.T) {
	t.Parallel()

	key := rsaKey(t)
	const url = "https://bells.example.com/triggers/webhooks/sub_x"
	set, err := json.Marshal(map[string]any{"keys": []any{jwk("k1", &key.PublicKey)}})
	if err != nil {
		t.Fatal(err)
	}
	good := claims{"iss": "https://accounts.google.com", "aud": url, "exp": 200, "email": "push@example.com", "email_verified": true}
	params := json.RawMessage(`{"email":"push@example.com"}`)
	v := parse(t, `{"preset":"google-pubsub"}`)
	for name, c := range map[string]struct {
		claims claims
		params json.RawMessage
		want   verify.Reason
	}{
		"good":            {good, params, ""},
		"another account": {with(good, "email", "evil@example.com"), params, verify.ReasonTokenClaims},
		"another issuer":  {with(good, "iss", "https://evil.example.com"), params, verify.ReasonTokenClaims},
		"another URL":     {with(good, "aud", url+"/x"), params, verify.ReasonTokenClaims},
		"no email set":    {good, nil, verify.ReasonNotConfigured},
	} {
		keys := &fetched{answer: set}
		call := post("{}", "authorization", "Bearer "+rs256(t, map[string]any{"alg": "RS256", "kid": "k1"}, c.claims, key))
		got := verified(t, v, verify.Input{Call: call, URL: url + "?token=x", Now: at(100), Keys: keys, Secrets: verify.Secrets{Params: c.params}})
		if got.Reason != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		for _, asked := range keys.urls {
			if asked != "https://www.googleapis.com/oauth2/v3/certs" {
				t.Errorf("%s: fetched %s", name, asked)
			}
		}
	}
}
