package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func headerValues(call *trigger.Call, name string) []string {
	var values []string
	for i := range call.Header {
		if call.Header[i].Name == name {
			values = append(values, call.Header[i].Value)
		}
	}
	return values
}

// queryValues gives the decoded values of a query name. What cannot be decoded
// is no value.
func queryValues(raw, name string) []string {
	var values []string
	for entry := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(entry, "=")
		key, errKey := url.QueryUnescape(key)
		value, errValue := url.QueryUnescape(value)
		if errKey == nil && errValue == nil && key == name {
			values = append(values, value)
		}
	}
	return values
}

// body is a call's body, read when first needed.
type body struct {
	read   bool
	doc    jsonpointer.Doc
	isJSON bool
	form   []pair
	isForm bool
}

func (b *body) parse(call *trigger.Call) {
	if b.read {
		return
	}
	b.read = true
	contentType := call.HeaderValue("content-type")
	kind, parameters, _ := mime.ParseMediaType(contentType)
	switch kind {
	case formType:
		b.form, b.isForm = parseForm(string(call.Body))
	case "multipart/form-data":
		b.form, b.isForm = parseMultipart(call.Body, parameters["boundary"])
	default:
		b.doc, b.isJSON = jsonpointer.Read(call.Body)
	}
}

const formType = "application/x-www-form-urlencoded"

func (b *body) lookup(call *trigger.Call, p place) ([]string, error) {
	b.parse(call)
	switch {
	case b.isForm && p.form != "":
		var values []string
		for _, field := range b.form {
			if field.name == p.form {
				values = append(values, field.value)
			}
		}
		return values, nil
	case b.isJSON && p.body != nil:
		// Every element must have it: what has not is vouched for by nobody.
		found := b.doc.All(p.body)
		if star := slices.Index(p.body, "*"); star >= 0 && len(found) != len(b.doc.All(p.body[:star+1])) {
			return nil, ReasonSignatureMissing
		}
		var values []string
		for _, value := range found {
			text, ok := jsonpointer.Text(value)
			if !ok {
				return nil, ReasonBodyMalformed
			}
			values = append(values, text)
		}
		return values, nil
	}
	return nil, ReasonBodyMalformed
}

// parseForm reads a form strictly: what the signer wrote can be read.
func parseForm(text string) ([]pair, bool) {
	var fields []pair
	for entry := range strings.SplitSeq(text, "&") {
		if entry == "" {
			continue
		}
		name, value, _ := strings.Cut(entry, "=")
		name, errName := url.QueryUnescape(name)
		value, errValue := url.QueryUnescape(value)
		if errName != nil || errValue != nil {
			return nil, false
		}
		fields = append(fields, pair{name, value})
	}
	return fields, true
}

const (
	maxParts = 1000
	maxField = 64 << 10 // of a multipart field; files are passed over
)

func parseMultipart(raw []byte, boundary string) ([]pair, bool) {
	if boundary == "" {
		return nil, false
	}
	reader := multipart.NewReader(bytes.NewReader(raw), boundary)
	var fields []pair
	for n := 0; ; n++ {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return fields, n > 0
		}
		if err != nil || n == maxParts {
			return nil, false
		}
		if part.FileName() != "" || part.FormName() == "" {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField))
		if err != nil {
			return nil, false
		}
		fields = append(fields, pair{part.FormName(), string(value)})
	}
}

// form is what Twilio appends to the URL: the form's fields by full key, each
// value once, or nothing when the URL carries the body's digest. A body that is
// covered by neither would pass unsigned.
func (a *attempt) form() ([]byte, error) {
	call := a.in.Call
	if digests := queryValues(call.RawQuery, "bodySHA256"); len(digests) > 0 {
		sum := sha256.Sum256(call.Body)
		if len(digests) > 1 || !Equal(digests[0], hex.EncodeToString(sum[:])) {
			return nil, ReasonSignatureMismatch
		}
		return nil, nil
	}
	if len(call.Body) == 0 {
		return nil, nil
	}
	a.body.parse(call)
	if !a.body.isForm {
		return nil, ReasonBodyNotCovered
	}
	fields := slices.Clone(a.body.form)
	slices.SortFunc(fields, func(x, y pair) int {
		if c := strings.Compare(x.name, y.name); c != 0 {
			return c
		}
		return strings.Compare(x.value, y.value)
	})
	var text []byte
	for _, field := range slices.Compact(fields) {
		text = append(append(text, field.name...), field.value...)
	}
	return text, nil
}

func checksum(body []byte) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)
}

// otherPort writes a URL with its scheme's port where it has none, and without
// a port where it has one: Twilio signs either.
func otherPort(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	switch {
	case u.Port() != "":
		return []string{scheme + "://" + strings.TrimSuffix(rest[:end], ":"+u.Port()) + rest[end:]}
	case scheme == "https":
		return []string{scheme + "://" + rest[:end] + ":443" + rest[end:]}
	case scheme == "http":
		return []string{scheme + "://" + rest[:end] + ":80" + rest[end:]}
	}
	return nil
}

// listed are the escapes that HubSpot decodes in a URL before signing it, and
// no others.
const listed = ":/?@!$'()*,;"

func decodeListed(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil && strings.IndexByte(listed, byte(c)) >= 0 {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
