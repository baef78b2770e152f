package connection

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Redacted is the connection as hooks and readers see it (w6w contract §5):
// without credential, lastRefreshedAt and manifestVersion.
func Redacted(c *trigger.Connection) json.RawMessage {
	text, err := json.Marshal(struct {
		ID        string                  `json:"id"`
		App       string                  `json:"app"`
		Auth      string                  `json:"auth"`
		Owner     string                  `json:"owner"`
		State     trigger.ConnectionState `json:"state"`
		Display   json.RawMessage         `json:"display,omitempty"`
		Label     string                  `json:"label,omitempty"`
		CreatedAt string                  `json:"createdAt"`
		ExpiresAt string                  `json:"expiresAt,omitempty"`
		Target    json.RawMessage         `json:"target,omitempty"`
	}{c.ID, c.AppID, c.Auth, c.Owner, c.State, c.Display, c.Label, iso(&c.CreatedAt), iso(c.ExpiresAt), c.Target})
	if err != nil {
		return json.RawMessage("null") // display and target were checked when they came in
	}
	return text
}

func iso(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// scrub takes a credential's values out of a text that an app made up.
func scrub(text string, credential trigger.Credential) string {
	decoder := json.NewDecoder(bytes.NewReader(credential.Reveal()))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return text
		}
		value, ok := token.(string)
		const shortest = 4 // less is no secret, and would tear words apart
		if ok && len(value) >= shortest {
			text = strings.ReplaceAll(text, value, "[redacted]")
		}
	}
}

// object writes a JSON object of texts that are JSON already; nil is null.
func object(pairs ...any) json.RawMessage {
	out := []byte{'{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := pairs[i].(string)
		value, _ := pairs[i+1].(json.RawMessage)
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		out = append(append(append(append(out, '"'), name...), '"', ':'), value...)
	}
	return append(out, '}')
}
