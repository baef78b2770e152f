package jsvm

import (
	"strings"

	"github.com/nlnwa/whatwg-url/url"
)

func (vm *VM) urlParse(args arguments) (value, error) {
	var parsed *url.Url
	var err error
	if args.isText(1) {
		parsed, err = url.ParseRef(args.text(1), args.text(0))
	} else {
		parsed, err = url.Parse(args.text(0))
	}
	if err != nil {
		return null, nil //nolint:nilerr // the prelude makes the error
	}
	return vm.engine.str(urlParts(parsed)), nil
}

func (vm *VM) urlSet(args arguments) (value, error) {
	parsed, err := url.Parse(args.text(0))
	if err != nil {
		return null, nil //nolint:nilerr // the prelude makes the error
	}
	text := args.text(2)
	switch args.text(1) {
	case "protocol":
		parsed.SetProtocol(text)
	case "username":
		parsed.SetUsername(text)
	case "password":
		parsed.SetPassword(text)
	case "host":
		parsed.SetHost(text)
	case "hostname":
		parsed.SetHostname(text)
	case "port":
		parsed.SetPort(text)
	case "pathname":
		parsed.SetPathname(text)
	case "search":
		parsed.SetSearch(text)
	case "hash":
		parsed.SetHash(text)
	}
	return vm.engine.str(urlParts(parsed)), nil
}

// urlParts writes the parts in the order of the prelude's constants. No part
// of a URL holds a line feed.
func urlParts(u *url.Url) string {
	origin := "null"
	switch u.Protocol() {
	case "http:", "https:", "ws:", "wss:", "ftp:":
		origin = u.Protocol() + "//" + u.Host()
	}
	return strings.Join([]string{
		u.Href(false), u.Protocol(), u.Username(), u.Password(), u.Host(), u.Hostname(), u.Port(), u.Pathname(), u.Search(), u.Hash(), origin,
	}, "\n")
}

// percentDecode decodes form data; what is no escape stays as it is.
func percentDecode(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := unhex(s[i+1]), unhex(s[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
