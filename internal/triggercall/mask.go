package triggercall

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Redacted stands for a masked value.
const Redacted = "[redacted]"

// words make a header or query name sensitive when it contains one: those of
// the w6w runtime, and hmac, which it lacks.
var words = [...]string{
	"authorization", "cookie", "token", "secret", "password", "signature", "credential", "hmac", "apikey", "api-key", "api_key", "api key",
}

// Sensitive says whether a header of this name carries a credential. Delivery
// ids and timestamps do not: they are needed to see duplicates and skew.
func Sensitive(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "connection": // nearly every call has them
		return false
	case "x-trello-webhook": // a signature under a quiet name
		return true
	}
	return slices.ContainsFunc(words[:], func(word string) bool { return strings.Contains(name, word) })
}

// sensitiveQuery adds names that mean a credential in a query only.
func sensitiveQuery(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "key", "code", "sig":
		return true
	}
	return Sensitive(name)
}

func named(extra []string, name string) bool {
	return slices.ContainsFunc(extra, func(e string) bool { return strings.EqualFold(e, name) })
}

// MaskHeader gives the header as it is stored, [["name","value"],…] in the
// order of its coming. Names stay, values of credentials do not; extra names
// more of them.
func MaskHeader(header []trigger.Field, extra ...string) json.RawMessage {
	size := 2
	for i := range header {
		size += len(header[i].Name) + len(header[i].Value) + 8
	}
	b := append(make([]byte, 0, size), '[')
	for i, f := range header {
		if i > 0 {
			b = append(b, ',')
		}
		if Sensitive(f.Name) || named(extra, f.Name) {
			f.Value = Redacted
		}
		b = append(appendString(append(b, '['), printable(f.Name)), ',')
		b = append(appendString(b, printable(f.Value)), ']')
	}
	return append(b, ']')
}

// MaskQuery gives the query text as it is stored: values of credentials
// replaced, every other byte as it was, only that bytes which are not UTF-8
// text are percent-encoded.
func MaskQuery(raw string, extra ...string) string {
	if raw == "" {
		return ""
	}
	var b strings.Builder
	kept := 0 // raw[:kept] is in b
	for start := 0; start <= len(raw); {
		end := start + segmentEnd(raw[start:])
		name, value, found := strings.Cut(raw[start:end], "=")
		if found && value != Redacted && isQuerySecret(name, extra) {
			b.WriteString(raw[kept : start+len(name)+1])
			b.WriteString(Redacted)
			kept = end
		}
		start = end + 1
	}
	if kept > 0 {
		b.WriteString(raw[kept:])
		raw = b.String()
	}
	return percentEncodeInvalid(raw)
}

// segmentEnd ends a segment at a semicolon too: some receivers split there, and
// what is a secret to them must not stay in the clear.
func segmentEnd(text string) int {
	if i := strings.IndexAny(text, "&;"); i >= 0 {
		return i
	}
	return len(text)
}

func isQuerySecret(name string, extra []string) bool {
	name = unescape(name)
	return sensitiveQuery(name) || named(extra, name)
}

const upperHex = "0123456789ABCDEF"

func percentEncodeInvalid(text string) string {
	if utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	b := make([]byte, 0, len(text)+16)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			b = append(b, '%', upperHex[text[i]>>4], upperHex[text[i]&15])
			i++
			continue
		}
		b = append(b, text[i:i+size]...)
		i += size
	}
	return string(b)
}
