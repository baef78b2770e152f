package params

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// resolver collects what is wrong, by path, and what is left to ask the app.
type resolver struct {
	bad  []trigger.FieldError
	left []question
}

// question is a check that only the app's code can make.
type question struct {
	field *field
	scope *scope
	path  string
	value json.RawMessage
}

func (r *resolver) fail(path, format string, args ...any) {
	r.bad = append(r.bad, trigger.FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

// form resolves one nesting level to a JSON object.
func (r *resolver) form(s *scope, prefix string) json.RawMessage {
	w := newObjectWriter()
	for _, f := range s.params {
		if f.Key == "" || !s.shows(f) {
			continue
		}
		if v := r.field(s, f, join(prefix, f.Key)); v != nil {
			w.add(f.Key, v)
		}
	}
	return w.done()
}

// field resolves one param; nil leaves it out.
func (r *resolver) field(s *scope, f *field, path string) json.RawMessage {
	if f.value == nil && f.Type == typeGroup && !f.Repeat {
		return r.absentGroup(s, f, path)
	}
	if f.value == nil {
		if f.Required && !f.ReadOnly { // nobody could give it
			r.fail(path, "is required")
		}
		return nil
	}
	if !f.supplied && f.Type != typeGroup {
		return compact(f.value) // the author's word: who subscribes is not to blame for it
	}
	if f.Repeat {
		return r.list(f.value, path, func(element json.RawMessage, at string) json.RawMessage {
			return r.value(s, f, element, at)
		})
	}
	return r.value(s, f, f.value, path)
}

// absentGroup: a required group is resolved as if it were empty; an optional
// one takes its children's defaults only if these make it whole.
func (r *resolver) absentGroup(s *scope, f *field, path string) json.RawMessage {
	try := r
	if !f.Required {
		try = &resolver{}
	}
	v := try.form(newScope(f.Children, nil, s), path)
	if !f.Required && len(try.bad) > 0 || string(v) == "{}" {
		return nil
	}
	if try != r {
		r.left = append(r.left, try.left...)
	}
	return v
}

// list resolves the elements of a JSON array one by one.
func (r *resolver) list(value json.RawMessage, path string, each func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		r.fail(path, "must be a list")
		return nil
	}
	out := []byte{'['}
	for i, element := range elements {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(element) {
			r.fail(at, "must not be null")
			continue
		}
		if v := each(element, at); v != nil {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, v...)
		}
	}
	return append(out, ']')
}

// value resolves one value of the param's type.
func (r *resolver) value(s *scope, f *field, value json.RawMessage, path string) json.RawMessage {
	switch f.Type {
	case typeGroup:
		return r.group(s, f.Children, value, path)
	case typeArray:
		return r.array(s, f, value, path)
	}
	before := len(r.bad)
	r.check(f.param, value, path)
	if len(r.bad) == before && f.asks() {
		r.left = append(r.left, question{field: f, scope: s, path: path, value: value})
	}
	return compact(value)
}

func (r *resolver) group(s *scope, children []*param, value json.RawMessage, path string) json.RawMessage {
	given, err := object(value)
	if err != nil {
		r.fail(path, "must be an object")
		return nil
	}
	return r.form(newScope(children, given, s), path)
}

// array resolves a list by its item's shape; without one any element fits.
func (r *resolver) array(s *scope, f *field, value json.RawMessage, path string) json.RawMessage {
	return r.list(value, path, func(element json.RawMessage, at string) json.RawMessage {
		switch {
		case f.Item == nil:
			return compact(element)
		case f.Item.Type == typeObject && len(f.Item.Fields) > 0:
			return r.group(s, f.Item.Fields, element, at)
		case f.Item.Type == typeObject:
			return r.anyObject(element, at)
		}
		r.check(&param{Type: f.Item.Type, Validation: f.Validation, Options: f.Options}, element, at)
		return compact(element)
	})
}

func (r *resolver) anyObject(value json.RawMessage, path string) json.RawMessage {
	if _, err := object(value); err != nil {
		r.fail(path, "must be an object")
	}
	return compact(value)
}

// ask puts what is left to the app, and lists what it refuses.
func (r *resolver) ask(ctx context.Context, ask Asker) error {
	for _, q := range r.left {
		form := q.scope.resolvedForm()
		if err := r.askOptions(ctx, ask, q, form); err != nil {
			return err
		}
		if q.field.Validation == nil || q.field.Validation.Hook == "" {
			continue
		}
		message, err := ask.Validate(ctx, q.field.Validation.Hook, q.value, form)
		if err != nil {
			return fmt.Errorf("validate %s: %w", q.path, err)
		}
		if message != "" {
			r.fail(q.path, "%s", message)
		}
	}
	if len(r.bad) > 0 {
		return invalid(r.bad)
	}
	return nil
}

func (r *resolver) askOptions(ctx context.Context, ask Asker, q question, form json.RawMessage) error {
	source := q.field.dynamicSource()
	if source == "" {
		return nil
	}
	options, err := ask.Options(ctx, source, form, q.scope.values(q.field.DependsOn))
	if err != nil {
		return fmt.Errorf("options of %s: %w", q.path, err)
	}
	r.checkOptions(q.field.param, options, q.value, q.path)
	return nil
}

func (f *field) asks() bool {
	return f.dynamicSource() != "" || f.Validation != nil && f.Validation.Hook != ""
}

// resolvedForm gives the values of the outermost form as hooks see them.
func (s *scope) resolvedForm() json.RawMessage {
	for s.outer != nil {
		s = s.outer
	}
	return (&resolver{}).form(s, "")
}

func (s *scope) values(keys []string) json.RawMessage {
	w := newObjectWriter()
	for _, key := range keys {
		if f, at := s.find(key); f != nil && f.value != nil && at.shows(f) {
			w.add(key, compact(f.value))
		}
	}
	return w.done()
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// compact drops white space and nothing else: numbers and escapes stay as sent.
func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return json.RawMessage("null")
	}
	return b.Bytes()
}

// objectWriter writes a JSON object, keys in the order they come.
type objectWriter struct{ b *bytes.Buffer }

func newObjectWriter() objectWriter { return objectWriter{bytes.NewBufferString("{")} }

func (w objectWriter) add(key string, value json.RawMessage) {
	if w.b.Len() > 1 {
		w.b.WriteByte(',')
	}
	w.b.WriteString(quote(key))
	w.b.WriteByte(':')
	w.b.Write(value)
}

func (w objectWriter) done() json.RawMessage {
	w.b.WriteByte('}')
	return w.b.Bytes()
}

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
