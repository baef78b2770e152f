// Package storetest gives each test a migrated database of its own, cloned
// from a template that is named by the hash of the schema and built once.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zaptest"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
)

// Variable names the server that tests use.
const Variable = "TOCSIN_TEST_DATABASE_URL"

// serial is the advisory lock under which the template is built and cloned.
const serial = 7_041_952

// NewURL makes a database for the test and gives its URL; it is dropped at the
// end.
func NewURL(t testing.TB) string {
	t.Helper()
	base := os.Getenv(Variable)
	if base == "" {
		t.Fatalf("%s is not set: run `make test`, which starts a PostgreSQL for the tests,\nor: export %s=$(scripts/postgres.sh start .local/test --throwaway)", Variable, Variable)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := strings.ToLower("t_" + ident.New(""))
	if err := clone(ctx, base, name); err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := exec(ctx, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Logf("drop the test database: %v", err)
		}
	})
	return withDatabase(base, name)
}

// Keys is a ring for tests.
func Keys(t testing.TB) *secret.Keyring {
	t.Helper()
	keys, err := secret.ParseKeyring(secret.DevKeys)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// New opens a store on a database of the test's own.
func New(t testing.TB) *store.DB {
	t.Helper()
	return Open(t, NewURL(t))
}

// Open opens one more store on a database; it is closed at the end.
func Open(t testing.TB, url string) *store.DB {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{
		URL: secret.Text(url), Application: "test", Keys: Keys(t), Log: zaptest.NewLogger(t), MaxConns: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Conn opens a plain connection, for looking and for moving times.
func Conn(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func clone(ctx context.Context, base, name string) error {
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", serial); err != nil {
		return err
	}
	template, err := ensureTemplate(ctx, conn, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template)
	return err
}

// ensureTemplate builds the template; a half-built one has another name.
func ensureTemplate(ctx context.Context, conn *pgx.Conn, base string) (string, error) {
	template := "tocsin_template_" + schemaHash()
	var there bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", template).Scan(&there)
	if err != nil || there {
		return template, err
	}
	building := template + "_new"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + building + " WITH (FORCE)", "CREATE DATABASE " + building} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", err
		}
	}
	if _, err := store.Migrate(ctx, secret.Text(withDatabase(base, building))); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", building, template))
	return template, err
}

func schemaHash() string {
	hash := sha256.New()
	files, _ := fs.Glob(db.Schema, "schema/*.sql")
	for _, file := range files {
		text, _ := fs.ReadFile(db.Schema, file)
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", file, len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func exec(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

func withDatabase(base, name string) string {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "" {
		return base + " dbname=" + name
	}
	u.Path = "/" + name
	return u.String()
}
