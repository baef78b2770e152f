package sender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// replayFormat marks a file of this form.
const replayFormat = "tocsin-request/1"

// replay is a captured request as JSON. The body is text where its bytes are
// UTF-8, else base64; url may be left out, to be given when it is sent.
type replay struct {
	Format string      `json:"format"`
	Method string      `json:"method"`
	URL    string      `json:"url,omitempty"`
	Header [][2]string `json:"headers"`
	Text   *string     `json:"body,omitempty"`
	Bytes  []byte      `json:"bodyBase64,omitempty"`
}

// WriteReplay writes a request to be sent again, byte for byte.
func WriteReplay(w io.Writer, r Request) error {
	out := replay{Format: replayFormat, Method: r.Method, URL: r.URL, Header: [][2]string{}}
	for _, f := range r.Header {
		out.Header = append(out.Header, [2]string{f.Name, f.Value})
	}
	if text := string(r.Body); utf8.Valid(r.Body) {
		out.Text = &text
	} else {
		out.Bytes = r.Body
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// ReadReplay reads what WriteReplay wrote.
func ReadReplay(in io.Reader) (Request, error) {
	var from replay
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&from); err != nil {
		return Request{}, fmt.Errorf("read the captured request: %w", err)
	}
	if from.Format != replayFormat {
		return Request{}, fmt.Errorf("the captured request has the format %q, not %q", from.Format, replayFormat)
	}
	if from.Text != nil && from.Bytes != nil {
		return Request{}, errors.New("the captured request has both body and bodyBase64")
	}
	r := Request{Method: from.Method, URL: from.URL, Body: from.Bytes}
	if r.Method == "" {
		r.Method = "POST"
	}
	if from.Text != nil {
		r.Body = []byte(*from.Text)
	}
	for _, pair := range from.Header {
		r.Header = append(r.Header, trigger.Field{Name: pair[0], Value: pair[1]})
	}
	return r, nil
}
