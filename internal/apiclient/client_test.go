package apiclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// answering gives a client of an API that answers every request the same, and
// where the last request is noted.
func answering(t *testing.T, status int, body string) (*apiclient.Client, *string) {
	t.Helper()
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.RequestURI + " " + r.Header.Get("Authorization")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	client, err := apiclient.New(server.URL+"/", "tk_1_secret", server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return client, &asked
}

func TestAnAnswerIsDecodedAndKeptAsSent(t *testing.T) {
	t.Parallel()

	document := `{"event":{"id":"evt_1"},"payload":{"z":12345678901234567890,"a":1.0}}`
	client, asked := answering(t, http.StatusOK, document)
	answer, err := client.Event(t.Context(), "evt/1")
	if err != nil {
		t.Fatal(err)
	}
	if string(answer.Document) != document || answer.Value.Event.ID != "evt_1" || string(answer.Value.Payload) != `{"z":12345678901234567890,"a":1.0}` {
		t.Errorf("answer %s, %+v", answer.Document, answer.Value)
	}
	if want := "GET /trigger-events/evt%2F1 Bearer tk_1_secret"; *asked != want {
		t.Errorf("asked %q, want %q", *asked, want)
	}
}

func TestErrorsSayWhatTheServerSaid(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		status int
		body   string
		want   apiclient.Error
	}{
		{404, `{"error":{"code":"unknown_subscription","message":"no such subscription"}}`, apiclient.Error{Status: 404, Code: "unknown_subscription", Message: "no such subscription"}},
		{400, `{"error":{"code":"param_invalid","message":"a: x","details":[{"path":"a","message":"x"}]}}`, apiclient.Error{Status: 400, Code: "param_invalid", Message: "a: x", Details: []trigger.FieldError{{Path: "a", Message: "x"}}}},
		{409, `{"error":"conflict","message":"changed"}`, apiclient.Error{Status: 409, Code: "conflict", Message: "changed"}},
		{502, `<html>`, apiclient.Error{Status: 502}},
		{500, `null`, apiclient.Error{Status: 500}},
	} {
		client, _ := answering(t, test.status, test.body)
		_, err := client.Apps(t.Context())
		var got *apiclient.Error
		if !errors.As(err, &got) {
			t.Errorf("%d %s: %v", test.status, test.body, err)
			continue
		}
		if diff := cmp.Diff(&test.want, got); diff != "" {
			t.Errorf("%d %s (-want +got):\n%s", test.status, test.body, diff)
		}
	}
}

func TestAnAPIThatDoesNotAnswerIsNamedWithoutThePath(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	client, err := apiclient.New(server.URL, "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Subscription(t.Context(), "sub_secret")
	var gone *apiclient.UnreachableError
	if !errors.As(err, &gone) || strings.Contains(err.Error(), "sub_secret") || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("error %v", err)
	}
}

func TestABaseThatIsNoURLIsRefused(t *testing.T) {
	t.Parallel()

	for _, base := range []string{"", "localhost:8081", "ftp://x", "http://"} {
		if _, err := apiclient.New(base, "", nil); err == nil {
			t.Errorf("%q is taken", base)
		}
	}
}

func TestRequestsCarryTheirBody(t *testing.T) {
	t.Parallel()

	var got map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = w.Write([]byte(`{"subscription":{"id":"sub_1"}}`))
	}))
	t.Cleanup(server.Close)
	client, err := apiclient.New(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateSubscription(t.Context(), "a", "t", apiclient.NewSubscription{WorkflowID: "wf", Params: json.RawMessage(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"workflowId": "wf", "params": map[string]any{"a": 1.0}}, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}
