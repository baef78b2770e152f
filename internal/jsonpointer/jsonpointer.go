// Package jsonpointer finds values in JSON text by JSON Pointer (RFC 6901)
// without decoding the rest: numbers stay as they are spelled, so that ids
// beyond 2^53 survive. Of a repeated member the last one counts, as in
// JavaScript's JSON.parse. It knows nothing of what the values mean.
package jsonpointer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pointer is a parsed JSON Pointer. The empty one is the whole document.
type Pointer []string

// Parse reads a pointer as RFC 6901 writes it: "" or "/a/0/b~1c".
func Parse(text string) (Pointer, error) {
	if text == "" {
		return Pointer{}, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("JSON pointer %q must be empty or begin with a slash", text)
	}
	pointer := Pointer(strings.Split(text[1:], "/"))
	for i, step := range pointer {
		plain, err := unescape(step)
		if err != nil {
			return nil, fmt.Errorf("JSON pointer %q: %w", text, err)
		}
		pointer[i] = plain
	}
	return pointer, nil
}

func unescape(step string) (string, error) {
	for i := range len(step) {
		if step[i] == '~' && (i+1 == len(step) || step[i+1] != '0' && step[i+1] != '1') {
			return "", errors.New("~ must be written ~0")
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~"), nil
}

// Doc is text that is known to be one JSON value. The zero Doc holds nothing.
type Doc struct{ text []byte }

// Read checks that text is one JSON value; a byte order mark before it is left
// out.
func Read(text []byte) (Doc, bool) {
	if len(text) > 2 && string(text[:3]) == "\xef\xbb\xbf" {
		text = text[3:]
	}
	if !json.Valid(text) {
		return Doc{}, false
	}
	return Doc{text}, true
}

// Get gives the value that the pointer names, byte for byte.
func (d Doc) Get(p Pointer) (json.RawMessage, bool) {
	start, end, ok := d.find(p)
	if !ok {
		return nil, false
	}
	return json.RawMessage(d.text[start:end]), true
}

// Text gives the value as text, see the function Text.
func (d Doc) Text(p Pointer) (string, bool) {
	value, ok := d.Get(p)
	if !ok {
		return "", false
	}
	return Text(value)
}

// All is Get for a pointer in which the step "*" stands for every element of
// an array. A pointer without one finds one value at most.
func (d Doc) All(p Pointer) []json.RawMessage {
	star := -1
	for i, step := range p {
		if step == "*" {
			star = i
			break
		}
	}
	if star < 0 {
		if value, ok := d.Get(p); ok {
			return []json.RawMessage{value}
		}
		return nil
	}
	list, ok := d.Get(p[:star])
	if !ok {
		return nil
	}
	var found []json.RawMessage
	for _, element := range elements(list) {
		found = append(found, Doc{element}.All(p[star+1:])...)
	}
	return found
}

// Redact gives the document with another value in every place that a pointer
// names, the step "*" standing for every element of an array. Of a repeated
// member every one is replaced.
func (d Doc) Redact(pointers []Pointer, with json.RawMessage) json.RawMessage {
	if len(d.text) == 0 {
		return nil
	}
	var places []span
	for _, p := range pointers {
		places = spans(places, d.text, skipSpace(d.text, 0), p)
	}
	if places == nil {
		return d.text
	}
	slices.SortFunc(places, func(a, b span) int { return a.start - b.start })
	out := make([]byte, 0, len(d.text))
	at := 0
	for _, place := range places {
		if place.start < at {
			continue // inside one that is gone already
		}
		out = append(append(out, d.text[at:place.start]...), with...)
		at = place.end
	}
	return append(out, d.text[at:]...)
}

type span struct{ start, end int }

// spans finds every value that the pointer names below at.
func spans(found []span, text []byte, at int, p Pointer) []span {
	if len(p) == 0 {
		return append(found, span{at, skipValue(text, at)})
	}
	switch text[at] {
	case '{':
		for at = skipSpace(text, at+1); text[at] != '}'; {
			end := skipString(text, at)
			value := skipSpace(text, skipSpace(text, end)+1)
			if sameString(text[at:end], p[0]) {
				found = spans(found, text, value, p[1:])
			}
			at = next(text, skipValue(text, value))
		}
	case '[':
		at = skipSpace(text, at+1)
		for i := 0; text[at] != ']'; i++ {
			if p[0] == "*" || p[0] == strconv.Itoa(i) {
				found = spans(found, text, at, p[1:])
			}
			at = next(text, skipValue(text, at))
		}
	}
	return found
}

// Text gives a string decoded, and a number or boolean as it is spelled. Null,
// objects and arrays have no text.
func Text(value json.RawMessage) (string, bool) {
	switch Kind(value) {
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "", false
		}
		return text, true
	case 't', 'f', '0':
		return string(value), true
	}
	return "", false
}

// Kind tells a value by its first byte: '{', '[', '"', 't', 'f', 'n', and '0'
// for every number. 0 is no value.
func Kind(value json.RawMessage) byte {
	i := skipSpace(value, 0)
	if i == len(value) {
		return 0
	}
	if c := value[i]; c == '-' || '0' <= c && c <= '9' {
		return '0'
	}
	return value[i]
}

// find gives the bounds of the value that the pointer names.
func (d Doc) find(p Pointer) (start, end int, ok bool) {
	if len(d.text) == 0 {
		return 0, 0, false
	}
	start = skipSpace(d.text, 0)
	for _, step := range p {
		switch d.text[start] {
		case '{':
			start, ok = member(d.text, start, step)
		case '[':
			start, ok = element(d.text, start, step)
		default:
			ok = false
		}
		if !ok {
			return 0, 0, false
		}
	}
	return start, skipValue(d.text, start), true
}

// member finds where the value of the last member of this name begins.
func member(text []byte, at int, name string) (int, bool) {
	found := -1
	at = skipSpace(text, at+1)
	for text[at] != '}' {
		end := skipString(text, at)
		value := skipSpace(text, skipSpace(text, end)+1) // past the colon
		if sameString(text[at:end], name) {
			found = value
		}
		at = next(text, skipValue(text, value))
	}
	return found, found >= 0
}

// element finds where an element of an array begins.
func element(text []byte, at int, step string) (int, bool) {
	want, err := strconv.Atoi(step)
	if err != nil || want < 0 || strconv.Itoa(want) != step {
		return 0, false
	}
	at = skipSpace(text, at+1)
	for i := 0; text[at] != ']'; i++ {
		if i == want {
			return at, true
		}
		at = next(text, skipValue(text, at))
	}
	return 0, false
}

func elements(list json.RawMessage) []json.RawMessage {
	at := skipSpace(list, 0)
	if at == len(list) || list[at] != '[' {
		return nil
	}
	var found []json.RawMessage
	for at = skipSpace(list, at+1); list[at] != ']'; {
		end := skipValue(list, at)
		found = append(found, list[at:end])
		at = next(list, end)
	}
	return found
}

// next goes to the next member or element, or to the closing bracket.
func next(text []byte, at int) int {
	at = skipSpace(text, at)
	if text[at] == ',' {
		return skipSpace(text, at+1)
	}
	return at
}

func sameString(literal []byte, name string) bool {
	inner := literal[1 : len(literal)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	var text string
	return json.Unmarshal(literal, &text) == nil && text == name
}

// skipValue ends a value. It counts brackets and does not recurse, so that
// depth costs nothing.
func skipValue(text []byte, at int) int {
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		depth := 0
		for {
			switch text[at] {
			case '"':
				at = skipString(text, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			at++
			if depth == 0 {
				return at
			}
		}
	}
	for at < len(text) && strings.IndexByte(" \t\r\n,]}", text[at]) < 0 {
		at++
	}
	return at
}

func skipString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}
