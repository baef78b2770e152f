package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
)

// pgbouncer finds Debian's PgBouncer, installs it where that is allowed, and
// says so when it can do neither.
func pgbouncer(t *testing.T) string {
	t.Helper()
	const path = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if found, err := exec.LookPath("pgbouncer"); err == nil {
		return found
	}
	if _, err := exec.LookPath("apt-get"); err == nil && os.Getuid() == 0 {
		cmd := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "-q", "--no-install-recommends", "pgbouncer")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("apt-get install pgbouncer: %v\n%s", err, out)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("NOT TESTED: there is no PgBouncer on this machine and it cannot be installed from here (apt-get install pgbouncer)")
	}
	return path
}

// bouncer is a PgBouncer in transaction mode in front of a database.
type bouncer struct {
	t      *testing.T
	binary string
	dir    string
	addr   string
	URL    string
	proc   *rig.Process
}

func startBouncer(t *testing.T, target string) *bouncer {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	b := &bouncer{t: t, binary: pgbouncer(t), addr: rig.FreeAddr(t)}
	if b.dir, err = os.MkdirTemp("", "tocsin-bouncer-*"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	host, port, err := net.SplitHostPort(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	b.write("users.txt", fmt.Sprintf("%q %q\n", u.User.Username(), password))
	b.write("pgbouncer.ini", fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s/users.txt
pool_mode = transaction
default_pool_size = 5
max_client_conn = 400
server_login_retry = 1
%s`, u.Hostname(), u.Port(), host, port, b.dir, b.noPreparedStatements()))
	u.Host = b.addr
	b.URL = u.String()
	b.start()
	return b
}

// noPreparedStatements switches off what PgBouncer can do for prepared
// statements since 1.21. Before, it could do nothing and had no such setting.
func (b *bouncer) noPreparedStatements() string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), b.binary, "--version").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	var minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer 1.%d", &minor); err == nil && minor < 21 {
		return ""
	}
	return "max_prepared_statements = 0\n"
}

func (b *bouncer) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// start starts it; it refuses to run as root, so root hands it to the user that
// runs PostgreSQL.
func (b *bouncer) start() {
	b.t.Helper()
	_ = os.Chmod(b.dir, 0o755) // its user must read the settings
	args := []string{filepath.Join(b.dir, "pgbouncer.ini")}
	if os.Getuid() == 0 {
		name := "postgres"
		if _, err := user.Lookup(name); err != nil {
			name = "nobody"
		}
		args = append([]string{"-u", name}, args...)
	}
	b.proc = rig.StartProcess(b.t, "pgbouncer", nil, b.binary, args...)
	rig.Eventually(b.t, 10*time.Second, "pgbouncer listens", func() bool {
		if b.proc.Exited() {
			b.t.Fatalf("pgbouncer ended:\n%s", b.proc.Tail(20))
		}
		conn, err := net.DialTimeout("tcp", b.addr, time.Second) //nolint:noctx // bounded
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

// C17: “all services through PgBouncer, pool_mode=transaction,
// max_prepared_statements=0, pool of 5. 200 events, 4 dispatchers, then restart
// PgBouncer: every event runs once; no prepared statement …; the service
// notices that LISTEN cannot work here, says so once, exposes it as a metric,
// and polls.”
func TestEverythingWorksThroughATransactionPoolingPgBouncer(t *testing.T) {
	t.Parallel()
	database := storetest.NewURL(t)
	b := startBouncer(t, database)
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Dispatchers: 4, Database: database, Env: map[string]string{"ENGINE_URL": engine.URL, "DATABASE_URL": b.URL}})
	id := s.Receiver("wf")
	postMany := func(n int) {
		var clients sync.WaitGroup
		for c := range 4 {
			clients.Go(func() {
				for i := range n / 4 {
					answer := s.Post(id, fmt.Appendf(nil, `{"client":%d,"n":%d,"text":"\\u0000 \"é\" 1e400"}`, c, i), "Content-Type", "application/json")
					if answer.Status != http.StatusOK {
						t.Errorf("post: %d %s", answer.Status, answer.Body)
					}
				}
			})
		}
		clients.Wait()
	}
	postMany(100)
	rig.Eventually(t, time.Minute, "every event is dispatched", func() bool { return s.Open() == 0 })
	b.proc.Stop(5 * time.Second)
	b.start()
	rig.Eventually(t, 20*time.Second, "ingest is ready again", func() bool {
		answer, err := rig.Send(t.Context(), http.MethodGet, s.APIURL+"/readyz", nil)
		return err == nil && answer.Status == http.StatusOK
	})
	postMany(100)
	rig.Eventually(t, time.Minute, "every event is dispatched", func() bool { return s.Open() == 0 })

	if stats := engine.Stats(); stats.Runs != 200 || stats.Duplicates != 0 {
		t.Errorf("engine %+v, want 200 runs and no duplicate", stats)
	}
	for _, start := range engine.Starts() {
		if !strings.Contains(string(start.Event), `"text":"\\u0000 \"é\" 1e400"`) {
			t.Fatalf("an event changed on its way: %s", start.Event)
		}
	}
	for _, p := range append([]*rig.Process{s.Ingest}, s.Dispatchers...) {
		if text := strings.Join(p.Lines(), "\n"); strings.Contains(text, "prepared statement") {
			t.Errorf("%s speaks of prepared statements:\n%s", p.Name, p.Tail(20))
		}
	}
	for _, d := range s.Dispatchers {
		if n := len(d.Logged("bell.pooled")); n != 1 {
			t.Errorf("%s said %d times that it polls, want once", d.Name, n)
		}
		if up := metric(t, d.URL, "tocsin_listener_up"); up != "0" {
			t.Errorf("%s: tocsin_listener_up %s, want 0", d.Name, up)
		}
	}
}

// C17: “With a separate direct DSN configured for LISTEN, doorbell latency
// returns.”
func TestADirectListenBringsTheBellBackBehindPgBouncer(t *testing.T) {
	t.Parallel()
	database := storetest.NewURL(t)
	b := startBouncer(t, database)
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Database: database, Env: map[string]string{
		"ENGINE_URL": engine.URL, "DATABASE_URL": b.URL, "LISTEN_DATABASE_URL": database, "FALLBACK_INTERVAL": "30s",
	}})
	rig.Eventually(t, 10*time.Second, "the bell is heard", func() bool { return metric(t, s.Dispatchers[0].URL, "tocsin_listener_up") == "1" })
	id := s.Receiver("wf")
	for n := range 10 {
		began := time.Now()
		if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
			t.Fatalf("post: %d %s", answer.Status, answer.Body)
		}
		rig.Eventually(t, 5*time.Second, "the event is started", func() bool { return len(engine.Starts()) == n+1 })
		if wait := engine.Starts()[n].At.Sub(began); wait > time.Second {
			t.Errorf("event %d was started after %v", n, wait)
		}
	}
}

// metric reads one metric without labels; "" when it is not there.
func metric(t *testing.T, base, name string) string {
	t.Helper()
	answer, err := rig.Send(t.Context(), http.MethodGet, base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(answer.Body)) {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, name+" ") || strings.HasPrefix(text, name+"{") {
			return text[strings.LastIndexByte(text, ' ')+1:]
		}
	}
	return ""
}
