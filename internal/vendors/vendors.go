// Package vendors joins what is known of each vendor (vendors contract §1, §2,
// §4): how its calls are verified, which handshakes it has, by what its repeats
// are known, what of a call is secret, and what it makes of being turned away.
// `preset: "github"` on a trigger is short for all of it. It decides nothing
// itself and does no I/O.
package vendors

import (
	"maps"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/internal/dedup"
)

// Vendor is one entry of the table. Its name is a preset of packages verify
// and handshake where these have one.
type Vendor struct {
	Name  string
	Title string
	// Dedup names the vendor's repeats; nil where the vendor has no id for them.
	Dedup *dedup.Spec
	// Horizon is how long repeats may come; a dedup window is at least as long.
	Horizon time.Duration
	// Body is how a body is read where its content type does not say.
	Body Body
	// Load is what to do when there is too much.
	Load Load
	// Deadline is how long the vendor waits for an answer; 0 when not known.
	Deadline time.Duration
	// MaskHeader and MaskQuery are names of credentials beside those that
	// every call has masked.
	MaskHeader, MaskQuery []string
	// MaskBody are places of credentials in the body, for the views: JSON
	// Pointers into the body as a TriggerCall shows it, in which * is every
	// element, or "xml:Name" for an element of XML.
	MaskBody []string
	// Note is what an operator should know.
	Note string
	// Docs is the vendor's page.
	Docs string
}

// Body is how a vendor's body is read.
type Body struct {
	// JSON says that the body is JSON whatever its content type (SNS sends
	// text/plain).
	JSON bool
	// Form is the field of a form that holds the JSON (GitHub, Slack).
	Form string
}

// Load says what the vendor's calls get when the host has too much to do
// (vendors contract §4, status policy).
type Load string

// The two ways.
const (
	// LoadRefuse answers 429 or 503 with Retry-After at once: the vendor comes
	// again.
	LoadRefuse Load = "refuse"
	// LoadAccept is taken first and refused last: the vendor does not come
	// again, or turns the subscription off after errors.
	LoadAccept Load = "accept"
)

// Names lists the table's names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(table)) }

// Lookup finds a vendor by its name or another one in use.
func Lookup(name string) (Vendor, bool) {
	if other, ok := aliases[name]; ok {
		name = other
	}
	v, ok := table[name]
	v.Name = name
	return v, ok
}

// aliases are other names in use.
var aliases = map[string]string{
	"aws-sns": "sns", "azure-event-grid": "eventgrid", "facebook": "meta", "hubspot-v3": "hubspot", "instagram": "meta",
	"microsoft-graph": "msgraph", "pubsub": "google-pubsub", "twitter": "x", "whatsapp": "meta", "youtube": "websub",
}

func sortedAliases() []string { return slices.Sorted(maps.Keys(aliases)) }

const day = 24 * time.Hour

func byHeader(name string) *dedup.Spec { return &dedup.Spec{Header: dedup.Texts{name}} }

func byBody(pointers ...string) *dedup.Spec { return &dedup.Spec{Body: pointers} }

func byEvent(pointers ...string) *dedup.Spec { return &dedup.Spec{Event: pointers} }

func either(specs ...dedup.Spec) *dedup.Spec { return &dedup.Spec{Any: specs} }

const noIntegrity = "A shared token: it says who calls, not that the body is unchanged."

// table is vendors contract §1 and §2 as data. A horizon without a source in
// the vendor's documents is a day.
var table = map[string]Vendor{
	"asana": {
		Title: "Asana", Horizon: day, Load: LoadRefuse, Deadline: 10 * time.Second, MaskHeader: []string{"X-Hook-Secret"},
		Dedup: either(
			dedup.Spec{Event: dedup.Texts{"/resource/gid", "/action", "/created_at", "/change/field"}},
			dedup.Spec{Event: dedup.Texts{"/resource/gid", "/action", "/created_at", "/parent/gid"}},
			dedup.Spec{Event: dedup.Texts{"/resource/gid", "/action", "/created_at"}},
		),
		Note: "The secret comes with the first call, while the webhook is being created; it is kept, and a later one is refused. Heartbeats start no run.",
		Docs: "https://developers.asana.com/docs/webhooks-guide",
	},
	"bitbucket": {
		Title: "Bitbucket", Horizon: day, Load: LoadRefuse, Deadline: 10 * time.Second, Dedup: byHeader("X-Request-UUID"),
		Docs: "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/",
	},
	"box": {
		Title: "Box", Horizon: day, Load: LoadRefuse, Dedup: byHeader("BOX-DELIVERY-ID"),
		Note: "Two keys sign at once: configure both, and rotate one after the other.",
		Docs: "https://developer.box.com/guides/webhooks/v2/signatures-v2/",
	},
	"calendly": {
		Title: "Calendly", Horizon: day, Load: LoadRefuse, Dedup: byBody("/event", "/payload/uri", "/created_at"),
		Docs: "https://developer.calendly.com/api-docs/ZG9jOjM2MzE2MDM4-webhook-signatures",
	},
	"cloudevents": {
		Title: "CloudEvents over HTTP", Horizon: day, Load: LoadRefuse, Dedup: either(
			dedup.Spec{Header: dedup.Texts{"ce-source", "ce-id"}}, dedup.Spec{Event: dedup.Texts{"/source", "/id"}},
		),
		Docs: "https://github.com/cloudevents/spec/blob/main/cloudevents/http-webhook.md",
	},
	"companycam": {
		Title: "CompanyCam", Horizon: day, Load: LoadAccept, Note: "Wants exactly 200; 25 errors turn the webhook off.",
		Docs: "https://docs.companycam.com/docs/webhooks-1",
	},
	"convoy": {
		Title: "Convoy, simple signatures", Horizon: day, Load: LoadRefuse, Dedup: byHeader("X-Convoy-Event-ID"),
		Docs: "https://docs.getconvoy.io/product-manual/signatures",
	},
	"convoy-advanced": {
		Title: "Convoy, advanced signatures", Horizon: day, Load: LoadRefuse, Dedup: byHeader("X-Convoy-Event-ID"),
		Docs: "https://docs.getconvoy.io/product-manual/signatures",
	},
	"discord": {
		Title: "Discord", Horizon: day, Load: LoadAccept, Deadline: 3 * time.Second, MaskBody: []string{"/token"},
		Dedup: either(dedup.Spec{Body: dedup.Texts{"/id"}}, dedup.Spec{Body: dedup.Texts{"/event/type", "/event/timestamp", "/event/data/user/id"}}),
		Note:  "Probes with bad signatures and demands 401 for them.",
		Docs:  "https://docs.discord.com/developers/events/webhook-events",
	},
	"dropbox": {
		Title: "Dropbox", Horizon: day, Load: LoadRefuse, Deadline: 10 * time.Second, Note: "Sends account ids only; there is no id of a delivery.",
		Docs: "https://www.dropbox.com/developers/reference/webhooks",
	},
	"eventgrid": {
		Title: "Azure Event Grid", Horizon: day, Load: LoadRefuse, Deadline: 30 * time.Second, Dedup: byEvent("/id"),
		MaskBody: []string{"/*/data/validationUrl", "/*/data/validationCode"},
		Note:     "Signs nothing: put a token in the URL and verify it with {\"scheme\":\"token\",\"query\":\"token\"}.",
		Docs:     "https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema",
	},
	"github": {
		Title: "GitHub", Horizon: day, Load: LoadAccept, Deadline: 10 * time.Second, Dedup: byHeader("X-GitHub-Delivery"), Body: Body{Form: "payload"},
		Note: "Does not retry. A redelivery by hand repeats the delivery id and is taken for a duplicate: replay the event instead.",
		Docs: "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
	},
	"gitlab": {
		Title: "GitLab", Horizon: day, Load: LoadAccept, Deadline: 10 * time.Second, Note: noIntegrity + " Turns webhooks off after errors.",
		Dedup: either(dedup.Spec{Header: dedup.Texts{"Idempotency-Key"}}, dedup.Spec{Header: dedup.Texts{"X-Gitlab-Event-UUID"}}),
		Docs:  "https://docs.gitlab.com/user/project/integrations/webhooks/",
	},
	"google-channel": {
		Title: "Google Calendar and Drive push", Horizon: day, Load: LoadRefuse, Note: noIntegrity + " There is no body: read the changes from the API.",
		Docs: "https://developers.google.com/workspace/drive/api/guides/push",
	},
	"google-pubsub": {
		Title: "Google Pub/Sub push", Horizon: 7 * day, Load: LoadRefuse, Deadline: 10 * time.Second, Dedup: byBody("/message/messageId"),
		Note: "A JWT says who calls, not that the body is unchanged. Needs the service account's `email`; `audience` is the callback URL when not set.",
		Docs: "https://cloud.google.com/pubsub/docs/push",
	},
	"hubspot": {
		Title: "HubSpot v3", Horizon: day, Load: LoadRefuse, Deadline: 5 * time.Second, Dedup: byEvent("/eventId", "/subscriptionId", "/occurredAt"),
		Docs: "https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation",
	},
	"intercom": {
		Title: "Intercom", Horizon: day, Load: LoadRefuse, Deadline: 5 * time.Second, Dedup: byBody("/id"),
		Docs: "https://developers.intercom.com/docs/references/webhooks/webhook-models",
	},
	"linear": {
		Title: "Linear", Horizon: day, Load: LoadRefuse, Deadline: 5 * time.Second, Dedup: byHeader("Linear-Delivery"),
		Docs: "https://linear.app/developers/webhooks",
	},
	"mailgun": {
		Title: "Mailgun", Horizon: day, Load: LoadRefuse, MaskBody: []string{"/signature/signature", "/signature/token", "/signature/0", "/token/0", "/fields/signature/0", "/fields/token/0"},
		Dedup: either(dedup.Spec{Body: dedup.Texts{"/signature/token"}}, dedup.Spec{Body: dedup.Texts{"/token/0"}}, dedup.Spec{Body: dedup.Texts{"/fields/token/0"}}),
		Note:  "Only the time and a token are signed, not the body. 406 from a hook's response stops its retries.",
		Docs:  "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks",
	},
	"meta": {
		Title: "Meta (Facebook, Instagram, WhatsApp)", Horizon: 36 * time.Hour, Load: LoadRefuse, MaskQuery: []string{"hub.verify_token"},
		Note: "A call is a batch without an id: name its events with a dedup of your own, such as {\"event\":\"/id\"} for WhatsApp messages.",
		Docs: "https://developers.facebook.com/docs/graph-api/webhooks/getting-started",
	},
	"monday": {
		Title: "monday.com", Horizon: day, Load: LoadRefuse, Dedup: byBody("/event/triggerUuid"), Note: "Only webhooks made by an app carry a JWT. It says who calls, not that the body is unchanged.",
		Docs: "https://developer.monday.com/apps/docs/integration-authorization",
	},
	"msgraph": {
		Title: "Microsoft Graph", Horizon: day, Load: LoadAccept, Deadline: 3 * time.Second,
		Dedup:    byEvent("/subscriptionId", "/resource", "/changeType", "/resourceData/@odata.etag"),
		MaskBody: []string{"/value/*/clientState", "/clientState", "/validationTokens"}, MaskQuery: []string{"validationToken"},
		Note: noIntegrity + " Slow answers get calls dropped.",
		Docs: "https://learn.microsoft.com/graph/change-notifications-delivery-webhooks",
	},
	"okta": {
		Title: "Okta event hooks", Horizon: day, Load: LoadAccept, Deadline: 3 * time.Second, Dedup: byBody("/eventId"), MaskHeader: []string{"X-Okta-Verification-Challenge"},
		Note: "Signs nothing: verify the header that Okta sends with {\"scheme\":\"token\",\"header\":\"Authorization\"}.",
		Docs: "https://developer.okta.com/docs/concepts/event-hooks/",
	},
	"paddle": {
		Title: "Paddle", Horizon: 3 * day, Load: LoadRefuse, Deadline: 5 * time.Second, Dedup: byBody("/event_id"),
		Docs: "https://developer.paddle.com/webhooks/signature-verification",
	},
	"pagerduty": {
		Title: "PagerDuty v3", Horizon: 2 * day, Load: LoadAccept, Deadline: 16 * time.Second, Dedup: byBody("/event/id"),
		Docs: "https://developer.pagerduty.com/docs/webhooks/webhook-signatures/",
	},
	"paypal": {
		Title: "PayPal", Horizon: 3 * day, Load: LoadRefuse, Dedup: byBody("/id"), MaskHeader: []string{"PAYPAL-TRANSMISSION-SIG"},
		Note: "Needs `webhookId`. Only a checksum of the body is signed, so a body can be made to fit a signature seen before.",
		Docs: "https://developer.paypal.com/api/rest/webhooks/rest/",
	},
	"paystack": {
		Title: "Paystack", Horizon: 3 * day, Load: LoadRefuse, Dedup: byBody("/event", "/data/id"),
		Docs: "https://paystack.com/docs/payments/webhooks/",
	},
	"postmark": {
		Title: "Postmark", Horizon: day, Load: LoadRefuse, Dedup: either(
			dedup.Spec{Body: dedup.Texts{"/RecordType", "/ID"}},
			dedup.Spec{Body: dedup.Texts{"/RecordType", "/MessageID", "/Recipient", "/DeliveredAt"}},
			dedup.Spec{Body: dedup.Texts{"/RecordType", "/MessageID", "/Recipient", "/ReceivedAt"}},
		),
		Note: "Basic authentication; the secret is user:password. " + noIntegrity,
		Docs: "https://postmarkapp.com/developer/webhooks/webhooks-overview",
	},
	"razorpay": {
		Title: "Razorpay", Horizon: day, Load: LoadAccept, Deadline: 5 * time.Second, Dedup: byHeader("X-Razorpay-Event-Id"),
		Note: "Turns the webhook off after a day of errors.",
		Docs: "https://razorpay.com/docs/webhooks/validate-test/",
	},
	"ringcentral": {
		Title: "RingCentral", Horizon: day, Load: LoadAccept, Deadline: 3 * time.Second, Dedup: byBody("/uuid"), Note: noIntegrity,
		MaskHeader: []string{"Validation-Token", "Verification-Token"},
		Docs:       "https://developers.ringcentral.com/guide/notifications/webhooks/receiving",
	},
	"salesforce": {
		Title: "Salesforce outbound messages", Horizon: day, Load: LoadRefuse, MaskBody: []string{"xml:SessionId"},
		Note: "Signs nothing; the answer is a SOAP acknowledgement. One call holds up to 100 notifications.",
		Docs: "https://developer.salesforce.com/docs/atlas.en-us.api.meta/api/sforce_api_om_outboundmessaging_notifications.htm",
	},
	"sendgrid": {
		Title: "SendGrid event webhook", Horizon: day, Load: LoadRefuse, Dedup: byEvent("/sg_event_id"),
		Note: "The secret is the public key. A call is an array: name each event's id in a hook's events.",
		Docs: "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features",
	},
	"sentry": {
		Title: "Sentry", Horizon: day, Load: LoadAccept, Deadline: time.Second, Dedup: byHeader("Request-ID"), Note: "Does not retry.",
		Docs: "https://docs.sentry.io/organization/integrations/integration-platform/webhooks/",
	},
	"shopify": {
		Title: "Shopify", Horizon: day, Load: LoadAccept, Deadline: 5 * time.Second, Dedup: byHeader("X-Shopify-Webhook-Id"),
		Note: "Eight retries in 4 hours, then a subscription may be removed.",
		Docs: "https://shopify.dev/docs/apps/build/webhooks/verify-deliveries",
	},
	"slack": {
		Title: "Slack", Horizon: day, Load: LoadRefuse, Deadline: 3 * time.Second, Dedup: byBody("/event_id"), Body: Body{Form: "payload"},
		MaskBody: []string{"/token", "/response_url", "/trigger_id", "/response_urls"},
		Note:     "One message may come under several event ids.",
		Docs:     "https://docs.slack.dev/authentication/verifying-requests-from-slack",
	},
	"sns": {
		Title: "Amazon SNS", Horizon: day, Load: LoadRefuse, Deadline: 15 * time.Second, Body: Body{JSON: true},
		Dedup:    either(dedup.Spec{Body: dedup.Texts{"/MessageId"}}, dedup.Spec{Header: dedup.Texts{"X-Amz-Sns-Message-Id"}}),
		MaskBody: []string{"/Token", "/SubscribeURL", "/UnsubscribeURL", "/Signature"},
		Note:     "Any account can have SNS send to a URL: set `topic` to take one topic only. Raw delivery is not signed.",
		Docs:     "https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html",
	},
	"square": {
		Title: "Square", Horizon: day, Load: LoadRefuse, Deadline: 10 * time.Second, Dedup: byBody("/event_id"), Note: "Signs the URL: HOST_URL must be what Square calls.",
		Docs: "https://developer.squareup.com/docs/webhooks/step3validate",
	},
	"standard-webhooks": {
		Title: "Standard Webhooks", Horizon: 28 * time.Hour, Load: LoadRefuse, Deadline: 15 * time.Second, Dedup: byHeader("webhook-id"),
		Docs: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
	},
	"statsig": {
		Title: "Statsig", Horizon: day, Load: LoadRefuse, MaskBody: []string{"/data/verification_code"},
		Docs: "https://docs.statsig.com/integrations/event_webhook",
	},
	"stripe": {
		Title: "Stripe", Horizon: 3 * day, Load: LoadRefuse, Dedup: &dedup.Spec{Body: dedup.Texts{"/id"}, Window: "96h"}, Note: "Promises no order.",
		Docs: "https://docs.stripe.com/webhooks/signature",
	},
	"surveymonkey": {
		Title: "SurveyMonkey", Horizon: day, Load: LoadRefuse, Dedup: byBody("/event_id"), MaskHeader: []string{"Sm-Apikey"},
		Note: "The secret is \"client id&client secret\".",
		Docs: "https://api.surveymonkey.com/v3/docs#webhooks",
	},
	"svix": {
		Title: "Svix", Horizon: 28 * time.Hour, Load: LoadRefuse, Deadline: 15 * time.Second,
		Dedup: either(dedup.Spec{Header: dedup.Texts{"svix-id"}}, dedup.Spec{Header: dedup.Texts{"webhook-id"}}),
		Docs:  "https://docs.svix.com/receiving/verifying-payloads/how",
	},
	"telegram": {
		Title: "Telegram", Horizon: day, Load: LoadRefuse, Dedup: byBody("/update_id"), Note: noIntegrity,
		Docs: "https://core.telegram.org/bots/api#setwebhook",
	},
	"trello": {
		Title: "Trello", Horizon: day, Load: LoadAccept, Dedup: byBody("/action/id"), MaskHeader: []string{"X-Trello-Webhook"},
		Note: "Signs the callback URL: HOST_URL must be what Trello calls.",
		Docs: "https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/",
	},
	"twilio": {
		Title: "Twilio", Horizon: day, Load: LoadAccept, Deadline: 15 * time.Second,
		Dedup: either(
			dedup.Spec{Header: dedup.Texts{"I-Twilio-Idempotency-Token"}},
			dedup.Spec{Body: dedup.Texts{"/MessageSid/0", "/MessageStatus/0"}}, dedup.Spec{Body: dedup.Texts{"/MessageSid/0", "/SmsStatus/0"}},
			// A call's flow has the same status many times; only status callbacks are numbered.
			dedup.Spec{Body: dedup.Texts{"/CallSid/0", "/CallStatus/0", "/SequenceNumber/0"}},
		),
		Note: "Signs the URL: HOST_URL must be what Twilio calls. Errors go to the fallback URL.",
		Docs: "https://www.twilio.com/docs/usage/webhooks/webhooks-security",
	},
	"twitch": {
		Title: "Twitch EventSub", Horizon: day, Load: LoadAccept, Deadline: 3 * time.Second, Dedup: byHeader("Twitch-Eventsub-Message-Id"),
		Note: "Too many failures revoke the subscription; a call with the message type `revocation` says so.",
		Docs: "https://dev.twitch.tv/docs/eventsub/handling-webhook-events",
	},
	"typeform": {
		Title: "Typeform", Horizon: day, Load: LoadAccept, Deadline: 30 * time.Second, Dedup: byBody("/event_id"), Note: "Turns webhooks off after errors.",
		Docs: "https://www.typeform.com/developers/webhooks/secure-your-webhooks/",
	},
	"vercel": {
		Title: "Vercel", Horizon: day, Load: LoadRefuse, Dedup: byBody("/id"),
		Docs: "https://vercel.com/docs/webhooks/webhooks-api",
	},
	"websub": {
		Title: "WebSub (YouTube)", Horizon: day, Load: LoadRefuse, MaskQuery: []string{"hub.verify_token", "hub.secret"},
		Note: "Events are Atom XML: give their ids in a hook's events.",
		Docs: "https://www.w3.org/TR/websub/",
	},
	"woocommerce": {
		Title: "WooCommerce", Horizon: day, Load: LoadAccept, Deadline: 5 * time.Second, Dedup: byHeader("X-WC-Webhook-Delivery-ID"),
		Note: "Its first ping is an unsigned form. Five errors turn the webhook off.",
		Docs: "https://woocommerce.com/document/webhooks/",
	},
	"x": {
		Title: "X (Twitter)", Horizon: day, Load: LoadRefuse, Deadline: 10 * time.Second,
		Note: "Calls hold several activities without an id of their own.",
		Docs: "https://docs.x.com/x-api/webhooks/introduction",
	},
	"xero": {
		Title: "Xero", Horizon: day, Load: LoadAccept, Deadline: 5 * time.Second, Dedup: byEvent("/resourceId", "/eventType", "/eventDateUtc"),
		Note: "Wants 401 for a bad signature when the webhook is made, and turns it off after a day of errors.",
		Docs: "https://developer.xero.com/documentation/guides/webhooks/configuring-your-server/",
	},
	"zendesk": {
		Title: "Zendesk", Horizon: day, Load: LoadAccept, Deadline: 12 * time.Second, Dedup: byHeader("X-Zendesk-Webhook-Invocation-Id"),
		Docs: "https://developer.zendesk.com/documentation/webhooks/verifying/",
	},
	"zoom": {
		Title: "Zoom", Horizon: day, Load: LoadRefuse, Deadline: 3 * time.Second, Dedup: byBody("/event", "/event_ts", "/payload/object/id"),
		MaskBody: []string{"/payload/plainToken"},
		Note:     "Asks for its challenge again every 72 hours.",
		Docs:     "https://developers.zoom.us/docs/api/webhooks/",
	},
}
