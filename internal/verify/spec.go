package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
)

// Spec is a trigger's `verify` (DESIGN §6): a preset with its secret, or a
// scheme described in full. In JSON:
//
//	{"preset":"github","secret":{"param":"secret"}}
//	{"scheme":"hmac-sha256","header":"X-Signature","encoding":"hex","prefix":"sha256=",
//	 "signed":"{timestamp}.{body}","timestamp":{"header":"X-Time"},"tolerance":"5m","secret":{"state":"/secret"}}
//
// Beside a preset stand only secret, values and tolerance; the rest is the
// preset's.
type Spec struct {
	Preset string `json:"preset,omitempty"`
	// Scheme is hmac-sha1, hmac-sha256, hmac-sha384, hmac-sha512, ed25519,
	// ecdsa-p256 (DER), ecdsa-p256-raw, rsa-sha1, rsa-sha256, token, basic or
	// jwt.
	Scheme string `json:"scheme,omitempty"`
	// Field is where the signature or token is.
	Field
	// Encoding of the signature: hex (the default), base64 or base64url.
	Encoding string `json:"encoding,omitempty"`
	// Prefix before the signature. It is required, not optional.
	Prefix string `json:"prefix,omitempty"`
	// Format of the header: "" is the signature alone, "pairs" is
	// name=value,name=value, "list" is name,value name,value.
	Format string `json:"format,omitempty"`
	// Separator of pairs; a comma when not set.
	Separator string `json:"separator,omitempty"`
	// Versions says which name in pairs or a list is a signature of which
	// scheme. Other names are passed over.
	Versions map[string]string `json:"versions,omitempty"`
	// Signed is what is signed, with {body}, {timestamp}, {url}, {method},
	// {form}, {url.decoded}, {crc32}, {header.name}, {query.name} and the names
	// of Fields in it; {body} when not set.
	Signed string `json:"signed,omitempty"`
	// Fields are more names for Signed.
	Fields map[string]Field `json:"fields,omitempty"`
	// Timestamp is where the time of signing is.
	Timestamp *Timestamp `json:"timestamp,omitempty"`
	// Tolerance is how far the timestamp may be from now: a duration, or "off".
	// It is 5m when there is a timestamp and nothing is said.
	Tolerance string `json:"tolerance,omitempty"`
	// Secret is where the secrets are; a preset looks for "secret" in the params
	// and the state when nothing is said.
	Secret Sources `json:"secret,omitempty"`
	// SecretEncoding is text (the default), hex, base64 or whsec. It concerns
	// HMAC; public keys are recognized.
	SecretEncoding string `json:"secretEncoding,omitempty"`
	// Values are what else a scheme needs: audience, issuer and email of a JWT,
	// the webhook id of PayPal, the topic of SNS.
	Values map[string]Sources `json:"values,omitempty"`

	// What only presets can say. URLs that the host fetches, and leniency, are
	// not for a trigger to choose.
	keyURL       *keyURL
	urlPorts     bool // the vendor may sign the URL with or without its port
	needs        []string
	claims       map[string][]string
	ownAudience  bool // without a configured audience it is the call's URL
	notIntegrity bool // what is signed does not pin the body down
	keyless      bool // the key is the vendor's own
}

// Field is a place in a call: exactly one of its members is set, or Body and
// Form together for vendors that send both kinds of body.
type Field struct {
	// Header is a header's name, or a list: the first that is there.
	Header Names  `json:"header,omitempty"`
	Query  string `json:"query,omitempty"`
	// Body is a JSON Pointer into a JSON body; the step * is every element.
	Body string `json:"body,omitempty"`
	// Form is a field of a form or multipart body.
	Form string `json:"form,omitempty"`
	// Pair is a name in the signature's header, with the format "pairs".
	Pair string `json:"pair,omitempty"`
	// Value is one of the Spec's Values.
	Value string `json:"value,omitempty"`
}

// Timestamp is a Field and the form of its text.
type Timestamp struct {
	Field
	// Unit is s (the default), ms or rfc3339.
	Unit string `json:"unit,omitempty"`
}

// Names is a name or a list of names.
type Names []string

// UnmarshalJSON reads a text or a list of texts.
func (n *Names) UnmarshalJSON(text []byte) error {
	if jsonpointer.Kind(text) == '"' {
		*n = Names{""}
		return json.Unmarshal(text, &(*n)[0])
	}
	return json.Unmarshal(text, (*[]string)(n))
}

// Parse reads a Spec and makes its Verifier. An unknown preset, scheme or
// member is an error: a trigger that cannot be verified must not load.
func Parse(text json.RawMessage) (*Verifier, error) {
	var spec Spec
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return nil, fmt.Errorf("verify: %w", plain(err))
	}
	return New(spec)
}

// plain takes the text out of a decoding error: it may be a secret.
func plain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s has the wrong type", wrong.Field)
	}
	return err
}

// New makes the Verifier of a Spec.
func New(spec Spec) (*Verifier, error) {
	spec, err := spec.withPreset()
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	v, err := compile(spec)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	return v, nil
}

func (s Spec) withPreset() (Spec, error) {
	if s.Preset == "" {
		return s, nil
	}
	preset, ok := presets[s.Preset]
	if !ok {
		return s, fmt.Errorf("unknown preset %q", s.Preset)
	}
	if s.describes() {
		return s, fmt.Errorf("preset %q says all but secret, values and tolerance", s.Preset)
	}
	preset.Preset = s.Preset
	if s.Secret != nil {
		preset.Secret = s.Secret
	} else if preset.Secret == nil {
		preset.Secret = Named("secret")
	}
	if s.Tolerance != "" {
		preset.Tolerance = s.Tolerance
	}
	preset.Values = maps.Clone(preset.Values)
	for name, value := range s.Values {
		if _, known := preset.Values[name]; !known {
			return s, fmt.Errorf("preset %q has no value %q", s.Preset, name)
		}
		preset.Values[name] = value
	}
	return preset, nil
}

// describes says whether anything is set that a preset decides.
func (s Spec) describes() bool {
	return s.Scheme != "" || s.set() || s.Encoding != "" || s.Prefix != "" || s.Format != "" || s.Separator != "" ||
		s.Versions != nil || s.Signed != "" || s.Fields != nil || s.Timestamp != nil || s.SecretEncoding != ""
}

func (f Field) set() bool {
	return f.Header != nil || f.Query != "" || f.Body != "" || f.Form != "" || f.Pair != "" || f.Value != ""
}

const defaultTolerance = 5 * time.Minute

// Verifier checks calls. It is immutable and safe for concurrent use.
type Verifier struct {
	spec      Spec
	at        place
	fields    map[string]place
	timestamp place
	signed    template
	versions  map[string]algorithm
	order     []string // of versions, so that a result does not depend on a map
	tolerance time.Duration
	integrity bool
}

// Preset gives the preset's name, or "".
func (v *Verifier) Preset() string { return v.spec.Preset }

// Integrity says whether a verified call's body is known to be the sender's: a
// static token proves only that its sender knows the token.
func (v *Verifier) Integrity() bool { return v.integrity }

func compile(spec Spec) (*Verifier, error) {
	v := &Verifier{spec: spec, fields: map[string]place{}, versions: map[string]algorithm{}}
	var err error
	if v.at, err = spec.compile(spec); err != nil {
		return nil, err
	}
	if !spec.set() && spec.Scheme != schemeSNS {
		if spec.Scheme != schemeJWT && spec.Scheme != schemeBasic {
			return nil, errors.New("say where the signature is: header, query, body or form")
		}
		v.at = place{headers: []string{"authorization"}}
	}
	if spec.Secret == nil && !spec.keyless {
		return nil, errors.New("say where the secret is")
	}
	for name, field := range spec.Fields {
		if v.fields[name], err = field.compile(spec); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
	}
	if err := v.compileTime(); err != nil {
		return nil, err
	}
	switch spec.Scheme {
	case schemeToken, schemeBasic, schemeJWT:
		if spec.Format != "" || spec.Versions != nil || spec.Signed != "" {
			return nil, fmt.Errorf("scheme %q signs nothing: leave format, versions and signed out", spec.Scheme)
		}
		return v, nil
	case schemeSNS:
		v.integrity = true
		return v, nil
	}
	return v, v.compileSignature()
}

func (v *Verifier) compileTime() error {
	switch v.spec.Tolerance {
	case "":
		v.tolerance = defaultTolerance
	case "off":
		v.tolerance = 0
	default:
		d, err := time.ParseDuration(v.spec.Tolerance)
		if err != nil || d <= 0 || d > 7*24*time.Hour {
			return errors.New(`tolerance is a duration of at most 168h, such as "5m", or "off"`)
		}
		v.tolerance = d
	}
	if v.spec.Timestamp == nil {
		if v.spec.Tolerance != "" && v.spec.Scheme != schemeJWT && v.spec.Preset == "" {
			return errors.New("a tolerance needs a timestamp")
		}
		return nil
	}
	if !slices.Contains([]string{"", "s", "ms", "rfc3339"}, v.spec.Timestamp.Unit) {
		return errors.New("timestamp.unit is s, ms or rfc3339")
	}
	at, err := v.spec.Timestamp.compile(v.spec)
	if err != nil {
		return fmt.Errorf("timestamp: %w", err)
	}
	v.timestamp, v.fields["timestamp"] = at, at
	return nil
}

func (v *Verifier) compileSignature() error {
	versions := v.spec.Versions
	switch v.spec.Format {
	case "":
		if versions != nil {
			return errors.New(`versions need the format "pairs" or "list"`)
		}
		versions = map[string]string{"": v.spec.Scheme}
	case "pairs", "list":
		if len(versions) == 0 || v.spec.Scheme != "" || v.spec.Prefix != "" {
			return fmt.Errorf("the format %q has versions in place of scheme and prefix", v.spec.Format)
		}
	default:
		return fmt.Errorf("unknown format %q", v.spec.Format)
	}
	for name, scheme := range versions {
		algorithm, ok := algorithmNamed(scheme)
		if !ok {
			return fmt.Errorf("unknown scheme %q", scheme)
		}
		v.versions[name] = algorithm
		v.order = append(v.order, name)
	}
	slices.Sort(v.order)
	if !slices.Contains([]string{"", "hex", "base64", "base64url"}, v.spec.Encoding) {
		return fmt.Errorf("unknown encoding %q", v.spec.Encoding)
	}
	if !slices.Contains([]string{"", "text", "hex", "base64", "whsec"}, v.spec.SecretEncoding) {
		return fmt.Errorf("unknown secretEncoding %q", v.spec.SecretEncoding)
	}
	signed := v.spec.Signed
	if signed == "" {
		signed = "{body}"
	}
	var err error
	if v.signed, err = compileTemplate(signed, v.fields); err != nil {
		return err
	}
	// A timestamp that is not signed is whatever the sender likes; checking it would prove nothing.
	inBody := v.timestamp.body != nil && v.signed.has("body")
	if v.spec.Timestamp != nil && !v.signed.has("timestamp") && !inBody {
		return errors.New("the timestamp is not in what is signed")
	}
	v.integrity = !v.spec.notIntegrity && (v.signed.has("body") || v.signed.has("form"))
	return nil
}

// place is a compiled Field.
type place struct {
	headers []string // lower case
	query   string
	body    jsonpointer.Pointer
	form    string
	pair    string
	value   string
}

func (f Field) compile(spec Spec) (place, error) {
	p := place{query: f.Query, form: f.Form, pair: f.Pair, value: f.Value}
	kinds := 0
	for _, set := range []bool{f.Header != nil, f.Query != "", f.Body != "" || f.Form != "", f.Pair != "", f.Value != ""} {
		if set {
			kinds++
		}
	}
	if kinds > 1 {
		return p, errors.New("one place only: header, query, body, form, pair or value")
	}
	for _, name := range f.Header {
		if name == "" {
			return p, errors.New("a header has a name")
		}
		p.headers = append(p.headers, strings.ToLower(name))
	}
	if f.Body != "" {
		var err error
		if p.body, err = jsonpointer.Parse(f.Body); err != nil {
			return p, err
		}
	}
	if f.Pair != "" && spec.Format != "pairs" {
		return p, errors.New(`a pair needs the format "pairs"`)
	}
	if _, known := spec.Values[f.Value]; f.Value != "" && !known {
		return p, fmt.Errorf("no value %q is declared", f.Value)
	}
	return p, nil
}
