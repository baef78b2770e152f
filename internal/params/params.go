// Package params resolves what a subscriber supplied against the Params a
// trigger declares (w6w Param RFC; Trigger RFC §Subscription, "resolved param
// values"). It is pure: what needs the app's own code (dynamic options,
// validation hooks) is asked of an Asker. It knows nothing of storage or HTTP.
package params

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// CodeInvalid is the InvalidError code of values that do not fit.
const CodeInvalid = "param_invalid"

// CodeDeclaration is the InvalidError code of a declaration no value could be
// checked against.
const CodeDeclaration = "invalid_params"

// Redacted stands in for a secret value in what is shown.
const Redacted = "[redacted]"

// Param types of the Param RFC. Any other type is carried unchecked, so that a
// newer app still loads.
const (
	typeString      = "string"
	typeText        = "text"
	typeNumber      = "number"
	typeBoolean     = "boolean"
	typeSelect      = "select"
	typeMultiselect = "multiselect"
	typeDate        = "date"
	typeDatetime    = "datetime"
	typeSecret      = "secret"
	typeFile        = "file"
	typeJSON        = "json"
	typeCode        = "code"
	typeGroup       = "group"
	typeSection     = "section"
	typeArray       = "array"
	typeObject      = "object" // of an array's item only
)

// param is one declared Param.
type param struct {
	Key        string          `json:"key"`
	Label      string          `json:"label"`
	Type       string          `json:"type"`
	Required   bool            `json:"required"`
	Default    json.RawMessage `json:"default"`
	Secret     bool            `json:"secret"`
	ReadOnly   bool            `json:"readOnly"`
	Repeat     bool            `json:"repeat"`
	Item       *item           `json:"item"`
	DependsOn  []string        `json:"dependsOn"`
	ShowIf     json.RawMessage `json:"showIf"`
	Options    json.RawMessage `json:"options"`
	Validation *validation     `json:"validation"`
	Children   []*param        `json:"children"`
}

// item is the shape of an array's elements.
type item struct {
	Type   string   `json:"type"`
	Fields []*param `json:"fields"`
}

// validation is the declarative part of a Param's checks, and the name of the
// hook that holds the rest.
type validation struct {
	Pattern   string            `json:"pattern"`
	MinLength *int              `json:"minLength"`
	MaxLength *int              `json:"maxLength"`
	Min       *float64          `json:"min"`
	Max       *float64          `json:"max"`
	Integer   bool              `json:"integer"`
	Enum      []json.RawMessage `json:"enum"`
	Hook      string            `json:"hook"`

	compiled *regexp.Regexp // Pattern, on first use
}

// Option is one choice of a select.
type Option struct {
	Value    json.RawMessage `json:"value"`
	Disabled bool            `json:"disabled"`
}

// Asker runs the app's code for the checks that a declaration leaves to it.
// Forms are JSON objects of the resolved values.
type Asker interface {
	// Options gives the choices of a dynamic select (Param RFC §options).
	Options(ctx context.Context, source string, form, dependsOn json.RawMessage) ([]Option, error)
	// Validate gives what is wrong with a value, "" when nothing is.
	Validate(ctx context.Context, hook string, value, form json.RawMessage) (string, error)
}

// Resolve gives the values a subscription keeps: defaults filled in, hidden,
// read-only and undeclared keys dropped, in the order of the declaration, every
// supplied value's JSON text as it came. A default is not checked: Warnings
// tells its author. All that does not fit is listed in one
// *trigger.InvalidError of code param_invalid. Checks that need the app's code
// are left out; ResolveWith makes them.
func Resolve(declared, supplied json.RawMessage) (json.RawMessage, error) {
	return ResolveWith(context.Background(), declared, supplied, nil)
}

// ResolveWith is Resolve with the app's own checks, once the static ones hold.
// An error that is no *trigger.InvalidError means that ask could not answer.
func ResolveWith(ctx context.Context, declared, supplied json.RawMessage, ask Asker) (json.RawMessage, error) {
	list, err := parse(declared)
	if err != nil {
		return nil, err
	}
	given, err := object(supplied)
	if err != nil {
		return nil, invalid([]trigger.FieldError{{Path: "params", Message: "must be a JSON object"}})
	}
	r := &resolver{}
	form := newScope(list, given, nil)
	resolved := r.form(form, "")
	if len(r.bad) > 0 {
		return nil, invalid(r.bad)
	}
	if ask != nil {
		if err := r.ask(ctx, ask); err != nil {
			return nil, err
		}
	}
	return resolved, nil
}

// parse reads a declaration. An app without params declares null or nothing.
func parse(declared json.RawMessage) ([]*param, error) {
	if isNull(declared) {
		return nil, nil
	}
	var list []*param
	if err := json.Unmarshal(declared, &list); err != nil {
		return nil, &trigger.InvalidError{Code: CodeDeclaration, Message: "params: " + plain(err)}
	}
	if holdsNil(list) {
		return nil, &trigger.InvalidError{Code: CodeDeclaration, Message: "params: every entry must be an object"}
	}
	return list, nil
}

func holdsNil(list []*param) bool {
	for _, p := range list {
		if p == nil || holdsNil(p.Children) || p.Item != nil && holdsNil(p.Item.Fields) {
			return true
		}
	}
	return false
}

// object reads a JSON object; null and nothing are the empty one.
func object(text json.RawMessage) (map[string]json.RawMessage, error) {
	if isNull(text) {
		return nil, nil
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	return o, nil
}

func isNull(text json.RawMessage) bool {
	t := bytes.TrimSpace(text)
	return len(t) == 0 || bytes.Equal(t, []byte("null"))
}

func invalid(bad []trigger.FieldError) error {
	message := bad[0].Path + ": " + bad[0].Message
	if len(bad) > 1 {
		message = fmt.Sprintf("%s (and %d more)", message, len(bad)-1)
	}
	return &trigger.InvalidError{Code: CodeInvalid, Message: message, Details: bad}
}

// plain says what is wrong with a declaration in its own words, not Go's.
func plain(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s must not be a %s", orElse(wrong.Field, "params"), wrong.Value)
	}
	return err.Error()
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
