package engine_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/engine"
)

func TestCleanTextIsStorableWhateverComes(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"plain":                               "plain",
		"two\nlines\there":                    "two\nlines\there",
		"a\x00b\xff\xfec\x7f":                 "abc",
		"schön":                               "schön",
		strings.Repeat("\x00\xff", 2_500_000): "…",
	} {
		if got := engine.CleanText(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	long := engine.CleanText(strings.Repeat("ö", 5000))
	if len(long) > engine.MaxText || !utf8.ValidString(long) || !strings.HasSuffix(long, "ö…") {
		t.Errorf("%d bytes, ends in %q", len(long), long[len(long)-6:])
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("a\x00b\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := engine.CleanText(text)
		if len(got) > engine.MaxText || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%q", got)
		}
	})
}
