// Package handshake answers the requests by which vendors make sure of a
// receiver: challenges to echo, pings, method probes, confirmations (DESIGN §6,
// vendors contract §3). What to answer is data, a preset by vendor name or
// rules of ten classes. It only decides: what it wants fetched or stored it
// returns. A call that does not match a rule in full is an event, and nothing
// is echoed that no rule names.
package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Input is a call and what decides about it.
type Input struct {
	Call    *trigger.Call
	Secrets verify.Secrets
	// Verified says that the call's signature held, or that the trigger has none
	// to check. Signed handshakes are answered only then; ask once before
	// verification and once after.
	Verified bool
}

// Decision is what to do with a handshake. The call is recorded as ignored and
// starts no run.
type Decision struct {
	Class    Class
	Response *trigger.Response
	// Refused says why the handshake was turned down, or is "". Nothing of the
	// call is in the response then.
	Refused Refusal
	// Store is a secret to keep for the subscription, before the response goes
	// out; "" is none. The first one wins: Decide refuses another.
	Store secret.Text
	// Confirm is a URL to GET through the guarded client, without redirects; ""
	// is none. The response does not wait for its outcome to be good.
	Confirm string
}

// Refusal says why a handshake was turned down.
type Refusal string

// Refusals. None of them holds anything of the call.
const (
	RefusedToken     Refusal = "handshake_token"     // the token is not the configured one, or none is configured
	RefusedChallenge Refusal = "handshake_challenge" // no challenge, or one that cannot be echoed
	RefusedURL       Refusal = "handshake_url"       // the URL to confirm is not one of the vendor's
	RefusedSecret    Refusal = "handshake_secret"    // another secret was stored first, or there is none to answer with
	RefusedOrigin    Refusal = "handshake_origin"    // the origin is not one of those configured
	RefusedTopic     Refusal = "handshake_topic"     // a topic that is not configured
)

// Decide says whether a call is a handshake, and what to do then. The first
// rule that matches in full decides.
func (h *Handshake) Decide(in Input) (Decision, bool) {
	c := &call{Call: in.Call}
	for i := range h.rules {
		r := &h.rules[i]
		if r.spec.Class == ClassAck || r.spec.Signed && !in.Verified || !r.matches(c) {
			continue
		}
		return r.decide(c, in.Secrets), true
	}
	return Decision{}, false
}

// Ack gives the answer to an accepted event where the vendor wants one of its
// own (class 10); nil leaves the host's.
func (h *Handshake) Ack() *trigger.Response {
	for i := range h.rules {
		if reply := h.rules[i].spec.Reply; h.rules[i].spec.Class == ClassAck {
			return respond(reply.status(), reply.ContentType, []byte(reply.Body))
		}
	}
	return nil
}

func (r *rule) matches(c *call) bool {
	if !r.methods[c.Method] {
		return false
	}
	for _, condition := range r.when {
		if !condition.holds(c) {
			return false
		}
	}
	return true
}

func (r *rule) decide(c *call, secrets verify.Secrets) Decision {
	d := Decision{Class: r.spec.Class}
	if !r.token.holds(c, secrets) {
		return d.refuse(RefusedToken)
	}
	switch r.spec.Class {
	case ClassQueryEcho, ClassPostQueryEcho, ClassBodyEcho:
		return r.echo(d, c)
	case ClassComputed:
		return r.computed(d, c, secrets)
	case ClassHeaderEcho:
		return r.headerEcho(d, c, secrets)
	case ClassOptions:
		return r.options(d, c)
	case ClassConfirm:
		return r.confirm(d, c, secrets)
	case ClassPing, ClassProbe, ClassAck:
	}
	d.Response = respond(r.spec.Reply.status(), r.spec.Reply.ContentType, []byte(r.spec.Reply.Body))
	return d
}

// refuse answers a handshake that does not hold.
func (d Decision) refuse(why Refusal) Decision {
	d.Refused = why
	status := http.StatusForbidden
	if why == RefusedChallenge {
		status = http.StatusBadRequest
	}
	d.Response = respond(status, "", nil)
	return d
}

// maxChallenge bounds what is sent back of a stranger's request.
const maxChallenge = 4 << 10

// challenge gives the text to echo.
func (r *rule) challenge(c *call) (string, bool) {
	texts := r.from.texts(c)
	if len(texts) != 1 || texts[0] == "" || len(texts[0]) > maxChallenge {
		return "", false
	}
	return texts[0], true
}

// echo sends the challenge back: as text that no browser takes for a page, or
// inside JSON (classes 1 to 3).
func (r *rule) echo(d Decision, c *call) Decision {
	challenge, ok := r.challenge(c)
	if !ok {
		return d.refuse(RefusedChallenge)
	}
	reply := r.spec.Reply
	if reply.JSON == "" {
		d.Response = respond(reply.status(), "text/plain; charset=utf-8", []byte(challenge))
		return d
	}
	d.Response = respond(reply.status(), "application/json", fill(reply.JSON, challenge, ""))
	return d
}

// computed answers with an HMAC of the challenge (class 4). X keys it with the
// secret that also signs its events, so a stranger who may choose the challenge
// could have any event signed. A plain word can be no event.
func (r *rule) computed(d Decision, c *call, secrets verify.Secrets) Decision {
	challenge, ok := r.challenge(c)
	if !ok || !isWord(challenge) {
		return d.refuse(RefusedChallenge)
	}
	keys := r.secret.Resolve(secrets)
	if len(keys) == 0 {
		return d.refuse(RefusedSecret)
	}
	// The vendor holds one secret. During a rotation it is the first configured.
	mac := hmac.New(sha256.New, []byte(keys[0].Reveal()))
	_, _ = mac.Write([]byte(challenge)) // never fails
	sum := hex.EncodeToString(mac.Sum(nil))
	if r.spec.Reply.Encoding == "base64" {
		sum = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	reply := r.spec.Reply
	d.Response = respond(reply.status(), "application/json", fill(reply.JSON, challenge, reply.Prefix+sum))
	return d
}

// isWord allows what challenges are made of: letters, digits and the signs of
// base64 and UUIDs. JSON and forms need others.
func isWord(text string) bool {
	const longest = 512
	if len(text) > longest {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+/", c) < 0 {
			return c == '=' && strings.Trim(text[i:], "=") == "" && i > 0
		}
	}
	return true
}

// headerEcho sends a header back and may keep its value as the secret of all
// later calls (class 7). Whoever comes first sets it; a later call cannot swap
// it.
func (r *rule) headerEcho(d Decision, c *call, secrets verify.Secrets) Decision {
	value, ok := r.challenge(c)
	if !ok || !isHeaderText(value) {
		return d.refuse(RefusedChallenge)
	}
	if r.spec.Store {
		switch {
		case secrets.Stored == "":
			d.Store = secret.Text(value)
		case !verify.Equal(secrets.Stored.Reveal(), value):
			return d.refuse(RefusedSecret)
		}
	}
	d.Response = respond(r.spec.Reply.status(), "", nil)
	d.Response.Header = append(d.Response.Header, trigger.Field{Name: r.spec.Reply.Header, Value: value})
	return d
}

func isHeaderText(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// options grants an origin to deliver (class 8; CloudEvents HTTP webhook).
func (r *rule) options(d Decision, c *call) Decision {
	origin, ok := r.challenge(c)
	if !ok || !isHeaderText(origin) {
		return d.refuse(RefusedChallenge)
	}
	allowed := len(r.spec.Origins) == 0
	for _, known := range r.spec.Origins {
		allowed = allowed || strings.EqualFold(known, origin)
	}
	if !allowed {
		return d.refuse(RefusedOrigin)
	}
	d.Response = respond(r.spec.Reply.status(), "", nil)
	d.Response.Header = append(d.Response.Header, trigger.Field{Name: "WebHook-Allowed-Origin", Value: origin})
	if rate := c.HeaderValue("webhook-request-rate"); rate != "" {
		d.Response.Header = append(d.Response.Header, trigger.Field{Name: "WebHook-Allowed-Rate", Value: "*"})
	}
	return d
}

// confirm has a URL fetched (class 9). It comes from the call, so it must be
// the vendor's: https, an allowed host, no user, no port.
func (r *rule) confirm(d Decision, c *call, secrets verify.Secrets) Decision {
	if topics := r.topic.Resolve(secrets); len(topics) > 0 && !contains(topics, r.topicAt.texts(c)) {
		return d.refuse(RefusedTopic)
	}
	named, ok := r.challenge(c)
	if !ok {
		return d.refuse(RefusedChallenge)
	}
	address, ok := verify.SafeURL(named, r.hosts, nil)
	if !ok {
		return d.refuse(RefusedURL)
	}
	d.Confirm = address
	d.Response = respond(r.spec.Reply.status(), "", nil)
	return d
}

func contains(wanted []secret.Text, texts []string) bool {
	if len(texts) != 1 {
		return false
	}
	for _, text := range wanted {
		if verify.Equal(text.Reveal(), texts[0]) {
			return true
		}
	}
	return false
}

// respond makes an answer that no browser runs or sniffs.
func respond(status int, contentType string, body []byte) *trigger.Response {
	response := &trigger.Response{Status: status, Body: body}
	if contentType != "" {
		response.Header = append(response.Header, trigger.Field{Name: "Content-Type", Value: contentType})
	}
	response.Header = append(response.Header, trigger.Field{Name: "X-Content-Type-Options", Value: "nosniff"})
	return response
}

// fill puts the challenge and the sum into a JSON template, as JSON strings.
func fill(template, challenge, sum string) []byte {
	text := strings.NewReplacer("{challenge}", quote(challenge), "{hmac}", quote(sum)).Replace(template)
	return []byte(text)
}

func quote(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// call reads its body when first needed.
type call struct {
	*trigger.Call
	read bool
	doc  jsonpointer.Doc
}

// maxBody is more than any handshake has; a larger body is an event and is not
// worth reading.
const maxBody = 256 << 10

func (c *call) json() jsonpointer.Doc {
	if !c.read {
		c.read = true
		if len(c.Body) <= maxBody {
			c.doc, _ = jsonpointer.Read(c.Body)
		}
	}
	return c.doc
}
