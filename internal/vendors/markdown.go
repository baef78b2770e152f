package vendors

import (
	"fmt"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/dedup"
	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// intro is what docs/vendors.md says before its table.
const intro = `# Vendors

<!-- Written by: go test ./internal/vendors -update -->

` + "`preset: \"github\"`" + ` on a trigger, or in a subscription's host data, brings everything that is known of a
vendor: its signature is checked over the exact bytes before any hook runs, its handshakes are
answered, its repeats are known, and its credentials are masked in views.

` + "```json" + `
{"preset": "github"}
{"preset": {"name": "stripe", "secret": [{"param": "secret"}, {"state": "/old"}], "tolerance": "10m", "window": "120h"}}
{"preset": {"name": "meta", "secret": {"param": "appSecret"}, "verifyToken": {"param": "token"}}}
{"preset": {"name": "sns", "values": {"topic": {"param": "topicArn"}}}}
{"preset": "github", "handshake": false, "dedup": {"event": "/id", "window": "48h"}}
` + "```" + `

- **secret** is a param, a place in the state (JSON Pointer), the text itself, or a list of these, all
  of which count at once: that is how a secret is rotated. When nothing is said it is the param
  ` + "`secret`" + `, then ` + "`/secret`" + ` in the state. Without a secret every call is refused.
- **verify**, **handshake** and **dedup** beside the preset say it differently; ` + "`false`" + ` turns one off. A
  subscription cannot turn off what its trigger verifies.
- **verify** without a preset: ` + "`scheme`" + ` (hmac-sha1, hmac-sha256, hmac-sha384, hmac-sha512, ed25519,
  ecdsa-p256, ecdsa-p256-raw, rsa-sha1, rsa-sha256, token, basic, jwt), where the signature is
  (` + "`header`, `query`, `body` or `form`" + `), ` + "`encoding`, `prefix`, `signed`" + ` (a template of {body}, {timestamp},
  {url}, {method}, {header.name}, {query.name}), ` + "`timestamp`, `tolerance`, `secret`" + `.
- **handshake** without a preset: one rule or a list, each of a class: query-echo, post-query-echo,
  body-echo, computed, ping, probe, header-echo, options, confirm, ack.
- **dedup**: ` + "`header`, `body` or `event`" + ` (JSON Pointers), or ` + "`any`" + ` of them, and a ` + "`window`" + ` of 24h to 744h that
  is no shorter than the vendor's retries. A call without its key is never taken for a duplicate.
  ` + "`event`" + ` looks at each event that handleIngest returns, ` + "`body`" + ` at the call's.

Vendors that sign the URL sign the one they were given: ` + "`HOST_URL`" + ` must be its origin. Columns:
**Proves** is what a good signature says (*bytes*: the body is the vendor's; *sender*: only who calls).
**Repeats** is by what a repeat is known, and for how long. **Overload** is what is done when there is
too much: *refuse* answers 429 or 503, and the vendor comes again; *accept* takes these calls first and
refuses them last, since the vendor does not come again or turns itself off.

`

// Markdown is docs/vendors.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("| Preset | Vendor | Proves | Handshakes | Repeats | Overload | Note |\n|---|---|---|---|---|---|---|\n")
	for _, name := range Names() {
		v := table[name]
		fmt.Fprintf(&b, "| `%s` | [%s](%s) | %s | %s | %s | %s | %s |\n",
			name, v.Title, v.Docs, proves(name), handshakes(name), repeats(v), v.Load, v.Note)
	}
	b.WriteString("\nOther names: ")
	for i, other := range sortedAliases() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s` is `%s`", other, aliases[other])
	}
	b.WriteString(".\n")
	return b.String()
}

func proves(name string) string {
	v, err := verify.New(verify.Spec{Preset: name})
	switch {
	case err != nil:
		return "–"
	case v.Integrity():
		return "bytes"
	}
	return "sender"
}

func handshakes(name string) string {
	var words []string
	for _, class := range handshake.Classes(name) {
		words = append(words, string(class))
	}
	if words == nil {
		return "–"
	}
	return strings.Join(words, ", ")
}

func repeats(v Vendor) string {
	if v.Dedup == nil {
		return "–"
	}
	e, err := dedup.New(*v.Dedup, v.Horizon)
	if err != nil {
		return err.Error() // a test finds it
	}
	return fmt.Sprintf("%s, %gh", spell(*v.Dedup), e.Window().Hours())
}

func spell(s dedup.Spec) string {
	switch {
	case s.Header != nil:
		return "`" + strings.Join(s.Header, "` `") + "`"
	case s.Body != nil:
		return "body `" + strings.Join(s.Body, "` `") + "`"
	case s.Event != nil:
		return "event `" + strings.Join(s.Event, "` `") + "`"
	}
	var words []string
	for _, one := range s.Any {
		words = append(words, spell(one))
	}
	return strings.Join(words, ", else ")
}
