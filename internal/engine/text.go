package engine

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText is how much of an engine's error text is kept.
const MaxText = 2 << 10

// CleanText makes what an engine said fit to be stored and shown: valid UTF-8
// without control characters, cut to MaxText bytes. An engine may answer with
// anything, and the record of the attempt must not fail over it.
func CleanText(text string) string {
	cut := len(text) > MaxText
	if cut {
		text = text[:MaxText]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == utf8.RuneError || unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
	for len(text) > MaxText-len("…") && cut {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	if cut {
		text += "…"
	}
	return text
}
