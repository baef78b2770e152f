package config

import (
	"net/url"
	"strings"
)

// DSN is a PostgreSQL connection string. It prints as host, database and user;
// Reveal gives the whole, password and all.
type DSN struct {
	text                 string
	Host, Database, User string
}

// Reveal gives the connection string.
func (d DSN) Reveal() string { return d.text }

// IsZero says that there is none.
func (d DSN) IsZero() bool { return d.text == "" }

// String shows where it leads and as whom.
func (d DSN) String() string {
	return "host=" + orUnset(d.Host) + " database=" + orUnset(d.Database) + " user=" + orUnset(d.User)
}

// GoString keeps %#v from showing the password.
func (d DSN) GoString() string { return d.String() }

// MarshalText keeps encoders from showing the password.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func orUnset(text string) string {
	if text == "" {
		return "(default)"
	}
	return text
}

// PostgreSQL takes a connection string in URL or in keyword form.
func PostgreSQL() Parser[DSN] {
	return Parser[DSN]{
		Want:   "postgres://user:password@host:port/database, with special characters in the password percent-encoded",
		Secret: true,
		Show:   DSN.String,
		Parse:  parseDSN,
	}
}

func parseDSN(text string) (DSN, error) {
	scheme, _, isURL := strings.Cut(text, "://")
	switch {
	case isURL && scheme != "postgres" && scheme != "postgresql":
		return DSN{}, Reason("the value does not start with postgres://")
	case isURL:
		return parseURL(text)
	case strings.Contains(text, "="):
		return parseKeywords(text)
	}
	return DSN{}, Reason("the value is not a PostgreSQL connection string")
}

func parseURL(text string) (DSN, error) {
	u, err := url.Parse(text)
	// err quotes what it could not read, and that may be the password. An @ in
	// the path means that a slash in the password ended the host early.
	if err != nil || strings.Contains(u.EscapedPath(), "@") {
		return DSN{}, Reason("the value is not a readable URL (%s)", guess(text))
	}
	query := u.Query()
	return DSN{
		text:     text,
		Host:     first(u.Host, query.Get("host")),
		Database: first(strings.TrimPrefix(u.Path, "/"), query.Get("dbname")),
		User:     first(u.User.Username(), query.Get("user")),
	}, nil
}

// guess finds host, database and user in a URL that cannot be read. Everything
// up to the last @ may be password, and without an @ nothing is safe to show.
func guess(text string) string {
	_, text, _ = strings.Cut(text, "://")
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return "it has no @ before the host"
	}
	user, _, _ := strings.Cut(text[:at], ":")
	rest, _, _ := strings.Cut(text[at+1:], "?")
	host, database, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(user, "@/?") { // no colon: where the user ends is anyone's guess
		user = ""
	}
	return DSN{Host: host, Database: database, User: user}.String()
}

// parseKeywords reads libpq's "host=… dbname=…", with '…' around values that
// hold blanks.
func parseKeywords(text string) (DSN, error) {
	dsn := DSN{text: text}
	for rest := strings.TrimSpace(text); rest != ""; {
		name, value, remaining, ok := keyword(rest)
		if !ok {
			return DSN{}, Reason("the value is not a readable list of keyword=value")
		}
		switch name {
		case "host":
			dsn.Host = value
		case "dbname", "database":
			dsn.Database = value
		case "user":
			dsn.User = value
		}
		rest = strings.TrimSpace(remaining)
	}
	return dsn, nil
}

func keyword(text string) (name, value, rest string, ok bool) {
	name, text, ok = strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.ContainsAny(name, " \t'") {
		return "", "", "", false
	}
	text = strings.TrimLeft(text, " \t")
	quoted := strings.HasPrefix(text, "'")
	if quoted {
		text = text[1:]
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case quoted && c == '\'':
			return name, b.String(), text[i+1:], true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			return name, b.String(), text[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return name, b.String(), "", !quoted
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}
