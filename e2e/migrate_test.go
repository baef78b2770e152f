package e2e

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

// emptyDatabase gives a database with nothing in it.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	url := storetest.NewURL(t)
	empty(t, url)
	return url
}

func empty(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
}

// migrate runs the CLI's migrate, killed after a while when kill is not zero.
func migrate(t *testing.T, url string, kill time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, rig.Build(t).CLI, "migrate")
	cmd.Env = []string{"DATABASE_URL=" + url}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		defer timer.Stop()
	}
	err := cmd.Wait()
	return out.String(), err
}

// sound says what is wrong with a migrated database.
func sound(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var dirty bool
	var invalid, applied int
	err = conn.QueryRow(t.Context(), `SELECT (SELECT dirty FROM schema_migrations),
		(SELECT count(*) FROM pg_index WHERE NOT indisvalid), (SELECT count(*) FROM schema_applied)`).Scan(&dirty, &invalid, &applied)
	if err != nil {
		t.Fatal(err)
	}
	if dirty || invalid > 0 || applied == 0 {
		t.Errorf("dirty %t, %d invalid indexes, %d migrations noted", dirty, invalid, applied)
	}
}

// C28: “start 3 pods at the same instant … all become ready;
// schema_migrations.dirty false; no deadlock detected; no invalid index”.
func TestThreeReplicasMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	rig.Build(t)
	url := emptyDatabase(t)
	for range 10 {
		empty(t, url)
		var replicas sync.WaitGroup
		for range 3 {
			replicas.Go(func() {
				if out, err := migrate(t, url, 0); err != nil {
					t.Errorf("migrate: %v\n%s", err, out)
				}
			})
		}
		replicas.Wait()
		sound(t, url)
	}
}

// C28: “a pod killed mid-migration does not leave a state that needs hand
// repair”.
func TestAMigrationThatWasKilledIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	rig.Build(t)
	url := emptyDatabase(t)
	killed := 0
	for range 12 {
		empty(t, url)
		after := 10*time.Millisecond + rand.N(150*time.Millisecond)
		if _, err := migrate(t, url, after); err != nil {
			killed++
		}
		if out, err := migrate(t, url, 0); err != nil || strings.Contains(out, "deadlock") {
			t.Errorf("migrate after a kill at %v: %v\n%s", after, err, out)
		}
		sound(t, url)
	}
	t.Logf("%d of 12 were killed before they were done", killed)
}
