package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

func TestPublicRefusesEveryWayToTheOwnNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "64:ff9b::808:808": true, "2002:808:808::1": true,
		"::ffff:8.8.8.8": true,

		"0.0.0.0": false, "10.1.2.3": false, "100.64.0.1": false, "127.0.0.1": false, "169.254.169.254": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "192.0.0.1": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "168.63.129.16": false,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false,
		"ff02::1": false, "fec0::1": false, "2001:db8::1": false, "2001::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2002:a00:1::1": false,
	} {
		if got := Public(netip.MustParseAddr(address)); got != want {
			t.Errorf("Public(%s) = %t, want %t", address, got, want)
		}
	}
}

func TestAllowedFollowsTheAllowListForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		allow, host string
		want        bool
	}{
		{"api.example.com", "api.example.com", true},
		{"API.example.com", "api.EXAMPLE.com.", true},
		{"api.example.com", "x.api.example.com", false},
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "a.b.c.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", ".example.com", false},
		{"*", "anything.test", true},
		{"", "anything.test", false},
		{"example.com", "example.com.evil.test", false},
	} {
		if got := Allowed([]string{test.allow}, test.host); got != test.want {
			t.Errorf("Allowed(%q, %q) = %t, want %t", test.allow, test.host, got, test.want)
		}
	}
	if Allowed(nil, "x.test") {
		t.Error("an empty list allows something")
	}
}

func TestGuardedClientRefusesNamesThatResolveToLoopback(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+":"+port+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := NewClient(false, time.Second).Do(request)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s was reached", host)
		} else if !errors.Is(err, ErrPrivateAddress) && (host == "localhost" || host == "127.0.0.1") {
			t.Errorf("%s: %v, want ErrPrivateAddress", host, err)
		}
	}
}

// newHost makes a Host for which every name leads to handler.
func newHost(t *testing.T, options Options, handler http.Handler) *Host {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options.AllowPrivate = true
	host := newHostTo(options, server.Listener.Addr().String())
	t.Cleanup(host.Close)
	return host
}

func newHostTo(options Options, address string) *Host {
	host := NewHost(options)
	transport := &http.Transport{}
	host.client.Transport = transport
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return host
}

func fetch(t *testing.T, host *Host, request hook.FetchRequest) (hook.FetchResponse, error) {
	t.Helper()
	if request.Allow == nil {
		request.Allow = []string{"api.test"}
	}
	if request.Method == "" {
		request.Method = http.MethodGet
	}
	request.Call = &hook.Call{App: hook.AppRef{ID: "app"}}
	return host.Fetch(t.Context(), request)
}

func TestFetchCarriesRequestAndAnswer(t *testing.T) {
	t.Parallel()
	host := newHost(t, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Set("Date", "")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode([]string{r.Method, r.Host, r.URL.String(), r.Header.Get("X-Own"), r.Header.Get("Te"), string(body)})
	}))
	response, err := fetch(t, host, hook.FetchRequest{
		Method: "POST", URL: "http://api.test/p?q=1#fragment", Body: []byte("hello"),
		Headers: [][2]string{{"x-own", "v"}, {"te", "trailers"}, {"host", "evil.test"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `["POST","api.test","/p?q=1","v","","hello"]` + "\n"
	if string(response.Body) != want || response.Status != 201 || response.StatusText != "Created" || response.URL != "http://api.test/p?q=1" {
		t.Errorf("got %d %s %s %s", response.Status, response.StatusText, response.URL, response.Body)
	}
	var cookies []string
	for _, h := range response.Headers {
		if h[0] == "set-cookie" {
			cookies = append(cookies, h[1])
		}
	}
	if diff := cmp.Diff([]string{"a=1", "b=2"}, cookies); diff != "" {
		t.Error(diff)
	}
}

func TestFetchFollowsRedirectsByTheRules(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/to/{status}/", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.PathValue("status"))
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(status)
	})
	mux.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{r.Method, string(body), r.Header.Get("X-Own"), r.Header.Get("Content-Type")}, "|"))
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		to := "/end"
		if n > 1 {
			to = "/hop/" + strconv.Itoa(n-1)
		}
		http.Redirect(w, r, to, http.StatusFound)
	})
	host := newHost(t, Options{}, mux)
	headers := [][2]string{{"X-Own", "v"}, {"Content-Type", "text/x"}}
	for _, test := range []struct{ method, url, want, code string }{
		{"GET", "/to/302/?to=/end", "GET||v|text/x", ""},
		{"POST", "/to/301/?to=/end", "GET||v|", ""},
		{"PUT", "/to/302/?to=/end", "GET||v|", ""},
		{"DELETE", "/to/303/?to=/end", "GET||v|", ""},
		{"POST", "/to/307/?to=/end", "POST|body|v|text/x", ""},
		{"PUT", "/to/308/?to=http://API.test:80/end", "PUT|body|v|text/x", ""},
		{"GET", "/to/302/?to=http://other.test/end", "", hook.CodeEgressDenied},
		{"GET", "/to/302/?to=//other.test/end", "", hook.CodeEgressDenied},
		{"GET", "/to/302/?to=file:///etc/passwd", "", hook.CodeInvalidURL},
		{"GET", "/hop/5", "GET||v|text/x", ""},
		{"GET", "/hop/6", "", hook.CodeTooManyRedirect},
		{"GET", "/loop", "", hook.CodeTooManyRedirect},
	} {
		request := hook.FetchRequest{Method: test.method, URL: "http://api.test" + test.url, Headers: headers, Allow: []string{"api.test", "other.test"}}
		if test.method != "GET" {
			request.Body = []byte("body")
		}
		response, err := fetch(t, host, request)
		if hook.CodeOf(err) != test.code || test.code == "" && (err != nil || string(response.Body) != test.want) {
			t.Errorf("%s %s: got %q, %v, want %q %s", test.method, test.url, response.Body, err, test.want, test.code)
		}
	}
}

func TestFetchRefusesBeforeItConnects(t *testing.T) {
	t.Parallel()
	host := newHost(t, Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a refused request arrived") }))
	for target, code := range map[string]string{
		"http://other.test/":         hook.CodeEgressDenied,
		"http://x.api.test/":         hook.CodeEgressDenied,
		"ftp://api.test/":            hook.CodeInvalidURL,
		"http://user:pw@api.test/":   hook.CodeInvalidURL,
		"http://":                    hook.CodeInvalidURL,
		"javascript:alert(1)":        hook.CodeInvalidURL,
		"http://api.test.other.net/": hook.CodeEgressDenied,
	} {
		if _, err := fetch(t, host, hook.FetchRequest{URL: target}); hook.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", target, err, code)
		}
	}
}

func TestFetchRefusesPrivateAddressesEvenWhenAllowed(t *testing.T) {
	t.Parallel()
	host := NewHost(Options{})
	t.Cleanup(host.Close)
	for _, target := range []string{"http://127.0.0.1:1/", "http://localhost:1/", "http://169.254.169.254/latest", "http://[::1]:1/"} {
		if _, err := fetch(t, host, hook.FetchRequest{URL: target, Allow: []string{"*"}}); hook.CodeOf(err) != hook.CodeEgressDenied {
			t.Errorf("%s: %v, want %s", target, err, hook.CodeEgressDenied)
		}
	}
}

func TestFetchBoundsSizeAndTime(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1001)) })
	mux.HandleFunc("/fits", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	host := newHost(t, Options{MaxBody: 1000, Timeout: 300 * time.Millisecond}, mux)
	defer close(release)
	for path, code := range map[string]string{"/fits": "", "/large": hook.CodeTooLarge, "/slow": hook.CodeFetchTimeout} {
		if _, err := fetch(t, host, hook.FetchRequest{URL: "http://api.test" + path}); hook.CodeOf(err) != code {
			t.Errorf("%s: %v, want code %q", path, err, code)
		}
	}
}

func TestSignedRequestIsCheckedAgainAndItsURLStaysHidden(t *testing.T) {
	t.Parallel()
	sign := func(_ context.Context, _ *hook.Call, r *http.Request) error {
		if r.URL.Path == "/leave" {
			r.URL.Host = "other.test"
		}
		query := r.URL.Query()
		query.Set("api_key", "secret")
		r.URL.RawQuery = query.Encode()
		return nil
	}
	host := newHost(t, Options{Sign: sign}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.RawQuery)
	}))
	response, err := fetch(t, host, hook.FetchRequest{URL: "http://api.test/a"})
	if err != nil || string(response.Body) != "api_key=secret" || response.URL != "http://api.test/a" {
		t.Errorf("got %q at %s, %v", response.Body, response.URL, err)
	}
	if _, err := fetch(t, host, hook.FetchRequest{URL: "http://api.test/leave"}); hook.CodeOf(err) != hook.CodeEgressDenied {
		t.Errorf("a signer moved the request: %v", err)
	}
	// A failure's text must not show it either.
	broken := newHostTo(Options{Sign: sign, AllowPrivate: true}, "127.0.0.1:1")
	if _, err := fetch(t, broken, hook.FetchRequest{URL: "http://api.test/a"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestLogForwardsLinesWithinTheAppsRate(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	host := NewHost(Options{Log: zap.New(core), LinesPerSec: 0.001})
	loud, quiet := &hook.Call{App: hook.AppRef{ID: "loud"}, Hook: "t/poll"}, &hook.Call{App: hook.AppRef{ID: "quiet"}}
	for range 50 {
		host.Log(loud, hook.LogLine{Level: "warn", Message: "again"})
	}
	host.Log(quiet, hook.LogLine{Level: "nonsense", Message: "once", Data: json.RawMessage(`{"a":1}`)})
	entries := logs.All()
	if len(entries) != 2 {
		t.Fatalf("%d lines, want 2", len(entries))
	}
	if got := entries[0].ContextMap(); entries[0].Level != zap.WarnLevel || got["message"] != "again" || got["app_id"] != "loud" || got["hook"] != "t/poll" {
		t.Errorf("got %v %v", entries[0].Level, got)
	}
	if got := entries[1].ContextMap(); entries[1].Level != zap.InfoLevel || got["data"] != `{"a":1}` {
		t.Errorf("got %v %v", entries[1].Level, got)
	}
}
