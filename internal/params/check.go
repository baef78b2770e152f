package params

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// check holds one value against its type, its options and its declarative
// validation. There is no coercion: "5" is no number.
func (r *resolver) check(p *param, value json.RawMessage, path string) {
	v := decode(value)
	if message := typeError(p.Type, v); message != "" {
		r.fail(path, "%s", message)
		return
	}
	if options, static := p.staticOptions(); static {
		r.checkOptions(p, options, value, path)
	}
	if p.Validation != nil {
		r.validate(p.Validation, v, path)
	}
}

// typeError says what a value should have been, "" when it is.
func typeError(kind string, v any) string {
	switch kind {
	case typeString, typeText, typeSecret, typeCode:
		return unless(is[string](v), "must be text")
	case typeNumber:
		return numberError(v)
	case typeBoolean:
		return unless(is[bool](v), "must be true or false")
	case typeSelect:
		return unless(is[string](v) || is[json.Number](v) || is[bool](v), "must be one of the options")
	case typeMultiselect:
		return unless(is[[]any](v), "must be a list of options")
	case typeDate:
		return unless(parses(v, time.DateOnly), "must be a date like 2026-07-03")
	case typeDatetime:
		return unless(parses(v, time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z0700"),
			"must be a time with a zone, like 2026-07-03T09:00:00Z")
	case typeFile:
		return unless(is[string](v) || is[map[string]any](v), "must be a file")
	}
	return "" // json, and types this host does not know
}

func numberError(v any) string {
	n, ok := v.(json.Number)
	if !ok {
		return "must be a number"
	}
	if _, err := n.Float64(); err != nil {
		return "is out of range"
	}
	return ""
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func unless(ok bool, message string) string {
	if ok {
		return ""
	}
	return message
}

func parses(v any, layouts ...string) bool {
	text, ok := v.(string)
	if !ok {
		return false
	}
	for _, layout := range layouts {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

// staticOptions gives the declared choices; false when there are none or the
// app computes them.
func (p *param) staticOptions() ([]Option, bool) {
	var entries []json.RawMessage
	if len(p.Options) == 0 || json.Unmarshal(p.Options, &entries) != nil || entries == nil {
		return nil, false
	}
	options := make([]Option, len(entries))
	for i, entry := range entries {
		if json.Unmarshal(entry, &options[i]) != nil || options[i].Value == nil {
			options[i] = Option{Value: entry} // the bare value
		}
	}
	return options, true
}

// dynamicSource names the hook that computes the choices, "" when none does.
func (p *param) dynamicSource() string {
	var dynamic struct {
		Source string `json:"source"`
	}
	if len(p.Options) == 0 || json.Unmarshal(p.Options, &dynamic) != nil {
		return ""
	}
	return dynamic.Source
}

// checkOptions holds a choice, or each of a multiselect's, against the options.
func (r *resolver) checkOptions(p *param, options []Option, value json.RawMessage, path string) {
	if p.Type != typeMultiselect {
		r.member(p, options, value, path)
		return
	}
	r.list(value, path, func(element json.RawMessage, at string) json.RawMessage {
		r.member(p, options, element, at)
		return nil
	})
}

func (r *resolver) member(p *param, options []Option, value json.RawMessage, path string) {
	v := decode(value)
	for _, option := range options {
		if !option.Disabled && same(decode(option.Value), v) {
			return
		}
	}
	if p.Secret || p.Type == typeSecret {
		r.fail(path, "must be one of the options")
		return
	}
	r.fail(path, "must be one of %s", listed(options))
}

// listed names the choices, as many as fit in a sentence.
func listed(options []Option) string {
	const shown = 20
	var names []string
	for _, option := range options {
		if option.Disabled {
			continue
		}
		if len(names) == shown {
			names = append(names, "…")
			break
		}
		names = append(names, string(compact(option.Value)))
	}
	if len(names) == 0 {
		return "no options"
	}
	return strings.Join(names, ", ")
}

// validate applies the declarative checks (Param RFC §validation): lengths and
// pattern to text, bounds to numbers, enum to both.
func (r *resolver) validate(rule *validation, v any, path string) {
	switch v := v.(type) {
	case string:
		r.validateText(rule, v, path)
	case json.Number:
		r.validateNumber(rule, v, path)
	}
	if len(rule.Enum) == 0 {
		return
	}
	options := make([]Option, len(rule.Enum))
	for i, value := range rule.Enum {
		options[i].Value = value
		if same(decode(value), v) {
			return
		}
	}
	r.fail(path, "must be one of %s", listed(options))
}

func (r *resolver) validateText(rule *validation, v, path string) {
	// Lengths are JavaScript's, in UTF-16 units, since authors measure there.
	length := 0
	for _, c := range v {
		length += max(utf16.RuneLen(c), 1)
	}
	if rule.MinLength != nil && length < *rule.MinLength {
		r.fail(path, "must have at least %d characters", *rule.MinLength)
	}
	if rule.MaxLength != nil && length > *rule.MaxLength {
		r.fail(path, "must have at most %d characters", *rule.MaxLength)
	}
	if rule.Pattern == "" {
		return
	}
	ok, err := rule.matches(v)
	switch {
	case err != nil:
		r.fail(path, "cannot be checked: the app's pattern %s", err)
	case !ok:
		r.fail(path, "must match %s", rule.Pattern)
	}
}

func (v *validation) matches(text string) (bool, error) {
	if v.compiled == nil {
		compiled, err := compile(v.Pattern)
		if err != nil {
			return false, err
		}
		v.compiled = compiled
	}
	return v.compiled.MatchString(text), nil
}

func (r *resolver) validateNumber(rule *validation, n json.Number, path string) {
	v, err := n.Float64()
	if err != nil {
		return // said already
	}
	if rule.Integer && v != math.Trunc(v) {
		r.fail(path, "must be a whole number")
	}
	if rule.Min != nil && v < *rule.Min {
		r.fail(path, "must be at least %s", number(*rule.Min))
	}
	if rule.Max != nil && v > *rule.Max {
		r.fail(path, "must be at most %s", number(*rule.Max))
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// same is equality of JSON values; 1 and 1.0 are the same number.
func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, errX := a.Float64()
		y, errY := b.Float64()
		return a == b || errX == nil && errY == nil && x == y
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !same(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, x := range a {
			if y, ok := b[key]; !ok || !same(x, y) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case json.Number, []any, map[string]any:
		return false
	}
	return a == b
}
