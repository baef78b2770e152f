package verify

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

// jwtKey is a key with the one algorithm it is for. A token names its
// algorithm, but it does not choose: with the key decides the algorithm, no
// token can have an RSA key taken for an HMAC secret, or ask for "none".
type jwtKey struct {
	id        string // kid, or ""
	algorithm string
	check     check
	shown     string // fingerprint
}

// jwt checks a JSON Web Token (RFC 7519) and its claims. It proves who calls,
// not what the body is.
func (a *attempt) jwt(ctx context.Context, secrets []secret.Text) error {
	text, err := a.single(a.at, ReasonSignatureMissing, ReasonSignatureAmbiguous)
	if err != nil {
		return err
	}
	token, ok := bearer(text, a.at)
	if !ok || len(token) > maxSignature {
		return ReasonTokenMalformed
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ReasonTokenMalformed
	}
	keys, err := a.jwtKeys(ctx, secrets)
	if err != nil {
		return err
	}
	if err := a.jwtSignature(parts, keys); err != nil {
		return err
	}
	return a.jwtClaims(parts[1])
}

// bearer takes the token out of an Authorization header; elsewhere the token
// stands alone.
func bearer(text string, at place) (string, bool) {
	if len(at.headers) == 0 || at.headers[0] != "authorization" {
		return text, true
	}
	scheme, token, found := strings.Cut(text, " ")
	if !found {
		return text, true // some vendors leave the word out
	}
	return token, strings.EqualFold(scheme, "bearer")
}

func (a *attempt) jwtSignature(parts []string, keys []jwtKey) error {
	var header struct {
		Algorithm string            `json:"alg"`
		KeyID     string            `json:"kid"`
		Critical  []json.RawMessage `json:"crit"`
	}
	if !decodePart(parts[0], &header) {
		return ReasonTokenMalformed
	}
	// RFC 7515 §4.1.11: what is critical and not understood is refused.
	if header.Critical != nil {
		return ReasonTokenMalformed
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(signature) == 0 {
		return ReasonTokenMalformed
	}
	tried := false
	signed := message{[]byte(parts[0]), []byte("."), []byte(parts[1])}
	for _, key := range keys {
		if key.algorithm != header.Algorithm || key.id != "" && header.KeyID != "" && key.id != header.KeyID {
			continue
		}
		tried = true
		if key.check(signed)(signature) {
			a.result.KeyID, a.result.Scheme = key.shown, schemeJWT+"-"+strings.ToLower(key.algorithm)
			return nil
		}
	}
	if !tried {
		return ReasonTokenAlgorithm
	}
	return ReasonSignatureMismatch
}

// jwtKeys reads the configured keys: key sets (JWKS), PEM, or shared secrets.
func (a *attempt) jwtKeys(ctx context.Context, secrets []secret.Text) ([]jwtKey, error) {
	texts := make([]string, 0, len(secrets)+1)
	for _, s := range secrets {
		texts = append(texts, s.Reveal())
	}
	if len(texts) == 0 && a.spec.keyURL != nil {
		set, err := a.fetch(ctx, a.spec.keyURL.fixed)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(set))
	}
	var keys []jwtKey
	for _, text := range texts {
		switch {
		case jsonpointer.Kind(json.RawMessage(text)) == '{':
			keys = append(keys, keySet(text)...)
		default:
			keys = append(keys, keyOf("", text)...)
		}
	}
	if len(keys) == 0 {
		return nil, ReasonBadSecret
	}
	return keys, nil
}

// keyOf gives a key by its kind: an RSA or P-256 public key, else, when the
// text is not PEM, a shared secret.
func keyOf(id, text string) []jwtKey {
	switch key := publicKey(text).(type) {
	case *rsa.PublicKey:
		return []jwtKey{{id, "RS256", rsaCheck(key, crypto.SHA256), fingerprint(text)}}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return []jwtKey{{id, "ES256", ecdsaCheck(key, true), fingerprint(text)}}
		}
		return nil
	}
	if strings.Contains(text, "-----BEGIN") {
		return nil
	}
	return []jwtKey{{id, "HS256", hmacCheck(sha256.New, []byte(text)), fingerprint(text)}}
}

// keySet reads the RSA and P-256 keys of a JWKS (RFC 7517). A set holds public
// keys; a shared secret in one is not taken.
func keySet(text string) []jwtKey {
	var set struct {
		Keys []struct {
			Type  string `json:"kty"`
			ID    string `json:"kid"`
			Use   string `json:"use"`
			Curve string `json:"crv"`
			N     string `json:"n"`
			E     string `json:"e"`
			X     string `json:"x"`
			Y     string `json:"y"`
		} `json:"keys"`
	}
	if json.Unmarshal([]byte(text), &set) != nil {
		return nil
	}
	var keys []jwtKey
	for _, k := range set.Keys {
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		switch {
		case k.Type == "RSA":
			if key, ok := rsaFromJWK(k.N, k.E); ok {
				keys = append(keys, jwtKey{k.ID, "RS256", rsaCheck(key, crypto.SHA256), fingerprint(k.N)})
			}
		case k.Type == "EC" && k.Curve == "P-256":
			if key, ok := ecFromJWK(k.X, k.Y); ok {
				keys = append(keys, jwtKey{k.ID, "ES256", ecdsaCheck(key, true), fingerprint(k.X)})
			}
		}
	}
	return keys
}

func rsaFromJWK(n, e string) (*rsa.PublicKey, bool) {
	modulus, errN := base64.RawURLEncoding.DecodeString(n)
	exponent, errE := base64.RawURLEncoding.DecodeString(e)
	if errN != nil || errE != nil || len(exponent) == 0 || len(exponent) > 4 || len(modulus) < 256 || len(modulus) > 1024 {
		return nil, false
	}
	power := int(new(big.Int).SetBytes(exponent).Int64())
	if power < 3 || power%2 == 0 {
		return nil, false
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: power}, true
}

func ecFromJWK(x, y string) (*ecdsa.PublicKey, bool) {
	left, errX := base64.RawURLEncoding.DecodeString(x)
	right, errY := base64.RawURLEncoding.DecodeString(y)
	if errX != nil || errY != nil || len(left) != 32 || len(right) != 32 {
		return nil, false
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, left...), right...))
	return key, err == nil
}

// leeway is how far the clocks of signer and host may differ.
const leeway = time.Minute

func (a *attempt) jwtClaims(part string) error {
	var claims struct {
		Expires   *json.Number    `json:"exp"`
		NotBefore *json.Number    `json:"nbf"`
		IssuedAt  *json.Number    `json:"iat"`
		Issuer    string          `json:"iss"`
		Audience  json.RawMessage `json:"aud"`
		Email     string          `json:"email"`
		Verified  json.RawMessage `json:"email_verified"`
	}
	if !decodePart(part, &claims) {
		return ReasonTokenMalformed
	}
	expires, ok := numericDate(claims.Expires)
	if !ok {
		return ReasonTokenExpired // a token that never ends can be played back for ever
	}
	if a.in.Now.After(expires.Add(leeway)) {
		return ReasonTokenExpired
	}
	if at, ok := numericDate(claims.NotBefore); ok && a.in.Now.Before(at.Add(-leeway)) {
		return ReasonTokenNotYet
	}
	if at, ok := numericDate(claims.IssuedAt); ok {
		skew := a.in.Now.Sub(at).Milliseconds()
		a.result.SkewMS = &skew
		if a.in.Now.Before(at.Add(-leeway)) {
			return ReasonTokenNotYet
		}
	}
	if !a.allowed("issuer", claims.Issuer) || !a.audience(audiences(claims.Audience)) {
		return ReasonTokenClaims
	}
	emails := a.spec.Values["email"].Resolve(a.in.Secrets)
	if len(emails) > 0 && (string(claims.Verified) != "true" || !a.allowed("email", claims.Email)) {
		return ReasonTokenClaims
	}
	return nil
}

// allowed says whether a claim is one of those configured; with none
// configured every one is.
func (a *attempt) allowed(name, claim string) bool {
	wanted := a.spec.claims[name]
	for _, value := range a.spec.Values[name].Resolve(a.in.Secrets) {
		wanted = append(slices.Clip(wanted), value.Reveal())
	}
	for _, value := range wanted {
		if Equal(value, claim) {
			return true
		}
	}
	return len(wanted) == 0
}

func (a *attempt) audience(claimed []string) bool {
	wanted := a.spec.Values["audience"].Resolve(a.in.Secrets)
	if len(wanted) == 0 && a.spec.ownAudience {
		plain, _, _ := strings.Cut(a.in.URL, "?")
		wanted = []secret.Text{secret.Text(a.in.URL), secret.Text(plain)}
	}
	for _, claim := range claimed {
		for _, value := range wanted {
			if Equal(value.Reveal(), claim) {
				return true
			}
		}
	}
	return len(wanted) == 0
}

// audiences reads aud, a text or a list.
func audiences(claim json.RawMessage) []string {
	var list []string
	if json.Unmarshal(claim, &list) == nil {
		return list
	}
	one, _ := jsonpointer.Text(claim)
	return []string{one}
}

func numericDate(n *json.Number) (time.Time, bool) {
	if n == nil {
		return time.Time{}, false
	}
	seconds, err := n.Float64()
	if err != nil || seconds < 0 || seconds > 1e11 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

func decodePart(part string, into any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(raw, into) == nil
}

// oneOf makes a test against secrets.
func oneOf(text string) func(secret.Text) bool {
	return func(s secret.Text) bool { return Equal(s.Reveal(), text) }
}
