package manager

import "encoding/json"

// object puts JSON texts together under their keys, without reading them again:
// what a call holds stays as it was sent.
func object(pairs ...any) json.RawMessage {
	size := 2
	for _, part := range pairs {
		switch part := part.(type) {
		case string:
			size += len(part) + 4
		case json.RawMessage:
			size += len(part)
		}
	}
	out := make(json.RawMessage, 0, size)
	out = append(out, '{')
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, pairs[i].(string)...) //nolint:errcheck,forcetypeassert // a literal of this package
		out = append(out, '"', ':')
		out = append(out, pairs[i+1].(json.RawMessage)...) //nolint:errcheck,forcetypeassert // likewise
	}
	return append(out, '}')
}

func quote(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a string always can be
	return quoted
}

func orNull(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
