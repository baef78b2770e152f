package verify

import (
	"maps"
	"regexp"
	"slices"
)

// Presets lists the names of all presets, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// HasPreset says whether there is a preset of this name.
func HasPreset(name string) bool {
	_, ok := presets[name]
	return ok
}

// header is a signature alone in a header.
func header(names ...string) Field { return Field{Header: names} }

// inHeader is a timestamp in a header.
func inHeader(name, unit string) *Timestamp { return &Timestamp{Field: header(name), Unit: unit} }

// hmacBody is the plainest scheme: an HMAC of the body.
func hmacBody(scheme, name, encoding, prefix string) Spec {
	return Spec{Scheme: scheme, Field: header(name), Encoding: encoding, Prefix: prefix}
}

func staticToken(name string) Spec { return Spec{Scheme: schemeToken, Field: header(name)} }

// standard is Standard Webhooks, under its own header names and Svix's older
// ones.
func standard() Spec {
	return Spec{
		Field: header("webhook-signature", "svix-signature"), Format: "list", Encoding: "base64", SecretEncoding: "whsec",
		Versions: map[string]string{"v1": "hmac-sha256", "v1a": "ed25519"},
		Fields:   map[string]Field{"id": header("webhook-id", "svix-id")},
		Signed:   "{id}.{timestamp}.{body}", Timestamp: &Timestamp{Field: header("webhook-timestamp", "svix-timestamp")},
	}
}

// stamped is a header of pairs that holds the timestamp and the signatures.
func stamped(name, separator, time, version, signed string) Spec {
	return Spec{
		Field: header(name), Format: "pairs", Separator: separator, Versions: map[string]string{version: "hmac-sha256"},
		Signed: signed, Timestamp: &Timestamp{Field: Field{Pair: time}},
	}
}

// colons is the scheme of Slack, Zoom and Statsig.
func colons(signature, time string) Spec {
	return Spec{
		Scheme: "hmac-sha256", Field: header(signature), Prefix: "v0=",
		Signed: "v0:{timestamp}:{body}", Timestamp: inHeader(time, "s"),
	}
}

// SNSHost matches the hosts of Amazon SNS, for certificates and confirmations.
var SNSHost = regexp.MustCompile(`sns\.[a-z0-9-]{3,32}\.amazonaws\.com(\.cn)?`)

// presets is vendors contract §1 and §2 as data. A scheme without a tolerance
// of its own has 5m; "off" stands where the vendor signs once and retries for
// hours, or where its documents name no limit.
var presets = map[string]Spec{
	"asana": {
		Scheme: "hmac-sha256", Field: header("X-Hook-Signature"), Secret: append(Stored(), Named("secret")...),
	},
	"bitbucket": hmacBody("hmac-sha256", "X-Hub-Signature", "hex", "sha256="),
	"box": {
		Scheme: "hmac-sha256", Field: header("BOX-SIGNATURE-PRIMARY", "BOX-SIGNATURE-SECONDARY"), Encoding: "base64",
		Signed: "{body}{timestamp}", Timestamp: inHeader("BOX-DELIVERY-TIMESTAMP", "rfc3339"), Tolerance: "10m",
	},
	"calendly":        stamped("Calendly-Webhook-Signature", ",", "t", "v1", "{timestamp}.{body}"),
	"companycam":      hmacBody("hmac-sha1", "X-CompanyCam-Signature", "base64", ""),
	"convoy":          hmacBody("hmac-sha256", "X-Convoy-Signature", "hex", ""),
	"convoy-advanced": stamped("X-Convoy-Signature", ",", "t", "v1", "{timestamp},{body}"),
	"discord": {
		Scheme: "ed25519", Field: header("X-Signature-Ed25519"),
		Signed: "{timestamp}{body}", Timestamp: inHeader("X-Signature-Timestamp", "s"), Tolerance: "off",
	},
	"dropbox":        hmacBody("hmac-sha256", "X-Dropbox-Signature", "hex", ""),
	"github":         hmacBody("hmac-sha256", "X-Hub-Signature-256", "hex", "sha256="),
	"gitlab":         staticToken("X-Gitlab-Token"),
	"google-channel": staticToken("X-Goog-Channel-Token"), // Calendar and Drive push
	"google-pubsub": {
		Scheme: schemeJWT, Field: header("Authorization"), keyless: true, ownAudience: true,
		// Anybody with a Google account gets tokens for any audience: only the email tells them apart.
		needs:  []string{"email"},
		claims: map[string][]string{"issuer": {"https://accounts.google.com", "accounts.google.com"}},
		Secret: Named("jwks"), Values: map[string]Sources{"audience": Named("audience"), "email": Named("email")},
		keyURL: &keyURL{fixed: "https://www.googleapis.com/oauth2/v3/certs"},
	},
	"hubspot": {
		Scheme: "hmac-sha256", Field: header("X-HubSpot-Signature-v3"), Encoding: "base64",
		Signed: "{method}{url.decoded}{body}{timestamp}", Timestamp: inHeader("X-HubSpot-Request-Timestamp", "ms"),
	},
	"intercom": hmacBody("hmac-sha1", "X-Hub-Signature", "hex", "sha1="),
	"linear": {
		Scheme: "hmac-sha256", Field: header("Linear-Signature"),
		Timestamp: &Timestamp{Field: Field{Body: "/webhookTimestamp"}, Unit: "ms"},
	},
	"mailgun": {
		Scheme: "hmac-sha256", Field: Field{Body: "/signature/signature", Form: "signature"},
		Fields:    map[string]Field{"token": {Body: "/signature/token", Form: "token"}},
		Timestamp: &Timestamp{Field: Field{Body: "/signature/timestamp", Form: "timestamp"}},
		Signed:    "{timestamp}{token}", Tolerance: "off", // retries of 8 h carry the first timestamp
	},
	"meta": hmacBody("hmac-sha256", "X-Hub-Signature-256", "hex", "sha256="),
	"monday": {
		Scheme: schemeJWT, Field: header("Authorization"), ownAudience: true, Values: map[string]Sources{"audience": Named("audience")},
	},
	"msgraph": {
		Scheme: schemeToken, Field: Field{Body: "/value/*/clientState"}, Secret: Named("clientState"),
	},
	"paddle": stamped("Paddle-Signature", ";", "ts", "h1", "{timestamp}:{body}"),
	"paypal": {
		Scheme: "rsa-sha256", Field: header("PAYPAL-TRANSMISSION-SIG"), Encoding: "base64", keyless: true,
		needs: []string{"webhookId"}, Values: map[string]Sources{"webhookId": Named("webhookId")},
		Fields: map[string]Field{
			"id": header("PAYPAL-TRANSMISSION-ID"), "webhookId": {Value: "webhookId"},
		},
		Signed:    "{id}|{timestamp}|{webhookId}|{crc32}",
		Timestamp: inHeader("PAYPAL-TRANSMISSION-TIME", "rfc3339"), Tolerance: "off", // retries of 3 days
		keyURL: &keyURL{
			header: "paypal-cert-url", host: regexp.MustCompile(`api\.(sandbox\.)?paypal\.com`),
			path: regexp.MustCompile(`/v1/notifications/certs/[A-Za-z0-9_-]{1,128}`),
		},
		// A checksum is no digest: other bytes with the same CRC32 are easily found.
		notIntegrity: true,
	},
	"pagerduty": {
		Field: header("X-PagerDuty-Signature"), Format: "pairs", Versions: map[string]string{"v1": "hmac-sha256"},
	},
	"paystack":    hmacBody("hmac-sha512", "X-Paystack-Signature", "hex", ""),
	"postmark":    {Scheme: schemeBasic, Field: header("Authorization")},
	"razorpay":    hmacBody("hmac-sha256", "X-Razorpay-Signature", "hex", ""),
	"ringcentral": staticToken("Verification-Token"),
	"sendgrid": {
		Scheme: "ecdsa-p256", Field: header("X-Twilio-Email-Event-Webhook-Signature"), Encoding: "base64",
		Signed:    "{timestamp}{body}",
		Timestamp: inHeader("X-Twilio-Email-Event-Webhook-Timestamp", "s"), Tolerance: "off",
	},
	"sentry":  hmacBody("hmac-sha256", "Sentry-Hook-Signature", "hex", ""),
	"shopify": hmacBody("hmac-sha256", "X-Shopify-Hmac-SHA256", "base64", ""),
	"slack":   colons("X-Slack-Signature", "X-Slack-Request-Timestamp"),
	"sns": {
		Scheme: schemeSNS, keyless: true, Values: map[string]Sources{"topic": Named("topicArn")}, Tolerance: "off",
		keyURL: &keyURL{host: SNSHost, path: regexp.MustCompile(`/SimpleNotificationService-[A-Za-z0-9]{1,64}\.pem`)},
	},
	"square": {
		Scheme: "hmac-sha256", Field: header("X-Square-HmacSha256-Signature"), Encoding: "base64", Signed: "{url}{body}",
	},
	"standard-webhooks": standard(),
	"statsig":           colons("X-Statsig-Signature", "X-Statsig-Request-Timestamp"),
	"stripe":            stamped("Stripe-Signature", ",", "t", "v1", "{timestamp}.{body}"),
	// The secret is "client id&client secret", joined as SurveyMonkey's documents have it.
	"surveymonkey": hmacBody("hmac-sha1", "Sm-Signature", "base64", ""),
	"svix":         standard(),
	"telegram":     staticToken("X-Telegram-Bot-Api-Secret-Token"),
	"trello": {
		Scheme: "hmac-sha1", Field: header("X-Trello-Webhook"), Encoding: "base64", Signed: "{body}{url}",
	},
	"twilio": {
		Scheme: "hmac-sha1", Field: header("X-Twilio-Signature"), Encoding: "base64", Signed: "{url}{form}", urlPorts: true,
	},
	"twitch": {
		Scheme: "hmac-sha256", Field: header("Twitch-Eventsub-Message-Signature"), Prefix: "sha256=",
		Fields: map[string]Field{"id": header("Twitch-Eventsub-Message-Id")}, Signed: "{id}{timestamp}{body}",
		Timestamp: inHeader("Twitch-Eventsub-Message-Timestamp", "rfc3339"), Tolerance: "10m",
	},
	"typeform": hmacBody("hmac-sha256", "Typeform-Signature", "base64", "sha256="),
	"vercel":   hmacBody("hmac-sha1", "X-Vercel-Signature", "hex", ""),
	"websub": {
		Field: header("X-Hub-Signature"), Format: "pairs", Versions: map[string]string{
			"sha1": "hmac-sha1", "sha256": "hmac-sha256", "sha384": "hmac-sha384", "sha512": "hmac-sha512",
		},
	},
	"woocommerce": hmacBody("hmac-sha256", "X-WC-Webhook-Signature", "base64", ""),
	"x":           hmacBody("hmac-sha256", "X-Twitter-Webhooks-Signature", "base64", "sha256="),
	"xero":        hmacBody("hmac-sha256", "X-Xero-Signature", "base64", ""),
	"zendesk": {
		Scheme: "hmac-sha256", Field: header("X-Zendesk-Webhook-Signature"), Encoding: "base64",
		Signed:    "{timestamp}{body}",
		Timestamp: inHeader("X-Zendesk-Webhook-Signature-Timestamp", "rfc3339"),
	},
	"zoom": colons("X-Zm-Signature", "X-Zm-Request-Timestamp"),
}
