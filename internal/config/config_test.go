package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/config"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func load(t *testing.T, pairs ...string) (config.Service, *config.Set, error) {
	t.Helper()
	var (
		service config.Service
		set     config.Set
	)
	service.Bind(&set)
	err := set.FromEnv(env(pairs...))
	return service, &set, err
}

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()

	got, set, err := load(t, "DATABASE_URL", "postgres://u:p@h/db", "TOCSIN_DEV", "1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Hook.Timeout != 30*time.Second || got.Hook.MemoryBytes() != 64<<20 || got.ShutdownGrace != 20*time.Second {
		t.Errorf("timeout %s, memory %d, grace %s", got.Hook.Timeout, got.Hook.MemoryBytes(), got.ShutdownGrace)
	}
	if got.Sealing.Keys == nil {
		t.Error("TOCSIN_DEV=1 gives no keyring")
	}
	want := []config.Line{
		{"DATABASE_URL", "host=h database=db user=u"},
		{"TOCSIN_DEV", "1"},
		{"ENCRYPTION_KEYS", ""},
		{"APPS_DIR", "./apps"},
		{"ENGINE_URL", "embedded:"},
		{"ENGINE_TOKEN", ""},
		{"EMBEDDED_WORKFLOWS", ""},
		{"OPENWOP_TEST_SEAMS", "false"},
		{"HOOK_TIMEOUT", "30s"},
		{"HOOK_MEMORY_MB", "64"},
		{"ALLOW_PRIVATE_EGRESS", "false"},
		{"SHUTDOWN_GRACE", "20s"},
		{"LOG_LEVEL", "info"},
		{"LOG_FORMAT", "json"},
	}
	if diff := cmp.Diff(want, set.Summary()); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestEveryProblemIsInOneMessage(t *testing.T) {
	t.Parallel()

	_, _, err := load(t, "HOOK_TIMEOUT", "soon", "HOOK_MEMORY_MB", "1", "LOG_LEVEL", "loud", "ENGINE_URL", "ftp://x", "ALLOW_PRIVATE_EGRESS", "maybe")
	var problems *config.Error
	if !errors.As(err, &problems) {
		t.Fatalf("error is %v", err)
	}
	want := []string{
		`DATABASE_URL: is not set; expected postgres://user:password@host:port/database, with special characters in the password percent-encoded`,
		`ENGINE_URL: the scheme "ftp" is not known; expected a URL that starts with embedded: or http: or https:`,
		`HOOK_TIMEOUT: "soon" is not a duration; expected a duration from 100ms to 10m0s, such as 1s or 250ms`,
		`HOOK_MEMORY_MB: 1 is out of range; expected a number from 8 to 4096`,
		`ALLOW_PRIVATE_EGRESS: "maybe" is neither true nor false; expected true or false (1 or 0)`,
		`LOG_LEVEL: "loud" is not known; expected one of debug, info, warn, error`,
		`ENCRYPTION_KEYS: is not set; expected id:base64,… where each key is 32 bytes, as from: openssl rand -base64 32 (or TOCSIN_DEV=1 for local use)`,
	}
	if diff := cmp.Diff(want, problems.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSecretsAppearNowhere(t *testing.T) {
	t.Parallel()

	const canary = "CANARY-7731"
	for name, pairs := range map[string][]string{
		"good":              {"DATABASE_URL", "postgres://u:p4ss-CANARY-7731%21@h/db", "ENGINE_TOKEN", canary, "ENGINE_URL", "https://x:CANARY-7731@h/"},
		"password in query": {"DATABASE_URL", "postgres://u@h/db?password=CANARY-7731"},
		"bad port":          {"DATABASE_URL", "postgres://u:p4ss-CANARY-7731%21@h:bad/db"},
		"slash in password": {"DATABASE_URL", "postgres://u:CANARY-7731/x@h/db"},
		"at in password":    {"DATABASE_URL", "postgres://u:x@CANARY-7731:y@h:bad/db"},
		"bad escape":        {"DATABASE_URL", "postgres://u:CANARY-7731%zz@h/db"},
		"no user":           {"DATABASE_URL", "postgres://CANARY-7731/x@h:bad/db"},
		"no host":           {"DATABASE_URL", "postgres://u:CANARY-7731"},
		"other scheme":      {"DATABASE_URL", "mysql://u:CANARY-7731@h/db"},
		"keywords":          {"DATABASE_URL", "host=h user=u password='CANARY-7731 x' dbname=db"},
		"broken keywords":   {"DATABASE_URL", "host=h password='CANARY-7731"},
		"bad keys":          {"ENCRYPTION_KEYS", "k:CANARY-7731"},
		"bad engine":        {"ENGINE_URL", "http://u:CANARY-7731@h:bad/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, set, err := load(t, pairs...)
			encoded, _ := json.Marshal(service.Database)
			for _, text := range []string{
				fmt.Sprint(err), fmt.Sprint(set.Summary()), fmt.Sprintf("%v %+v %#v", service.Database, service.Database, service.Database), string(encoded),
			} {
				if strings.Contains(text, "CANARY") || strings.Contains(text, "p4ss") {
					t.Errorf("shows the secret: %s", text)
				}
			}
		})
	}
}

func TestAnUnreadableDSNStillNamesHostDatabaseAndUser(t *testing.T) {
	t.Parallel()

	_, _, err := load(t, "DATABASE_URL", "postgres://app:p4ss-CANARY-7731%21@ledger.example:bad/tocsin?sslmode=require", "TOCSIN_DEV", "1")
	const want = "host=ledger.example:bad database=tocsin user=app"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want it to name %s", err, want)
	}
}

func TestDSNs(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"postgres://u:p@h:5432/db":                        "host=h:5432 database=db user=u",
		"postgresql://h/db":                               "host=h database=db user=(default)",
		"postgres:///db?host=/run/pg&user=x":              "host=/run/pg database=db user=x",
		"host=h port=1 user=u dbname=db":                  "host=h database=db user=u",
		`host = h dbname='a b' password='it\'s' user=u`:   "host=h database=a b user=u",
		"postgres://u:p@h/db?application_name=a@b&x=y%20": "host=h database=db user=u",
	} {
		dsn, err := config.PostgreSQL().Parse(text)
		if err != nil || dsn.String() != want || dsn.Reveal() != text {
			t.Errorf("%s: %v %v, want %s", text, dsn, err, want)
		}
	}
}

func TestHelpListsEverySettingWithItsDefault(t *testing.T) {
	t.Parallel()

	_, set, _ := load(t)
	var help, markdown strings.Builder
	if err := errors.Join(set.Help(&help), set.Markdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	for _, line := range set.Summary() {
		if !strings.Contains(help.String(), "  "+line.Name+" ") {
			t.Errorf("--help lacks %s", line.Name)
		}
		if !strings.Contains(markdown.String(), "| `"+line.Name+"` |") {
			t.Errorf("the table lacks %s", line.Name)
		}
	}
	if !strings.Contains(help.String(), "HOOK_TIMEOUT          30s") {
		t.Errorf("no default in:\n%s", help.String())
	}
}

func TestParsers(t *testing.T) {
	t.Parallel()

	check(t, config.Bytes(1, 1<<30), map[string]any{"1048576": int64(1 << 20), "1MiB": int64(1 << 20), "64k": int64(64000), "0": nil, "x": nil, "2GiB": nil})
	check(t, config.Listen(), map[string]any{":8080": ":8080", "[::1]:0": "[::1]:0", "8080": nil, ":http": nil, ":99999": nil})
	check(t, config.Origin(), map[string]any{
		"https://h": "https://h", "http://h:1/": "http://h:1", "https://h/x": nil, "h": nil, "https://u@h": nil, "https://h?x": nil,
	})
	check(t, config.Bool(), map[string]any{"1": true, "Off": false, "y": nil})
	check(t, config.OneOf("json", "console"), map[string]any{"JSON": "json", "xml": nil})
}

func check[T any](t *testing.T, p config.Parser[T], cases map[string]any) {
	t.Helper()
	for text, want := range cases {
		got, err := p.Parse(text)
		if (err != nil) != (want == nil) || (want != nil && any(got) != want) {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}
