package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
)

// Cluster is a PostgreSQL of the test's own, to be stopped, killed and filled
// up. It is migrated.
type Cluster struct {
	t    testing.TB
	dir  string
	pid  int
	URL  string
	Host string // host:port; it stays the same across restarts
}

// MaxConnections is how many connections a Cluster takes.
const MaxConnections = 100

// StartCluster makes a cluster and destroys it with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	parent, err := os.MkdirTemp("", "tocsin-cluster-*")
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(parent, 0o711) // the server's user must pass through
	c := &Cluster{t: t, dir: filepath.Join(parent, "pg")}
	t.Cleanup(func() {
		_, _ = c.script(context.Background(), "destroy")
		_ = os.RemoveAll(parent)
	})
	c.Start(t.Context())
	// A throw-away cluster answers before the commit is written. Here servers are
	// killed, and what was answered must be there; the machine itself does not
	// crash, so that nothing needs to be flushed to the disk.
	for _, setting := range []string{"synchronous_commit = on", "max_connections = " + strconv.Itoa(MaxConnections)} {
		c.Exec(t.Context(), "ALTER SYSTEM SET "+setting)
	}
	c.Stop(t.Context(), syscall.SIGINT)
	c.Start(t.Context())
	if _, err := store.Migrate(t.Context(), secret.Text(c.URL)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Cluster) script(ctx context.Context, command string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(Root(), "scripts", "postgres.sh"), append([]string{command, c.dir}, flags...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(err, errors.New(stderr.String()))
	}
	return strings.TrimSpace(string(out)), err
}

// Start starts the server; its data and its address stay.
func (c *Cluster) Start(ctx context.Context) {
	url, err := c.script(ctx, "start", "--throwaway")
	if err != nil {
		c.t.Fatalf("start a cluster: %v", err)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		c.t.Fatal(err)
	}
	host := config.Host + ":" + strconv.Itoa(int(config.Port))
	if c.Host != "" && c.Host != host {
		c.t.Fatalf("the cluster came back at %s, not at %s", host, c.Host)
	}
	c.URL, c.Host, c.pid = url, host, c.serverPID()
}

func (c *Cluster) serverPID() int {
	home, err := os.ReadFile(filepath.Join(c.dir, "home"))
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(home)), "data", "postmaster.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid < 2 {
		c.t.Fatalf("the server's pid file says %q", first)
	}
	return pid
}

// Stop ends the server and waits: SIGINT is a fast shutdown, SIGQUIT an
// immediate one, as after a crash.
func (c *Cluster) Stop(ctx context.Context, signal syscall.Signal) {
	_ = syscall.Kill(c.pid, signal)
	deadline := time.Now().Add(time.Minute)
	for syscall.Kill(c.pid, 0) == nil {
		if time.Now().After(deadline) {
			c.t.Errorf("the server does not stop")
			return
		}
		Pause(context.WithoutCancel(ctx), 20*time.Millisecond)
	}
}

// Freeze stops the server and all its backends for a while, without anybody
// being told.
func (c *Cluster) Freeze(ctx context.Context, d time.Duration) {
	pids := append(childrenOf(c.pid), c.pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	Pause(ctx, d)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// childrenOf lists a process's children; none where /proc does not say.
func childrenOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var list []int
	for word := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			list = append(list, child)
		}
	}
	return list
}

// Exec runs a statement on a connection of its own.
func (c *Cluster) Exec(ctx context.Context, sql string) {
	if err := c.TryExec(ctx, sql); err != nil {
		c.t.Errorf("%s: %v", sql, err)
	}
}

// TryExec runs a statement on a connection of its own, also on a server that
// is read-only.
func (c *Cluster) TryExec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Pause waits, or less when ctx ends. It is for how long a fault lasts, never
// for something to happen.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
