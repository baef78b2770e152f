package vendors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/dedup"
	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Policy is what the host does with a trigger's calls before any hook. It is
// immutable and safe for concurrent use. Members are nil where there is nothing
// to do.
type Policy struct {
	Vendor    *Vendor
	Verify    *verify.Verifier
	Handshake *handshake.Handshake
	Dedup     *dedup.Extractor
}

// Preset is a trigger's `preset`: a vendor's name, or an object with the secret
// beside it. In JSON:
//
//	"github"
//	{"name":"meta","secret":{"param":"appSecret"},"verifyToken":{"param":"token"},"window":"48h"}
type Preset struct {
	Name        string                    `json:"name"`
	Secret      verify.Sources            `json:"secret,omitempty"`
	VerifyToken verify.Sources            `json:"verifyToken,omitempty"`
	Values      map[string]verify.Sources `json:"values,omitempty"`
	Tolerance   string                    `json:"tolerance,omitempty"`
	Window      string                    `json:"window,omitempty"`
	Origins     []string                  `json:"origins,omitempty"`
}

// UnmarshalJSON reads a name or an object.
func (p *Preset) UnmarshalJSON(text []byte) error {
	if jsonpointer.Kind(text) == '"' {
		return json.Unmarshal(text, &p.Name)
	}
	type plain Preset
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode((*plain)(p))
}

// declaration is the host-side data of a trigger or a subscription.
type declaration struct {
	Preset    *Preset         `json:"preset"`
	Verify    json.RawMessage `json:"verify"`
	Handshake json.RawMessage `json:"handshake"`
	Dedup     json.RawMessage `json:"dedup"`
}

// Compile joins the host-side data of a trigger and, where there is some, of a
// subscription, which wins member by member. `false` turns off what a preset
// brings; only the trigger may turn verification off that it has itself. An
// unknown name anywhere is an error; nil comes back where there is nothing to
// do.
func Compile(ofTrigger, ofSubscription json.RawMessage) (*Policy, error) {
	if len(ofTrigger) == 0 && len(ofSubscription) == 0 {
		return nil, nil
	}
	low, err := readDeclaration(ofTrigger)
	if err != nil {
		return nil, err
	}
	high, err := readDeclaration(ofSubscription)
	if err != nil {
		return nil, err
	}
	if isOff(high.Verify) && !isOff(low.Verify) && (low.Verify != nil || low.Preset != nil) {
		return nil, errors.New("verify: a subscription cannot turn off what its trigger verifies")
	}
	return build(declaration{
		Preset: or(high.Preset, low.Preset), Verify: orText(high.Verify, low.Verify),
		Handshake: orText(high.Handshake, low.Handshake), Dedup: orText(high.Dedup, low.Dedup),
	})
}

func readDeclaration(text json.RawMessage) (declaration, error) {
	var d declaration
	if len(text) == 0 {
		return d, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its text may be a secret
			return d, fmt.Errorf("%s has the wrong type", wrong.Field)
		}
		return d, err
	}
	return d, nil
}

func or(high, low *Preset) *Preset {
	if high != nil {
		return high
	}
	return low
}

func orText(high, low json.RawMessage) json.RawMessage {
	if high != nil && string(high) != "null" {
		return high
	}
	if string(low) == "null" {
		return nil
	}
	return low
}

func isOff(text json.RawMessage) bool { return string(text) == "false" }

func build(d declaration) (*Policy, error) {
	p, preset := &Policy{}, Preset{}
	if d.Preset != nil {
		preset = *d.Preset
		v, ok := Lookup(preset.Name)
		if !ok {
			return nil, fmt.Errorf("unknown preset %q", preset.Name)
		}
		p.Vendor, preset.Name = &v, v.Name
	}
	for _, part := range []func(declaration, Preset) error{p.buildVerify, p.buildHandshake, p.buildDedup} {
		if err := part(d, preset); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Policy) buildVerify(d declaration, preset Preset) error {
	var err error
	switch {
	case isOff(d.Verify):
		return nil
	case d.Verify != nil:
		p.Verify, err = verify.Parse(canonical(d.Verify))
		return err
	case verify.HasPreset(preset.Name):
		p.Verify, err = verify.New(verify.Spec{
			Preset: preset.Name, Secret: preset.Secret, Values: preset.Values, Tolerance: preset.Tolerance,
		})
		return err
	case preset.Name != "" && (preset.Secret != nil || preset.Tolerance != "" || preset.Values != nil):
		return fmt.Errorf("preset %q verifies nothing: declare `verify`", preset.Name)
	}
	return nil
}

func (p *Policy) buildHandshake(d declaration, preset Preset) error {
	var err error
	switch {
	case isOff(d.Handshake):
		return nil
	case d.Handshake != nil:
		p.Handshake, err = handshake.Parse(canonical(d.Handshake))
		return err
	case handshake.HasPreset(preset.Name):
		spec := handshake.Spec{Preset: preset.Name, Secret: preset.Secret, Origins: preset.Origins}
		if preset.VerifyToken != nil {
			spec.Token = &handshake.Token{Secret: preset.VerifyToken}
		}
		p.Handshake, err = handshake.New(spec)
		return err
	}
	return nil
}

func (p *Policy) buildDedup(d declaration, preset Preset) error {
	var horizon time.Duration
	if p.Vendor != nil {
		horizon = p.Vendor.Horizon
	}
	var err error
	switch {
	case isOff(d.Dedup):
		return nil
	case d.Dedup != nil:
		p.Dedup, err = dedup.Parse(d.Dedup, horizon)
		return err
	case p.Vendor != nil && p.Vendor.Dedup != nil:
		spec := *p.Vendor.Dedup
		if preset.Window != "" {
			spec.Window = preset.Window
		}
		p.Dedup, err = dedup.New(spec, horizon)
		return err
	}
	return nil
}

// canonical puts the table's name in place of another one in use.
func canonical(text json.RawMessage) json.RawMessage {
	doc, ok := jsonpointer.Read(text)
	if !ok {
		return text
	}
	at := jsonpointer.Pointer{"preset"}
	name, _ := doc.Text(at)
	other, ok := aliases[name]
	if !ok {
		return text
	}
	return doc.Redact([]jsonpointer.Pointer{at}, json.RawMessage(`"`+other+`"`))
}

// Event gives the event of a call whose content type hides that it is JSON:
// SNS's text/plain, the payload field of GitHub's and Slack's forms. ok is
// false where there is no such thing, and the body is read as usual; a nil
// event with ok is the body's bytes as they stand.
func (p *Policy) Event(call *trigger.Call) (event json.RawMessage, ok bool) {
	if p == nil || p.Vendor == nil {
		return nil, false
	}
	if p.Vendor.Body.JSON && isJSON(call.Body) {
		return nil, true
	}
	if p.Vendor.Body.Form == "" || !isForm(call) {
		return nil, false
	}
	for entry := range strings.SplitSeq(string(call.Body), "&") {
		name, value, _ := strings.Cut(entry, "=")
		if name != p.Vendor.Body.Form {
			continue
		}
		text, err := url.QueryUnescape(value)
		if err == nil && isJSON([]byte(text)) {
			return json.RawMessage(text), true
		}
	}
	return nil, false
}

func isJSON(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

func isForm(call *trigger.Call) bool {
	kind, _, _ := strings.Cut(call.HeaderValue("content-type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded")
}

// Load says what the calls get under too much load: LoadRefuse for what is not
// known.
func (p *Policy) Load() Load {
	if p == nil || p.Vendor == nil {
		return LoadRefuse
	}
	return p.Vendor.Load
}
