package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

// emptied gives a database without a schema.
func emptied(t *testing.T) (secret.Text, *pgx.Conn) {
	t.Helper()
	url := storetest.NewURL(t)
	conn := storetest.Conn(t, url)
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
	return secret.Text(url), conn
}

func TestReplicasMigrateAnEmptyDatabaseTogether(t *testing.T) {
	t.Parallel()
	url, conn := emptied(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			status, err := store.Migrate(t.Context(), url)
			if err != nil || status.Dirty || status.Version != store.LatestMigration() {
				t.Errorf("migrate: %+v, %v", status, err)
			}
		})
	}
	wg.Wait()
	var invalid int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_index WHERE NOT indisvalid").Scan(&invalid); err != nil || invalid != 0 {
		t.Errorf("%d invalid indexes, %v", invalid, err)
	}
}

func TestAMigrationThatWasCutOffIsTakenUp(t *testing.T) {
	t.Parallel()
	for name, leftover := range map[string]string{
		"before its commit": "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE schema_migrations (version bigint PRIMARY KEY, dirty boolean NOT NULL); INSERT INTO schema_migrations VALUES (1, true)",
		"after its commit":  "UPDATE schema_migrations SET dirty = true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.NewURL(t)
			if _, err := storetest.Conn(t, url).Exec(t.Context(), leftover); err != nil {
				t.Fatal(err)
			}
			status, err := store.Migrate(t.Context(), secret.Text(url))
			if err != nil || status.Dirty || status.Version != store.LatestMigration() {
				t.Errorf("migrate: %+v, %v", status, err)
			}
			if err := storetest.Open(t, url).CheckSchema(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryMigrationGoesDownAndUpAgain(t *testing.T) {
	t.Parallel()
	url := secret.Text(storetest.NewURL(t))
	if err := store.MigrateDown(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if status, err := store.ReadMigrationStatus(t.Context(), url); err != nil || status.Version != 0 {
		t.Errorf("after down: %+v, %v", status, err)
	}
	if _, err := store.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
}

func TestAnOldSchemaIsNamedWithItsRemedy(t *testing.T) {
	t.Parallel()
	url, _ := emptied(t)
	err := storetest.Open(t, url.Reveal()).CheckSchema(t.Context())
	if err == nil || !strings.Contains(err.Error(), "tocsin migrate") {
		t.Errorf("got %v, want the command to run", err)
	}
}

func TestDatabaseErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:p4ss-CANARY-7731%21@127.0.0.1:1/db",
		"postgres://u:p4ss-CANARY-7731%21@h:bad/db",
		"postgres://u:p4ss-CANARY-7731%21@does-not-resolve.invalid/db",
		"host=127.0.0.1 port=1 password=p4ss-CANARY-7731! sslmode=nonsense",
	} {
		_, openErr := store.Open(t.Context(), store.Config{URL: secret.Text(url), Keys: storetest.Keys(t)})
		_, migrateErr := store.Migrate(t.Context(), secret.Text(url))
		for _, err := range []error{openErr, migrateErr} {
			if err == nil || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("error: %v", err)
			}
		}
	}
}
