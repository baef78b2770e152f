package webhook

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

// rawPath is the path of the request line as it was sent.
func rawPath(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") { // absolute form, as proxies send it
		return r.URL.EscapedPath()
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// maxID is longer than any id; what is longer need not be looked up.
const maxID = 128

// subscriptionID finds the id in a path. A slash at the end and percent escapes
// within the id are the same address: a redirect to the plain form would turn a
// POST into a GET.
func subscriptionID(path string) (trigger.SubscriptionID, bool) {
	segment, ok := strings.CutPrefix(path, trigger.CallbackPath)
	if !ok {
		return "", false
	}
	segment = strings.TrimSuffix(segment, "/")
	if strings.Contains(segment, "/") {
		return "", false
	}
	id, err := url.PathUnescape(segment)
	if err != nil || id == "" || len(id) > maxID || strings.ContainsFunc(id, notInID) {
		return "", false
	}
	return trigger.SubscriptionID(id), true
}

func notInID(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
		return false
	}
	return true
}

// readBody takes the whole body, however its length is told, or refuses.
func (a *Adapter) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *answer) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > a.maxBody {
		w.Header().Set("Connection", "close") // the rest is not worth reading
		return nil, tooLarge()
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, a.maxBody), r.ContentLength)
	if err == nil {
		return body, a.checkInflated(body, r)
	}
	var large *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &large):
		return nil, tooLarge()
	case errors.As(err, &network) && network.Timeout():
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusRequestTimeout, outcomeBadRequest, "timeout", "the body took too long to come", "")
	}
	return nil, refuse(http.StatusBadRequest, outcomeBadRequest, "invalid_body", "the body ended early or is not well framed", "")
}

// checkInflated refuses a small body that is a large one inside.
func (a *Adapter) checkInflated(body []byte, r *http.Request) *answer {
	encoding := r.Header.Get("Content-Encoding")
	if encoding == "" || triggercall.CheckInflated(body, encoding, a.maxBody) == nil {
		return nil
	}
	return tooLarge()
}

// firstRead is how much is set aside for a body before any of it has come: a
// promise of a large one costs nothing yet.
const firstRead = 64 << 10

func readAll(r io.Reader, promised int64) ([]byte, error) {
	if promised > 0 && promised <= firstRead {
		body := make([]byte, promised)
		_, err := io.ReadFull(r, body)
		return body, err
	}
	body := make([]byte, 0, 4096)
	if promised > firstRead {
		body = make([]byte, 0, firstRead)
	}
	for {
		if len(body) == cap(body) {
			body = slices.Grow(body, len(body))
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// header lists the header in lower case. net/http keeps the order of a name's
// values and not that of names, so names are sorted: the same call looks the
// same each time.
func (a *Adapter) header(r *http.Request) []trigger.Field {
	fields := make([]trigger.Field, 0, len(r.Header)+2)
	fields = append(fields, trigger.Field{Name: "host", Value: r.Host})
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		lower := a.lowerCase(name)
		for _, value := range r.Header[name] {
			fields = append(fields, trigger.Field{Name: lower, Value: value})
		}
	}
	return fields
}

func (a *Adapter) lowerCase(name string) string {
	if lower, ok := a.lower[name]; ok {
		return lower
	}
	return strings.ToLower(name)
}

// commonHeaders saves the lower-case form of names that most calls carry.
func commonHeaders() map[string]string {
	lower := map[string]string{}
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
		"Cookie", "Forwarded", "Idempotency-Key", "Stripe-Signature", "Svix-Id", "Svix-Signature", "Svix-Timestamp", "Traceparent", "Tracestate",
		"User-Agent", "Via", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "X-Amzn-Trace-Id", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Port", "X-Forwarded-Proto", "X-Github-Delivery", "X-Github-Event", "X-Github-Hook-Id", "X-Github-Hook-Installation-Target-Id",
		"X-Github-Hook-Installation-Target-Type", "X-Hub-Signature", "X-Hub-Signature-256", "X-Real-Ip", "X-Request-Id", "X-Shopify-Hmac-Sha256",
		"X-Shopify-Shop-Domain", "X-Shopify-Topic", "X-Shopify-Webhook-Id", "X-Slack-Request-Timestamp", "X-Slack-Signature",
	} {
		lower[name] = strings.ToLower(name)
	}
	return lower
}

// traceparent gives the request's W3C trace context, or "" when there is none
// that is well formed: it is stored and forwarded as it is.
func traceparent(r *http.Request) string {
	values := r.Header["Traceparent"]
	if len(values) != 1 || len(values[0]) != 55 {
		return ""
	}
	v := values[0]
	if v[:3] != "00-" || v[35] != '-' || v[52] != '-' || !isHex(v[3:35]) || !isHex(v[36:52]) || !isHex(v[53:]) {
		return ""
	}
	if strings.Trim(v[3:35], "0") == "" || strings.Trim(v[36:52], "0") == "" {
		return ""
	}
	return v
}

func isHex(text string) bool {
	return strings.Trim(text, "0123456789abcdef") == ""
}
