package embedded

import (
	"encoding/json"
	"strconv"
)

// Event is trigger.event of a run's scope (DESIGN §6): the payload, with the
// host's event id as its id when it is an object that has none. The rest of
// its text stays as it is.
func Event(eventID string, payload json.RawMessage) json.RawMessage {
	at := 0
	for at < len(payload) && isSpace(payload[at]) {
		at++
	}
	if at == len(payload) || payload[at] != '{' {
		return payload
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil {
		return payload
	}
	if _, has := members["id"]; has {
		return payload
	}
	out := make([]byte, 0, len(payload)+len(eventID)+8)
	out = append(out, payload[:at+1]...)
	out = append(out, `"id":`...)
	out = strconv.AppendQuote(out, eventID) // ids are plain ASCII
	if len(members) > 0 {
		out = append(out, ',')
	}
	return append(out, payload[at+1:]...)
}

// Scope is the trigger part of a run's scope: {"type":"webhook","event":…}.
func Scope(eventID string, payload json.RawMessage) json.RawMessage {
	event := Event(eventID, payload)
	if len(event) == 0 {
		event = json.RawMessage("null")
	}
	out := make([]byte, 0, len(event)+32)
	out = append(out, `{"type":"webhook","event":`...)
	out = append(out, event...)
	return append(out, '}')
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
