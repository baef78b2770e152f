package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

// MigrationStatus says how far a database's schema is.
type MigrationStatus struct {
	Version uint // 0: an empty database
	Latest  uint // of this binary
	Dirty   bool // a migration was cut off
}

// ErrSchema is a database whose schema this binary cannot work with.
var ErrSchema = errors.New("the database's schema is not the one this version needs")

// Migrate brings the schema to the latest version. It is safe to run from
// several processes at once: one migrates, the others wait for it. A migration
// that was cut off is taken up where the database says it stands.
func Migrate(ctx context.Context, url secret.Text) (MigrationStatus, error) {
	var status MigrationStatus
	err := withMigrator(ctx, url, func(m *migrate.Migrate, conn *sql.DB) error {
		err := m.Up()
		if dirty := (migrate.ErrDirty{}); errors.As(err, &dirty) {
			if err := repair(ctx, m, conn, dirty.Version); err != nil {
				return err
			}
			err = m.Up()
		}
		if err != nil && !errors.Is(err, migrate.ErrNoChange) {
			return err
		}
		status, err = migrationStatus(m)
		return err
	})
	return status, err
}

// repair clears the mark of a migration that was cut off. The migration's own
// transaction says whether it was committed.
func repair(ctx context.Context, m *migrate.Migrate, conn *sql.DB, version int) error {
	var applied bool
	var there bool
	if err := conn.QueryRowContext(ctx, "SELECT to_regclass('schema_applied') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	if there {
		err := conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM schema_applied WHERE version = $1)", version).Scan(&applied)
		if err != nil {
			return err
		}
	}
	switch {
	case applied:
		return m.Force(version)
	case version > 1:
		return m.Force(version - 1)
	}
	return m.Force(-1) // nothing is applied
}

// ReadMigrationStatus says how far the schema is, without changing it.
func ReadMigrationStatus(ctx context.Context, url secret.Text) (MigrationStatus, error) {
	var status MigrationStatus
	err := withMigrator(ctx, url, func(m *migrate.Migrate, _ *sql.DB) (err error) {
		status, err = migrationStatus(m)
		return err
	})
	return status, err
}

// migrateDown takes everything back; for tests.
func migrateDown(ctx context.Context, url secret.Text) error {
	return withMigrator(ctx, url, func(m *migrate.Migrate, _ *sql.DB) error { return m.Down() })
}

// withMigrator opens a connection of its own, not by URL: the library puts the
// URL, password and all, into its errors.
func withMigrator(ctx context.Context, url secret.Text, f func(*migrate.Migrate, *sql.DB) error) error {
	config, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		return errors.New("migrate: not a valid PostgreSQL URL or DSN; want postgres://user:password@host:5432/database")
	}
	conn := stdlib.OpenDB(*config)
	defer func() { _ = conn.Close() }()
	unlock, err := lockMigrations(ctx, conn)
	if err != nil {
		return failed("migrate", err)
	}
	defer unlock()
	driver, err := migratepgx.WithInstance(conn, &migratepgx.Config{})
	if err != nil {
		return failed("migrate", err)
	}
	source, err := iofs.New(db.Schema, "schema")
	if err != nil {
		return fmt.Errorf("migrate: read the embedded schema: %w", err)
	}
	m, err := migrate.NewWithInstance("schema", source, "postgresql", driver)
	if err != nil {
		return failed("migrate", err)
	}
	defer func() { _, _ = m.Close() }()
	var dirty migrate.ErrDirty
	if err := f(m, conn); errors.As(err, &dirty) {
		return fmt.Errorf("migrate: version %d was cut off: %w", dirty.Version, ErrSchema)
	} else if err != nil {
		return failed("migrate", err)
	}
	return nil
}

// lockMigrations lets one process at a time migrate. The library has a lock of
// its own, but not around the repair.
func lockMigrations(ctx context.Context, db *sql.DB) (unlock func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", migrationLock); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", migrationLock)
		_ = conn.Close()
	}, nil
}

// migrationLock is the advisory lock of a migrating process.
const migrationLock = 5_283_041_776

func migrationStatus(m *migrate.Migrate) (MigrationStatus, error) {
	version, dirty, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return MigrationStatus{}, err
	}
	return MigrationStatus{Version: version, Latest: LatestMigration(), Dirty: dirty}, nil
}

// LatestMigration is the schema version this binary needs.
func LatestMigration() uint {
	files, err := fs.Glob(db.Schema, "schema/*.up.sql")
	if err != nil {
		return 0
	}
	var latest uint
	for _, file := range files {
		var n uint
		if _, err := fmt.Sscanf(file, "schema/%d_", &n); err == nil {
			latest = max(latest, n)
		}
	}
	return latest
}

// CheckSchema says whether the schema fits; ErrSchema with what to do when it
// does not.
func (db *DB) CheckSchema(ctx context.Context) error {
	var version uint
	var dirty bool
	err := db.pool.QueryRow(ctx, "SELECT version, dirty FROM schema_migrations LIMIT 1").Scan(&version, &dirty)
	if err != nil && !isUnavailable(err) || errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: it is empty; run: tocsin migrate", ErrSchema)
	}
	switch {
	case err != nil:
		return failed("check schema", err)
	case dirty:
		return fmt.Errorf("%w: migration %d was cut off; run: tocsin migrate", ErrSchema, version)
	case version < LatestMigration():
		return fmt.Errorf("%w: it is at version %d of %d; run: tocsin migrate", ErrSchema, version, LatestMigration())
	}
	return nil
}
