package vendors

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
)

const redacted = "[redacted]"

// MaskBody hides a vendor's credentials in a body as a TriggerCall shows it,
// for views; the stored bytes stay what they are, encrypted. extra are more
// places. Nothing else of the text changes.
func (p *Policy) MaskBody(view json.RawMessage, extra ...string) json.RawMessage {
	places, form := extra, ""
	if p != nil && p.Vendor != nil {
		places, form = append(slices.Clip(places), p.Vendor.MaskBody...), p.Vendor.Body.Form
	}
	if len(places) == 0 {
		return view
	}
	pointers, elements := split(places)
	doc, ok := jsonpointer.Read(view)
	if !ok {
		return view
	}
	if jsonpointer.Kind(view) == '"' {
		text, _ := jsonpointer.Text(view)
		return quote(maskText(text, pointers, elements))
	}
	masked := doc.Redact(pointers, json.RawMessage(`"`+redacted+`"`))
	if form == "" {
		return masked
	}
	// A form's field that holds JSON holds the credentials too.
	return maskField(masked, jsonpointer.Pointer{form, "0"}, pointers)
}

func split(places []string) (pointers []jsonpointer.Pointer, elements []string) {
	for _, place := range places {
		if name, ok := strings.CutPrefix(place, "xml:"); ok {
			elements = append(elements, name)
			continue
		}
		if pointer, err := jsonpointer.Parse(place); err == nil {
			pointers = append(pointers, pointer)
		}
	}
	return pointers, elements
}

func maskField(view json.RawMessage, at jsonpointer.Pointer, pointers []jsonpointer.Pointer) json.RawMessage {
	doc, ok := jsonpointer.Read(view)
	if !ok {
		return view
	}
	text, ok := doc.Text(at)
	if !ok {
		return view
	}
	return doc.Redact([]jsonpointer.Pointer{at}, quote(maskText(text, pointers, nil)))
}

// maskText masks text that is JSON or XML.
func maskText(text string, pointers []jsonpointer.Pointer, elements []string) string {
	if doc, ok := jsonpointer.Read([]byte(text)); ok {
		return string(doc.Redact(pointers, json.RawMessage(`"`+redacted+`"`)))
	}
	for _, name := range elements {
		text = maskElement(text, name)
	}
	return text
}

// maskElement hides the content of every XML element of a name, whatever its
// prefix.
func maskElement(text, name string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(text, '<')
		if open < 0 {
			break
		}
		end := strings.IndexByte(text[open:], '>')
		if end < 0 {
			break
		}
		end += open + 1
		tag := text[open+1 : end-1]
		b.WriteString(text[:end])
		text = text[end:]
		if !isElement(tag, name) || strings.HasSuffix(tag, "/") {
			continue
		}
		// To the closing tag, CDATA and all; without one, to the end.
		b.WriteString(redacted)
		stop := strings.Index(text, "</")
		if stop < 0 {
			return b.String()
		}
		text = text[stop:]
	}
	b.WriteString(text)
	return b.String()
}

func isElement(tag, name string) bool {
	if strings.HasPrefix(tag, "/") {
		return false
	}
	if i := strings.IndexAny(tag, " \t\r\n/"); i > 0 {
		tag = tag[:i]
	}
	if i := strings.IndexByte(tag, ':'); i >= 0 {
		tag = tag[i+1:]
	}
	return tag == name
}

func quote(text string) json.RawMessage {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always encodes
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}
