package params

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// scope is one form: the params of one nesting level with the values supplied
// for them. References look at siblings first, then at the enclosing form.
type scope struct {
	params []*field
	byKey  map[string]*field
	outer  *scope
}

// field is one param of a scope with its candidate value.
type field struct {
	*param
	sections []*param        // around it: their showIf and dependsOn hold for it too
	value    json.RawMessage // supplied, else the default; nil when neither
	supplied bool
	decoded  any // value, read on first use
	state    visibility
}

// data gives the candidate value as conditions see it.
func (f *field) data() any {
	if f.decoded == nil {
		f.decoded = decode(f.value)
	}
	return f.decoded
}

type visibility int

const (
	unknown visibility = iota
	asking             // being worked out: a reference back to it sees its value
	shown
	hidden
)

// newScope lays out a form. Sections are layout only: their children belong to
// the form around them.
func newScope(declared []*param, given map[string]json.RawMessage, outer *scope) *scope {
	s := &scope{byKey: map[string]*field{}, outer: outer}
	s.add(declared, given, nil)
	return s
}

func (s *scope) add(declared []*param, given map[string]json.RawMessage, sections []*param) {
	for _, p := range declared {
		if p.Type == typeSection {
			s.add(p.Children, given, append(slices.Clip(sections), p))
			continue
		}
		f := &field{param: p, sections: sections}
		f.value, f.supplied = candidate(p, given)
		if before, twice := s.byKey[p.Key]; twice { // the last one counts, in the first one's place
			*before = *f
			continue
		}
		s.params = append(s.params, f)
		s.byKey[p.Key] = f
	}
}

// candidate is the supplied value, else the default. null is no value, and
// neither is the empty text that forms send for a choice not made.
func candidate(p *param, given map[string]json.RawMessage) (value json.RawMessage, supplied bool) {
	if v, ok := given[p.Key]; ok && !p.ReadOnly && !p.isBlank(v) {
		return v, true
	}
	if p.isBlank(p.Default) {
		return nil, false
	}
	return p.Default, false
}

func (p *param) isBlank(v json.RawMessage) bool {
	if isNull(v) {
		return true
	}
	switch p.Type {
	case typeSelect, typeDate, typeDatetime, typeNumber, typeBoolean, typeFile:
		return bytes.Equal(bytes.TrimSpace(v), []byte(`""`)) && !p.offersEmpty()
	}
	return false
}

func (p *param) offersEmpty() bool {
	options, _ := p.staticOptions()
	return slices.ContainsFunc(options, func(o Option) bool { return string(bytes.TrimSpace(o.Value)) == `""` })
}

// find looks a key up, siblings first.
func (s *scope) find(key string) (*field, *scope) {
	for at := s; at != nil; at = at.outer {
		if f, ok := at.byKey[key]; ok {
			return f, at
		}
	}
	return nil, nil
}

// lookup gives the value at a dot path as conditions see it: what is hidden has
// none.
func (s *scope) lookup(path string) any {
	key, rest, _ := strings.Cut(path, ".")
	if f, _ := s.find(path); f != nil { // a key that holds dots itself
		key, rest = path, ""
	}
	f, at := s.find(key)
	if f == nil || !at.shows(f) {
		return nil
	}
	return dig(f.data(), rest)
}

// shows says whether a field is part of the form: its showIf holds and every
// key it depends on has a value, for itself and the sections around it.
func (s *scope) shows(f *field) bool {
	switch f.state {
	case shown, asking:
		return true
	case hidden:
		return false
	case unknown:
	}
	f.state = asking
	visible := s.admits(f.param) && !slices.ContainsFunc(f.sections, func(p *param) bool { return !s.admits(p) })
	if f.state = hidden; visible {
		f.state = shown
	}
	return visible
}

func (s *scope) admits(p *param) bool {
	for _, key := range p.DependsOn {
		if f, _ := s.find(key); f != nil && isEmpty(s.lookup(key)) {
			return false
		}
	}
	return holds(p.ShowIf, s.lookup)
}

// isEmpty says whether a value a param depends on is still to be given.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

// decode reads JSON text with numbers as they stand; what is no JSON is nil.
func decode(text json.RawMessage) any {
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// dig follows a dot path through objects and lists.
func dig(v any, path string) any {
	for path != "" && v != nil {
		var key string
		key, path, _ = strings.Cut(path, ".")
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			v = elementAt(at, key)
		default:
			return nil
		}
	}
	return v
}

// keysOf lists an object's keys in the order of its text.
func keysOf(object json.RawMessage) []string {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil
	}
	var keys []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			break
		}
		if name, ok := key.(string); ok {
			keys = append(keys, name)
		}
	}
	return keys
}
