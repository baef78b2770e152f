package triggercall

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"
)

// ErrTooLarge says that a compressed body holds more than was allowed for.
var ErrTooLarge = errors.New("the body is too large once decompressed")

var errNotCompressed = errors.New("the body is not compressed as its content-encoding says")

// maxInflated bounds what a view decompresses; the listener has its own limit.
const maxInflated = 64 << 20

// CheckInflated decompresses a body without keeping it, and gives ErrTooLarge
// when more than limit comes out. What cannot be decompressed is no error: it is
// kept as it came.
func CheckInflated(raw []byte, encoding string, limit int64) error {
	reader, err := decompressor(raw, encoding)
	if err != nil || reader == nil {
		return nil //nolint:nilerr // such a body is text, with a problem
	}
	n, _ := io.Copy(io.Discard, io.LimitReader(reader, limit+1)) // what is broken ends early
	if n > limit {
		return ErrTooLarge
	}
	return nil
}

// inflate decompresses a body; ok is false when its encoding is not known.
func inflate(raw []byte, encoding string) (plain []byte, ok bool, err error) {
	reader, err := decompressor(raw, encoding)
	if err != nil || reader == nil {
		return nil, reader != nil || err != nil, err
	}
	plain, err = io.ReadAll(io.LimitReader(reader, maxInflated+1))
	switch {
	case len(plain) > maxInflated:
		return nil, true, ErrTooLarge
	case err != nil:
		return nil, true, errNotCompressed
	}
	return plain, true, nil
}

// decompressor is nil for an encoding that is not known.
func decompressor(raw []byte, encoding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "gzip", "x-gzip":
		reader, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, errNotCompressed
		}
		return reader, nil
	case "deflate": // zlib by the standard, bare by some senders
		if reader, err := zlib.NewReader(bytes.NewReader(raw)); err == nil {
			return reader, nil
		}
		return flate.NewReader(bytes.NewReader(raw)), nil
	}
	return nil, nil
}
