package params

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Check says why no value could be held against a declaration: it is no list
// of Params, a param has no key, a pattern cannot be run in linear time, or
// dependsOn goes in a circle (Param RFC: rejected when the manifest is loaded).
// The error is a *trigger.InvalidError of code invalid_params.
func Check(declared json.RawMessage) error {
	list, err := parse(declared)
	if err != nil {
		return err
	}
	c := &checker{}
	if n := count(list); n > maxParams {
		c.refuse("params", "declares %d params; at most %d are read", n, maxParams)
	} else {
		c.form(newScope(list, nil, nil), list, "")
	}
	if len(c.bad) == 0 {
		return nil
	}
	first := c.bad[0]
	return &trigger.InvalidError{Code: CodeDeclaration, Message: first.Path + ": " + first.Message, Details: c.bad}
}

// Warnings lists what a declaration gets wrong without being useless: it loads,
// but an author will want to know.
func Warnings(declared json.RawMessage) []trigger.FieldError {
	list, err := parse(declared)
	if err != nil || count(list) > maxParams {
		return nil
	}
	c := &checker{}
	c.form(newScope(list, nil, nil), list, "")
	return c.dubious
}

// maxParams is far beyond any form a person fills in, and keeps the walk over
// dependsOn short.
const maxParams = 1000

func count(list []*param) int {
	n := len(list)
	for _, p := range list {
		n += count(p.Children)
		if p.Item != nil {
			n += count(p.Item.Fields)
		}
	}
	return n
}

// checker walks a declaration.
type checker struct{ bad, dubious []trigger.FieldError }

func (c *checker) refuse(path, format string, args ...any) {
	c.bad = append(c.bad, trigger.FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(path, format string, args ...any) {
	c.dubious = append(c.dubious, trigger.FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) form(s *scope, declared []*param, prefix string) {
	c.keys(declared, prefix, map[string]bool{})
	for _, f := range s.params {
		path := join(prefix, f.Key)
		c.param(s, f.param, path)
		c.circle(s, f, path)
		if f.Type == typeGroup {
			c.form(newScope(f.Children, nil, s), f.Children, path)
		}
		if f.Item != nil {
			c.form(newScope(f.Item.Fields, nil, s), f.Item.Fields, path+"[]")
		}
	}
}

// keys checks the keys of one form, sections looked through.
func (c *checker) keys(declared []*param, prefix string, seen map[string]bool) {
	for i, p := range declared {
		if p.Type == typeSection {
			c.keys(p.Children, prefix, seen)
			continue
		}
		path := join(prefix, p.Key)
		switch {
		case p.Key == "":
			c.refuse(fmt.Sprintf("%s[%d]", orElse(prefix, "params"), i), "has no key")
		case seen[p.Key]:
			c.warn(path, "is declared twice; the last one counts")
		}
		seen[p.Key] = true
	}
}

func (c *checker) param(s *scope, p *param, path string) {
	if !knownType(p.Type) {
		c.warn(path, "has the type %q, which is not checked", p.Type)
	}
	for _, key := range p.DependsOn {
		if f, _ := s.find(key); f == nil {
			c.warn(path, "depends on %q, which is not declared", key)
		}
	}
	c.condition(p, path)
	if p.Validation != nil && p.Validation.Pattern != "" {
		if _, err := compile(p.Validation.Pattern); err != nil {
			c.refuse(path, "the pattern %s", err)
		}
	}
	if !p.isBlank(p.Default) && p.Type != typeGroup && !p.Repeat {
		r := &resolver{}
		r.check(p, p.Default, path)
		for _, wrong := range r.bad {
			c.warn(wrong.Path, "its default %s", wrong.Message)
		}
	}
}

// condition warns of a showIf that cannot be read, and so hides nothing.
func (c *checker) condition(p *param, path string) {
	rule := decode(p.ShowIf)
	if rule == nil {
		return
	}
	if short, ok := rule.(map[string]any); ok && is[string](short["field"]) {
		for name := range short {
			if _, known := shortOperators()[name]; !known && name != "field" {
				c.warn(path, "its showIf has %q, which is not known", name)
			}
		}
		return
	}
	l := &logic{}
	l.eval(rule, func(string) any { return nil })
	if l.unreadable {
		c.warn(path, "its showIf cannot be read and hides nothing")
	}
}

func knownType(kind string) bool {
	return slices.Contains([]string{
		typeString, typeText, typeNumber, typeBoolean, typeSelect, typeMultiselect, typeDate, typeDatetime,
		typeSecret, typeFile, typeJSON, typeCode, typeGroup, typeSection, typeArray,
	}, kind)
}

// circle refuses a param whose dependsOn leads back to it.
func (c *checker) circle(s *scope, start *field, path string) {
	seen := map[*field]bool{}
	var walk func(s *scope, f *field, trail []string) bool
	walk = func(s *scope, f *field, trail []string) bool {
		for _, key := range f.dependencies() {
			next, at := s.find(key)
			switch {
			case next == nil || seen[next] && next != start:
				continue
			case next == start:
				c.refuse(path, "dependsOn goes in a circle: %s", strings.Join(append(trail, key), " → "))
				return true
			}
			seen[next] = true
			if walk(at, next, append(slices.Clip(trail), key)) {
				return true
			}
		}
		return false
	}
	walk(s, start, []string{start.Key})
}

// dependencies are a param's own and those of the sections around it.
func (f *field) dependencies() []string {
	keys := slices.Clone(f.DependsOn)
	for _, section := range f.sections {
		keys = append(keys, section.DependsOn...)
	}
	return keys
}
