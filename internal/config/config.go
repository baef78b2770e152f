// Package config reads settings from environment variables. A program declares
// each setting once, with its name, default, meaning and form; reading, the
// --help text, the documentation and the startup summary all come from that
// table. Values of secrets never appear in any of them, nor in an error.
package config

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
)

// Var declares one environment variable.
type Var struct {
	Name string
	// Default is the text that is parsed when the variable is unset or empty;
	// "" leaves the target as it is.
	Default string
	// Doc is a short sentence for --help and the documentation.
	Doc string
	// Required makes an unset variable an error.
	Required bool
}

// Parser says how the text of a setting becomes a value.
type Parser[T any] struct {
	// Want describes a good value, to end the sentence "expected …".
	Want  string
	Parse func(text string) (T, error)
	// Show is what the startup summary prints; nil prints the text itself.
	Show func(value T) string
	// Secret keeps the text out of errors and of the summary.
	Secret bool
}

// Set is the table of a program's settings.
type Set struct {
	settings []*setting
	checks   []func() error
}

type setting struct {
	Var
	want   string
	secret bool
	load   func(text string) (shown string, err error)
	shown  string
	given  bool
}

// Add declares a setting that is read into target.
func Add[T any](s *Set, target *T, v Var, p Parser[T]) {
	s.settings = append(s.settings, &setting{Var: v, want: p.Want, secret: p.Secret, load: func(text string) (string, error) {
		value, err := p.Parse(text)
		if err != nil {
			return "", explain(v.Name, text, p.Want, p.Secret, err)
		}
		*target = value
		switch {
		case p.Show != nil:
			return p.Show(value), nil
		case p.Secret:
			return "[set]", nil
		}
		return text, nil
	}})
}

// Check adds a rule that looks at several settings. It runs after all of them
// were read, also when some could not be; its error should name the variable.
func (s *Set) Check(rule func() error) { s.checks = append(s.checks, rule) }

// FromEnv reads every setting. The error, an *Error, lists everything that is
// wrong.
func (s *Set) FromEnv(getenv func(string) string) error {
	var problems []string
	for _, entry := range s.settings {
		if err := entry.read(getenv(entry.Name)); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, rule := range s.checks {
		if err := rule(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

func (e *setting) read(text string) error {
	text = strings.TrimSpace(text)
	e.given = text != ""
	if !e.given {
		text = e.Default
	}
	if text == "" {
		if e.Required {
			return fmt.Errorf("%s: is not set; expected %s", e.Name, e.want)
		}
		return nil
	}
	shown, err := e.load(text)
	e.shown = shown
	return err
}

// explain says which variable, what is wrong and what is expected.
func explain(name, text, want string, secret bool, err error) error {
	var reason *reasonError
	switch {
	case errors.As(err, &reason):
		return fmt.Errorf("%s: %s; expected %s", name, reason.text, want)
	case secret:
		return fmt.Errorf("%s: its value cannot be read (not shown, it is secret); expected %s", name, want)
	}
	return fmt.Errorf("%s: %q cannot be used; expected %s", name, text, want)
}

// reasonError carries words that are safe to print, in place of the value.
type reasonError struct{ text string }

func (e *reasonError) Error() string { return e.text }

// Reason makes a Parser's error whose words are printed. They must not hold a
// secret.
func Reason(format string, args ...any) error { return &reasonError{fmt.Sprintf(format, args...)} }

// Error lists everything that is wrong with the environment.
type Error struct{ Problems []string }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return fmt.Sprintf("%d settings are wrong:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}

// Line is one setting in the startup summary.
type Line struct{ Name, Value string }

// Summary lists the settings with the values in use. Secrets show as [set].
func (s *Set) Summary() []Line {
	lines := make([]Line, 0, len(s.settings))
	for _, entry := range s.settings {
		lines = append(lines, Line{Name: entry.Name, Value: entry.shown})
	}
	return lines
}

// Help writes the table for --help.
func (s *Set) Help(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, entry := range s.settings {
		if _, err := fmt.Fprintf(table, "  %s\t%s\t%s\n", entry.Name, entry.fallback(), entry.Doc); err != nil {
			return err
		}
	}
	return table.Flush()
}

// Markdown writes the table for the documentation.
func (s *Set) Markdown(w io.Writer) error {
	if _, err := io.WriteString(w, "| variable | default | form | meaning |\n| --- | --- | --- | --- |\n"); err != nil {
		return err
	}
	for _, entry := range s.settings {
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", entry.Name, code(entry.fallback()), entry.want, entry.Doc); err != nil {
			return err
		}
	}
	return nil
}

func (e *setting) fallback() string {
	switch {
	case e.Required:
		return "required"
	case e.Default == "":
		return "none"
	}
	return e.Default
}

func code(fallback string) string {
	if fallback == "required" || fallback == "none" {
		return fallback
	}
	return "`" + fallback + "`"
}

// All yields the summary as pairs, for a log line.
func (s *Set) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, line := range s.Summary() {
			if !yield(line.Name, line.Value) {
				return
			}
		}
	}
}
