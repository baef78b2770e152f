package triggercall

import (
	"strings"
	"unicode/utf8"
)

// lossy makes text valid UTF-8 with U+FFFD for what is not.
func lossy(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// printable makes a header's text valid UTF-8 without loss: what is not UTF-8
// is read as ISO 8859-1, as HTTP once said.
func printable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	runes := make([]rune, len(text))
	for i := range len(text) {
		runes[i] = rune(text[i])
	}
	return string(runes)
}

const hex = "0123456789abcdef"

// appendString appends text as a JSON string. Text that is not UTF-8 comes out
// as U+FFFD, so the result is always valid.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, text[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		b = append(b, text[start:i]...)
		b = appendEscape(b, c)
		i++
		start = i
	}
	return append(append(b, text[start:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
