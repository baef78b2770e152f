package triggercall

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
)

// body is a body as a view shows it:
//
//	application/json, */json, *+json   the JSON value, its text untouched
//	application/x-www-form-urlencoded  an object, key → list of values
//	multipart/form-data                {fields: key → list, files: [{name,
//	                                   filename, contentType, size, and text
//	                                   or base64}]}
//	anything else, or none             text
//	no bytes                           null
//
// What cannot be read as it is declared is text, with a problem. Text is
// decoded by its charset, UTF-8 when none is given or the name is unknown; what
// does not decode becomes U+FFFD, in the view only.
type body struct {
	json    json.RawMessage
	asSent  bool // json is the body's bytes
	problem string
}

const maxParts = 1000 // of a multipart body; each costs far more than its bytes

func parse(raw []byte, contentType, encoding string) body {
	if len(raw) == 0 {
		return body{json: json.RawMessage("null")}
	}
	if encoding != "" && !strings.EqualFold(encoding, "identity") {
		return parseCompressed(raw, contentType, encoding)
	}
	kind := mediaType(contentType)
	switch {
	case isJSON(kind):
		return parseJSON(raw, contentType)
	case kind == "application/x-www-form-urlencoded":
		return body{json: appendLists(nil, parseQuery(string(raw)))}
	case kind == "multipart/form-data":
		return parseMultipart(raw, contentType)
	}
	return asText(raw, parameter(contentType, "charset"), "")
}

// parseCompressed reads what is inside; the bytes stay compressed.
func parseCompressed(raw []byte, contentType, encoding string) body {
	plain, known, err := inflate(raw, encoding)
	switch {
	case !known:
		return asText(raw, "", "content-encoding "+encoding+" is not decoded")
	case err != nil:
		return asText(raw, "", err.Error())
	}
	inner := parse(plain, contentType, "")
	inner.asSent = false
	return inner
}

func isJSON(kind string) bool {
	return strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json")
}

func parseJSON(raw []byte, contentType string) body {
	if valid(raw) {
		return body{json: raw, asSent: true}
	}
	if text, ok := bytes.CutPrefix(raw, []byte("\xef\xbb\xbf")); ok && valid(text) {
		return body{json: text}
	}
	// RFC 8259 wants UTF-8; some senders declare something else and mean it.
	charset := parameter(contentType, "charset")
	if text, ok := decode(raw, charset); ok && valid([]byte(text)) {
		return body{json: json.RawMessage(text)}
	}
	return asText(raw, charset, "not valid JSON")
}

// valid says whether the bytes are one JSON value in UTF-8. encoding/json alone
// lets broken UTF-8 through.
func valid(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

func asText(raw []byte, charset, problem string) body {
	text, ok := decode(raw, charset)
	if !ok {
		text = string(raw)
	}
	return body{json: appendString(nil, lossy(text)), problem: problem}
}

// decode reads the bytes in a named charset; false when there is no such
// charset. UTF-8 is left to lossy.
func decode(raw []byte, charset string) (string, bool) {
	if charset == "" {
		return "", false
	}
	encoding, err := htmlindex.Get(charset)
	if err != nil {
		return "", false
	}
	if name, err := htmlindex.Name(encoding); err != nil || name == "utf-8" || name == "replacement" {
		return "", false
	}
	text, err := encoding.NewDecoder().Bytes(raw)
	return string(text), err == nil
}

func parseMultipart(raw []byte, contentType string) body {
	form, err := readMultipart(raw, parameter(contentType, "boundary"))
	if err != nil {
		return asText(raw, "", "not valid multipart/form-data")
	}
	return body{json: form}
}

var errMultipart = errors.New("multipart body")

func readMultipart(raw []byte, boundary string) (json.RawMessage, error) {
	if boundary == "" {
		return nil, errMultipart
	}
	reader := multipart.NewReader(bytes.NewReader(raw), boundary)
	var (
		fields []pair
		files  []byte
	)
	for n := 0; ; n++ {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) && n > 0 {
			break
		}
		if err != nil || n == maxParts {
			return nil, errMultipart
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, errMultipart
		}
		if part.FileName() == "" && !hasFilename(part) {
			fields = append(fields, pair{lossy(part.FormName()), lossy(string(content))})
			continue
		}
		if files != nil {
			files = append(files, ',')
		}
		files = appendFile(files, part, content)
	}
	b := appendLists([]byte(`{"fields":`), groupPairs(fields))
	b = append(append(b, `,"files":[`...), files...)
	return append(b, "]}"...), nil
}

// hasFilename finds a filename that is there but empty: a file input without a
// file.
func hasFilename(part *multipart.Part) bool {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	_, ok := params["filename"]
	return err == nil && ok
}

func appendFile(b []byte, part *multipart.Part, content []byte) []byte {
	kind := part.Header.Get("Content-Type")
	b = appendString(append(b, `{"name":`...), lossy(part.FormName()))
	b = appendString(append(b, `,"filename":`...), lossy(part.FileName()))
	b = appendString(append(b, `,"contentType":`...), printable(kind))
	b = strconv.AppendInt(append(b, `,"size":`...), int64(len(content)), 10)
	if isTextual(kind) && utf8.Valid(content) {
		return append(appendString(append(b, `,"text":`...), string(content)), '}')
	}
	b = append(b, `,"base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, content)
	return append(b, `"}`...)
}

func isTextual(contentType string) bool {
	kind := mediaType(contentType)
	return kind == "" || strings.HasPrefix(kind, "text/") || isJSON(kind) || kind == "application/xml" || strings.HasSuffix(kind, "+xml")
}

// parameter gives a parameter of a content type, also of one that the standard
// refuses.
func parameter(contentType, name string) string {
	_, rest, found := strings.Cut(contentType, ";")
	if !found {
		return ""
	}
	if _, params, err := mime.ParseMediaType(contentType); err == nil {
		return params[name]
	}
	for entry := range strings.SplitSeq(rest, ";") {
		key, value, _ := strings.Cut(entry, "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}
