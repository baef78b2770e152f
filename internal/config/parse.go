package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

// Text takes any text.
func Text(want string) Parser[string] {
	return Parser[string]{Want: want, Parse: func(text string) (string, error) { return text, nil }}
}

// Secret takes any text and hides it.
func Secret(want string) Parser[secret.Text] {
	return Parser[secret.Text]{Want: want, Secret: true, Parse: func(text string) (secret.Text, error) {
		return secret.Text(text), nil
	}}
}

// OneOf takes one of a few words.
func OneOf(words ...string) Parser[string] {
	return Parser[string]{Want: "one of " + strings.Join(words, ", "), Parse: func(text string) (string, error) {
		word := strings.ToLower(text)
		if !slices.Contains(words, word) {
			return "", Reason("%q is not known", text)
		}
		return word, nil
	}}
}

// Duration takes a Go duration between two bounds.
func Duration(least, most time.Duration) Parser[time.Duration] {
	return Parser[time.Duration]{
		Want: "a duration from " + least.String() + " to " + most.String() + ", such as 1s or 250ms",
		Parse: func(text string) (time.Duration, error) {
			d, err := time.ParseDuration(text)
			if err != nil {
				return 0, Reason("%q is not a duration", text)
			}
			if d < least || d > most {
				return 0, Reason("%s is out of range", text)
			}
			return d, nil
		},
	}
}

// Int takes a whole number between two bounds.
func Int(least, most int) Parser[int] {
	return Parser[int]{
		Want: "a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most),
		Parse: func(text string) (int, error) {
			n, err := strconv.Atoi(text)
			if err != nil {
				return 0, Reason("%q is not a number", text)
			}
			if n < least || n > most {
				return 0, Reason("%s is out of range", text)
			}
			return n, nil
		},
	}
}

// Bytes takes a size between two bounds: a number, or one with a unit.
func Bytes(least, most int64) Parser[int64] {
	return Parser[int64]{
		Want: "a size from " + humanize.IBytes(uint64(max(least, 0))) + " to " + humanize.IBytes(uint64(max(most, 0))) + ", such as 1048576 or 1MiB",
		Parse: func(text string) (int64, error) {
			n, err := humanize.ParseBytes(text)
			if err != nil {
				return 0, Reason("%q is not a size", text)
			}
			if n > uint64(max(most, 0)) || int64(n) < least {
				return 0, Reason("%s is out of range", text)
			}
			return int64(n), nil
		},
	}
}

// Bool takes 1, true, yes, on and their opposites.
func Bool() Parser[bool] {
	return Parser[bool]{Want: "true or false (1 or 0)", Parse: func(text string) (bool, error) {
		switch strings.ToLower(text) {
		case "1", "true", "yes", "on":
			return true, nil
		case "0", "false", "no", "off":
			return false, nil
		}
		return false, Reason("%q is neither true nor false", text)
	}}
}

// Listen takes the address of a listener.
func Listen() Parser[string] {
	return Parser[string]{Want: "host:port or :port", Parse: func(text string) (string, error) {
		_, port, err := net.SplitHostPort(text)
		if err != nil {
			return "", Reason("%q is not an address", text)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return "", Reason("%q is not a port", port)
		}
		return text, nil
	}}
}

// List takes words that commas separate.
func List(want string) Parser[[]string] {
	return Parser[[]string]{Want: want, Parse: func(text string) ([]string, error) {
		var words []string
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				words = append(words, word)
			}
		}
		return words, nil
	}}
}

// URL takes an absolute URL of one of the schemes. A password in it is not
// shown, and a URL that cannot be read is not shown at all, since nobody can
// say where its password is.
func URL(schemes ...string) Parser[*url.URL] {
	return Parser[*url.URL]{
		Want: "a URL that starts with " + strings.Join(schemes, ": or ") + ":",
		Show: func(u *url.URL) string { return u.Redacted() },
		Parse: func(text string) (*url.URL, error) {
			u, err := url.Parse(text)
			if err != nil {
				return nil, Reason("the value is not a URL (not shown, it may hold a password)")
			}
			if !slices.Contains(schemes, u.Scheme) {
				return nil, Reason("the scheme %q is not known", u.Scheme)
			}
			return u, nil
		},
	}
}

// Origin takes scheme://host[:port], with nothing behind it.
func Origin() Parser[string] {
	base := URL("http", "https")
	return Parser[string]{Want: "an origin such as https://hooks.example.com", Parse: func(text string) (string, error) {
		u, err := base.Parse(text)
		if err != nil {
			return "", err
		}
		if u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return "", Reason("it must be scheme and host only")
		}
		return u.Scheme + "://" + u.Host, nil
	}}
}

// Keys takes the key list of package secret.
func Keys() Parser[*secret.Keyring] {
	return Parser[*secret.Keyring]{
		Want:   "id:base64,… where each key is 32 bytes, as from: openssl rand -base64 32",
		Secret: true,
		Parse: func(text string) (*secret.Keyring, error) {
			ring, err := secret.ParseKeyring(secret.Text(text))
			if err != nil {
				return nil, Reason("%s", err)
			}
			return ring, nil
		},
	}
}
