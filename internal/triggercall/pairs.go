package triggercall

import (
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

type pair struct{ name, value string }

// entry is a name with all its values, in the order of their coming.
type entry struct {
	name   string
	values []string
}

// group collects repeated names, in the order of first appearance.
func group(fields []trigger.Field, clean func(string) string) []entry {
	pairs := make([]pair, len(fields))
	for i, f := range fields {
		pairs[i] = pair{clean(f.Name), clean(f.Value)}
	}
	return groupPairs(pairs)
}

func groupPairs(pairs []pair) []entry {
	if len(pairs) == 0 {
		return nil
	}
	entries := make([]entry, 0, len(pairs))
	at := make(map[string]int, len(pairs))
	single := make([]string, len(pairs)) // one allocation for all names that come once
	for i, p := range pairs {
		if j, ok := at[p.name]; ok {
			entries[j].values = append(entries[j].values, p.value)
			continue
		}
		at[p.name] = len(entries)
		single[i] = p.value
		entries = append(entries, entry{p.name, single[i : i+1 : i+1]})
	}
	return entries
}

// parseQuery reads a query or a form. It refuses nothing: a bad escape stays as
// it is.
func parseQuery(raw string) []entry {
	if raw == "" {
		return nil
	}
	pairs := make([]pair, 0, strings.Count(raw, "&")+1)
	for segment := range strings.SplitSeq(raw, "&") {
		if segment == "" {
			continue
		}
		name, value, _ := strings.Cut(segment, "=")
		pairs = append(pairs, pair{lossy(unescape(name)), lossy(unescape(value))})
	}
	return groupPairs(pairs)
}

func unescape(text string) string {
	if !strings.ContainsAny(text, "%+") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '+':
			b = append(b, ' ')
		case text[i] == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			b = append(b, unhex(text[i+1])<<4|unhex(text[i+2]))
			i += 2
		default:
			b = append(b, text[i])
		}
	}
	return string(b)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func last(values []string) string { return values[len(values)-1] }

func joined(values []string) string { return strings.Join(values, ", ") }

func appendFlat(b []byte, entries []entry, flatten func([]string) string) []byte {
	b = append(b, '{')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, e.name), ':')
		b = appendString(b, flatten(e.values))
	}
	return append(b, '}')
}

func appendLists(b []byte, entries []entry) []byte {
	b = append(b, '{')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, e.name), ":["...)
		for j, value := range e.values {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, value)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
