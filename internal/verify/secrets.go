package verify

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

// Secrets is what a subscription has, and where a Source looks.
type Secrets struct {
	Params json.RawMessage // resolved
	State  json.RawMessage // nil before onSubscribe has returned
	// Stored is the secret that a handshake brought (class 7), "" when none.
	Stored secret.Text
}

// Source says where a value is: {"param":"key"}, {"state":"/pointer"},
// {"stored":true} for what a handshake brought, or the text itself.
type Source struct {
	param   string
	state   jsonpointer.Pointer
	stored  bool
	literal secret.Text
}

// Sources is one Source or a list of them. All values count at once, which is
// how a secret is rotated without a gap.
type Sources []Source

// maxSecrets bounds what one call can cost.
const maxSecrets = 8

// UnmarshalJSON reads a Source or a list. Errors hold nothing of the text,
// which may be a secret.
func (s *Sources) UnmarshalJSON(text []byte) error {
	if jsonpointer.Kind(text) != '[' {
		one, err := readSource(text)
		if err != nil {
			return err
		}
		*s = Sources{one}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return errSource
	}
	if len(list) == 0 || len(list) > maxSecrets {
		return fmt.Errorf("a list of secrets has 1 to %d entries", maxSecrets)
	}
	*s = make(Sources, 0, len(list))
	for _, entry := range list {
		one, err := readSource(entry)
		if err != nil {
			return err
		}
		*s = append(*s, one)
	}
	return nil
}

var errSource = errors.New(`a secret is {"param":"key"}, {"state":"/pointer"}, {"stored":true}, a text, or a list of these`)

func readSource(text json.RawMessage) (Source, error) {
	if jsonpointer.Kind(text) == '"' {
		var literal string
		if err := json.Unmarshal(text, &literal); err != nil || literal == "" {
			return Source{}, errSource
		}
		return Source{literal: secret.Text(literal)}, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || len(object) != 1 {
		return Source{}, errSource
	}
	for kind, value := range object {
		name, _ := jsonpointer.Text(value)
		switch {
		case kind == "param" && name != "":
			return Source{param: name}, nil
		case kind == "state" && jsonpointer.Kind(value) == '"':
			pointer, err := jsonpointer.Parse(name)
			return Source{state: pointer}, err
		case kind == "stored" && name == "true":
			return Source{stored: true}, nil
		}
	}
	return Source{}, errSource
}

// Named is where a preset looks when nothing is said: the param of this name,
// then the state's member of this name.
func Named(name string) Sources {
	return Sources{{param: name}, {state: jsonpointer.Pointer{name}}}
}

// Stored is the secret that a handshake brought.
func Stored() Sources { return Sources{{stored: true}} }

// Resolve gives every value there is, the empty ones left out. A param or state
// may hold a list, or JSON such as a key set.
func (s Sources) Resolve(from Secrets) []secret.Text {
	var found []secret.Text
	for _, source := range s {
		for _, value := range source.resolve(from) {
			if value != "" && len(found) < maxSecrets {
				found = append(found, secret.Text(value))
			}
		}
	}
	return found
}

func (s Source) resolve(from Secrets) []string {
	switch {
	case s.literal != "":
		return []string{s.literal.Reveal()}
	case s.stored:
		return []string{from.Stored.Reveal()}
	case s.param != "":
		return values(from.Params, jsonpointer.Pointer{s.param})
	}
	return values(from.State, s.state)
}

func values(text json.RawMessage, at jsonpointer.Pointer) []string {
	doc, ok := jsonpointer.Read(text)
	if !ok {
		return nil
	}
	value, ok := doc.Get(at)
	if !ok {
		return nil
	}
	switch jsonpointer.Kind(value) {
	case 'n':
		return nil
	case '{':
		return []string{string(value)}
	case '[':
		var list []string
		if json.Unmarshal(value, &list) != nil {
			return nil
		}
		return list
	}
	plain, _ := jsonpointer.Text(value)
	return []string{plain}
}

// first gives the first value there is, or "".
func (s Sources) first(from Secrets) string {
	if found := s.Resolve(from); len(found) > 0 {
		return found[0].Reveal()
	}
	return ""
}

// Literal gives secrets by their text, all of which count.
func Literal(texts ...string) Sources {
	list := make(Sources, 0, len(texts))
	for _, text := range texts {
		list = append(list, Source{literal: secret.Text(text)})
	}
	return list
}
