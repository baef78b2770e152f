package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/services/ingest/internal/config"
)

func TestDefaults(t *testing.T) {
	t.Parallel()

	env := map[string]string{"DATABASE_URL": "postgres://h/db", "TOCSIN_DEV": "1", "BOOTSTRAP_API_KEY": "CANARY"}
	c, err := config.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.IngestAddr != ":8080" || c.APIAddr != ":8081" || c.HostURL != "http://localhost:8080" || c.MaxBody != 1<<20 || c.PollInterval != time.Minute || c.PollFloor != 10*time.Second || c.BootstrapKey.Reveal() != "CANARY" {
		t.Errorf("%+v", c)
	}
	for _, line := range c.Set().Summary() {
		if strings.Contains(line.Value, "CANARY") {
			t.Errorf("%s shows its secret", line.Name)
		}
	}
}

func TestHelpListsTheSettingsOfIngest(t *testing.T) {
	t.Parallel()

	var help strings.Builder
	if err := config.Help(&help); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"DATABASE_URL", "INGEST_ADDR", "API_ADDR", "HOST_URL", "APPS_DIR", "MAX_BODY_BYTES", "POLL_INTERVAL", "POLL_MIN_INTERVAL", "HOOK_TIMEOUT", "HOOK_MEMORY_MB", "SHUTDOWN_GRACE",
		"ENGINE_URL", "ENGINE_TOKEN", "EMBEDDED_WORKFLOWS", "ALLOW_PRIVATE_EGRESS", "TOCSIN_DEV", "ENCRYPTION_KEYS", "BOOTSTRAP_API_KEY", "LOG_LEVEL", "LOG_FORMAT",
	} {
		if !strings.Contains(help.String(), "  "+name+" ") {
			t.Errorf("--help lacks %s", name)
		}
	}
}
