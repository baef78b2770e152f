package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

func sum(secret, text string) string {
	return strings.TrimPrefix(githubSignature(secret, []byte(text)), "sha256=")
}

// C10.
func TestSlackChallengesAndEventsThatLookLikeOne(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	const key = "8f742231b10e8888abcd99yyyzzz85a5"
	id := guarded(t, s, map[string]any{"preset": map[string]any{"name": "slack", "secret": key}})
	const challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
	const handshake = `{"token":"x","challenge":"` + challenge + `","type":"url_verification"}`
	post := func(body, key string, at time.Time) rig.Answer {
		stamp := strconv.FormatInt(at.Unix(), 10)
		return s.Post(id, []byte(body), "Content-Type", "application/json", "X-Slack-Request-Timestamp", stamp,
			"X-Slack-Signature", "v0="+sum(key, "v0:"+stamp+":"+body))
	}
	if a := post(handshake, key, time.Now()); a.Status != http.StatusOK || !strings.Contains(string(a.Body), challenge) || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("handshake: %d %s", a.Status, a.Body)
	}
	const event = `{"token":"x","type":"event_callback","event_id":"Ev0001","challenge":"not-a-handshake","event":{"type":"app_mention"}}`
	if a := post(event, key, time.Now()); a.Status != http.StatusOK || len(a.EventIDs) != 1 || strings.Contains(string(a.Body), "not-a-handshake") {
		t.Errorf("event: %d %s", a.Status, a.Body)
	}
	for name, a := range map[string]rig.Answer{
		"wrong key": post(handshake, "other", time.Now()), "stale": post(handshake, key, time.Now().Add(-1000*time.Second)),
	} {
		if a.Status != http.StatusUnauthorized || strings.Contains(string(a.Body), challenge) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	if n := s.Count("SELECT count(*) FROM trigger_events WHERE reason = 'handshake'"); n != 1 {
		t.Errorf("%d handshake rows, want 1", n)
	}
}

// C14.
func TestTwoStripeSignaturesAtOnce(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	const body = `{"id":"evt_1","object":"event","type":"ping"}`
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	fresh, old := sum("whsec_new", stamp+"."+body), sum("whsec_old", stamp+"."+body)
	one := map[string]any{"name": "stripe", "secret": "whsec_new"}
	both := map[string]any{"name": "stripe", "secret": []string{"whsec_new", "whsec_old"}}
	for _, c := range []struct {
		preset any
		header string
		want   int
	}{
		{one, "t=" + stamp + ",v1=" + old + ",v1=" + fresh, 200},
		{one, "t=" + stamp + ",v1=" + fresh + ",v0=zzz", 200},
		{one, "v1=" + fresh + ",t=" + stamp, 200},
		{one, "t=" + stamp + ",v1=" + old, 401},
		{one, "v1=" + fresh, 401},
		{one, "t=Infinity,v1=" + fresh, 401},
		{one, "t=" + stamp + ",v0=" + fresh, 401},
		{one, "", 401},
		{both, "t=" + stamp + ",v1=" + old, 200},
		{"stripe", "t=" + stamp + ",v1=" + fresh, 401}, // no secret: refused, not waved through
	} {
		id := guarded(t, s, map[string]any{"preset": c.preset})
		if a := s.Post(id, []byte(body), "Content-Type", "application/json", "Stripe-Signature", c.header); a.Status != c.want {
			t.Errorf("%v %q: %d %s, want %d", c.preset, c.header, a.Status, a.Body, c.want)
		}
	}
	if a := s.Post(guarded(t, s, map[string]any{"preset": one}), []byte(body)); a.Status != http.StatusUnauthorized {
		t.Errorf("no header: %d", a.Status)
	}
}

// C04.
func TestGitHubInFormMode(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	id := guarded(t, s, map[string]any{"preset": map[string]any{"name": "github", "secret": githubSecret}})
	a := s.Post(id, []byte("payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%2C%22hook_id%22%3A1%7D"),
		"Content-Type", "application/x-www-form-urlencoded", "X-GitHub-Event", "push",
		"X-Hub-Signature-256", "sha256=fddacfb7d7106fd32f5d94dc8846df6694e2ed5e2aed3806b11ab82cccff8d01")
	if a.Status != http.StatusOK || len(a.EventIDs) != 1 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	payload, _ := s.Detail(a.EventIDs[0])["payload"].(map[string]any)
	if payload["zen"] != "Keep it logically awesome." {
		t.Errorf("payload %v", payload)
	}
}

func TestAPresetThatIsNotThereIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	status, answer := s.API(http.MethodPost, "/apps/io.tocsin.example.receiver/triggers/call/subscriptions",
		map[string]any{"workflowId": "wf", "preset": "nobody"})
	if status/100 != 4 {
		t.Errorf("%d %v", status, answer)
	}
}
