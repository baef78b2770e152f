package store

import "strings"

// cleanText makes text storable: PostgreSQL takes valid UTF-8 without NUL.
func cleanText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

// orEmpty reads a nullable column.
func orEmpty(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// orNil writes a nullable column.
func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
