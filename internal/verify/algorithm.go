package verify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // vendors still sign with HMAC-SHA1 and SHA-1 with RSA; collisions do not break the former
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"hash"
	"math/big"
	"strings"
)

// Schemes that are no signature algorithm.
const (
	schemeToken = "token"
	schemeBasic = "basic"
	schemeJWT   = "jwt"
	schemeSNS   = "sns"
)

// message is what is signed, in pieces, so that a large body is not copied.
type message [][]byte

func (m message) sum(h hash.Hash) []byte {
	for _, piece := range m {
		_, _ = h.Write(piece) // never fails
	}
	return h.Sum(nil)
}

func (m message) join() []byte {
	size := 0
	for _, piece := range m {
		size += len(piece)
	}
	all := make([]byte, 0, size)
	for _, piece := range m {
		all = append(all, piece...)
	}
	return all
}

// algorithm makes a check from a key's text; false when the text is no key of
// this algorithm.
type algorithm struct {
	name string
	key  func(text, encoding string) (check, bool)
}

// check binds a key to a message; the result says whether a signature belongs
// to both. What is costly is done once for all signatures.
type check func(m message) func(signature []byte) bool

func algorithmNamed(name string) (algorithm, bool) {
	switch name {
	case "hmac-sha1":
		return hmacAlgorithm(name, sha1.New), true
	case "hmac-sha256":
		return hmacAlgorithm(name, sha256.New), true
	case "hmac-sha384":
		return hmacAlgorithm(name, sha512.New384), true
	case "hmac-sha512":
		return hmacAlgorithm(name, sha512.New), true
	case "ed25519":
		return algorithm{name, ed25519Key}, true
	case "ecdsa-p256":
		return algorithm{name, ecdsaKey(false)}, true
	case "ecdsa-p256-raw":
		return algorithm{name, ecdsaKey(true)}, true
	case "rsa-sha1":
		return algorithm{name, rsaKey(crypto.SHA1)}, true
	case "rsa-sha256":
		return algorithm{name, rsaKey(crypto.SHA256)}, true
	}
	return algorithm{}, false
}

func hmacAlgorithm(name string, h func() hash.Hash) algorithm {
	return algorithm{name, func(text, encoding string) (check, bool) {
		key, ok := hmacKey(text, encoding)
		if !ok {
			return nil, false
		}
		return hmacCheck(h, key), true
	}}
}

func hmacCheck(h func() hash.Hash, key []byte) check {
	return func(m message) func([]byte) bool {
		want := m.sum(hmac.New(h, key))
		return func(signature []byte) bool { return hmac.Equal(signature, want) }
	}
}

// hmacKey reads the key's text. An empty key is none: anybody knows it.
func hmacKey(text, encoding string) ([]byte, bool) {
	var key []byte
	var err error
	switch encoding {
	case "hex":
		key, err = hex.DecodeString(text)
	case "base64":
		key, err = base64.StdEncoding.DecodeString(text)
	case "whsec":
		if strings.HasPrefix(text, publicPrefix) {
			return nil, false
		}
		key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	default:
		key = []byte(text)
	}
	return key, err == nil && len(key) > 0
}

// publicPrefix marks the Ed25519 public keys of Standard Webhooks.
const publicPrefix = "whpk_"

func ed25519Key(text, encoding string) (check, bool) {
	key, ok := ed25519Public(text, encoding)
	if !ok {
		return nil, false
	}
	return func(m message) func([]byte) bool {
		signed := m.join()
		return func(signature []byte) bool {
			return len(signature) == ed25519.SignatureSize && ed25519.Verify(key, signed, signature)
		}
	}, true
}

func ed25519Public(text, encoding string) (ed25519.PublicKey, bool) {
	if encoded, ok := strings.CutPrefix(text, publicPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		return raw, err == nil && len(raw) == ed25519.PublicKeySize
	}
	if encoding == "whsec" {
		return nil, false // a shared secret is not a public key, whatever its length
	}
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == ed25519.PublicKeySize {
		return raw, true
	}
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && len(raw) == ed25519.PublicKeySize {
		return raw, true
	}
	key, ok := publicKey(text).(ed25519.PublicKey)
	return key, ok
}

func ecdsaKey(raw bool) func(text, encoding string) (check, bool) {
	return func(text, _ string) (check, bool) {
		key, ok := publicKey(text).(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, false
		}
		return ecdsaCheck(key, raw), true
	}
}

func ecdsaCheck(key *ecdsa.PublicKey, raw bool) check {
	return func(m message) func([]byte) bool {
		digest := m.sum(sha256.New())
		return func(signature []byte) bool {
			if !raw {
				return ecdsa.VerifyASN1(key, digest, signature)
			}
			if len(signature) != 64 {
				return false
			}
			r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
			return ecdsa.Verify(key, digest, r, s)
		}
	}
}

func rsaKey(h crypto.Hash) func(text, encoding string) (check, bool) {
	return func(text, _ string) (check, bool) {
		key, ok := publicKey(text).(*rsa.PublicKey)
		if !ok {
			return nil, false
		}
		return rsaCheck(key, h), true
	}
}

func rsaCheck(key *rsa.PublicKey, h crypto.Hash) check {
	return func(m message) func([]byte) bool {
		digest := m.sum(h.New())
		return func(signature []byte) bool { return rsa.VerifyPKCS1v15(key, h, digest, signature) == nil }
	}
}

// publicKey reads PEM (a public key or a certificate) or the base64 of DER; nil
// when it is neither.
func publicKey(text string) any {
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if block.Type == "CERTIFICATE" {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil
			}
			return certificate.PublicKey
		}
		der = block.Bytes
	} else {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil
		}
		der = raw
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil
	}
	return key
}

// decodeSignature reads a signature's text. Line breaks, which the base64
// decoder would pass over, are refused.
func decodeSignature(text, encoding string) ([]byte, bool) {
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	var raw []byte
	var err error
	switch encoding {
	case "base64":
		raw, err = base64.StdEncoding.Strict().DecodeString(text)
	case "base64url":
		raw, err = base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	default:
		raw, err = hex.DecodeString(text)
	}
	return raw, err == nil && len(raw) > 0
}
