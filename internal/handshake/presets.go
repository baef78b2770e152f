package handshake

import (
	"maps"
	"slices"

	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Presets lists the names of all presets, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// HasPreset says whether there is a preset of this name.
func HasPreset(name string) bool {
	_, ok := presets[name]
	return ok
}

// Classes gives the classes of a preset's rules.
func Classes(preset string) []Class {
	var classes []Class
	for _, spec := range presets[preset] {
		if !slices.Contains(classes, spec.Class) {
			classes = append(classes, spec.Class)
		}
	}
	return classes
}

func when(conditions ...Condition) []Condition { return conditions }

func inBody(pointer, equals string) Condition {
	return Condition{Place: Place{Body: pointer}, Equals: equals}
}

func inQuery(name, equals string) Condition {
	return Condition{Place: Place{Query: name}, Equals: equals}
}

func inHeader(name, equals string) Condition {
	return Condition{Place: Place{Header: name}, Equals: equals}
}

// hub is the GET of PubSubHubbub, which Meta took over.
func hub(optional bool) Spec {
	return Spec{
		Class: ClassQueryEcho, When: when(inQuery("hub.mode", "subscribe")), From: &Place{Query: "hub.challenge"},
		Token: &Token{Place: Place{Query: "hub.verify_token"}}, optionalToken: optional,
	}
}

const ackSOAP = `<?xml version="1.0" encoding="UTF-8"?>` +
	`<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body>` +
	`<notificationsResponse xmlns="http://soap.sforce.com/2005/09/outbound"><Ack>true</Ack></notificationsResponse>` +
	`</soapenv:Body></soapenv:Envelope>`

// presets is vendors contract §3 as data.
var presets = map[string][]Spec{
	"asana": {
		{Class: ClassHeaderEcho, From: &Place{Header: "X-Hook-Secret"}, Store: true, Reply: Reply{Header: "X-Hook-Secret"}},
		{Class: ClassPing, When: when(Condition{Place: Place{Body: "/events"}, Empty: true}), Signed: true}, // heartbeat
	},
	"cloudevents": {
		{Class: ClassOptions, From: &Place{Header: "WebHook-Request-Origin"}},
	},
	"discord": {
		{Class: ClassPing, When: when(inBody("/type", "1"), Condition{Place: Place{Body: "/event"}, Absent: true}), Signed: true, Reply: Reply{
			Body: `{"type":1}`, ContentType: "application/json",
		}},
		{Class: ClassPing, When: when(inBody("/type", "0")), Signed: true, Reply: Reply{Status: 204}},
	},
	"dropbox": {
		{Class: ClassQueryEcho, From: &Place{Query: "challenge"}},
	},
	"eventgrid": {
		{
			Class: ClassBodyEcho, From: &Place{Body: "/0/data/validationCode"}, Reply: Reply{JSON: `{"validationResponse":{challenge}}`},
			When: when(inBody("/0/eventType", "Microsoft.EventGrid.SubscriptionValidationEvent")),
		},
		{Class: ClassOptions, From: &Place{Header: "WebHook-Request-Origin"}},
	},
	"github": {
		{Class: ClassPing, When: when(inHeader("X-GitHub-Event", "ping")), Signed: true},
	},
	"meta": {hub(false)},
	"monday": {
		{
			Class: ClassBodyEcho, From: &Place{Body: "/challenge"}, Reply: Reply{JSON: `{"challenge":{challenge}}`},
			When: when(inBody("/challenge", ""), Condition{Place: Place{Body: "/event"}, Absent: true}),
		},
	},
	"msgraph": {
		{Class: ClassPostQueryEcho, From: &Place{Query: "validationToken"}},
	},
	"okta": {
		{
			Class: ClassBodyEcho, Methods: []string{"GET"}, From: &Place{Header: "X-Okta-Verification-Challenge"},
			When: when(inHeader("X-Okta-Verification-Challenge", "")), Reply: Reply{JSON: `{"verification":{challenge}}`},
		},
	},
	"ringcentral": {
		{Class: ClassHeaderEcho, From: &Place{Header: "Validation-Token"}, Reply: Reply{Header: "Validation-Token"}},
	},
	"salesforce": {
		{Class: ClassAck, Reply: Reply{Body: ackSOAP, ContentType: "text/xml; charset=utf-8"}},
	},
	"slack": {
		{Class: ClassBodyEcho, When: when(inBody("/type", "url_verification")), From: &Place{Body: "/challenge"}, Signed: true},
	},
	"sns": {
		{
			Class: ClassConfirm, When: when(inBody("/Type", "SubscriptionConfirmation")), From: &Place{Body: "/SubscribeURL"},
			Signed: true, hosts: verify.SNSHost, topic: verify.Named("topicArn"), topicAt: &Place{Body: "/TopicArn"},
		},
		{Class: ClassPing, When: when(inBody("/Type", "UnsubscribeConfirmation")), Signed: true},
	},
	"statsig": {
		{
			Class: ClassBodyEcho, When: when(inBody("/data/event", "url_verification")), From: &Place{Body: "/data/verification_code"},
			Reply: Reply{JSON: `{"verification_code":{challenge}}`},
		},
	},
	"surveymonkey": {{Class: ClassProbe}},
	"trello":       {{Class: ClassProbe}},
	"twilio": {
		{Class: ClassAck, Reply: Reply{Body: `<?xml version="1.0" encoding="UTF-8"?><Response/>`, ContentType: "text/xml; charset=utf-8"}},
	},
	"twitch": {
		{
			Class: ClassBodyEcho, When: when(inHeader("Twitch-Eventsub-Message-Type", "webhook_callback_verification")),
			From: &Place{Body: "/challenge"}, Signed: true,
		},
	},
	// A hub may come without a token; with one configured it must hold.
	"websub": {hub(true)},
	"woocommerce": {
		{Class: ClassPing, When: when(Condition{Place: Place{Form: "webhook_id"}}, Condition{Place: Place{Header: "X-WC-Webhook-Signature"}, Absent: true})},
	},
	"x": {
		{
			Class: ClassComputed, Methods: []string{"GET"}, When: when(inQuery("crc_token", "")), From: &Place{Query: "crc_token"},
			Reply: Reply{JSON: `{"response_token":{hmac}}`, Encoding: "base64", Prefix: "sha256="},
		},
	},
	"xero": {
		{Class: ClassPing, When: when(Condition{Place: Place{Body: "/events"}, Empty: true}), Signed: true}, // intent to receive
	},
	"zoom": {
		{
			Class: ClassComputed, Methods: []string{"POST"}, When: when(inBody("/event", "endpoint.url_validation")),
			From: &Place{Body: "/payload/plainToken"}, Signed: true,
			Reply: Reply{JSON: `{"plainToken":{challenge},"encryptedToken":{hmac}}`},
		},
	},
}
