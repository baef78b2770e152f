package jsvm_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// helpers are functions the crypto tests share, as members of the trigger.
const helpers = `
	bytes(b64) { return Uint8Array.fromBase64(b64); },
	hex(buffer) { return new Uint8Array(buffer).toHex(); },
	b64(buffer) { return new Uint8Array(buffer).toBase64(); },
`

// runCrypto runs the body of an async function (input, t) and gives its result.
func runCrypto(t *testing.T, body string, input map[string]any) any {
	t.Helper()
	vm, host := newVM(t, helpers+"async run(input) { const t = this; "+body+" }")
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	outcome := call(t, vm, host, hook.Call{Hook: "t/run", Input: text})
	if outcome.Err != nil {
		t.Fatalf("%v\n%s", outcome.Err, outcome.Err.Stack)
	}
	var result any
	if err := json.Unmarshal(outcome.Output, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func hashOf(h func() hash.Hash, data []byte) []byte {
	d := h()
	d.Write(data)
	return d.Sum(nil)
}

func TestDigestAndHMACAgreeWithGo(t *testing.T) {
	t.Parallel()
	data, key := []byte("The quick brown fox\x00é"), []byte("a key")
	for name, newHash := range map[string]func() hash.Hash{"SHA-1": sha1.New, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New} {
		mac := hmac.New(newHash, key)
		mac.Write(data)
		got := runCrypto(t, `
			const data = t.bytes(input.data), key = await crypto.subtle.importKey("raw", t.bytes(input.key), { name: "HMAC", hash: input.hash }, true, ["sign", "verify"]);
			const mac = await crypto.subtle.sign("HMAC", key, data), bad = new Uint8Array(mac.slice(0));
			bad[0] ^= 1;
			return [t.hex(await crypto.subtle.digest(input.hash, data)), t.hex(mac),
				await crypto.subtle.verify("HMAC", key, mac, data), await crypto.subtle.verify("HMAC", key, bad, data), await crypto.subtle.verify("HMAC", key, mac.slice(1), data),
				t.b64(await crypto.subtle.exportKey("raw", key)), (await crypto.subtle.exportKey("jwk", key)).k, key.type, key.algorithm.hash.name];`,
			map[string]any{"data": b64(data), "key": b64(key), "hash": name})
		want := []any{
			hex.EncodeToString(hashOf(newHash, data)), hex.EncodeToString(mac.Sum(nil)), true, false, false,
			b64(key), base64.RawURLEncoding.EncodeToString(key), "secret", name,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, want)
		}
	}
}

func TestRSASignaturesAgreeWithGo(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := x509.MarshalPKCS8PrivateKey(key)
	public, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
	data := []byte("header.payload")
	digest := sha256.Sum256(data)
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	got := runCrypto(t, `
		const alg = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" }, data = t.bytes(input.data);
		const priv = await crypto.subtle.importKey("pkcs8", t.bytes(input.private), alg, true, ["sign"]);
		const pub = await crypto.subtle.importKey("spki", t.bytes(input.public), alg, true, ["verify"]);
		const jwk = await crypto.subtle.exportKey("jwk", priv);
		const again = await crypto.subtle.importKey("jwk", jwk, alg, true, ["sign"]);
		const pubAgain = await crypto.subtle.importKey("jwk", { kty: jwk.kty, n: jwk.n, e: jwk.e }, alg, true, ["verify"]);
		return [t.b64(await crypto.subtle.sign("RSASSA-PKCS1-v1_5", priv, data)), t.b64(await crypto.subtle.sign(alg, again, data)),
			await crypto.subtle.verify(alg, pub, t.bytes(input.signature), data), await crypto.subtle.verify(alg, pubAgain, t.bytes(input.signature), data),
			await crypto.subtle.verify(alg, pub, t.bytes(input.signature), new Uint8Array([1])),
			t.b64(await crypto.subtle.exportKey("spki", pubAgain)), t.b64(await crypto.subtle.exportKey("pkcs8", again)), jwk.alg, priv.type, pub.type];`,
		map[string]any{"private": b64(private), "public": b64(public), "data": b64(data), "signature": b64(signature)})
	want := []any{b64(signature), b64(signature), true, true, false, b64(public), b64(private), "RS256", "private", "public"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

func TestEd25519AndECDSAAgreeWithGo(t *testing.T) {
	t.Parallel()
	data := []byte("timestamp+body")
	edPublic, edPrivate, _ := ed25519.GenerateKey(rand.Reader)
	ecPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(data)
	r, s, err := ecdsa.Sign(rand.Reader, ecPrivate, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	ecSignature := make([]byte, 64)
	r.FillBytes(ecSignature[:32])
	s.FillBytes(ecSignature[32:])
	ecPublic, _ := x509.MarshalPKIXPublicKey(&ecPrivate.PublicKey)
	ecPKCS8, _ := x509.MarshalPKCS8PrivateKey(ecPrivate)
	edPKCS8, _ := x509.MarshalPKCS8PrivateKey(edPrivate)
	got := runCrypto(t, `
		const data = t.bytes(input.data), ec = { name: "ECDSA", namedCurve: "P-256" }, ecSign = { name: "ECDSA", hash: "SHA-256" };
		const ed = await crypto.subtle.importKey("raw", t.bytes(input.edPublic), "Ed25519", true, ["verify"]);
		const edSigner = await crypto.subtle.importKey("pkcs8", t.bytes(input.edPKCS8), { name: "ed25519" }, false, ["sign"]);
		const ecdsa = await crypto.subtle.importKey("spki", t.bytes(input.ecPublic), ec, true, ["verify"]);
		const raw = await crypto.subtle.importKey("raw", await crypto.subtle.exportKey("raw", ecdsa), ec, true, ["verify"]);
		const jwk = await crypto.subtle.importKey("jwk", await crypto.subtle.exportKey("jwk", ecdsa), ec, true, ["verify"]);
		const signer = await crypto.subtle.importKey("pkcs8", t.bytes(input.ecPKCS8), ec, false, ["sign"]);
		const mine = await crypto.subtle.sign(ecSign, signer, data);
		const bad = t.bytes(input.edSignature); bad[3] ^= 1;
		return [t.b64(await crypto.subtle.sign("Ed25519", edSigner, data)), await crypto.subtle.verify("Ed25519", ed, t.bytes(input.edSignature), data), await crypto.subtle.verify("Ed25519", ed, bad, data),
			await crypto.subtle.verify(ecSign, ecdsa, t.bytes(input.ecSignature), data), await crypto.subtle.verify(ecSign, raw, t.bytes(input.ecSignature), data),
			await crypto.subtle.verify(ecSign, jwk, mine, data), await crypto.subtle.verify(ecSign, ecdsa, mine, new Uint8Array([1])), await crypto.subtle.verify(ecSign, ecdsa, new Uint8Array(3), data)];`,
		map[string]any{
			"data": b64(data), "edPublic": b64(edPublic), "edSignature": b64(ed25519.Sign(edPrivate, data)), "edPKCS8": b64(edPKCS8),
			"ecPublic": b64(ecPublic), "ecSignature": b64(ecSignature), "ecPKCS8": b64(ecPKCS8),
		})
	want := []any{b64(ed25519.Sign(edPrivate, data)), true, false, true, true, true, false, false}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

func TestCryptoRefusesMisuse(t *testing.T) {
	t.Parallel()
	got := runCrypto(t, `
		const out = [];
		const attempt = async (f) => { try { await f(); out.push("no error"); } catch (e) { out.push(e.name); } };
		const s = crypto.subtle, hmac = { name: "HMAC", hash: "SHA-256" };
		const key = await s.importKey("raw", new Uint8Array([1]), hmac, false, ["sign"]);
		await attempt(() => s.exportKey("raw", key));
		await attempt(() => s.verify("HMAC", key, new Uint8Array(32), new Uint8Array(1)));
		await attempt(() => s.sign("Ed25519", key, new Uint8Array(1)));
		await attempt(() => s.sign("HMAC", { ...key }, new Uint8Array(1)));
		await attempt(() => s.importKey("pkcs8", new Uint8Array([1, 2]), { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" }, false, ["sign"]));
		await attempt(() => s.importKey("raw", new Uint8Array(31), "Ed25519", false, ["verify"]));
		await attempt(() => s.digest("MD5", new Uint8Array(1)));
		await attempt(() => s.encrypt("AES-GCM", key, new Uint8Array(1)));
		await attempt(() => crypto.getRandomValues(new Uint8Array(65537)));
		await attempt(() => new CryptoKey());
		out.push(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.randomUUID() !== crypto.randomUUID());
		const words = crypto.getRandomValues(new Uint32Array(4));
		out.push(words.length, words.some((w) => w !== 0));
		return out;`, nil)
	want := []any{
		"InvalidAccessError", "InvalidAccessError", "InvalidAccessError", "TypeError", "DataError", "DataError",
		"NotSupportedError", "NotSupportedError", "QuotaExceededError", "TypeError", true, true, 4, true,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}
