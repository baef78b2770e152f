package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	maxBody = 1 << 20
	maxName = 256 // of an id in a path, a cursor, a workflow id
)

// param is a path parameter, decoded. App ids hold dots and may hold slashes,
// so clients percent-encode them; the router leaves that as it is only when the
// path cannot be told otherwise.
func param(c echo.Context, name string) (string, bool) {
	value := c.Param(name)
	if c.Request().URL.RawPath != "" {
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return "", false
		}
		value = decoded
	}
	return value, plain(value)
}

// plain says whether a text can be a name of anything.
func plain(text string) bool {
	return text != "" && len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func subscriptionParam(c echo.Context) (trigger.SubscriptionID, error) {
	id, ok := param(c, "id")
	if !ok {
		return "", trigger.ErrUnknownSubscription
	}
	return trigger.SubscriptionID(id), nil
}

func eventParam(c echo.Context) (string, error) {
	id, ok := param(c, "id")
	if !ok {
		return "", trigger.ErrUnknownEvent
	}
	return id, nil
}

// page reads limit and cursor.
func page(c echo.Context) (trigger.Page, error) {
	var p trigger.Page
	if text := c.QueryParam("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return p, &trigger.InvalidError{Code: "invalid_limit", Message: "limit must be a number from 1 to " + strconv.Itoa(trigger.MaxPage)}
		}
		p.Limit = limit
	}
	if p.Cursor = c.QueryParam("cursor"); p.Cursor != "" && !plain(p.Cursor) {
		return p, &trigger.InvalidError{Code: "invalid_cursor", Message: "the cursor is not one that this list gave out"}
	}
	return p, nil
}

// readJSON reads the body, one JSON object, into target.
func readJSON(c echo.Context, target any) error {
	raw, err := readBody(c)
	if err != nil {
		return err
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' || !utf8.Valid(raw) {
		return &trigger.InvalidError{Code: "invalid_body", Message: "the body must be a JSON object in UTF-8"}
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return &trigger.InvalidError{Code: "invalid_body", Message: why(err)}
	}
	return nil
}

// why says what is wrong with a body without quoting it.
func why(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return kind.Field + " must not be a " + kind.Value
	}
	return "the body is not valid JSON"
}

func readBody(c echo.Context) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody))
	var large *http.MaxBytesError
	if err != nil && !errors.As(err, &large) {
		return nil, &trigger.InvalidError{Code: "invalid_body", Message: "the body ended early"}
	}
	return raw, err
}

// writeJSON writes a value as JSON, < and > as they are.
func writeJSON(c echo.Context, status int, value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return c.Blob(status, "application/json", b.Bytes())
}

// document is a JSON object put together from texts that must stay as they are:
// encoding/json would rewrite a payload's blanks.
type document struct{ b []byte }

func (d *document) raw(key string, text json.RawMessage) *document {
	separator := byte(',')
	if len(d.b) == 0 {
		separator = '{'
	}
	d.b = append(d.b, separator)
	d.b = append(strconv.AppendQuote(d.b, key), ':') // keys are literals of this package
	if len(text) == 0 {
		text = json.RawMessage("null")
	}
	d.b = append(d.b, text...)
	return d
}

func (d *document) value(key string, value any) *document {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		b.Reset() // only a RawMessage can fail, and those are given to raw
	}
	return d.raw(key, bytes.TrimSpace(b.Bytes()))
}

func (d *document) done() json.RawMessage { return append(d.b, '}') }

func (d *document) write(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/json", d.done())
}
