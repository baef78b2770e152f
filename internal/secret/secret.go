// Package secret keeps things from being read by whoever should not: Keyring
// seals what is stored (AES-256-GCM, rotating keys), Text is a string that does
// not print.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Text is a secret string. Every way of printing it shows [redacted]; Reveal
// gives the text.
type Text string

const redacted = "[redacted]"

// String hides the text.
func (Text) String() string { return redacted }

// GoString hides the text from %#v.
func (Text) GoString() string { return redacted }

// MarshalText hides the text from encoders.
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal gives the text.
func (t Text) Reveal() string { return string(t) }

// ErrSealed is data that no key of the ring opens.
var ErrSealed = errors.New("sealed data cannot be opened with the configured ENCRYPTION_KEYS")

// DevKeys is the built-in ring that TOCSIN_DEV=1 allows. It protects nothing.
const DevKeys Text = "dev:dG9jc2luIGRldiBrZXksIHByb3RlY3RzIG5vdGhpbmc="

// Keyring seals with its first key and opens with all of them. It is safe for
// concurrent use.
type Keyring struct {
	first string
	mac   []byte // for fingerprints; derived from the first key
	keys  map[string]cipher.AEAD
}

// ParseKeyring reads "id:base64,id:base64"; each key has 32 bytes. Errors never
// hold key material.
func ParseKeyring(text Text) (*Keyring, error) {
	ring := &Keyring{keys: map[string]cipher.AEAD{}}
	for i, entry := range strings.Split(text.Reveal(), ",") {
		id, encoded, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if !ok || id == "" || len(id) > 255 {
			return nil, fmt.Errorf("entry %d: want id:base64 with an id of 1 to 255 bytes", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("entry %d: want the base64 of 32 bytes, as from: openssl rand -base64 32", i+1)
		}
		if _, ok := ring.keys[id]; ok {
			return nil, fmt.Errorf("entry %d: the id is there twice", i+1)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("entry %d: the key is not usable", i+1)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("entry %d: the key is not usable", i+1)
		}
		ring.keys[id] = aead
		if i == 0 {
			ring.first, ring.mac = id, digest(key, "fingerprints")
		}
	}
	return ring, nil
}

// Fingerprint tells one secret from another and gives neither away: keyed, cut
// to 64 bits. It changes with the first key, so it is kept where it was made.
func (k *Keyring) Fingerprint(value []byte) string {
	return hex.EncodeToString(digest(k.mac, string(value))[:8])
}

func digest(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(text))
	return mac.Sum(nil)
}

// sealVersion starts every sealed value: version, length of the key id, key
// id, nonce, ciphertext.
const sealVersion = 1

// Seal encrypts plaintext for one purpose; Open wants the same purpose, so a
// value cannot be moved from one column to another. nil stays nil.
func (k *Keyring) Seal(purpose string, plaintext []byte) []byte {
	if plaintext == nil {
		return nil
	}
	aead := k.keys[k.first]
	head := 2 + len(k.first)
	out := make([]byte, head+aead.NonceSize(), head+aead.NonceSize()+len(plaintext)+aead.Overhead())
	out[0], out[1] = sealVersion, byte(len(k.first))
	copy(out[2:], k.first)
	nonce := out[head:]
	_, _ = rand.Read(nonce)                                  // never fails: crypto/rand aborts the process instead
	return aead.Seal(out, nonce, plaintext, []byte(purpose)) //nolint:gosec // the nonce was drawn a line above
}

// Open decrypts what Seal made; ErrSealed when no key fits. nil stays nil.
func (k *Keyring) Open(purpose string, sealed []byte) ([]byte, error) {
	if sealed == nil {
		return nil, nil
	}
	if len(sealed) < 2 || sealed[0] != sealVersion || len(sealed) < 2+int(sealed[1]) {
		return nil, ErrSealed
	}
	head := 2 + int(sealed[1])
	aead, ok := k.keys[string(sealed[2:head])]
	if !ok || len(sealed) < head+aead.NonceSize() {
		return nil, ErrSealed
	}
	nonce := sealed[head : head+aead.NonceSize()]
	plaintext, err := aead.Open(nil, nonce, sealed[head+aead.NonceSize():], []byte(purpose))
	if err != nil {
		return nil, ErrSealed
	}
	if plaintext == nil {
		plaintext = []byte{} // an empty body is not an absent one
	}
	return plaintext, nil
}
