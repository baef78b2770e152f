// Package dedup takes from a call the keys by which a vendor's repeats are
// known (DESIGN §6, vendors contract §4). It only names events; whether a name
// was seen before is settled in the transaction that stores the event.
package dedup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Spec is a trigger's `dedup` (DESIGN §6). In JSON:
//
//	{"header":"X-GitHub-Delivery"}               a header of the call, or a list of them
//	{"body":"/id"}                               a value of the parsed body
//	{"event":"/id","window":"72h"}               a value of each normalized event
//	{"body":["/event","/event_ts"]}              several values together
//	{"any":[{"header":"A"},{"body":"/b"}]}       the first of which there is one
//
// A pointer goes into the body as a TriggerCall shows it: the JSON value, and
// of a form an object of lists, so that {"body":"/MessageSid/0"} is a form's
// field.
//
// Where the key is missing, empty, null or no plain value the event has no key
// and is never taken for a duplicate: running twice is better than not at all.
// Numbers are taken as they are spelled, however big, and differ from the
// string of the same digits.
type Spec struct {
	Header Texts  `json:"header,omitempty"`
	Body   Texts  `json:"body,omitempty"`
	Event  Texts  `json:"event,omitempty"`
	Any    []Spec `json:"any,omitempty"`
	// Window is how long a key is remembered: 24h when not set, at least 24h and
	// the vendor's retry horizon, at most MaxWindow.
	Window string `json:"window,omitempty"`
}

// Texts is a text or a list of texts, all of which make the key together:
// header names, or JSON Pointers.
type Texts []string

// UnmarshalJSON reads a text or a list of texts.
func (p *Texts) UnmarshalJSON(text []byte) error {
	if jsonpointer.Kind(text) == '"' {
		*p = Texts{""}
		return json.Unmarshal(text, &(*p)[0])
	}
	return json.Unmarshal(text, (*[]string)(p))
}

// Bounds of a window. Below a day retries of most vendors would come after it.
const (
	MinWindow = 24 * time.Hour
	MaxWindow = 31 * 24 * time.Hour
)

// Extractor names events. It is immutable and safe for concurrent use.
type Extractor struct {
	rules  []rule
	window time.Duration
}

type rule struct {
	id          string   // tells the keys of one rule from another's
	header      []string // lower case
	body, event []jsonpointer.Pointer
}

// Parse reads a Spec. horizon is how long the vendor goes on repeating a call,
// 0 when that is not known.
func Parse(text json.RawMessage, horizon time.Duration) (*Extractor, error) {
	var spec Spec
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return nil, fmt.Errorf("dedup: %w", err)
	}
	return New(spec, horizon)
}

// New makes the Extractor of a Spec.
func New(spec Spec, horizon time.Duration) (*Extractor, error) {
	e := &Extractor{}
	var err error
	if e.window, err = window(spec.Window, horizon); err != nil {
		return nil, fmt.Errorf("dedup: %w", err)
	}
	rules := []Spec{spec}
	if spec.Any != nil {
		if spec.Header != nil || spec.Body != nil || spec.Event != nil {
			return nil, errors.New("dedup: `any` stands alone beside window")
		}
		rules = spec.Any
	}
	for _, one := range rules {
		r, err := compile(one)
		if err != nil {
			return nil, fmt.Errorf("dedup: %w", err)
		}
		if one.Any != nil || spec.Any != nil && one.Window != "" {
			return nil, errors.New("dedup: an entry of `any` is a header, body or event")
		}
		e.rules = append(e.rules, r)
	}
	if len(e.rules) == 0 {
		return nil, errors.New("dedup: `any` is empty")
	}
	return e, nil
}

func window(text string, horizon time.Duration) (time.Duration, error) {
	least := max(MinWindow, horizon)
	if text == "" {
		return least, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New(`window is a duration such as "72h"`)
	}
	if d < least || d > MaxWindow {
		return 0, fmt.Errorf("window lies between %s, for as long as repeats may come, and %s", hours(least), hours(MaxWindow))
	}
	return d, nil
}

func hours(d time.Duration) string {
	return strconv.FormatFloat(d.Hours(), 'f', -1, 64) + "h"
}

func compile(spec Spec) (rule, error) {
	r := rule{}
	for _, list := range []struct {
		kind  string
		texts Texts
	}{{"header", spec.Header}, {"body", spec.Body}, {"event", spec.Event}} {
		if list.texts == nil {
			continue
		}
		if r.id != "" || len(list.texts) == 0 {
			return r, errOne
		}
		r.id = list.kind + " " + strings.Join(list.texts, " ") // pointers tell upper case from lower
		if list.kind == "header" {
			r.id = strings.ToLower(r.id)
		}
		if err := r.add(list.kind, list.texts); err != nil {
			return r, err
		}
	}
	if r.id == "" {
		return r, errOne
	}
	return r, nil
}

var errOne = errors.New("say one of header, body, event or any")

func (r *rule) add(kind string, texts Texts) error {
	for _, text := range texts {
		if kind == "header" {
			if text == "" {
				return errOne
			}
			r.header = append(r.header, strings.ToLower(text))
			continue
		}
		pointer, err := jsonpointer.Parse(text)
		if err != nil {
			return err
		}
		if kind == "body" {
			r.body = append(r.body, pointer)
		} else {
			r.event = append(r.event, pointer)
		}
	}
	return nil
}

// Window is how long a key is remembered.
func (e *Extractor) Window() time.Duration { return e.window }

// Keys names the events of a call, in their order; "" is no name. body is the
// call's parsed body. A nil event stands for the body.
//
// A key of the call itself names its events by their place in it, so that one
// call of three events is three names, and its repeat the same three.
func (e *Extractor) Keys(call *trigger.Call, body json.RawMessage, events []json.RawMessage) []string {
	keys := make([]string, len(events))
	whole := document{text: body}
	ofCall := make([]string, len(e.rules))
	for i, r := range e.rules {
		ofCall[i] = r.ofCall(call, &whole)
	}
	for at, event := range events {
		doc := &whole
		if event != nil {
			doc = &document{text: event}
		}
		for i, r := range e.rules {
			if r.event != nil {
				keys[at] = r.name(r.event, doc)
			} else if ofCall[i] != "" {
				keys[at] = ofCall[i] + " " + strconv.Itoa(at)
			}
			if keys[at] != "" {
				break
			}
		}
	}
	return keys
}

// document is read when first needed.
type document struct {
	text json.RawMessage
	read bool
	doc  jsonpointer.Doc
}

func (d *document) get(p jsonpointer.Pointer) (json.RawMessage, bool) {
	if !d.read {
		d.read = true
		d.doc, _ = jsonpointer.Read(d.text)
	}
	return d.doc.Get(p)
}

func (r rule) ofCall(call *trigger.Call, body *document) string {
	if r.body != nil {
		return r.name(r.body, body)
	}
	var parts strings.Builder
	for _, name := range r.header {
		before := parts.Len()
		for _, f := range call.Header {
			if f.Name == name && f.Value != "" {
				add(&parts, 's', f.Value)
			}
		}
		if parts.Len() == before {
			return ""
		}
		parts.WriteByte(';') // ends this header's values
	}
	return r.with(parts.String())
}

// name joins the values of all pointers; "" when one of them is missing.
func (r rule) name(pointers []jsonpointer.Pointer, doc *document) string {
	var parts strings.Builder
	for _, pointer := range pointers {
		value, ok := doc.get(pointer)
		if !ok {
			return ""
		}
		text, ok := jsonpointer.Text(value)
		if !ok || text == "" {
			return ""
		}
		add(&parts, kind(value), text)
	}
	return r.with(parts.String())
}

func (r rule) with(parts string) string {
	if parts == "" {
		return ""
	}
	return r.id + "\x00" + parts
}

// add appends a value so that no two lists of values read the same.
func add(b *strings.Builder, kind byte, text string) {
	b.WriteByte(kind)
	b.WriteString(strconv.Itoa(len(text)))
	b.WriteByte(':')
	b.WriteString(text)
}

func kind(value json.RawMessage) byte {
	switch jsonpointer.Kind(value) {
	case '"':
		return 's'
	case '0':
		return 'n'
	}
	return 'b'
}
