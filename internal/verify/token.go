package verify

import (
	"encoding/base64"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

// token checks a shared token. Where a call holds several, as a batch of Graph
// notifications does, each must be right.
func (a *attempt) token(keys []secret.Text) error {
	values, err := a.lookup(a.at)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return ReasonSignatureMissing
	}
	if len(values) > 1 && a.at.body == nil {
		return ReasonSignatureAmbiguous
	}
	for _, value := range values {
		id, err := a.oneToken(value, keys)
		if err != nil {
			return err
		}
		a.result.KeyID = id
	}
	return nil
}

func (a *attempt) oneToken(value string, keys []secret.Text) (string, error) {
	if len(value) == 0 {
		return "", ReasonSignatureMissing
	}
	if len(value) > maxSignature {
		return "", ReasonSignatureMalformed
	}
	token, ok := strings.CutPrefix(value, a.spec.Prefix)
	if !ok {
		return "", ReasonSignatureMalformed
	}
	for _, key := range keys {
		if Equal(token, key.Reveal()) {
			return fingerprint(key.Reveal()), nil
		}
	}
	return "", ReasonSignatureMismatch
}

// basic checks HTTP basic authentication; a secret is user:password.
func (a *attempt) basic(keys []secret.Text) error {
	text, err := a.single(a.at, ReasonSignatureMissing, ReasonSignatureAmbiguous)
	if err != nil {
		return err
	}
	scheme, encoded, found := strings.Cut(text, " ")
	if !found || !strings.EqualFold(scheme, "basic") || len(encoded) > maxSignature {
		return ReasonSignatureMalformed
	}
	credentials, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ReasonSignatureMalformed
	}
	for _, key := range keys {
		if Equal(string(credentials), key.Reveal()) {
			a.result.KeyID = fingerprint(key.Reveal())
			return nil
		}
	}
	return ReasonSignatureMismatch
}
