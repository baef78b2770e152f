package params

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// compile reads a JavaScript pattern for Go's engine, whose time is linear in
// the value, so no pattern and no value can stall the host. What that engine
// cannot do (look-around, back references, more than 1000 repeats) is an error:
// Check refuses it when the app is loaded. Patterns are unanchored and have no
// flags, as in new RegExp(pattern).
func compile(pattern string) (*regexp.Regexp, error) {
	translated, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(translated)
	if err == nil {
		return compiled, nil
	}
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return nil, fmt.Errorf("is not supported: %s: %s", bad.Code, bad.Expr)
	}
	return nil, fmt.Errorf("is not supported: %w", err)
}

// jsSpace is what \s means in JavaScript, as the inside of a character class.
const jsSpace = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`

// translate rewrites what JavaScript spells differently.
func translate(pattern string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			text, used, err := escape(pattern[i:], inClass)
			if err != nil {
				return "", err
			}
			out.WriteString(text)
			i += used - 1
		case c == '[' && !inClass:
			text, used := openClass(pattern[i:])
			out.WriteString(text)
			i += used - 1
			inClass = text == "[" || text == "[^"
		case c == '[' && inClass:
			out.WriteString(`\[`) // plain in JavaScript, the start of [:name:] in Go
		case c == ']' && inClass:
			inClass = false
			out.WriteByte(c)
		case c == '(' && !inClass:
			if err := lookAround(pattern[i:]); err != nil {
				return "", err
			}
			out.WriteByte(c)
		case c == '.' && !inClass:
			out.WriteString(`[^\n\r\x{2028}\x{2029}]`)
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

// openClass reads the start of a character class. JavaScript's [] matches
// nothing and [^] everything.
func openClass(at string) (string, int) {
	switch {
	case strings.HasPrefix(at, "[^]"):
		return `[\x{0}-\x{10ffff}]`, 3
	case strings.HasPrefix(at, "[]"):
		return `[^\x{0}-\x{10ffff}]`, 2
	case strings.HasPrefix(at, "[^"):
		return "[^", 2
	}
	return "[", 1
}

func lookAround(at string) error {
	for _, start := range []string{"(?=", "(?!", "(?<=", "(?<!"} {
		if strings.HasPrefix(at, start) {
			return fmt.Errorf("is not supported: look-around: %s", start)
		}
	}
	return nil
}

// escape translates the escape at the start of at and says how long it was.
func escape(at string, inClass bool) (string, int, error) {
	switch c := at[1]; {
	case c == 's' && inClass:
		return jsSpace, 2, nil
	case c == 's':
		return "[" + jsSpace + "]", 2, nil
	case c == 'S' && !inClass:
		return "[^" + jsSpace + "]", 2, nil
	case c == 'b' && inClass:
		return `\x08`, 2, nil
	case c == 'u' && len(at) >= 6 && isHex(at[2:6]):
		return `\x{` + at[2:6] + `}`, 6, nil
	case c == 'x' && len(at) >= 4 && isHex(at[2:4]):
		return at[:4], 4, nil
	case c == '0':
		return `\x00`, 2, nil
	case c >= '1' && c <= '9' || c == 'k':
		return "", 0, fmt.Errorf("is not supported: back reference: %s", at[:2])
	case c == 'c' && len(at) >= 3:
		return fmt.Sprintf(`\x%02x`, at[2]&0x1f), 3, nil
	case c >= 0x80:
		return "", 1, nil // the character itself follows
	case strings.IndexByte("dDwWbBnrtfvSpP", c) >= 0:
		return at[:2], 2, nil
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return string(c), 2, nil // JavaScript drops the backslash of an unknown letter
	}
	return at[:2], 2, nil
}

func isHex(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", c) }) < 0
}
