package verify

import (
	"fmt"
	"strings"
)

// template is a compiled Signed. Each segment is text, or names what to put in
// its place.
type template []segment

type segment struct {
	text string
	name string // builtin or field
	at   place  // of a field
}

// builtins are the names that are no fields.
const builtins = " body url url.decoded method crc32 form "

func compileTemplate(text string, fields map[string]place) (template, error) {
	var t template
	for text != "" {
		literal, rest, found := strings.Cut(text, "{")
		if literal != "" {
			t = append(t, segment{text: literal})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, fmt.Errorf("signed: no } after {%s", name)
		}
		s, err := named(name, fields)
		if err != nil {
			return nil, err
		}
		t = append(t, s)
		text = after
	}
	return t, nil
}

func named(name string, fields map[string]place) (segment, error) {
	if strings.Contains(builtins, " "+name+" ") {
		return segment{name: name}, nil
	}
	if at, ok := fields[name]; ok {
		return segment{name: name, at: at}, nil
	}
	if header, ok := strings.CutPrefix(name, "header."); ok && header != "" {
		return segment{name: name, at: place{headers: []string{strings.ToLower(header)}}}, nil
	}
	if query, ok := strings.CutPrefix(name, "query."); ok && query != "" {
		return segment{name: name, at: place{query: query}}, nil
	}
	return segment{}, fmt.Errorf("signed: {%s} is not known", name)
}

func (t template) has(name string) bool {
	for _, s := range t {
		if s.name == name {
			return true
		}
	}
	return false
}
