// Package triggercall turns a received call into the RFC's TriggerCall: the
// view a hook sees, with everything in it, and the view that is stored and
// shown, with credentials masked. It parses bodies by content type for these
// views; the exact bytes stay what they are and travel beside. It knows nothing
// of transport, storage or subscriptions.
//
// A view has the RFC's five fields (amendment §Signatures) and more:
//
//	method        as sent
//	path          the URL path as sent, escapes kept
//	query         flat record; of a repeated key the last value
//	headers       flat record, lower-case keys; repeated ones joined with ", "
//	body          parsed, see Body
//	url           the public URL: configured origin, path and query as sent
//	rawQuery      the query text as sent
//	headerValues  every header, key → list
//	queryValues   every query value, key → list
//	bodyError     why the body is text although it is declared as something else
//
// rawBody and rawBodyBase64 are added by whoever hands the view to a hook.
package triggercall

import (
	"encoding/json"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// HookView is the TriggerCall that handleIngest sees: unmasked (RFC amendment
// §Listener), without rawBody. publicURL is the origin in front of the path.
func HookView(call *trigger.Call, publicURL string) json.RawMessage {
	return view{
		method: call.Method, path: call.Path, rawQuery: call.RawQuery, header: call.Header,
		body: parse(call.Body, contentType(call.Header), contentEncoding(call.Header)),
	}.json(publicURL)
}

// HookViewWith is HookView with another body: JSON that the content type does
// not tell of.
func HookViewWith(call *trigger.Call, publicURL string, shown json.RawMessage) json.RawMessage {
	return view{
		method: call.Method, path: call.Path, rawQuery: call.RawQuery, header: call.Header, body: body{json: shown},
	}.json(publicURL)
}

// StoredView is the TriggerCall that parseOutput and the API see: credential
// headers and query values are masked. What is stored is masked already; doing
// it again costs little and covers names that joined the list since.
func StoredView(call *trigger.StoredCall, publicURL string) json.RawMessage {
	return StoredViewWith(call, publicURL, nil)
}

// StoredViewWith is StoredView with what else is to be hidden in the body; nil
// hides nothing more.
func StoredViewWith(call *trigger.StoredCall, publicURL string, mask func(json.RawMessage) json.RawMessage) json.RawMessage {
	header := make([]trigger.Field, len(call.Header))
	for i, f := range call.Header {
		if Sensitive(f.Name) {
			f.Value = Redacted
		}
		header[i] = f
	}
	shown := parse(call.Body, contentType(call.Header), contentEncoding(call.Header))
	if mask != nil {
		shown.json = mask(shown.json)
	}
	return view{
		method: call.Method, path: call.Path, rawQuery: MaskQuery(call.RawQuery), header: header, body: shown,
	}.json(publicURL)
}

// BodyEvent is the event of a call whose trigger has no handleIngest: the
// call's body (RFC amendment §Processing order). nil means that the bytes are
// JSON as they stand, which is the case that costs nothing.
func BodyEvent(call *trigger.Call) json.RawMessage {
	body := parse(call.Body, contentType(call.Header), contentEncoding(call.Header))
	if body.asSent {
		return nil
	}
	return body.json
}

type view struct {
	method, path, rawQuery string
	header                 []trigger.Field
	body                   body
}

func (v view) json(publicURL string) json.RawMessage {
	headers, query := group(v.header, printable), parseQuery(v.rawQuery)
	b := make([]byte, 0, len(v.body.json)+len(publicURL)+3*len(v.rawQuery)+2*len(v.path)+96*len(v.header)+256)
	b = appendString(append(b, `{"method":`...), v.method)
	b = appendString(append(b, `,"path":`...), v.path)
	b = appendFlat(append(b, `,"query":`...), query, last)
	b = appendFlat(append(b, `,"headers":`...), headers, joined)
	b = append(append(b, `,"body":`...), v.body.json...)
	b = appendString(append(b, `,"url":`...), v.url(publicURL))
	b = appendString(append(b, `,"rawQuery":`...), v.rawQuery)
	b = appendLists(append(b, `,"headerValues":`...), headers)
	b = appendLists(append(b, `,"queryValues":`...), query)
	if v.body.problem != "" {
		b = appendString(append(b, `,"bodyError":`...), v.body.problem)
	}
	return append(b, '}')
}

func (v view) url(publicURL string) string {
	if v.rawQuery == "" {
		return publicURL + v.path
	}
	return publicURL + v.path + "?" + v.rawQuery
}

func contentType(header []trigger.Field) string { return value(header, "content-type") }

func contentEncoding(header []trigger.Field) string { return value(header, "content-encoding") }

func value(header []trigger.Field, name string) string {
	for i := range header {
		if header[i].Name == name {
			return header[i].Value
		}
	}
	return ""
}
