package sender

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what these vendors sign with
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"net/url"
	"slices"
	"strings"
	"time"
)

func mac(h func() hash.Hash, key []byte, parts ...string) []byte {
	m := hmac.New(h, key)
	for _, part := range parts {
		_, _ = m.Write([]byte(part)) // never fails
	}
	return m.Sum(nil)
}

func inHex(sum []byte) string    { return hex.EncodeToString(sum) }
func inBase64(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }

type signer = func(r *Request, s *signing) error

// body signs the body alone.
func body(header, prefix string, h func() hash.Hash, encode func([]byte) string) signer {
	return func(r *Request, s *signing) error {
		r.Set(header, prefix+encode(mac(h, s.key(), string(r.Body))))
		return nil
	}
}

// token sends the secret itself.
func token(header string) signer {
	return func(r *Request, s *signing) error {
		r.Set(header, s.Secret.Reveal())
		return nil
	}
}

// v0 is the scheme of Slack, Zoom and Statsig.
func v0(signature, timestamp string) signer {
	return func(r *Request, s *signing) error {
		r.Set(timestamp, s.unix())
		r.Set(signature, "v0="+inHex(mac(sha256.New, s.key(), "v0:", s.unix(), ":", string(r.Body))))
		return nil
	}
}

// stamped is a header that holds time and signature.
func stamped(header, time, between, separator, version string) signer {
	return func(r *Request, s *signing) error {
		sum := inHex(mac(sha256.New, s.key(), s.unix(), between, string(r.Body)))
		r.Set(header, time+"="+s.unix()+separator+version+"="+sum)
		return nil
	}
}

// standard is Standard Webhooks; an Ed25519 private key makes a v1a signature.
func standard(id, timestamp, signature string) signer {
	return func(r *Request, s *signing) error {
		message := "msg_" + s.ID + "." + s.unix() + "." + string(r.Body)
		r.Set(id, "msg_"+s.ID)
		r.Set(timestamp, s.unix())
		if strings.HasPrefix(s.Secret.Reveal(), "-----BEGIN") {
			key, err := ed25519Key(s.Secret)
			if err != nil {
				return err
			}
			r.Set(signature, "v1a,"+inBase64(ed25519.Sign(key, []byte(message))))
			return nil
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.Secret.Reveal(), "whsec_"))
		if err != nil || len(key) == 0 {
			return errors.New("the secret is whsec_ and base64")
		}
		r.Set(signature, "v1,"+inBase64(mac(sha256.New, key, message)))
		return nil
	}
}

// urls and bodies, in the vendors' orders.

func square(r *Request, s *signing) error {
	r.Set("X-Square-HmacSha256-Signature", inBase64(mac(sha256.New, s.key(), r.URL, string(r.Body))))
	return nil
}

func trello(r *Request, s *signing) error {
	r.Set("X-Trello-Webhook", inBase64(mac(sha1.New, s.key(), string(r.Body), r.URL)))
	return nil
}

func hubspot(r *Request, s *signing) error {
	address := r.URL
	for _, c := range ":/?@!$'()*,;" {
		address = strings.ReplaceAll(address, fmt.Sprintf("%%%02X", c), string(c))
		address = strings.ReplaceAll(address, fmt.Sprintf("%%%02x", c), string(c))
	}
	r.Set("X-HubSpot-Request-Timestamp", s.ms())
	r.Set("X-HubSpot-Signature-v3", inBase64(mac(sha256.New, s.key(), r.Method, address, string(r.Body), s.ms())))
	return nil
}

func twilio(r *Request, s *signing) error {
	r.Set("I-Twilio-Idempotency-Token", s.ID)
	if len(r.Body) > 0 && r.Body[0] == '{' {
		sum := sha256.Sum256(r.Body)
		r.URL = addQuery(r.URL, "bodySHA256="+hex.EncodeToString(sum[:]))
		r.Set("X-Twilio-Signature", inBase64(mac(sha1.New, s.key(), r.URL)))
		return nil
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return errors.New("the body is not a form")
	}
	var text strings.Builder
	text.WriteString(r.URL)
	for _, name := range sorted(form) {
		values := slices.Clone(form[name])
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			text.WriteString(name + value)
		}
	}
	r.Set("X-Twilio-Signature", inBase64(mac(sha1.New, s.key(), text.String())))
	return nil
}

func sorted(form url.Values) []string {
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func twitch(r *Request, s *signing) error {
	at := s.Time.UTC().Format(time.RFC3339Nano)
	r.Set("Twitch-Eventsub-Message-Id", s.ID)
	r.Set("Twitch-Eventsub-Message-Timestamp", at)
	r.Set("Twitch-Eventsub-Message-Signature", "sha256="+inHex(mac(sha256.New, s.key(), s.ID, at, string(r.Body))))
	return nil
}

func box(r *Request, s *signing) error {
	at := s.Time.UTC().Format(time.RFC3339)
	r.Set("BOX-DELIVERY-ID", s.ID)
	r.Set("BOX-DELIVERY-TIMESTAMP", at)
	r.Set("BOX-SIGNATURE-VERSION", "1")
	r.Set("BOX-SIGNATURE-ALGORITHM", "HmacSHA256")
	r.Set("BOX-SIGNATURE-PRIMARY", inBase64(mac(sha256.New, s.key(), string(r.Body), at)))
	return nil
}

func zendesk(r *Request, s *signing) error {
	at := s.Time.UTC().Format(time.RFC3339)
	r.Set("X-Zendesk-Webhook-Signature-Timestamp", at)
	r.Set("X-Zendesk-Webhook-Signature", inBase64(mac(sha256.New, s.key(), at, string(r.Body))))
	return nil
}

// mailgun puts its signature into the body, where {token} and {signature} stand.
func mailgun(r *Request, s *signing) error {
	once := strings.ReplaceAll(s.ID, "-", "")
	sum := inHex(mac(sha256.New, s.key(), s.unix(), once))
	fill := strings.NewReplacer("{token}", once, "{signature}", sum)
	r.Body = []byte(fill.Replace(string(r.Body)))
	return nil
}

func msgraph(r *Request, s *signing) error {
	quoted, err := json.Marshal(s.Secret.Reveal())
	if err != nil {
		return err
	}
	r.Body = []byte(strings.ReplaceAll(string(r.Body), `"{clientState}"`, string(quoted)))
	return nil
}

func basic(r *Request, s *signing) error {
	r.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString(s.key()))
	return nil
}

func discord(r *Request, s *signing) error {
	key, err := ed25519Key(s.Secret)
	if err != nil {
		return err
	}
	r.Set("X-Signature-Timestamp", s.unix())
	r.Set("X-Signature-Ed25519", inHex(ed25519.Sign(key, []byte(s.unix()+string(r.Body)))))
	return nil
}

func sendgrid(r *Request, s *signing) error {
	key, err := privateKey[*ecdsa.PrivateKey](s.Secret)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(s.unix() + string(r.Body)))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return err
	}
	r.Set("X-Twilio-Email-Event-Webhook-Timestamp", s.unix())
	r.Set("X-Twilio-Email-Event-Webhook-Signature", inBase64(signature))
	return nil
}

func paypal(r *Request, s *signing) error {
	key, err := privateKey[*rsa.PrivateKey](s.Secret)
	if err != nil {
		return err
	}
	at := s.Time.UTC().Format(time.RFC3339)
	text := fmt.Sprintf("%s|%s|%s|%d", s.ID, at, s.Values["webhookId"], crc32.ChecksumIEEE(r.Body))
	signature, err := signRSA(key, text)
	if err != nil {
		return err
	}
	r.Set("PAYPAL-TRANSMISSION-ID", s.ID)
	r.Set("PAYPAL-TRANSMISSION-TIME", at)
	r.Set("PAYPAL-AUTH-ALGO", "SHA256withRSA")
	r.Set("PAYPAL-CERT-URL", "https://api.paypal.com/v1/notifications/certs/CERT-tocsin-sample")
	r.Set("PAYPAL-TRANSMISSION-SIG", inBase64(signature))
	return nil
}

func signRSA(key *rsa.PrivateKey, text string) ([]byte, error) {
	digest := sha256.Sum256([]byte(text))
	return rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
}

// SNSCertURL is the certificate that a sample of SNS names. A receiver fetches
// it from Amazon, and so refuses the sample unless it is told otherwise.
const SNSCertURL = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0000000000000000000000000000tocs.pem"

func sns(r *Request, s *signing) error {
	key, err := privateKey[*rsa.PrivateKey](s.Secret)
	if err != nil {
		return err
	}
	var fields map[string]string
	if err := json.Unmarshal(r.Body, &fields); err != nil {
		return errors.New("the body is not an SNS message")
	}
	var text strings.Builder
	for _, name := range []string{"Message", "MessageId", "SubscribeURL", "Subject", "Timestamp", "Token", "TopicArn", "Type"} {
		if value, ok := fields[name]; ok {
			text.WriteString(name + "\n" + value + "\n")
		}
	}
	signature, err := signRSA(key, text.String())
	if err != nil {
		return err
	}
	fields["SignatureVersion"], fields["Signature"], fields["SigningCertURL"] = "2", inBase64(signature), SNSCertURL
	r.Body, err = json.Marshal(fields)
	r.Set("X-Amz-Sns-Message-Type", fields["Type"])
	r.Set("X-Amz-Sns-Message-Id", fields["MessageId"])
	r.Set("X-Amz-Sns-Topic-Arn", fields["TopicArn"])
	return err
}

// googlePubsub sends an OIDC token, signed RS256.
func googlePubsub(r *Request, s *signing) error {
	key, err := privateKey[*rsa.PrivateKey](s.Secret)
	if err != nil {
		return err
	}
	audience := s.Values["audience"]
	if audience == "" {
		audience = s.URL
	}
	jwt, err := jwt(`{"alg":"RS256","typ":"JWT"}`, map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "email": s.Values["email"], "email_verified": true,
		"iat": s.Time.Unix(), "exp": s.Time.Add(time.Hour).Unix(), "sub": "100000000000000000000",
	}, func(text string) ([]byte, error) { return signRSA(key, text) })
	r.Set("Authorization", "Bearer "+jwt)
	return err
}

func monday(r *Request, s *signing) error {
	jwt, err := jwt(`{"alg":"HS256","typ":"JWT"}`, map[string]any{
		"accountId": 1, "userId": 2, "aud": s.URL, "iat": s.Time.Unix(), "exp": s.Time.Add(5 * time.Minute).Unix(),
	}, func(text string) ([]byte, error) { return mac(sha256.New, s.key(), text), nil })
	r.Set("Authorization", jwt)
	return err
}

func jwt(header string, claims map[string]any, sign func(string) ([]byte, error)) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	signature, err := sign(text)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// pagerduty signs once for each of its secrets; here there is one.
func pagerduty(r *Request, s *signing) error {
	r.Set("X-PagerDuty-Signature", "v1="+inHex(mac(sha256.New, s.key(), string(r.Body))))
	return nil
}

func paystack() signer { return body("X-Paystack-Signature", "", sha512.New, inHex) }
