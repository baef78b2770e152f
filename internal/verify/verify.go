// Package verify checks that a call comes from whom it says, over the exact
// bytes received and before any hook runs (DESIGN §6, vendors contract §1, §4).
// What to check is data: a preset by vendor name, or a scheme described by a
// Spec. It fails closed: no secret, no key or no signature is a refusal. It
// does no I/O but through a Fetcher, and knows nothing of storage, transport or
// hooks.
package verify

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Input is one call and what it is checked with.
type Input struct {
	Call *trigger.Call
	// URL is the call's public URL: the configured origin with path and query as
	// sent. It never comes from Host or X-Forwarded headers, which strangers
	// choose (vendors contract §4).
	URL     string
	Secrets Secrets
	Now     time.Time
	// Keys gets certificates and key sets; nil refuses what needs them.
	Keys Fetcher
}

// Fetcher gets a document by HTTPS: guarded against private addresses, without
// redirects, bounded in size and time, and cached. It is asked only for URLs
// whose host and path a preset allows.
type Fetcher interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
}

// ErrKeysUnavailable means that the vendor's key could not be had just now. The
// call is neither good nor bad: answer 503, and let the vendor come again.
var ErrKeysUnavailable = errors.New("verify: the vendor's keys are not available")

// Result is what is stored with the call: after masking, nobody can verify it
// again (vendors contract §4).
type Result struct {
	OK     bool   `json:"ok"`
	Scheme string `json:"scheme"`
	Preset string `json:"preset,omitempty"`
	// KeyID tells a subscription's secrets apart; it is a short fingerprint.
	KeyID string `json:"keyId,omitempty"`
	// SkewMS is now less the signed timestamp; nil without one.
	SkewMS *int64 `json:"skewMs,omitempty"`
	// Integrity says whether the body is known to be what the vendor sent. A
	// static token does not say so.
	Integrity bool   `json:"integrity"`
	Reason    Reason `json:"reason,omitempty"`
}

// Verify checks a call. Its error is ErrKeysUnavailable, wrapped, or the
// context's; a call that does not hold is a Result with a Reason.
func (v *Verifier) Verify(ctx context.Context, in Input) (Result, error) {
	a := &attempt{Verifier: v, in: in, result: Result{Preset: v.spec.Preset, Scheme: v.scheme()}}
	err := a.run(ctx)
	var reason Reason
	switch {
	case errors.As(err, &reason):
		a.result.Reason, a.result.KeyID = reason, ""
		return a.result, nil
	case err != nil:
		return Result{}, err
	}
	a.result.OK, a.result.Integrity = true, v.integrity
	return a.result, nil
}

func (v *Verifier) scheme() string {
	if v.spec.Scheme != "" || len(v.order) == 0 {
		return v.spec.Scheme
	}
	return v.versions[v.order[0]].name
}

// attempt is one Verify.
type attempt struct {
	*Verifier
	in     Input
	body   body
	pairs  []pair // of the signature's header
	result Result
}

func (a *attempt) run(ctx context.Context) error {
	for _, name := range a.spec.needs {
		if a.value(name) == "" {
			return ReasonNotConfigured
		}
	}
	keys := a.spec.Secret.Resolve(a.in.Secrets)
	if len(keys) == 0 && !a.spec.keyless {
		return ReasonNoSecret
	}
	switch a.spec.Scheme {
	case schemeToken:
		return a.token(keys)
	case schemeBasic:
		return a.basic(keys)
	case schemeJWT:
		return a.jwt(ctx, keys)
	case schemeSNS:
		return a.sns(ctx)
	}
	return a.signature(ctx, keys)
}

func (a *attempt) value(name string) string { return a.spec.Values[name].first(a.in.Secrets) }

// maxCandidates bounds how many signatures of one call are tried.
const maxCandidates = 16

// candidate is a signature with its version, "" when there are none.
type candidate struct {
	version   string
	signature []byte
}

// signature checks every scheme that signs a template.
func (a *attempt) signature(ctx context.Context, keys []secret.Text) error {
	candidates, err := a.candidates()
	if err != nil {
		return err
	}
	messages, err := a.messages()
	if err != nil {
		return err
	}
	texts := make([]string, 0, len(keys)+1)
	for _, key := range keys {
		texts = append(texts, key.Reveal())
	}
	if a.spec.keyURL != nil {
		certificate, err := a.certificate(ctx)
		if err != nil {
			return err
		}
		texts = append(texts, certificate)
	}
	if err := a.match(texts, messages, candidates); err != nil {
		return err
	}
	// Only now is the timestamp known to be the signer's.
	return a.checkTime()
}

// match finds a key, a message and a signature that belong together.
func (a *attempt) match(keys []string, messages []message, candidates []candidate) error {
	usable := false
	for _, key := range keys {
		for _, version := range a.order {
			algorithm := a.versions[version]
			check, ok := algorithm.key(key, a.spec.SecretEncoding)
			if !ok {
				continue
			}
			usable = true
			if check.any(messages, candidates, version) {
				a.result.KeyID, a.result.Scheme = fingerprint(key), algorithm.name
				return nil
			}
		}
	}
	if !usable {
		return ReasonBadSecret
	}
	return ReasonSignatureMismatch
}

func (c check) any(messages []message, candidates []candidate, version string) bool {
	for _, m := range messages {
		var belongs func([]byte) bool
		for _, candidate := range candidates {
			if candidate.version != version {
				continue
			}
			if belongs == nil {
				belongs = c(m)
			}
			if belongs(candidate.signature) {
				return true
			}
		}
	}
	return false
}

// candidates reads the signatures of the call.
func (a *attempt) candidates() ([]candidate, error) {
	texts, err := a.signatureTexts()
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, text := range texts {
		named, err := a.split(text)
		if err != nil {
			return nil, err
		}
		for _, p := range named {
			if raw, ok := decodeSignature(p.value, a.spec.Encoding); ok {
				found = append(found, candidate{p.name, raw})
			}
		}
	}
	switch {
	case len(found) == 0:
		return nil, ReasonSignatureMalformed
	case len(found) > maxCandidates:
		return nil, ReasonSignatureAmbiguous
	}
	return found, nil
}

// maxSignature bounds the text of a signature or token.
const maxSignature = 16 << 10

// signatureTexts gives the text of each signature's place. A place that is
// there twice is refused, since whoever reads on may take the other one.
func (a *attempt) signatureTexts() ([]string, error) {
	var texts []string
	for _, header := range a.at.headers {
		values := headerValues(a.in.Call, header)
		if len(values) > 1 {
			return nil, ReasonSignatureAmbiguous
		}
		texts = append(texts, values...)
	}
	if len(a.at.headers) == 0 {
		text, err := a.single(a.at, ReasonSignatureMissing, ReasonSignatureAmbiguous)
		if err != nil {
			return nil, err
		}
		texts = []string{text}
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return len(text) == 0 })
	if len(texts) == 0 {
		return nil, ReasonSignatureMissing
	}
	for _, text := range texts {
		if len(text) > maxSignature {
			return nil, ReasonSignatureMalformed
		}
	}
	return texts, nil
}

type pair struct{ name, value string }

// split takes the signatures out of a header's text by its format, and keeps
// its pairs, where the timestamp may be.
func (a *attempt) split(text string) ([]pair, error) {
	switch a.spec.Format {
	case "pairs":
		separator := a.spec.Separator
		if separator == "" {
			separator = ","
		}
		for entry := range strings.SplitSeq(text, separator) {
			name, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
			a.pairs = append(a.pairs, pair{name, value})
		}
		return a.known(a.pairs)
	case "list":
		var entries []pair
		for entry := range strings.FieldsSeq(text) {
			name, value, _ := strings.Cut(entry, ",")
			entries = append(entries, pair{name, value})
		}
		return a.known(entries)
	}
	rest, ok := strings.CutPrefix(text, a.spec.Prefix)
	if !ok {
		return nil, ReasonSignatureMalformed
	}
	return []pair{{"", rest}}, nil
}

// known keeps the signatures of a known version. Others are passed over: a
// vendor that adds a version must not break receivers of the old one.
func (a *attempt) known(entries []pair) ([]pair, error) {
	var found []pair
	for _, entry := range entries {
		if _, ok := a.versions[entry.name]; ok {
			found = append(found, entry)
		}
	}
	if len(found) == 0 {
		return nil, ReasonSignatureMissing
	}
	return found, nil
}

// single gives the text of a place that must be there once.
func (a *attempt) single(p place, missing, ambiguous Reason) (string, error) {
	values, err := a.lookup(p)
	switch {
	case err != nil:
		return "", err
	case len(values) == 0 || len(values[0]) == 0:
		return "", missing
	case len(values) > 1:
		return "", ambiguous
	}
	return values[0], nil
}

// lookup gives every text of a place.
func (a *attempt) lookup(p place) ([]string, error) {
	switch {
	case p.headers != nil:
		for _, header := range p.headers {
			if values := headerValues(a.in.Call, header); values != nil {
				return values, nil
			}
		}
		return nil, nil
	case p.query != "":
		return queryValues(a.in.Call.RawQuery, p.query), nil
	case p.pair != "":
		var values []string
		for _, entry := range a.pairs {
			if entry.name == p.pair {
				values = append(values, entry.value)
			}
		}
		return values, nil
	case p.value != "":
		return []string{a.value(p.value)}, nil
	}
	return a.body.lookup(a.in.Call, p)
}

// messages gives what the signature may be over: one message, or one for each
// way of writing the URL.
func (a *attempt) messages() ([]message, error) {
	urls := []string{a.in.URL}
	if a.spec.urlPorts {
		urls = append(urls, otherPort(a.in.URL)...)
	}
	var messages []message
	for _, url := range urls {
		m, err := a.message(url)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func (a *attempt) message(url string) (message, error) {
	m := make(message, 0, len(a.signed))
	for _, s := range a.signed {
		piece, err := a.piece(s, url)
		if err != nil {
			return nil, err
		}
		m = append(m, piece)
	}
	return m, nil
}

func (a *attempt) piece(s segment, url string) ([]byte, error) {
	switch s.name {
	case "":
		return []byte(s.text), nil
	case "body":
		return a.in.Call.Body, nil
	case "url":
		return []byte(url), nil
	case "url.decoded":
		return []byte(decodeListed(url)), nil
	case "method":
		return []byte(a.in.Call.Method), nil
	case "crc32":
		return []byte(checksum(a.in.Call.Body)), nil
	case "form":
		return a.form()
	}
	missing, ambiguous := ReasonFieldMissing, ReasonFieldAmbiguous
	if s.name == "timestamp" {
		missing, ambiguous = ReasonTimestampMissing, ReasonTimestampMalformed
	}
	text, err := a.single(s.at, missing, ambiguous)
	return []byte(text), err
}

// checkTime holds the signed timestamp against the clock.
func (a *attempt) checkTime() error {
	if a.spec.Timestamp == nil {
		return nil
	}
	text, err := a.single(a.timestamp, ReasonTimestampMissing, ReasonTimestampMalformed)
	if err != nil {
		return err
	}
	at, ok := parseTime(text, a.spec.Timestamp.Unit)
	if !ok {
		return ReasonTimestampMalformed
	}
	return a.checkSkew(at)
}

func (a *attempt) checkSkew(at time.Time) error {
	skew := a.in.Now.Sub(at)
	milliseconds := skew.Milliseconds()
	a.result.SkewMS = &milliseconds
	if a.tolerance > 0 && skew.Abs() > a.tolerance {
		return ReasonTimestampOutside
	}
	return nil
}

// maxDigits keeps seconds and milliseconds within what a time can hold.
const maxDigits = 14

func parseTime(text, unit string) (time.Time, bool) {
	if unit == "rfc3339" {
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, err == nil
	}
	// ParseInt takes signs; a timestamp has none.
	if len(text) == 0 || len(text) > maxDigits || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	if unit == "ms" {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}
