// Package cluster runs the benchmarks' own PostgreSQL, with durability as it is
// by default, and gives every run a database of its own.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Settings differ from PostgreSQL's defaults and from scripts/postgres.sh.
// Nothing of them bears on durability. BENCH_SETTINGS adds more, "name = 'value'"
// separated by semicolons; the page names them all.
var Settings = []string{"shared_buffers = '1GB'", "max_wal_size = '8GB'", "checkpoint_timeout = '30min'"}

// Cluster is a running server.
type Cluster struct {
	URL       string
	Version   string
	PID       int
	script    string
	dir       string
	major     int
	databases atomic.Int64
	templates map[string]string
}

// Start makes a cluster below dir, or starts the one that is there.
func Start(ctx context.Context, root, dir string) (*Cluster, error) {
	c := &Cluster{script: filepath.Join(root, "scripts", "postgres.sh"), dir: dir, templates: map[string]string{}}
	base, err := c.run(ctx, "start")
	if err != nil {
		return nil, err
	}
	if more := os.Getenv("BENCH_SETTINGS"); more != "" {
		Settings = append(Settings, strings.Split(more, ";")...)
	}
	for _, setting := range Settings {
		if err := exec1(ctx, base, "ALTER SYSTEM SET "+setting); err != nil {
			return nil, err
		}
	}
	if _, err := c.run(ctx, "stop"); err != nil {
		return nil, err
	}
	if c.URL, err = c.run(ctx, "start"); err != nil {
		return nil, err
	}
	return c, c.look(ctx)
}

// look refuses a server whose durability somebody has weakened.
func (c *Cluster) look(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("%s is %s: these figures are about durable commits", name, value)
		}
	}
	if err := conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::int / 10000").Scan(&c.Version, &c.major); err != nil {
		return err
	}
	c.Version, _, _ = strings.Cut(c.Version, " on ")
	home, err := os.ReadFile(filepath.Join(c.dir, "home"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(home)), "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	c.PID, err = strconv.Atoi(first)
	return err
}

// Destroy stops the server and deletes its data.
func (c *Cluster) Destroy() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := c.run(ctx, "destroy")
	return err
}

func (c *Cluster) run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, c.script, command, c.dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("postgres.sh %s: %w", command, errors.Join(err, errors.New(stderr.String())))
	}
	return strings.TrimSpace(string(out)), err
}

// Template gives the name of a database that build has filled, once.
func (c *Cluster) Template(ctx context.Context, name string, build func(ctx context.Context, url string) error) (string, error) {
	if database, ok := c.templates[name]; ok {
		return database, nil
	}
	database := fmt.Sprintf("template_%d", c.databases.Add(1))
	if err := exec1(ctx, c.URL, "CREATE DATABASE "+database); err != nil {
		return "", err
	}
	if build != nil {
		if err := build(ctx, c.At(database)); err != nil {
			return "", fmt.Errorf("make %s: %w", name, err)
		}
	}
	if err := exec1(ctx, c.At(database), "VACUUM (ANALYZE)"); err != nil {
		return "", err
	}
	c.templates[name] = database
	return database, nil
}

// Database copies a template and gives the copy's URL and what drops it again.
// A checkpoint follows, so that no run pays for the one before.
func (c *Cluster) Database(ctx context.Context, template string) (string, func(), error) {
	database := fmt.Sprintf("run_%d", c.databases.Add(1))
	how := ""
	if c.major >= 15 {
		how = " STRATEGY file_copy"
	}
	if err := exec1(ctx, c.URL, "CREATE DATABASE "+database+" TEMPLATE "+template+how); err != nil {
		return "", nil, err
	}
	drop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = exec1(ctx, c.URL, "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
	}
	return c.At(database), drop, exec1(ctx, c.URL, "CHECKPOINT")
}

// DropTemplate makes room.
func (c *Cluster) DropTemplate(ctx context.Context, name string) {
	if database, ok := c.templates[name]; ok {
		_ = exec1(ctx, c.URL, "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
		delete(c.templates, name)
	}
}

// At gives the URL of a database.
func (c *Cluster) At(database string) string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return c.URL
	}
	u.Path = "/" + database
	return u.String()
}

// exec1 runs one statement on a connection of its own.
func exec1(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
