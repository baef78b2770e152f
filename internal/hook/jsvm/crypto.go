package jsvm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // vendors still sign with HMAC-SHA1
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash"
	"math/big"
)

var (
	errTooManyTimers = errors.New("too many timers")
	errNotUTF8       = errors.New("the encoded data was not valid UTF-8")
	errBadKey        = errors.New("the key is not valid for this algorithm and format")
	errFormat        = errors.New("the format is not supported for this key")
)

const (
	algorithmRSA     = "RSASSA-PKCS1-v1_5"
	algorithmECDSA   = "ECDSA"
	algorithmEd25519 = "Ed25519"

	// maxRSABits bounds what one signature may cost.
	maxRSABits = 8192
)

func hashFor(name string) (func() hash.Hash, crypto.Hash) {
	switch name {
	case "SHA-1":
		return sha1.New, crypto.SHA1
	case "SHA-256":
		return sha256.New, crypto.SHA256
	case "SHA-384":
		return sha512.New384, crypto.SHA384
	default:
		return sha512.New, crypto.SHA512
	}
}

func sum(name string, data []byte) []byte {
	newHash, _ := hashFor(name)
	h := newHash()
	h.Write(data)
	return h.Sum(nil)
}

func mac(hashName string, key, data []byte) []byte {
	newHash, _ := hashFor(hashName)
	h := hmac.New(newHash, key)
	h.Write(data)
	return h.Sum(nil)
}

func (vm *VM) digest(args arguments) (value, error) {
	return vm.engine.buffer(sum(args.text(0), args.bytes(1))), nil
}

func (vm *VM) hmac(args arguments) (value, error) {
	return vm.engine.buffer(mac(args.text(0), args.bytes(1), args.bytes(2))), nil
}

func (vm *VM) hmacVerify(args arguments) (value, error) {
	return boolean(hmac.Equal(args.bytes(2), mac(args.text(0), args.bytes(1), args.bytes(3)))), nil
}

// importKey answers the key as DER behind a byte: 1 private (PKCS #8), 0
// public (SPKI).
func (vm *VM) importKey(args arguments) (value, error) {
	key, err := parseKey(args.text(0), args.text(1), args.bytes(2))
	if err != nil {
		return undefined, err
	}
	if !keyFits(args.text(0), key) {
		return undefined, errBadKey
	}
	if _, public := key.(crypto.Signer); !public {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return undefined, errBadKey
		}
		return vm.engine.buffer(append([]byte{0}, der...)), nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return undefined, errBadKey
	}
	return vm.engine.buffer(append([]byte{1}, der...)), nil
}

func keyFits(algorithm string, key any) bool {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return algorithm == algorithmRSA && k.N.BitLen() <= maxRSABits
	case *rsa.PublicKey:
		return algorithm == algorithmRSA && k.N.BitLen() <= maxRSABits
	case *ecdsa.PrivateKey:
		return algorithm == algorithmECDSA && k.Curve == elliptic.P256()
	case *ecdsa.PublicKey:
		return algorithm == algorithmECDSA && k.Curve == elliptic.P256()
	case ed25519.PrivateKey, ed25519.PublicKey:
		return algorithm == algorithmEd25519
	}
	return false
}

func parseKey(algorithm, format string, data []byte) (any, error) {
	switch format {
	case "pkcs8":
		key, err := x509.ParsePKCS8PrivateKey(data)
		return key, asBadKey(err)
	case "spki":
		key, err := x509.ParsePKIXPublicKey(data)
		return key, asBadKey(err)
	case "jwk":
		return parseJWK(data)
	}
	switch {
	case algorithm == algorithmEd25519 && len(data) == ed25519.PublicKeySize:
		return ed25519.PublicKey(data), nil
	case algorithm == algorithmECDSA:
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), data)
		return key, asBadKey(err)
	}
	return nil, errFormat
}

func asBadKey(err error) error {
	if err != nil {
		return errBadKey
	}
	return nil
}

// jwk is the part of RFC 7517 that the supported algorithms use.
type jwk struct {
	Type  string `json:"kty"`
	Curve string `json:"crv,omitempty"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
	D     string `json:"d,omitempty"`
	P     string `json:"p,omitempty"`
	Q     string `json:"q,omitempty"`
	DP    string `json:"dp,omitempty"`
	DQ    string `json:"dq,omitempty"`
	QI    string `json:"qi,omitempty"`
}

func parseJWK(data []byte) (any, error) {
	var k jwk
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, errBadKey
	}
	switch {
	case k.Type == "RSA":
		return parseRSAJWK(k)
	case k.Type == "OKP" && k.Curve == "Ed25519":
		if seed := unbase64(k.D); len(seed) == ed25519.SeedSize {
			return ed25519.NewKeyFromSeed(seed), nil
		}
		if x := unbase64(k.X); len(x) == ed25519.PublicKeySize {
			return ed25519.PublicKey(x), nil
		}
	case k.Type == "EC" && k.Curve == "P-256":
		if k.D != "" {
			key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), unbase64(k.D))
			return key, asBadKey(err)
		}
		point := append(append([]byte{4}, unbase64(k.X)...), unbase64(k.Y)...)
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		return key, asBadKey(err)
	}
	return nil, errBadKey
}

func parseRSAJWK(k jwk) (any, error) {
	integer := func(s string) *big.Int { return new(big.Int).SetBytes(unbase64(s)) }
	exponent := integer(k.E)
	if !exponent.IsInt64() || exponent.Int64() > 1<<31-1 {
		return nil, errBadKey
	}
	public := rsa.PublicKey{N: integer(k.N), E: int(exponent.Int64())}
	if k.D == "" {
		return &public, nil
	}
	private := &rsa.PrivateKey{PublicKey: public, D: integer(k.D), Primes: []*big.Int{integer(k.P), integer(k.Q)}}
	if public.N.BitLen() > maxRSABits || private.Validate() != nil {
		return nil, errBadKey
	}
	private.Precompute()
	return private, nil
}

func unbase64(s string) []byte {
	b, _ := base64.RawURLEncoding.DecodeString(s) // an empty key fails later
	return b
}

func storedKey(keyType string, der []byte) (any, error) {
	if keyType == "private" {
		return x509.ParsePKCS8PrivateKey(der)
	}
	return x509.ParsePKIXPublicKey(der)
}

func (vm *VM) exportKey(args arguments) (value, error) {
	keyType, format, der := args.text(1), args.text(2), args.bytes(3)
	if format == "pkcs8" && keyType == "private" || format == "spki" && keyType == "public" {
		return vm.engine.buffer(der), nil
	}
	key, err := storedKey(keyType, der)
	if err != nil {
		return undefined, err
	}
	switch format {
	case "jwk":
		k, err := toJWK(key)
		if err != nil {
			return undefined, err
		}
		text, err := json.Marshal(k)
		if err != nil {
			return undefined, err
		}
		return vm.engine.buffer(text), nil
	case "raw":
		switch k := key.(type) {
		case ed25519.PublicKey:
			return vm.engine.buffer(k), nil
		case *ecdsa.PublicKey:
			point, err := k.Bytes()
			if err != nil {
				return undefined, errBadKey
			}
			return vm.engine.buffer(point), nil
		}
	}
	return undefined, errFormat
}

func toJWK(key any) (jwk, error) {
	encode := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jwk{Type: "RSA", N: encode(k.N.Bytes()), E: encode(big.NewInt(int64(k.E)).Bytes())}, nil
	case *rsa.PrivateKey:
		out, _ := toJWK(&k.PublicKey)
		if len(k.Primes) != 2 {
			return jwk{}, errFormat
		}
		k.Precompute()
		out.D, out.P, out.Q = encode(k.D.Bytes()), encode(k.Primes[0].Bytes()), encode(k.Primes[1].Bytes())
		out.DP, out.DQ, out.QI = encode(k.Precomputed.Dp.Bytes()), encode(k.Precomputed.Dq.Bytes()), encode(k.Precomputed.Qinv.Bytes())
		return out, nil
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			return jwk{}, errBadKey
		}
		half := (len(point) - 1) / 2
		return jwk{Type: "EC", Curve: "P-256", X: encode(point[1 : 1+half]), Y: encode(point[1+half:])}, nil
	case *ecdsa.PrivateKey:
		out, err := toJWK(&k.PublicKey)
		if err != nil {
			return jwk{}, err
		}
		d, err := k.Bytes()
		if err != nil {
			return jwk{}, errBadKey
		}
		out.D = encode(d)
		return out, nil
	case ed25519.PublicKey:
		return jwk{Type: "OKP", Curve: "Ed25519", X: encode(k)}, nil
	case ed25519.PrivateKey:
		return jwk{Type: "OKP", Curve: "Ed25519", X: encode(k[ed25519.SeedSize:]), D: encode(k.Seed())}, nil
	}
	return jwk{}, errFormat
}

func (vm *VM) sign(args arguments) (value, error) {
	key, err := storedKey("private", args.bytes(2))
	if err != nil {
		return undefined, errBadKey
	}
	hashName, data := args.text(1), args.bytes(3)
	var signature []byte
	switch k := key.(type) {
	case *rsa.PrivateKey:
		_, id := hashFor(hashName)
		signature, err = rsa.SignPKCS1v15(nil, k, id, sum(hashName, data))
	case *ecdsa.PrivateKey:
		signature, err = signECDSA(k, sum(hashName, data))
	case ed25519.PrivateKey:
		signature = ed25519.Sign(k, data)
	default:
		err = errBadKey
	}
	if err != nil {
		return undefined, err
	}
	return vm.engine.buffer(signature), nil
}

// Web Crypto writes ECDSA signatures as r and s side by side, not as ASN.1.
const ecdsaHalf = 32

func signECDSA(key *ecdsa.PrivateKey, digest []byte) ([]byte, error) {
	r, s, err := ecdsa.Sign(rand.Reader, key, digest)
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 2*ecdsaHalf)
	r.FillBytes(signature[:ecdsaHalf])
	s.FillBytes(signature[ecdsaHalf:])
	return signature, nil
}

func (vm *VM) verify(args arguments) (value, error) {
	key, err := storedKey("public", args.bytes(2))
	if err != nil {
		return undefined, errBadKey
	}
	hashName, signature, data := args.text(1), args.bytes(3), args.bytes(4)
	switch k := key.(type) {
	case *rsa.PublicKey:
		_, id := hashFor(hashName)
		return boolean(rsa.VerifyPKCS1v15(k, id, sum(hashName, data), signature) == nil), nil
	case *ecdsa.PublicKey:
		if len(signature) != 2*ecdsaHalf {
			return boolean(false), nil
		}
		r, s := new(big.Int).SetBytes(signature[:ecdsaHalf]), new(big.Int).SetBytes(signature[ecdsaHalf:])
		return boolean(ecdsa.Verify(k, sum(hashName, data), r, s)), nil
	case ed25519.PublicKey:
		return boolean(ed25519.Verify(k, data, signature)), nil
	}
	return undefined, errBadKey
}
