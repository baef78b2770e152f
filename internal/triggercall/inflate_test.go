package triggercall_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"io"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

func compress(t *testing.T, make func(io.Writer) io.WriteCloser, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

// C12, inputs 1 and 3.
func TestCompressedBodiesAreReadAndKept(t *testing.T) {
	t.Parallel()

	given, err := base64.StdEncoding.DecodeString("H4sIAAAAAAAC/6tWSsvPV7JSSkosUqoFAO/1K/4NAAAA")
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"foo":"bar"}`)
	bare := func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, 1) // level 1 exists
		return f
	}
	for name, c := range map[string]struct {
		encoding string
		body     []byte
		want     string
	}{
		"the contract's":  {"gzip", given, `{"foo":"bar"}`},
		"upper case":      {"GZIP", given, `{"foo":"bar"}`},
		"deflate":         {"deflate", compress(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, text), `{"foo":"bar"}`},
		"deflate, bare":   {"deflate", compress(t, bare, text), `{"foo":"bar"}`},
		"plain":           {"gzip", text, `"{\"foo\":\"bar\"}"`},
		"cut":             {"gzip", given[:20], ""},
		"not known":       {"compress", text, `"{\"foo\":\"bar\"}"`},
		"JSON broken":     {"gzip", compress(t, gzipped, []byte("{")), `"{"`},
		"nothing at all":  {"gzip", nil, "null"},
		"nothing, packed": {"gzip", compress(t, gzipped, nil), "null"},
	} {
		call := &trigger.Call{Body: c.body, Header: []trigger.Field{
			{Name: "content-type", Value: "application/json"}, {Name: "content-encoding", Value: c.encoding},
		}}
		if got := string(triggercall.BodyEvent(call)); got != c.want && c.want != "" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if err := triggercall.CheckInflated(c.body, c.encoding, 1<<20); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// C12, input 2.
func TestADecompressionBombIsTooLarge(t *testing.T) {
	t.Parallel()

	bomb := compress(t, gzipped, make([]byte, 16<<20))
	if err := triggercall.CheckInflated(bomb, "gzip", 1<<20); !errors.Is(err, triggercall.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if err := triggercall.CheckInflated(bomb, "gzip", 16<<20); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}
