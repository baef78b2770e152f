package e2e

import (
	"bytes"
	"context"
	"maps"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

// C29: “DSN password, host that does not resolve; then wrong password; then a
// malformed DSN; for migrate, ingest and dispatcher, at debug level: zero hits
// in stdout, stderr; the message still names host, database and user.”
func TestTheDatabasePasswordReachesNoLog(t *testing.T) {
	t.Parallel()
	const password, encoded = "p4ss-CANARY-7731!", "p4ss-CANARY-7731%21"
	good, err := url.Parse(storetest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	good.User = url.UserPassword("canary_user", password)
	binaries := rig.Build(t)
	for name, dsn := range map[string]struct {
		url   string
		names []string
	}{
		"a host that does not resolve": {"postgres://canary_user:" + encoded + "@no-such-host.invalid:5432/canary_db", []string{"no-such-host.invalid", "canary_db", "canary_user"}},
		"a wrong password":             {good.String(), []string{good.Hostname(), good.Path[1:], "canary_user"}},
		"a malformed DSN":              {"postgres://u:" + encoded + "@h:bad/db", nil},
		"a keyword DSN":                {"host=127.0.0.1 port=1 user=canary_user password=" + password + " dbname=canary_db", []string{"127.0.0.1", "canary_db", "canary_user"}},
	} {
		for _, command := range [][]string{{binaries.CLI, "migrate"}, {binaries.CLI, "migrate", "status"}, {binaries.Ingest}, {binaries.Dispatcher}} {
			for _, level := range []string{"debug", "info"} {
				out := runUntilItEnds(t, command, map[string]string{
					"DATABASE_URL": dsn.url, "LISTEN_DATABASE_URL": dsn.url, "TOCSIN_DEV": "1", "LOG_LEVEL": level, "APPS_DIR": rig.Root() + "/examples/apps",
					"INGEST_ADDR": "127.0.0.1:0", "API_ADDR": "127.0.0.1:0", "DISPATCHER_ADDR": "127.0.0.1:0",
				})
				if strings.Contains(out, password) || strings.Contains(out, encoded) || strings.Contains(out, "CANARY-7731") {
					t.Errorf("%s, %v: the password is in the output:\n%s", name, command, out)
				}
				for _, word := range dsn.names {
					if !strings.Contains(out, word) {
						t.Errorf("%s, %v: the output does not name %q:\n%s", name, command, word, out)
					}
				}
			}
		}
	}
}

func runUntilItEnds(t *testing.T, command []string, env map[string]string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	for name, value := range maps.All(env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err == nil {
		t.Errorf("%v succeeded without a database", command)
	}
	return out.String()
}
