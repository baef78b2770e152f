package sender

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

type keyKind int

const (
	keyText keyKind = iota
	keyStandard
	keyBasic
	keyEd25519
	keyECDSA
	keyRSA
)

// GenerateSecret draws a secret of the vendor's kind: what to sign with, and
// what to give to the receiver. For shared secrets the two are the same.
func GenerateSecret(vendor string) (signing, receiving secret.Text, err error) {
	p, ok := profiles[vendor]
	if !ok {
		return "", "", fmt.Errorf("unknown vendor %q", vendor)
	}
	var seed [24]byte
	_, _ = rand.Read(seed[:]) // never fails: crypto/rand aborts the process instead
	switch p.key {
	case keyStandard:
		text := secret.Text("whsec_" + base64.StdEncoding.EncodeToString(seed[:]))
		return text, text, nil
	case keyBasic:
		text := secret.Text("tocsin:" + hex.EncodeToString(seed[:]))
		return text, text, nil
	case keyEd25519:
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", "", err
		}
		return secret.Text(hex.EncodeToString(private.Seed())), secret.Text(hex.EncodeToString(public)), nil
	case keyECDSA:
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", "", err
		}
		return pair(key, &key.PublicKey)
	case keyRSA:
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return "", "", err
		}
		return pair(key, &key.PublicKey)
	case keyText:
	}
	text := secret.Text(hex.EncodeToString(seed[:]))
	return text, text, nil
}

func pair(private, public any) (signing, receiving secret.Text, err error) {
	mine, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	yours, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", "", err
	}
	return secret.Text(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: mine})),
		secret.Text(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: yours})), nil
}

var errKey = errors.New("the secret is not the private key that this vendor signs with")

func privateKey[K any](text secret.Text) (K, error) {
	var none K
	block, _ := pem.Decode([]byte(text.Reveal()))
	if block == nil {
		return none, errKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return none, errKey
	}
	key, ok := parsed.(K)
	if !ok {
		return none, errKey
	}
	return key, nil
}

// ed25519Key reads a seed in hex, or of a whsk_ key of Standard Webhooks, or PEM.
func ed25519Key(text secret.Text) (ed25519.PrivateKey, error) {
	if seed, err := hex.DecodeString(text.Reveal()); err == nil && len(seed) == ed25519.SeedSize {
		return ed25519.NewKeyFromSeed(seed), nil
	}
	return privateKey[ed25519.PrivateKey](text)
}
