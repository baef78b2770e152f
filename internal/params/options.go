package params

import (
	"encoding/json"
	"slices"
	"strings"
)

// Choices is where the options of one param come from.
type Choices struct {
	// Static is the declared list, as declared; nil when the app computes it.
	Static json.RawMessage
	// Source names the hook that computes it; "" when none does.
	Source string
	// DependsOn are the values, in the form, that the options depend on (Param
	// RFC §dependsOn).
	DependsOn json.RawMessage
}

// ChoicesOf finds a param by its path ("key" or "group.key") and the options it
// has, given what is filled in so far; false when there is no such param or it
// has no options.
func ChoicesOf(declared json.RawMessage, path string, form json.RawMessage) (Choices, bool) {
	list, err := parse(declared)
	if err != nil {
		return Choices{}, false
	}
	given, err := object(form)
	if err != nil {
		given = nil
	}
	s := newScope(list, given, nil)
	for {
		key, rest, nested := strings.Cut(path, ".")
		f := s.byKey[key]
		switch {
		case f == nil:
			return Choices{}, false
		case nested && f.Type == typeGroup:
			inner, _ := object(f.value) // what is no object fills nothing in
			s, path = newScope(f.Children, inner, s), rest
		case nested:
			return Choices{}, false
		default:
			return s.choices(f)
		}
	}
}

func (s *scope) choices(f *field) (Choices, bool) {
	if _, static := f.staticOptions(); static {
		return Choices{Static: f.Options}, true
	}
	source := f.dynamicSource()
	return Choices{Source: source, DependsOn: s.values(f.DependsOn)}, source != ""
}

// Hooks lists the hooks that a declaration leaves its checks to: sources of
// options and validation hooks, each once, as they are written.
func Hooks(declared json.RawMessage) []string {
	list, err := parse(declared)
	if err != nil {
		return nil
	}
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var walk func(list []*param)
	walk = func(list []*param) {
		for _, p := range list {
			add(p.dynamicSource())
			if p.Validation != nil {
				add(p.Validation.Hook)
			}
			walk(p.Children)
			if p.Item != nil {
				walk(p.Item.Fields)
			}
		}
	}
	walk(list)
	return names
}
