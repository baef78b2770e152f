package handshake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Class is one of the ten kinds of handshake (vendors contract §3).
type Class string

// The ten classes, in the contract's order.
const (
	ClassQueryEcho     Class = "query-echo"      // 1: GET, a query value sent back
	ClassPostQueryEcho Class = "post-query-echo" // 2: POST, a query value sent back
	ClassBodyEcho      Class = "body-echo"       // 3: a body field sent back
	ClassComputed      Class = "computed"        // 4: an HMAC of the challenge in JSON
	ClassPing          Class = "ping"            // 5: a fixed answer to a signed ping
	ClassProbe         Class = "probe"           // 6: a method answered with 200
	ClassHeaderEcho    Class = "header-echo"     // 7: a header sent back, and kept as the secret
	ClassOptions       Class = "options"         // 8: an origin allowed
	ClassConfirm       Class = "confirm"         // 9: a URL fetched
	ClassAck           Class = "ack"             // 10: an answer of the vendor's own to each event
)

// Spec is one rule of a trigger's `handshake`: {"preset":"msgraph"}, or a class
// described in full. In JSON:
//
//	{"class":"body-echo","when":[{"body":"/type","equals":"url_verification"}],
//	 "from":{"body":"/challenge"},"reply":{"json":"{\"challenge\":{challenge}}"},"signed":true}
//
// A trigger has one or a list of them.
type Spec struct {
	Preset string `json:"preset,omitempty"`
	Class  Class  `json:"class,omitempty"`
	// Methods that the rule is for; the class's own when not set.
	Methods []string `json:"methods,omitempty"`
	// When must all hold. A rule that echoes something has at least one beside
	// the challenge itself, or a token.
	When []Condition `json:"when,omitempty"`
	// From is the challenge, the secret header, the origin or the URL.
	From *Place `json:"from,omitempty"`
	// Token is compared before anything is echoed.
	Token *Token `json:"token,omitempty"`
	// Secret keys a computed reply; "secret" in params or state when not set.
	Secret verify.Sources `json:"secret,omitempty"`
	Reply  Reply          `json:"reply,omitzero"`
	// Signed handshakes are answered only after verification.
	Signed bool `json:"signed,omitempty"`
	// Store keeps what a header-echo brought as the subscription's secret.
	Store bool `json:"store,omitempty"`
	// Origins that class 8 allows; any when empty.
	Origins []string `json:"origins,omitempty"`
	// Hosts that class 9 may fetch from: names, or *.name for its subdomains.
	Hosts []string `json:"hosts,omitempty"`

	hosts   *regexp.Regexp
	topic   verify.Sources // when it resolves to something, topicAt must be it
	topicAt *Place
	// optionalToken lets a token that is not configured pass.
	optionalToken bool
}

// Place is where something is in a call: exactly one is set.
type Place struct {
	Header string `json:"header,omitempty"`
	Query  string `json:"query,omitempty"`
	Body   string `json:"body,omitempty"` // JSON Pointer
	Form   string `json:"form,omitempty"`
}

// Condition is a Place and what must be there: the text Equals, nothing
// (Absent), an empty array or object (Empty), or else anything.
type Condition struct {
	Place
	Equals string `json:"equals,omitempty"`
	Absent bool   `json:"absent,omitempty"`
	Empty  bool   `json:"empty,omitempty"`
}

// Token is a Place that must hold a configured secret.
type Token struct {
	Place
	Secret verify.Sources `json:"secret,omitempty"` // "verifyToken" in params or state when not set
}

// Reply is what is answered.
type Reply struct {
	Status int `json:"status,omitempty"` // 200 when not set
	// JSON is a template in which {challenge} and {hmac} stand for JSON strings;
	// without it an echo is plain text.
	JSON        string `json:"json,omitempty"`
	Body        string `json:"body,omitempty"`        // of ping, probe and ack
	ContentType string `json:"contentType,omitempty"` // of Body
	Header      string `json:"header,omitempty"`      // of a header-echo
	Encoding    string `json:"encoding,omitempty"`    // of {hmac}: hex (the default) or base64
	Prefix      string `json:"prefix,omitempty"`      // before {hmac}
}

func (r Reply) status() int {
	if r.Status == 0 {
		return http.StatusOK
	}
	return r.Status
}

// Handshake is a trigger's rules. It is immutable and safe for concurrent use.
// The zero Handshake matches nothing.
type Handshake struct{ rules []rule }

type rule struct {
	spec    Spec
	methods map[string]bool
	when    []condition
	from    place
	token   token
	secret  verify.Sources
	hosts   *regexp.Regexp
	topic   verify.Sources
	topicAt place
}

// Parse reads a rule or a list of rules. An unknown preset, class or member is
// an error.
func Parse(text json.RawMessage) (*Handshake, error) {
	var specs []Spec
	one := bytes.TrimLeft(text, " \t\r\n")
	if len(one) > 0 && one[0] == '{' {
		text = slices.Concat([]byte("["), text, []byte("]"))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&specs); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its text may be a secret
			err = fmt.Errorf("%s has the wrong type", wrong.Field)
		}
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return New(specs...)
}

// New makes a Handshake of rules, presets put in their place.
func New(specs ...Spec) (*Handshake, error) {
	h := &Handshake{}
	for _, spec := range specs {
		all := []Spec{spec}
		if spec.Preset != "" {
			preset, ok := presets[spec.Preset]
			if !ok {
				return nil, fmt.Errorf("handshake: unknown preset %q", spec.Preset)
			}
			if spec.Class != "" {
				return nil, fmt.Errorf("handshake: preset %q brings its own class", spec.Preset)
			}
			all = withSecrets(preset, spec)
		}
		for _, one := range all {
			r, err := compile(one)
			if err != nil {
				return nil, fmt.Errorf("handshake: %w", err)
			}
			h.rules = append(h.rules, r)
		}
	}
	return h, nil
}

// withSecrets puts the secrets of a spec into a preset's rules.
func withSecrets(preset []Spec, spec Spec) []Spec {
	rules := slices.Clone(preset)
	for i := range rules {
		if spec.Secret != nil {
			rules[i].Secret = spec.Secret
		}
		if spec.Token != nil && rules[i].Token != nil {
			token := *rules[i].Token
			token.Secret = spec.Token.Secret
			rules[i].Token, rules[i].optionalToken = &token, false
		}
		if spec.Origins != nil {
			rules[i].Origins = spec.Origins
		}
	}
	return rules
}

func compile(spec Spec) (rule, error) {
	r := rule{spec: spec, methods: map[string]bool{}, secret: spec.Secret, hosts: spec.hosts, topic: spec.topic}
	methods, err := methodsOf(spec)
	if err != nil {
		return r, err
	}
	for _, method := range methods {
		r.methods[method] = true
	}
	if r.secret == nil {
		r.secret = verify.Named("secret")
	}
	for _, when := range spec.When {
		c, err := when.compile()
		if err != nil {
			return r, err
		}
		r.when = append(r.when, c)
	}
	if r.token, err = compileToken(spec); err != nil {
		return r, err
	}
	if err := r.compileFrom(); err != nil {
		return r, err
	}
	if spec.topicAt != nil {
		if r.topicAt, err = spec.topicAt.compile(); err != nil {
			return r, err
		}
	}
	return r, spec.check()
}

func (r *rule) compileFrom() error {
	needed := slices.Contains([]Class{
		ClassQueryEcho, ClassPostQueryEcho, ClassBodyEcho, ClassComputed, ClassHeaderEcho, ClassOptions, ClassConfirm,
	}, r.spec.Class)
	if r.spec.From == nil {
		if needed {
			return fmt.Errorf("class %q needs `from`", r.spec.Class)
		}
		return nil
	}
	var err error
	if r.from, err = r.spec.From.compile(); err != nil {
		return err
	}
	// What is not there is not a handshake: a GET without a challenge is an event.
	if r.spec.Class != ClassComputed && r.spec.Class != ClassBodyEcho {
		r.when = append(r.when, condition{place: r.from})
	}
	if r.spec.Class == ClassConfirm && r.hosts == nil {
		r.hosts, err = hostPattern(r.spec.Hosts)
	}
	return err
}

func (s Spec) check() error {
	switch {
	case s.Class == ClassComputed && !strings.Contains(s.Reply.JSON, "{hmac}"):
		return errors.New("a computed reply has {hmac} in reply.json")
	case s.Class == ClassHeaderEcho && s.Reply.Header == "":
		return errors.New("a header-echo needs reply.header")
	case s.Class == ClassBodyEcho && len(s.When) == 0 && s.Token == nil:
		return errors.New("a body-echo needs a discriminator in `when`: a field of this name alone may be an event's")
	case s.Class == ClassPing && len(s.When) == 0:
		return errors.New("a ping needs `when`, or every call would be one")
	case s.Reply.Status != 0 && (s.Reply.Status < 200 || s.Reply.Status > 299):
		return errors.New("reply.status lies between 200 and 299")
	case !slices.Contains([]string{"", "hex", "base64"}, s.Reply.Encoding):
		return errors.New("reply.encoding is hex or base64")
	}
	if s.Reply.JSON != "" && !json.Valid(fill(s.Reply.JSON, "x", "x")) {
		return errors.New("reply.json is not JSON around {challenge} and {hmac}")
	}
	return nil
}

func methodsOf(spec Spec) ([]string, error) {
	own := map[Class][]string{
		ClassQueryEcho: {"GET"}, ClassPostQueryEcho: {"POST"}, ClassBodyEcho: {"POST"}, ClassComputed: {"POST", "GET"},
		ClassPing: {"POST"}, ClassProbe: {"HEAD"}, ClassHeaderEcho: {"POST"}, ClassOptions: {"OPTIONS"}, ClassConfirm: {"POST"},
		ClassAck: {},
	}
	methods, known := own[spec.Class]
	if !known {
		return nil, fmt.Errorf("unknown class %q", spec.Class)
	}
	if spec.Methods != nil {
		return spec.Methods, nil
	}
	return methods, nil
}

// hostPattern makes an anchored pattern of host names.
func hostPattern(hosts []string) (*regexp.Regexp, error) {
	if len(hosts) == 0 {
		return nil, errors.New("class \"confirm\" needs `hosts`: the host fetches what the call names")
	}
	name := regexp.MustCompile(`^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*$`)
	var patterns []string
	for _, host := range hosts {
		if !name.MatchString(host) {
			return nil, errors.New("hosts are lower-case names, or *.name")
		}
		pattern := regexp.QuoteMeta(host)
		if rest, ok := strings.CutPrefix(host, "*."); ok {
			pattern = `([a-z0-9-]+\.)+` + regexp.QuoteMeta(rest)
		}
		patterns = append(patterns, pattern)
	}
	return regexp.MustCompile("(" + strings.Join(patterns, "|") + ")"), nil
}

// place is a compiled Place.
type place struct {
	header, query, form string
	body                jsonpointer.Pointer
}

func (p Place) compile() (place, error) {
	kinds := 0
	for _, text := range []string{p.Header, p.Query, p.Body, p.Form} {
		if text != "" {
			kinds++
		}
	}
	if kinds != 1 {
		return place{}, errors.New("say one of header, query, body or form")
	}
	compiled := place{header: strings.ToLower(p.Header), query: p.Query, form: p.Form}
	if p.Body != "" {
		pointer, err := jsonpointer.Parse(p.Body)
		if err != nil {
			return place{}, err
		}
		compiled.body = pointer
	}
	return compiled, nil
}

// texts gives what is in the place, decoded once.
func (p place) texts(c *call) []string {
	switch {
	case p.header != "":
		var values []string
		for _, f := range c.Header {
			if f.Name == p.header {
				values = append(values, f.Value)
			}
		}
		return values
	case p.query != "":
		return formValues(c.RawQuery, p.query)
	case p.form != "":
		kind, _, _ := strings.Cut(c.HeaderValue("content-type"), ";")
		if !strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") || len(c.Body) > maxBody {
			return nil
		}
		return formValues(string(c.Body), p.form)
	case p.body != nil:
		if text, ok := c.json().Text(p.body); ok {
			return []string{text}
		}
	}
	return nil
}

func formValues(raw, name string) []string {
	var values []string
	for entry := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(entry, "=")
		key, errKey := url.QueryUnescape(key)
		value, errValue := url.QueryUnescape(value)
		if errKey == nil && errValue == nil && key == name {
			values = append(values, value)
		}
	}
	return values
}

type condition struct {
	place
	equals        string
	absent, empty bool
}

func (c Condition) compile() (condition, error) {
	at, err := c.Place.compile()
	return condition{place: at, equals: c.Equals, absent: c.Absent, empty: c.Empty}, err
}

func (c condition) holds(in *call) bool {
	if c.empty {
		value, ok := in.json().Get(c.body)
		return ok && isEmpty(value)
	}
	if c.equals != "" {
		texts := c.texts(in)
		return len(texts) == 1 && texts[0] == c.equals
	}
	return c.present(in) != c.absent
}

// present says whether anything is in the place; null in a body is nothing.
func (p place) present(c *call) bool {
	if p.body == nil {
		return len(p.texts(c)) > 0
	}
	value, ok := c.json().Get(p.body)
	return ok && jsonpointer.Kind(value) != 'n'
}

func isEmpty(value json.RawMessage) bool {
	compact := bytes.Join(bytes.Fields(value), nil)
	return bytes.Equal(compact, []byte("[]")) || bytes.Equal(compact, []byte("{}"))
}

type token struct {
	place
	needed   bool
	optional bool
	secret   verify.Sources
}

func compileToken(spec Spec) (token, error) {
	if spec.Token == nil {
		return token{}, nil
	}
	at, err := spec.Token.compile()
	t := token{place: at, needed: true, optional: spec.optionalToken, secret: spec.Token.Secret}
	if t.secret == nil {
		t.secret = verify.Named("verifyToken")
	}
	return t, err
}

// holds compares the token with the configured ones. Without one configured it
// does not hold, or anybody could subscribe the URL.
func (t token) holds(c *call, secrets verify.Secrets) bool {
	if !t.needed {
		return true
	}
	wanted := t.secret.Resolve(secrets)
	if len(wanted) == 0 && t.optional {
		return true
	}
	return contains(wanted, t.texts(c))
}
