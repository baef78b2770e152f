package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// show prints an answer: the document with --json, else what human writes.
func (c *cli) show(document json.RawMessage, human func(w *printer)) error {
	if c.json {
		return c.document(document)
	}
	p := &printer{w: tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)}
	human(p)
	if p.err == nil {
		p.err = p.w.Flush()
	}
	return p.err
}

// document prints JSON, indented and otherwise as it came.
func (c *cli) document(text json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(text), "", "  "); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err := c.out.Write(b.Bytes())
	return err
}

// line prints a value as one line of JSON.
func (c *cli) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = c.out.Write(append(text, '\n'))
	return err
}

// value prints a value of our own, or what human writes of it.
func (c *cli) value(v any, human func(w *printer)) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return c.show(text, human)
}

// note tells a person something that is no part of the output.
func (c *cli) note(format string, args ...any) {
	if !c.json {
		_, _ = fmt.Fprintf(c.err, format+"\n", args...)
	}
}

// more says how to get the next page.
func (c *cli) more(cursor string) {
	if cursor != "" {
		c.note("There is more: --cursor %s", cursor)
	}
}

// printer writes tables for people. There is no colour in them, so nothing
// depends on where they go.
type printer struct {
	w   *tabwriter.Writer
	err error
}

// row writes one line of cells.
func (p *printer) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.Join(cells, "\t"))
	}
}

// field writes "name  value", unless there is no value.
func (p *printer) field(name, value string) {
	if value != "" {
		p.row(name, value)
	}
}

// block writes text of several lines below a heading.
func (p *printer) block(heading, text string) {
	if p.err == nil {
		p.err = p.w.Flush()
	}
	if p.err == nil && text != "" {
		_, p.err = fmt.Fprintf(p.w, "\n%s\n%s\n", heading, indent(text))
	}
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		if line = printable(strings.TrimRight(line, "\n")); line != "" {
			line = "  " + line
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// printable keeps what an app or a vendor wrote from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}

// pretty indents JSON for people.
func pretty(text json.RawMessage) string {
	var b bytes.Buffer
	if len(text) == 0 || json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}

// when shows an ISO time to the second.
func when(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// input reads a value that is given literally, as @file, or as - for standard
// input.
func (c *cli) input(value string) ([]byte, error) {
	switch {
	case value == "-":
		return io.ReadAll(c.in)
	case strings.HasPrefix(value, "@"):
		return c.file(value[1:])
	}
	return []byte(value), nil
}

// file reads a file, - being standard input.
func (c *cli) file(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.in)
	}
	text, err := os.ReadFile(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, &usageError{err}
	}
	return text, nil
}
