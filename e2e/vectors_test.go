package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/vendors/sender"
)

type signedVector struct {
	ID, Vendor, Secret, URL, Token, Header, Value string

	Time    string `json:"ts"`
	Message string `json:"msg_id"`
	Body    string `json:"body_b64"`
	CRC     string `json:"crc_token"`
	Plain   string `json:"plain_token"`
	Accept  bool
}

func signedVectors(t *testing.T) []signedVector {
	t.Helper()
	file, err := os.Open("../internal/verify/testdata/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var list []signedVector
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var v signedVector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	if len(list) != 39 {
		t.Fatalf("%d vectors, want 39", len(list))
	}
	return list
}

// preset of a vector's vendor, and the headers that hold time and id.
func (v signedVector) preset() (string, []string) {
	switch v.Vendor {
	case "slack":
		return "slack", []string{"X-Slack-Request-Timestamp", v.Time}
	case "zoom":
		return "zoom", []string{"x-zm-request-timestamp", v.Time}
	case "standard-webhooks":
		return v.Vendor, []string{"webhook-id", v.Message, "webhook-timestamp", v.Time}
	case "twitch":
		return "twitch", []string{"Twitch-Eventsub-Message-Id", v.Message, "Twitch-Eventsub-Message-Timestamp", v.Time}
	case "discord":
		return "discord", []string{"X-Signature-Timestamp", v.Time}
	case "box":
		return "box", []string{"BOX-DELIVERY-TIMESTAMP", v.Time}
	case "sendgrid":
		return "sendgrid", []string{"X-Twilio-Email-Event-Webhook-Timestamp", v.Time}
	case "hubspot-v3":
		return "hubspot", []string{"X-HubSpot-Request-Timestamp", v.Time}
	case "convoy":
		if strings.HasPrefix(v.Value, "t=") {
			return "convoy-advanced", nil
		}
	}
	return v.Vendor, nil
}

// guarded makes a subscription of the receiver with host-side data of its own.
func guarded(t *testing.T, s *rig.System, members map[string]any) string {
	t.Helper()
	members["workflowId"] = "wf_guarded"
	status, answer := s.API(http.MethodPost, "/apps/io.tocsin.example.receiver/triggers/call/subscriptions", members)
	if status != http.StatusCreated {
		t.Fatalf("subscribe: %d %v", status, answer)
	}
	subscription, _ := answer["subscription"].(map[string]any)
	id, _ := subscription["id"].(string)
	return id
}

// Every published and computed vector, through the listener. Vectors whose
// signature covers their own URL are not of our address: these are refused here,
// and accepted by TestURLSignedCallsAreAcceptedAtTheirURL when signed for it.
func TestVectorsThroughTheListener(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	for _, v := range signedVectors(t) {
		if v.CRC != "" || v.Plain != "" {
			continue // replies that are computed: package handshake
		}
		preset, header := v.preset()
		spec := map[string]any{"preset": preset, "secret": v.Secret}
		if len(header) > 0 || v.Vendor == "stripe" || v.Vendor == "mailgun" || preset == "convoy-advanced" {
			spec["tolerance"] = "off" // they are old
		}
		id := guarded(t, s, map[string]any{"verify": spec})
		body, err := base64.StdEncoding.DecodeString(v.Body)
		if err != nil {
			t.Fatal(err)
		}
		contentType := "application/json"
		if v.Vendor == "twilio" && body[0] != '{' || v.ID == "github-form" {
			contentType = "application/x-www-form-urlencoded"
		}
		if v.Vendor == "mailgun" {
			body, _ = json.Marshal(map[string]any{ //nolint:errchkjson // texts
				"signature": map[string]string{"timestamp": v.Time, "token": v.Token, "signature": v.Value},
			})
		} else {
			header = append(header, v.Header, v.Value)
		}
		answer := s.Post(id, body, append(header, "Content-Type", contentType)...)
		want := http.StatusOK
		if !v.Accept || v.URL != "" {
			want = http.StatusUnauthorized
		}
		if answer.Status != want {
			t.Errorf("%s: %d %s, want %d", v.ID, answer.Status, answer.Body, want)
		}
		if want != http.StatusOK {
			continue
		}
		var stored []byte
		if status, raw := rawBody(t, s, answer.EventIDs[0]); status == http.StatusOK {
			stored = raw
		}
		if string(stored) != string(body) {
			t.Errorf("%s: the stored bytes differ", v.ID)
		}
	}
}

func rawBody(t *testing.T, s *rig.System, event string) (int, []byte) {
	t.Helper()
	answer, err := rig.Send(t.Context(), http.MethodGet, s.APIURL+"/trigger-events/"+event+"/raw", nil, "Authorization", "Bearer "+s.Key)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status, answer.Body
}

func TestURLSignedCallsAreAcceptedAtTheirURL(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	for _, vendor := range []string{"twilio", "square", "hubspot"} {
		signing, receiving, err := sender.GenerateSecret(vendor)
		if err != nil {
			t.Fatal(err)
		}
		id := guarded(t, s, map[string]any{"preset": map[string]any{"name": vendor, "secret": receiving.Reveal()}})
		for key, want := range map[secret.Text]int{signing: http.StatusOK, "another": http.StatusUnauthorized} {
			request, err := sender.Build(vendor, sender.Options{Secret: key, URL: s.Callback(id), Time: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			var header []string
			for _, f := range request.Header {
				header = append(header, f.Name, f.Value)
			}
			answer, err := rig.Send(t.Context(), request.Method, request.URL, request.Body, header...)
			if err != nil || answer.Status != want {
				t.Errorf("%s: %d %s %v, want %d", vendor, answer.Status, answer.Body, err, want)
			}
		}
	}
}

// The CLI subscribes a plain receiver that verifies, and sends as the vendor.
func TestTheCLISendsWhatItsReceiverAccepts(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	for _, vendor := range []string{"stripe", "github", "slack", "standard-webhooks", "shopify", "twilio"} {
		signing, receiving, err := sender.GenerateSecret(vendor)
		if err != nil {
			t.Fatal(err)
		}
		s.CLI("subscriptions", "create", "io.tocsin.example.receiver", "call", "--workflow", "wf_"+vendor,
			"--verify", vendor, "--secret", receiving.Reveal())
		_, answer := s.API(http.MethodGet, "/workflows/wf_"+vendor+"/subscriptions", nil)
		list, _ := answer["subscriptions"].([]any)
		first, _ := list[0].(map[string]any)
		url, _ := first["callbackUrl"].(string)
		s.CLI("send", url, "--vendor", vendor, "--secret", signing.Reveal())
		if _, _, err := s.RunCLI("send", url, "--vendor", vendor, "--secret", "whsec_b3RoZXIgc2VjcmV0IGhlcmU="); err == nil {
			t.Errorf("%s: a call that another secret signs was accepted", vendor)
		}
	}
}

// C12.
func TestCompressedCalls(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1, Env: map[string]string{"MAX_BODY_BYTES": "1048576"}})
	id := s.Receiver("wf_gzip")
	body, err := base64.StdEncoding.DecodeString("H4sIAAAAAAAC/6tWSsvPV7JSSkosUqoFAO/1K/4NAAAA")
	if err != nil {
		t.Fatal(err)
	}
	post := func(body []byte) rig.Answer {
		return s.Post(id, body, "Content-Type", "application/json", "Content-Encoding", "gzip")
	}
	answer := post(body)
	if answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	payload, _ := json.Marshal(s.Detail(answer.EventIDs[0])["payload"]) //nolint:errchkjson // decoded a moment ago
	if string(payload) != `{"foo":"bar"}` {
		t.Errorf("payload %s", payload)
	}
	if _, raw := rawBody(t, s, answer.EventIDs[0]); !bytes.Equal(raw, body) {
		t.Errorf("the raw view is not the %d bytes as sent: %x", len(body), raw)
	}
	if a := post([]byte(`{"foo":"bar"}`)); a.Status != http.StatusOK || len(a.EventIDs) != 1 {
		t.Errorf("not compressed at all: %d %s", a.Status, a.Body)
	}
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for zeros := make([]byte, 1<<20); bomb.Len() < 200<<10; {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if a := post(bomb.Bytes()); a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("bomb: %d %s", a.Status, a.Body)
	}
	if n := s.Count("SELECT count(*) FROM trigger_events"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// C22.
func TestTwentyCopiesAreOneEvent(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{})
	preset := map[string]any{"preset": map[string]any{"name": "github", "secret": githubSecret}}
	id, other := guarded(t, s, preset), guarded(t, s, preset)
	body := []byte(`{"zen":"Keep it logically awesome."}`)
	header := []string{
		"Content-Type", "application/json", "X-GitHub-Event", "push", "X-GitHub-Delivery", "11111111-2222-4333-8444-555555555555",
		"X-Hub-Signature-256", githubSignature(githubSecret, body),
	}
	// A stranger cannot use the key up.
	if forged := s.Post(id, body, "X-GitHub-Delivery", "11111111-2222-4333-8444-555555555555", "X-Hub-Signature-256", "sha256=00"); forged.Status != http.StatusUnauthorized {
		t.Fatalf("forged: %d %s", forged.Status, forged.Body)
	}
	answers := make([]rig.Answer, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = s.Post(id, body, header...) })
	}
	wg.Wait()
	for _, a := range answers {
		if a.Status != http.StatusOK || len(a.EventIDs) != 1 || a.EventIDs[0] != answers[0].EventIDs[0] {
			t.Fatalf("%d %s, want 200 and %v", a.Status, a.Body, answers[0].EventIDs)
		}
	}
	s.WaitStatus(answers[0].EventIDs[0], "dispatched", 20*time.Second)
	const rows = "SELECT count(*) FROM trigger_events JOIN subscriptions USING (sid) WHERE id = $1 AND reason = $2"
	if n := s.Count(rows, id, "duplicate"); n != 19 {
		t.Errorf("%d duplicates, want 19", n)
	}
	if n := s.Count(rows, id, "verification_failed"); n != 1 {
		t.Errorf("%d refused rows, want 1", n)
	}
	if a := s.Post(other, body, header...); a.Status != http.StatusOK || a.EventIDs[0] == answers[0].EventIDs[0] {
		t.Errorf("another subscription: %d %s", a.Status, a.Body)
	}
}

// A handshake is answered, recorded and runs nothing; a secret that it brought
// cannot be swapped, and signs what comes after.
func TestAHandshakeBringsItsSecretOnce(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	id := guarded(t, s, map[string]any{"preset": "asana"})
	first := s.Post(id, nil, "X-Hook-Secret", "the-first-secret")
	if first.Status/100 != 2 || first.Header.Get("X-Hook-Secret") != "the-first-secret" {
		t.Fatalf("handshake: %d %v", first.Status, first.Header)
	}
	if again := s.Post(id, nil, "X-Hook-Secret", "another-secret"); again.Status/100 == 2 || again.Header.Get("X-Hook-Secret") != "" {
		t.Errorf("a swap: %d %v", again.Status, again.Header)
	}
	body := []byte(`{"events":[{"action":"changed"}]}`)
	sum := strings.TrimPrefix(githubSignature("the-first-secret", body), "sha256=")
	if a := s.Post(id, body, "Content-Type", "application/json", "X-Hook-Signature", sum); a.Status != http.StatusOK || len(a.EventIDs) != 1 {
		t.Errorf("signed: %d %s", a.Status, a.Body)
	}
	if n := s.Count("SELECT count(*) FROM subscriptions WHERE encode(handshake_secret, 'escape') LIKE '%first%'"); n != 0 {
		t.Error("the secret is not sealed")
	}
	if n := s.Count("SELECT count(*) FROM trigger_events WHERE reason = 'handshake'"); n != 1 {
		t.Errorf("%d handshake rows, want 1", n)
	}
}

// A stranger fills no disk: rows of refused calls are few and have no payload.
func TestRefusedCallsAreRecordedWithinBounds(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1})
	id := guarded(t, s, map[string]any{"preset": map[string]any{"name": "github", "secret": githubSecret}})
	for range 60 {
		if a := s.Post(id, []byte(strings.Repeat("x", 4096)), "X-Hub-Signature-256", "sha256=00", "X-Long", strings.Repeat("y", 9000)); a.Status != http.StatusUnauthorized {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if n := s.Count("SELECT count(*) FROM trigger_events"); n < 30 || n > 40 {
		t.Errorf("%d rows, want about 30", n)
	}
	if n := s.Count("SELECT max(length(headers) + length(body)) FROM trigger_events"); n > 4200 {
		t.Errorf("a row of %d bytes", n)
	}
}
