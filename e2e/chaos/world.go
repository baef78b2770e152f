package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

const (
	dispatchers   = 3
	lease         = 5 * time.Second
	engineTimeout = 3 * time.Second
)

// healthyEngine answers after a moment, as engines do.
var healthyEngine = fakeengine.Script{Then: fakeengine.Step{
	Do: fakeengine.DoOK, Latency: fakeengine.Duration(2 * time.Millisecond), Jitter: fakeengine.Duration(20 * time.Millisecond),
}}

// world is a Tocsin with everything around it.
type world struct {
	t       testing.TB
	cluster *rig.Cluster
	proxy   *rig.Proxy // between the dispatchers and the cluster
	engine  *rig.Engine
	pool    *pgxpool.Pool // the observer's; it goes past the proxy
	public  string
	api     string
	ingest  *pod
	workers []*pod

	mu     sync.Mutex
	faults []checker.Fault
}

// build brings a world up. Its processes run until ctx ends.
func build(ctx context.Context, t testing.TB, processes *sync.WaitGroup, embedded bool) *world {
	t.Helper()
	binaries := rig.Build(t)
	w := &world{t: t, cluster: rig.StartCluster(t), engine: rig.StartEngine(t)}
	w.engine.Play(healthyEngine)
	w.proxy = rig.StartProxy(t, w.cluster.Host)
	w.pool = observer(t, w.cluster.URL)
	if err := rig.Audit(t.Context(), w.pool); err != nil {
		t.Fatal(err)
	}
	engineURL := w.engine.URL
	if embedded {
		engineURL = "embedded:"
	}
	public, api := rig.FreeAddr(t), rig.FreeAddr(t)
	w.public, w.api = "http://"+public, "http://"+api
	env := func(own map[string]string) map[string]string {
		all := map[string]string{
			"DATABASE_URL": w.cluster.URL, "HOST_URL": w.public, "APPS_DIR": filepath.Join(rig.Root(), "examples", "apps"), "TOCSIN_DEV": "1",
			"BOOTSTRAP_API_KEY": rig.BootstrapKey, "ALLOW_PRIVATE_EGRESS": "true", "LOG_LEVEL": "info", "ENGINE_URL": engineURL,
			"FALLBACK_INTERVAL": "1s", "SHUTDOWN_GRACE": "3s", "LEASE": lease.String(), "ENGINE_TIMEOUT": engineTimeout.String(),
		}
		maps.Copy(all, own)
		return all
	}
	w.ingest = &pod{t: t, name: "ingest", binary: binaries.Ingest, env: env(map[string]string{"INGEST_ADDR": public, "API_ADDR": api})}
	processes.Go(func() { w.ingest.keep(ctx) })
	for i := range dispatchers {
		d := &pod{t: t, name: fmt.Sprintf("dispatcher-%d", i+1), binary: binaries.Dispatcher, env: env(map[string]string{
			"DISPATCHER_ADDR": rig.FreeAddr(t), "DATABASE_URL": w.proxy.Through(t, w.cluster.URL),
		})}
		w.workers = append(w.workers, d)
		processes.Go(func() { d.keep(ctx) })
	}
	rig.Eventually(t, time.Minute, "ingest is ready", func() bool {
		answer, err := rig.Send(t.Context(), http.MethodGet, w.api+"/readyz", nil)
		return err == nil && answer.Status == http.StatusOK
	})
	return w
}

// observer opens a pool that a read-only server does not hinder.
func observer(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = "observer"
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off"
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// hit makes one fault happen and notes when.
func (w *world) hit(ctx context.Context, s Step) {
	from := time.Now()
	w.do(ctx, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, checker.Fault{Kind: s.Kind, Target: targetOf(s.Kind), From: from, To: time.Now()})
}

func (w *world) do(ctx context.Context, s Step) {
	worker := w.workers[s.Index%len(w.workers)]
	switch s.Kind {
	case "kill dispatcher":
		worker.signal(syscall.SIGKILL)
	case "term dispatcher":
		worker.signal(syscall.SIGTERM)
	case "stop dispatcher":
		freeze(ctx, worker, s.For)
	case "kill ingest":
		w.ingest.signal(syscall.SIGKILL)
	case "term ingest":
		w.ingest.signal(syscall.SIGTERM)
	case "stop ingest":
		freeze(ctx, w.ingest, s.For)
	case "network cut":
		w.proxy.Refuse(true)
		w.proxy.Cut()
		rig.Pause(ctx, s.For)
		w.proxy.Refuse(false)
	case "network slow":
		w.proxy.Delay(100 * time.Millisecond)
		rig.Pause(ctx, s.For)
		w.proxy.Delay(0)
	case "network half-open":
		w.proxy.Stall()
	default:
		if step, ok := engineFaults[s.Kind]; ok {
			w.engine.Play(step)
			rig.Pause(ctx, s.For)
			w.engine.Play(healthyEngine)
			return
		}
		w.database(ctx, s)
	}
}

func freeze(ctx context.Context, p *pod, d time.Duration) {
	p.signal(syscall.SIGSTOP)
	rig.Pause(ctx, d)
	p.signal(syscall.SIGCONT)
}

var engineFaults = map[string]fakeengine.Script{
	"engine slow": {Then: fakeengine.Step{Do: fakeengine.DoOK, Latency: fakeengine.Duration(500 * time.Millisecond), Jitter: fakeengine.Duration(time.Second)}},
	"engine hung": {Then: fakeengine.Step{Do: fakeengine.DoHang}},
	"engine flapping": {
		Then: fakeengine.Step{Do: fakeengine.DoOK}, Up: fakeengine.Duration(700 * time.Millisecond), Down: fakeengine.Duration(400 * time.Millisecond),
	},
	"engine garbage":  {Steps: []fakeengine.Step{{Do: fakeengine.DoGarbage}, {Do: fakeengine.DoNoRunID}, {Do: fakeengine.DoCut}, {Do: fakeengine.DoOK}}, Loop: true},
	"engine dirty":    {Steps: []fakeengine.Step{{Do: fakeengine.DoDirty}, {Do: fakeengine.DoOK, Times: 4}}, Loop: true},
	"engine late":     {Steps: []fakeengine.Step{{Do: fakeengine.DoLate}, {Do: fakeengine.DoOK, Times: 4}}, Loop: true},
	"engine refusing": {Steps: []fakeengine.Step{{Do: fakeengine.DoStatus, Status: 503}, {Do: fakeengine.DoDrop}, {Do: fakeengine.DoOK, Times: 2}}, Loop: true},
}

func (w *world) database(ctx context.Context, s Step) {
	switch s.Kind {
	case "database fast restart":
		w.restart(ctx, syscall.SIGINT, s.For)
	case "database crash":
		w.restart(ctx, syscall.SIGQUIT, s.For)
	case "database away":
		w.restart(ctx, syscall.SIGINT, s.For)
	case "database stopped":
		w.cluster.Freeze(ctx, s.For)
	case "database read-only":
		w.cluster.Exec(ctx, "ALTER SYSTEM SET default_transaction_read_only = on")
		w.cluster.Exec(ctx, "SELECT pg_reload_conf()")
		rig.Pause(ctx, s.For)
		w.cluster.Exec(ctx, "ALTER SYSTEM RESET default_transaction_read_only")
		w.cluster.Exec(ctx, "SELECT pg_reload_conf()")
	case "database slots":
		w.fillSlots(ctx, s.For)
	case "listeners terminated":
		w.terminate(ctx, `application_name LIKE '%-bell'`)
	case "everyone terminated":
		w.terminate(ctx, `application_name <> 'observer'`)
	}
}

func (w *world) restart(ctx context.Context, signal syscall.Signal, away time.Duration) {
	w.cluster.Stop(ctx, signal)
	rig.Pause(ctx, away)
	w.cluster.Start(ctx)
}

const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND "

func (w *world) terminate(ctx context.Context, which string) { w.cluster.Exec(ctx, terminate+which) }

// fillSlots takes every connection that the server has left, and keeps them.
func (w *world) fillSlots(ctx context.Context, d time.Duration) {
	var taken []*pgx.Conn
	for range rig.MaxConnections {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		conn, err := pgx.Connect(limited, w.cluster.URL)
		cancel()
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	if len(taken) > 0 { // who is there is sent away, comes back, and finds no room
		_, err := taken[0].Exec(context.WithoutCancel(ctx), terminate+`application_name LIKE 'tocsin-%'`)
		if err != nil {
			w.t.Errorf("terminate: %v", err)
		}
	}
	rig.Pause(ctx, d)
	for _, conn := range taken {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

func collectStrings(rows pgx.Rows) ([]string, error) {
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
