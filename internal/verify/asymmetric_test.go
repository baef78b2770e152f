package verify_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"hash/crc32"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func literal(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func p256Key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestPublicKeySchemes(t *testing.T) {
	t.Parallel()

	const body = "rung twice"
	digest := sha256.Sum256([]byte(body))
	old := sha1.Sum([]byte(body))
	ec, rk := p256Key(t), rsaKey(t)
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := ecdsa.SignASN1(rand.Reader, ec, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	r, s, err := ecdsa.Sign(rand.Reader, ec, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	raw := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	rsa256, err := rsa.SignPKCS1v15(rand.Reader, rk, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	rsa1, err := rsa.SignPKCS1v15(rand.Reader, rk, crypto.SHA1, old[:])
	if err != nil {
		t.Fatal(err)
	}
	edDER, err := x509.MarshalPKIXPublicKey(edPublic)
	if err != nil {
		t.Fatal(err)
	}
	ed := ed25519.Sign(edPrivate, []byte(body))
	for name, c := range map[string]struct {
		scheme, key string
		signature   []byte
		want        verify.Reason
	}{
		"ed25519, hex":              {"ed25519", hex.EncodeToString(edPublic), ed, ""},
		"ed25519, base64":           {"ed25519", base64.StdEncoding.EncodeToString(edPublic), ed, ""},
		"ed25519, DER":              {"ed25519", base64.StdEncoding.EncodeToString(edDER), ed, ""},
		"ed25519, PEM":              {"ed25519", publicPEM(t, edPublic), ed, ""},
		"ed25519, truncated":        {"ed25519", hex.EncodeToString(edPublic), ed[:63], verify.ReasonSignatureMismatch},
		"ed25519, overlong":         {"ed25519", hex.EncodeToString(edPublic), append(ed[:64:64], 0), verify.ReasonSignatureMismatch},
		"ed25519, no key":           {"ed25519", "a text", ed, verify.ReasonBadSecret},
		"ed25519, an RSA key":       {"ed25519", publicPEM(t, &rk.PublicKey), ed, verify.ReasonBadSecret},
		"ecdsa, DER":                {"ecdsa-p256", publicPEM(t, &ec.PublicKey), der, ""},
		"ecdsa, raw":                {"ecdsa-p256-raw", publicPEM(t, &ec.PublicKey), raw, ""},
		"ecdsa, raw for DER":        {"ecdsa-p256", publicPEM(t, &ec.PublicKey), raw, verify.ReasonSignatureMismatch},
		"ecdsa, DER for raw":        {"ecdsa-p256-raw", publicPEM(t, &ec.PublicKey), der, verify.ReasonSignatureMismatch},
		"ecdsa, zero":               {"ecdsa-p256-raw", publicPEM(t, &ec.PublicKey), make([]byte, 64), verify.ReasonSignatureMismatch},
		"rsa sha256":                {"rsa-sha256", publicPEM(t, &rk.PublicKey), rsa256, ""},
		"rsa sha1":                  {"rsa-sha1", publicPEM(t, &rk.PublicKey), rsa1, ""},
		"rsa sha1 for sha256":       {"rsa-sha256", publicPEM(t, &rk.PublicKey), rsa1, verify.ReasonSignatureMismatch},
		"rsa, truncated":            {"rsa-sha256", publicPEM(t, &rk.PublicKey), rsa256[:255], verify.ReasonSignatureMismatch},
		"rsa, a private key in PEM": {"rsa-sha256", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----", rsa256, verify.ReasonBadSecret},
	} {
		v := parse(t, `{"scheme":"`+c.scheme+`","header":"X-Sig","encoding":"base64","secret":`+literal(t, c.key)+`}`)
		got := verified(t, v, verify.Input{Call: post(body, "x-sig", base64.StdEncoding.EncodeToString(c.signature))})
		if got.Reason != c.want || got.OK != (c.want == "") {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// Standard Webhooks: v1 and v1a side by side, each with its own kind of key.
func TestStandardWebhooksVersions(t *testing.T) {
	t.Parallel()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const text = "msg_1.1700000000.{}"
	shared := "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))
	v1 := "v1," + base64.StdEncoding.EncodeToString(sum("0123456789abcdef01234567", text))
	v1a := "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	whpk := "whpk_" + base64.StdEncoding.EncodeToString(public)
	crossed := "v1," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	for name, c := range map[string]struct {
		secret, header string
		want           verify.Reason
		scheme         string
	}{
		"v1":                    {`"` + shared + `"`, v1, "", "hmac-sha256"},
		"v1 without the prefix": {`"` + strings.TrimPrefix(shared, "whsec_") + `"`, v1, "", "hmac-sha256"},
		"v1a":                   {`"` + whpk + `"`, v1a, "", "ed25519"},
		"both, either key":      {`["` + whpk + `","` + shared + `"]`, v1 + " " + v1a, "", "ed25519"},
		"an unknown version":    {`"` + shared + `"`, "v2,abc " + v1, "", "hmac-sha256"},
		"only unknown versions": {`"` + shared + `"`, "v2,abc", verify.ReasonSignatureMissing, "hmac-sha256"},
		"v1a under v1":          {`"` + whpk + `"`, crossed, verify.ReasonSignatureMismatch, "hmac-sha256"},
		"v1 with a public key":  {`"` + whpk + `"`, v1, verify.ReasonSignatureMismatch, "hmac-sha256"},
		"commas, not spaces":    {`"` + shared + `"`, "v2,abc," + v1, verify.ReasonSignatureMissing, "hmac-sha256"},
		"not base64":            {`"whsec_%%%"`, v1, verify.ReasonBadSecret, "hmac-sha256"},
	} {
		v := parse(t, `{"preset":"standard-webhooks","secret":`+c.secret+`}`)
		call := post("{}", "webhook-id", "msg_1", "webhook-timestamp", "1700000000", "webhook-signature", c.header)
		got := verified(t, v, verify.Input{Call: call, Now: at(1700000000)})
		if got.Reason != c.want || got.OK != (c.want == "") || got.Scheme != c.scheme {
			t.Errorf("%s: %+v, want %q by %s", name, got, c.want, c.scheme)
		}
	}
}

// fetched is a key server that counts.
type fetched struct {
	answer []byte
	err    error
	urls   []string
}

func (f *fetched) Fetch(_ context.Context, url string) ([]byte, error) {
	f.urls = append(f.urls, url)
	return f.answer, f.err
}

func certificate(t *testing.T, key *rsa.PrivateKey, notAfter time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: at(0), NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// snsMessage signs a message as Amazon SNS does.
func snsMessage(t *testing.T, key *rsa.PrivateKey, h crypto.Hash, fields map[string]string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range []string{"Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"} {
		if value, ok := fields[name]; ok {
			text.WriteString(name + "\n" + value + "\n")
		}
	}
	digest := h.New()
	digest.Write([]byte(text.String()))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, h, digest.Sum(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := fields["Signature"]; !ok {
		fields["Signature"] = base64.StdEncoding.EncodeToString(signature)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const certURL = "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"

func notification(changes ...string) map[string]string {
	fields := map[string]string{
		"Type": "Notification", "MessageId": "m-0001", "TopicArn": "arn:aws:sns:us-west-2:000000000000:T", "Message": `{"n":1}`,
		"Timestamp": "2026-01-01T00:00:00.000Z", "SignatureVersion": "2", "SigningCertURL": certURL,
	}
	for i := 0; i+1 < len(changes); i += 2 {
		if fields[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(fields, changes[i])
		}
	}
	return fields
}

func TestSNS(t *testing.T) {
	t.Parallel()

	key := rsaKey(t)
	now := time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC)
	good := certificate(t, key, now.Add(time.Hour))
	for name, c := range map[string]struct {
		fields map[string]string
		hash   crypto.Hash
		answer []byte
		topic  string
		want   verify.Reason
	}{
		"version 2":           {notification(), crypto.SHA256, good, "", ""},
		"version 1":           {notification("SignatureVersion", "1"), crypto.SHA1, good, "", ""},
		"with a subject":      {notification("Subject", "s"), crypto.SHA256, good, "", ""},
		"a confirmation":      {notification("Type", "SubscriptionConfirmation", "Token", "t", "SubscribeURL", "https://sns.us-west-2.amazonaws.com/"), crypto.SHA256, good, "", ""},
		"the topic":           {notification(), crypto.SHA256, good, "arn:aws:sns:us-west-2:000000000000:T", ""},
		"another topic":       {notification(), crypto.SHA256, good, "arn:aws:sns:us-west-2:000000000000:U", verify.ReasonUnknownSource},
		"the wrong hash":      {notification(), crypto.SHA1, good, "", verify.ReasonSignatureMismatch},
		"an unknown version":  {notification("SignatureVersion", "3"), crypto.SHA256, good, "", verify.ReasonSignatureVersionBad},
		"no version":          {notification("SignatureVersion", ""), crypto.SHA256, good, "", verify.ReasonSignatureVersionBad},
		"no signature":        {notification("Signature", "-"), crypto.SHA256, good, "", verify.ReasonSignatureMalformed},
		"no message":          {notification("Message", ""), crypto.SHA256, good, "", verify.ReasonFieldMissing},
		"an unknown type":     {notification("Type", "Nope"), crypto.SHA256, good, "", verify.ReasonBodyMalformed},
		"an old certificate":  {notification(), crypto.SHA256, certificate(t, key, now.Add(-time.Second)), "", verify.ReasonCertificateRefused},
		"no certificate":      {notification(), crypto.SHA256, []byte("<html>"), "", verify.ReasonCertificateRefused},
		"another certificate": {notification(), crypto.SHA256, certificate(t, rsaKey(t), now.Add(time.Hour)), "", verify.ReasonSignatureMismatch},
	} {
		v := parse(t, `{"preset":"sns"}`)
		call := post(snsMessage(t, key, c.hash, c.fields), "content-type", "text/plain; charset=UTF-8")
		params, err := json.Marshal(map[string]string{"topicArn": c.topic})
		if err != nil {
			t.Fatal(err)
		}
		got := verified(t, v, verify.Input{Call: call, Now: now, Keys: &fetched{answer: c.answer}, Secrets: verify.Secrets{Params: params}})
		if got.Reason != c.want || got.OK != (c.want == "") || got.OK && (!got.Integrity || *got.SkewMS != 5000) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// C11: the certificate's URL is a stranger's word. Nothing is fetched but from
// Amazon.
func TestSigningCertURLIsAmazons(t *testing.T) {
	t.Parallel()

	key := rsaKey(t)
	v := parse(t, `{"preset":"sns"}`)
	for _, url := range []string{
		"", "x", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd",
		"https://sns.us-west-2.amazonaws.com.example.net/SimpleNotificationService-0.pem",
		"https://user@example.net/SimpleNotificationService-0.pem",
		"https://user@sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://example.net/sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://example.net?.sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://example.net#@sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://example.net\\@sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"http://sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com:8443/SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com:/SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com./SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com/../SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com/evil/SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem/../x",
		"https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem#x",
		"https://s3.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://sns..amazonaws.com/SimpleNotificationService-0.pem",
		"https://xsns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"//sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
		"https://sns.us-west-2.amazonaws.com\r\nHost: x/SimpleNotificationService-0.pem",
	} {
		keys := &fetched{answer: certificate(t, key, at(4e9))}
		call := post(snsMessage(t, key, crypto.SHA256, notification("SigningCertURL", url)))
		got := verified(t, v, verify.Input{Call: call, Now: at(1767225605), Keys: keys})
		if got.OK || got.Reason != verify.ReasonKeyURLRefused || len(keys.urls) != 0 {
			t.Errorf("%q: %+v, fetched %q", url, got, keys.urls)
		}
	}
}

// A key server that is away says nothing about the call.
func TestUnavailableKeysAreNoVerdict(t *testing.T) {
	t.Parallel()

	key := rsaKey(t)
	v := parse(t, `{"preset":"sns"}`)
	call := post(snsMessage(t, key, crypto.SHA256, notification()))
	for name, keys := range map[string]verify.Fetcher{"none": nil, "failing": &fetched{err: errors.New("connection refused")}} {
		got, err := v.Verify(t.Context(), verify.Input{Call: call, Now: at(1767225605), Keys: keys})
		if !errors.Is(err, verify.ErrKeysUnavailable) || got.OK {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestPayPal(t *testing.T) {
	t.Parallel()

	key := rsaKey(t)
	const body = `{"id":"WH-1"}`
	text := "t-1|2026-01-01T00:00:00Z|WH1|" + strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	build := func(url string) *trigger.Call {
		return post(body, "paypal-transmission-id", "t-1", "paypal-transmission-time", "2026-01-01T00:00:00Z",
			"paypal-transmission-sig", base64.StdEncoding.EncodeToString(signature), "paypal-cert-url", url)
	}
	v := parse(t, `{"preset":"paypal","values":{"webhookId":{"param":"webhookId"}}}`)
	in := verify.Input{
		Call: build("https://api.paypal.com/v1/notifications/certs/CERT-1"), Now: at(1767225605),
		Keys: &fetched{answer: certificate(t, key, at(4e9))}, Secrets: verify.Secrets{Params: json.RawMessage(`{"webhookId":"WH1"}`)},
	}
	if got := verified(t, v, in); !got.OK || got.Integrity {
		t.Errorf("got %+v, want ok without integrity: a checksum is no digest", got)
	}
	in.Secrets.Params = json.RawMessage(`{"webhookId":"WH2"}`)
	if got := verified(t, v, in); got.Reason != verify.ReasonSignatureMismatch {
		t.Errorf("another webhook id: %+v", got)
	}
	in.Secrets.Params = nil
	if got := verified(t, v, in); got.Reason != verify.ReasonNotConfigured {
		t.Errorf("no webhook id: %+v", got)
	}
	in.Secrets.Params, in.Call = json.RawMessage(`{"webhookId":"WH1"}`), build("https://api.paypal.com.example.net/v1/notifications/certs/CERT-1")
	if got := verified(t, v, in); got.Reason != verify.ReasonKeyURLRefused {
		t.Errorf("a stranger's certificate: %+v", got)
	}
}
