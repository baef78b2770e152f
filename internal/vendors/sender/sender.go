// Package sender builds requests as vendors send them: exact bytes, valid
// signatures, payloads of Tocsin's own making. It is the other half of package
// verify and shares no code with it, so that the two check each other. It sends
// nothing itself.
package sender

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Request is a request ready to be sent. Its body and header values must go out
// as they are.
type Request struct {
	Method string
	URL    string
	Header []trigger.Field // names as the vendor spells them
	Body   []byte
}

// Set adds a header.
func (r *Request) Set(name, value string) {
	r.Header = append(r.Header, trigger.Field{Name: name, Value: value})
}

// Options say what to build.
type Options struct {
	// Secret is what the vendor signs with: the shared secret, or a private key
	// as GenerateSecret gives it.
	Secret secret.Text
	// Event is one of Events; "" is the first.
	Event string
	// URL is where it goes. Vendors that sign the URL sign this one.
	URL  string
	Time time.Time
	// ID makes the request's ids; "" draws one. The same ID twice is a repeat.
	ID string
	// Body takes the place of the sample payload; nil keeps that.
	Body []byte
	// Values are what some vendors need besides: webhookId for PayPal, email and
	// audience for google-pubsub.
	Values map[string]string
}

// Vendors lists whom this package can be, sorted.
func Vendors() []string { return slices.Sorted(maps.Keys(profiles)) }

// Events lists the events of a vendor, the most usual one first; nil for an
// unknown vendor.
func Events(vendor string) []string {
	var names []string
	for _, e := range profiles[vendor].events {
		names = append(names, e.name)
	}
	return names
}

// profile is how a vendor sends.
type profile struct {
	events []event
	// sign adds headers, and may change URL and body.
	sign func(r *Request, o *signing) error
	// key is the kind of Secret, for GenerateSecret.
	key keyKind
}

// event is a sample. In its texts {id}, {unix}, {ms}, {iso} and {event} stand
// for the request's own.
type event struct {
	name        string
	method      string // POST when not set
	query       string
	contentType string // application/json when not set and there is a body
	header      []string
	body        string
	unsigned    bool // the vendor does not sign this one
}

// signing is what a sign function works with.
type signing struct {
	Options
	event string
}

func (s *signing) key() []byte  { return []byte(s.Secret.Reveal()) }
func (s *signing) unix() string { return strconv.FormatInt(s.Time.Unix(), 10) }
func (s *signing) ms() string   { return strconv.FormatInt(s.Time.UnixMilli(), 10) }
func (s *signing) iso() string  { return s.Time.UTC().Format("2006-01-02T15:04:05.000Z") }

// Build makes a vendor's request. Errors never hold the secret.
func Build(vendor string, o Options) (Request, error) {
	p, ok := profiles[vendor]
	if !ok {
		return Request{}, fmt.Errorf("unknown vendor %q; there are %s", vendor, strings.Join(Vendors(), ", "))
	}
	e, ok := p.event(o.Event)
	if !ok {
		return Request{}, fmt.Errorf("%s has no event %q; there are %s", vendor, o.Event, strings.Join(Events(vendor), ", "))
	}
	if o.ID == "" {
		o.ID = newID()
	}
	s := &signing{Options: o, event: e.name}
	r, err := e.request(s)
	if err != nil {
		return Request{}, err
	}
	if e.unsigned || p.sign == nil {
		return r, nil
	}
	if o.Secret == "" {
		return Request{}, errors.New("a secret is needed to sign with")
	}
	if err := p.sign(&r, s); err != nil {
		return Request{}, fmt.Errorf("sign as %s: %w", vendor, err)
	}
	return r, nil
}

func (p profile) event(name string) (event, bool) {
	if name == "" && len(p.events) > 0 {
		return p.events[0], true
	}
	for _, e := range p.events {
		if e.name == name {
			return e, true
		}
	}
	return event{}, false
}

func (e event) request(s *signing) (Request, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Request{}, errors.New("the URL is not an http or https URL")
	}
	fill := strings.NewReplacer("{id}", s.ID, "{unix}", s.unix(), "{ms}", s.ms(), "{iso}", s.iso(), "{event}", e.name).Replace
	r := Request{Method: e.method, URL: s.URL}
	if r.Method == "" {
		r.Method = "POST"
	}
	if e.query != "" {
		r.URL = addQuery(r.URL, fill(e.query))
	}
	if e.body != "" {
		r.Body = []byte(fill(e.body))
	}
	if s.Body != nil {
		r.Body = bytes.Clone(s.Body)
	}
	contentType := e.contentType
	if contentType == "" && len(r.Body) > 0 {
		contentType = "application/json"
	}
	if contentType != "" {
		r.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(e.header); i += 2 {
		r.Set(e.header[i], fill(e.header[i+1]))
	}
	return r, nil
}

func addQuery(address, query string) string {
	if strings.Contains(address, "?") {
		return address + "&" + query
	}
	return address + "?" + query
}

// newID draws a UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
