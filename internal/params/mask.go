package params

import (
	"encoding/json"
	"fmt"
)

// SecretPaths lists where in resolved the secret values are, as "token",
// "auth.password" or "keys[0]". A value that no declaration covers counts as
// secret: the app may have declared it so before it changed.
func SecretPaths(declared, resolved json.RawMessage) []string {
	m := &masker{}
	m.mask(declared, resolved)
	return m.paths
}

// Mask gives resolved params for showing: every secret value replaced by
// "[redacted]".
func Mask(declared, resolved json.RawMessage) json.RawMessage {
	return (&masker{}).mask(declared, resolved)
}

// masker replaces secret values and remembers where they were.
type masker struct{ paths []string }

func (m *masker) mask(declared, resolved json.RawMessage) json.RawMessage {
	list, err := parse(declared)
	if err != nil {
		list = nil // nothing is known, so everything is secret
	}
	values, err := object(resolved)
	if err != nil {
		return json.RawMessage("{}")
	}
	return m.form(list, values, resolved, "")
}

func (m *masker) form(declared []*param, values map[string]json.RawMessage, text json.RawMessage, prefix string) json.RawMessage {
	known := newScope(declared, nil, nil).byKey
	w := newObjectWriter()
	for _, key := range keysOf(text) {
		value, ok := values[key]
		if !ok {
			continue
		}
		path := join(prefix, key)
		if f, declared := known[key]; declared {
			w.add(key, m.value(f.param, value, path))
		} else {
			w.add(key, m.redact(path))
		}
		delete(values, key) // a key that stands twice is shown once
	}
	return w.done()
}

func (m *masker) redact(path string) json.RawMessage {
	m.paths = append(m.paths, path)
	return json.RawMessage(`"` + Redacted + `"`)
}

func (m *masker) value(p *param, value json.RawMessage, path string) json.RawMessage {
	children, nested := p.nested()
	switch {
	case isNull(value):
		return json.RawMessage("null")
	case p.Repeat, p.Type == typeArray:
		return m.list(p, value, path)
	case p.Secret || p.Type == typeSecret:
		return m.redact(path)
	case !nested:
		return compact(value)
	}
	return m.object(children, value, path)
}

// nested gives the params inside a group.
func (p *param) nested() ([]*param, bool) { return p.Children, p.Type == typeGroup }

// list masks the elements of a repeated param or of an array.
func (m *masker) list(p *param, value json.RawMessage, path string) json.RawMessage {
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) != nil {
		return m.redact(path) // not what was declared
	}
	out := []byte{'['}
	for i, element := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.element(p, element, fmt.Sprintf("%s[%d]", path, i))...)
	}
	return append(out, ']')
}

func (m *masker) element(p *param, value json.RawMessage, path string) json.RawMessage {
	inner := *p
	if p.Repeat {
		inner.Repeat = false
		return m.value(&inner, value, path)
	}
	inner.Type = typeJSON
	if p.Item != nil {
		inner.Type = p.Item.Type
	}
	if p.Secret || inner.Type == typeSecret {
		return m.redact(path)
	}
	if inner.Type == typeObject && len(p.Item.Fields) > 0 {
		return m.object(p.Item.Fields, value, path)
	}
	return compact(value)
}

func (m *masker) object(children []*param, value json.RawMessage, path string) json.RawMessage {
	values, err := object(value)
	if err != nil {
		return m.redact(path)
	}
	return m.form(children, values, value, path)
}
