package jsvm

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// wellFormed replaces what the engine writes for a lone surrogate (three
// bytes that are no UTF-8) with U+FFFD, which takes three bytes too.
func wellFormed(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == 0xed && i+2 < len(s) && s[i+1] >= 0xa0 {
			b.WriteRune(utf8.RuneError)
			i += 3
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// decodeUTF8 decodes as the Encoding Standard does: each longest prefix of a
// sequence that could have become valid turns into one U+FFFD.
func decodeUTF8(s string) string {
	var b strings.Builder
	b.Grow(len(s) + utf8.UTFMax)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			size = badPrefix(s[i:])
		}
		b.WriteRune(r)
		i += size
	}
	return b.String()
}

// badPrefix is the length of the invalid sequence that s starts with.
func badPrefix(s string) int {
	low, high, want := byte(0x80), byte(0xbf), 0
	switch c := s[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 1
	case c >= 0xe0 && c <= 0xef:
		want = 2
		switch c {
		case 0xe0:
			low = 0xa0
		case 0xed:
			high = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		want = 3
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	n := 1
	for ; want > 0 && n < len(s) && s[n] >= low && s[n] <= high; want-- {
		n++
		low, high = 0x80, 0xbf
	}
	return n
}

func windows1252(b []byte) string {
	text, _ := charmap.Windows1252.NewDecoder().Bytes(b) // every byte has a meaning
	return string(text)
}
