package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
)

// Documents makes n different JSON documents of about 1 KiB, such as a webhook
// sends.
func Documents(n int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same documents every time
	word := func(length int) string {
		text := make([]byte, length)
		for i := range text {
			text[i] = byte('a' + random.IntN(26))
		}
		return string(text)
	}
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"number":%d,"action":"opened","delivery":%q,"ref":"refs/heads/%s",`+
			`"repository":{"id":%d,"full_name":"%s/%s","private":false,"description":%q},`+
			`"sender":{"id":%d,"login":%q,"url":"https://api.example.test/users/%s","site_admin":false},`+
			`"head":{"sha":%q,"message":%q,"timestamp":"2026-01-02T03:04:05Z"},"labels":[%q,%q,%q],"body":%q}`,
			i, word(36), word(12), random.IntN(1e9), word(10), word(14), word(180), random.IntN(1e9), word(12), word(12),
			word(40), word(200), word(8), word(8), word(8), word(190))
	}
	return list
}

// Number reads the number of one of Documents, also out of what it is wrapped
// in.
func Number(text []byte) int {
	const key = `"number":`
	at := bytes.Index(text, []byte(key))
	if at < 0 {
		return -1
	}
	text = bytes.TrimLeft(text[at+len(key):], " ")
	end := bytes.IndexAny(text, ",}")
	if end < 0 {
		return -1
	}
	n, err := strconv.Atoi(string(text[:end]))
	if err != nil {
		return -1
	}
	return n
}

// Delivery is a real delivery of a GitHub webhook.
type Delivery struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
}

// Deliveries reads them from a file, one a line.
func Deliveries(file string) ([]Delivery, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var list []Delivery
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var d Delivery
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, lines.Err()
}

// OfSize gives the n deliveries whose payload is nearest to a size.
func OfSize(list []Delivery, size, n int) []Delivery {
	list = slices.Clone(list)
	away := func(d Delivery) int { return max(len(d.Payload)-size, size-len(d.Payload)) }
	slices.SortFunc(list, func(a, b Delivery) int { return away(a) - away(b) })
	return list[:min(n, len(list))]
}
