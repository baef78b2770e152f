package webhook

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// answer is what a caller gets, and what is counted for it.
type answer struct {
	status  int
	header  []trigger.Field
	body    []byte
	outcome string
}

// answerTo answers a call that is stored (amendment: also 200 when the ingest
// parser threw).
func answerTo(result trigger.IngestResult) *answer {
	outcome := string(result.Status)
	if outcome == "" {
		outcome = string(trigger.StatusReceived)
	}
	if result.Unwritten {
		outcome = outcomeUnwritten
	}
	if result.Response != nil {
		return custom(result.Response, outcome)
	}
	body := append(make([]byte, 0, 16+34*len(result.EventIDs)), `{"eventIds":[`...)
	for i, id := range result.EventIDs {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendQuote(body, id)
	}
	return &answer{status: http.StatusOK, header: jsonHeader(), body: append(body, "]}"...), outcome: outcome}
}

// custom is the answer an app asks for (DESIGN §6). What it may not do is speak
// for the connection, or be read as a page of this host.
func custom(r *trigger.Response, outcome string) *answer {
	a := &answer{status: r.Status, body: r.Body, outcome: outcome}
	if a.status < 200 || a.status > 599 {
		a.status = http.StatusOK
	}
	typed := false
	for _, field := range r.Header {
		if !mayAnswer(field) {
			continue
		}
		if strings.EqualFold(field.Name, "Content-Type") {
			if typed {
				a.header = slices.DeleteFunc(a.header, func(f trigger.Field) bool { return strings.EqualFold(f.Name, "Content-Type") })
			}
			typed = true
		}
		a.header = append(a.header, field)
	}
	if !typed {
		a.header = append(a.header, trigger.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"})
	}
	a.header = append(a.header, trigger.Field{Name: "Content-Security-Policy", Value: "default-src 'none'; sandbox"})
	return a
}

// mayAnswer refuses header fields of the connection, of the host and malformed
// ones.
func mayAnswer(field trigger.Field) bool {
	switch strings.ToLower(field.Name) {
	case "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "content-encoding", "date", "server", "set-cookie", "alt-svc", "strict-transport-security", "clear-site-data",
		"content-security-policy", "x-content-type-options":
		return false
	}
	token := field.Name != "" && !strings.ContainsFunc(field.Name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	return token && !strings.ContainsFunc(field.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func jsonHeader() []trigger.Field {
	return []trigger.Field{{Name: "Content-Type", Value: "application/json"}}
}

// refuse answers a call that is not stored. retryAfter is in seconds, or "".
func refuse(status int, outcome, code, message, retryAfter string) *answer {
	var envelope struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	envelope.Error.Code, envelope.Error.Message = code, message
	body, _ := json.Marshal(envelope) //nolint:errchkjson // two strings always can be
	a := &answer{status: status, header: jsonHeader(), body: body, outcome: outcome}
	if retryAfter != "" {
		a.header = append(a.header, trigger.Field{Name: "Retry-After", Value: retryAfter})
	}
	return a
}

// unknown is the one answer to every address that is not there.
func unknown() *answer {
	return refuse(http.StatusNotFound, outcomeUnknown, "unknown_subscription", "there is no subscription at this address", "")
}

func tooLarge() *answer {
	return refuse(http.StatusRequestEntityTooLarge, outcomeTooLarge, "body_too_large", "the body is larger than this host takes", "")
}

func (a *answer) write(w http.ResponseWriter) {
	header := w.Header()
	for _, field := range a.header {
		header.Add(field.Name, field.Value)
	}
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	bodiless := a.status == http.StatusNoContent || a.status == http.StatusNotModified || a.status == http.StatusResetContent
	if bodiless {
		header.Del("Content-Type")
	} else {
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if !bodiless {
		_, _ = w.Write(a.body) // the caller may be gone; net/http leaves it out of the answer to a HEAD
	}
}
