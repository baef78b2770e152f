package verify

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
)

// snsFields are what Amazon SNS signs, in this order, as "Name\nvalue\n". A
// Subject is signed only where there is one.
func snsFields(kind string) []string {
	switch kind {
	case "Notification":
		return []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	case "SubscriptionConfirmation", "UnsubscribeConfirmation":
		return []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
	}
	return nil
}

// sns checks a message of Amazon SNS. That Amazon signed it does not say for
// whom: any account can have SNS send here, so a topic should be configured.
func (a *attempt) sns(ctx context.Context) error {
	doc, ok := jsonpointer.Read(a.in.Call.Body)
	if !ok {
		return ReasonBodyMalformed
	}
	field := func(name string) (string, bool) {
		value, ok := doc.Get(jsonpointer.Pointer{name})
		if !ok || jsonpointer.Kind(value) != '"' {
			return "", false
		}
		return jsonpointer.Text(value)
	}
	kind, _ := field("Type")
	var m message
	for _, name := range snsFields(kind) {
		value, ok := field(name)
		if !ok && name != "Subject" {
			return ReasonFieldMissing
		}
		if ok {
			m = append(m, []byte(name+"\n"+value+"\n"))
		}
	}
	if m == nil {
		return ReasonBodyMalformed
	}
	if err := a.snsSignature(ctx, m, field); err != nil {
		return err
	}
	topic, _ := field("TopicArn")
	if topics := a.spec.Values["topic"].Resolve(a.in.Secrets); len(topics) > 0 && !slices.ContainsFunc(topics, oneOf(topic)) {
		return ReasonUnknownSource
	}
	timestamp, _ := field("Timestamp")
	at, err := time.Parse(time.RFC3339Nano, timestamp)
	if err != nil {
		return ReasonTimestampMalformed
	}
	return a.checkSkew(at)
}

func (a *attempt) snsSignature(ctx context.Context, m message, field func(string) (string, bool)) error {
	encoded, ok := field("Signature")
	if !ok || len(encoded) == 0 {
		return ReasonSignatureMissing
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ReasonSignatureMalformed
	}
	scheme := map[string]string{"1": "rsa-sha1", "2": "rsa-sha256"}
	version, _ := field("SignatureVersion")
	algorithm, ok := algorithmNamed(scheme[version])
	if !ok {
		return ReasonSignatureVersionBad
	}
	named, _ := field("SigningCertURL")
	certificate, err := a.fetchCertificate(ctx, named)
	if err != nil {
		return err
	}
	check, ok := algorithm.key(certificate, "")
	if !ok {
		return ReasonCertificateRefused
	}
	if !check(m)(signature) {
		return ReasonSignatureMismatch
	}
	a.result.KeyID, a.result.Scheme = fingerprint(certificate), algorithm.name
	return nil
}
