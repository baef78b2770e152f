package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/services/dispatcher/internal/config"
)

func from(pairs ...string) (*config.Config, error) {
	env := map[string]string{"DATABASE_URL": "postgres://u:p4ss-CANARY@h/db", "TOCSIN_DEV": "1"}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return config.FromEnv(func(name string) string { return env[name] })
}

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()

	c, err := from()
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != ":8082" || c.Fallback != time.Second || c.Lease != 30*time.Second || c.Concurrency != 64 || c.EngineTimeout != 30*time.Second {
		t.Errorf("%+v", c)
	}
	if c.Listen.Reveal() != c.Database.URL.Reveal() || c.Listen.Off {
		t.Error("LISTEN is not where the ledger is")
	}
}

func TestListening(t *testing.T) {
	t.Parallel()

	c, err := from("LISTEN_DATABASE_URL", "postgres://u:p4ss-CANARY@direct/db")
	if err != nil || c.Listen.Host != "direct" {
		t.Errorf("%v, %v", c, err)
	}
	c, err = from("LISTEN_DATABASE_URL", "off")
	if err != nil || !c.Listen.Off {
		t.Errorf("%v, %v", c, err)
	}
}

func TestSecretsAppearNowhere(t *testing.T) {
	t.Parallel()

	c, err := from("LISTEN_DATABASE_URL", "postgres://u:p4ss-CANARY@direct/db")
	if err != nil {
		t.Fatal(err)
	}
	_, bad := from("LISTEN_DATABASE_URL", "postgres://u:p4ss-CANARY@h:bad/db")
	if text := fmt.Sprint(c.Set().Summary(), bad); strings.Contains(text, "CANARY") || bad == nil {
		t.Error(text)
	}
}

func TestHelpListsEverySetting(t *testing.T) {
	t.Parallel()

	var help strings.Builder
	if err := config.Help(&help); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"DATABASE_URL", "LISTEN_DATABASE_URL", "DISPATCHER_ADDR", "FALLBACK_INTERVAL", "LEASE", "ENGINE_URL", "SHUTDOWN_GRACE"} {
		if !strings.Contains(help.String(), "  "+name+" ") {
			t.Errorf("--help lacks %s", name)
		}
	}
}
