package open_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/engine/enginetest"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
	"github.com/tocsin-dev/tocsin/internal/engine/open"
)

func openURL(t *testing.T, text string, allowPrivate bool) (engine.Engine, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return open.Open(open.Config{URL: u, AllowPrivate: allowPrivate, Concurrency: 64, Workflows: []string{"wf_1"}})
}

func TestTheSchemePicksTheEngine(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(fakeengine.New(nil))
	t.Cleanup(server.Close)
	e, err := openURL(t, server.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if got := e.StartRun(t.Context(), enginetest.Request(`{}`)); got.Kind != engine.Started {
		t.Errorf("http: %+v", got)
	}
	e, err = openURL(t, "embedded:", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, batches := e.(engine.BatchStarter); !batches {
		t.Error("the embedded engine starts no batches")
	}
}

func TestAPrivateEngineIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()

	e, err := openURL(t, "http://127.0.0.1:1", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "not public") {
		t.Errorf("Ping: %v", err)
	}
}

func TestAnUnknownSchemeNamesTheKnownOnes(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"temporal://h:7233/ns?taskQueue=q", "http:", "https://?x"} {
		_, err := openURL(t, text, true)
		if err == nil || !strings.HasPrefix(err.Error(), "ENGINE_URL: ") || !strings.Contains(err.Error(), "http") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
