package trigger

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// SubscriptionID is the public id of a Subscription. It is also the secret in
// the callback URL (RFC §Subscription), so it prints as a short form; Reveal
// gives the whole.
type SubscriptionID string

// CallbackPath is the path of a subscription's callback URL, less the id (RFC
// §HTTPS).
const CallbackPath = "/triggers/webhooks/"

// shownPrefix is enough to find the row, not to call the URL.
const shownPrefix = len("sub_") + 6

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewSubscriptionID draws 160 random bits.
func NewSubscriptionID() SubscriptionID {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return SubscriptionID("sub_" + idEncoding.EncodeToString(b[:]))
}

// ShortSubscription gives the short form that logs, metrics and traces show.
func ShortSubscription(id string) string {
	if len(id) <= shownPrefix || !strings.HasPrefix(id, "sub_") {
		return "sub_…"
	}
	return id[:shownPrefix] + "…"
}

// String gives the short form.
func (id SubscriptionID) String() string { return ShortSubscription(string(id)) }

// GoString keeps %#v from showing the secret.
func (id SubscriptionID) GoString() string { return id.String() }

// Reveal gives the whole id, for URLs, hooks and API answers.
func (id SubscriptionID) Reveal() string { return string(id) }
