// Command dispatcher starts runs: it wakes to the ledger's bell, claims due
// events, and hands them to the workflow engine. Any number of them share a
// ledger.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/tocsin-dev/tocsin/internal/bell"
	"github.com/tocsin-dev/tocsin/internal/connection"
	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/engine/open"
	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/registry"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/dispatcher/internal/config"
	"github.com/tocsin-dev/tocsin/services/dispatcher/internal/dispatch"
)

const service = "dispatcher"

func main() {
	workerpool.Main() // a hook worker is this binary, too
	os.Exit(start(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// start answers --help and --version, reads the configuration and runs.
func start(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return info(args[0], stdout, stderr)
	}
	cfg, err := config.FromEnv(getenv)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "dispatcher: %v\n\nSee dispatcher --help for every setting.\n", err)
		return 2
	}
	instance := obs.Instance()
	log, err := obs.NewLogger(stdout, obs.LogConfig{Level: cfg.Log.Level, Format: cfg.Log.Format, Service: service, Instance: instance})
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "dispatcher: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	defer stop()
	if err := run(ctx, cfg, instance, log); err != nil {
		log.Error("service.failed", obs.Err(err))
		return 1
	}
	log.Info("service.stopped")
	return 0
}

func info(arg string, stdout, stderr io.Writer) int {
	switch arg {
	case "-h", "-help", "--help", "help":
		_, _ = fmt.Fprint(stdout, "dispatcher starts runs of the events in the ledger.\n\nIt is configured by environment variables (name, default, meaning):\n\n")
		if err := config.Help(stdout); err != nil {
			return 1
		}
		return 0
	case "-version", "--version", "version":
		_, _ = fmt.Fprintln(stdout, "dispatcher", obs.Version())
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "dispatcher: %q is not an argument; there are --help and --version\n", arg)
	return 2
}

// run is the service: the ledger, the sandbox and the engine are opened first,
// and let go of once the last outcome is recorded.
func run(ctx context.Context, cfg *config.Config, instance string, log *zap.Logger) (err error) {
	log.Info("service.starting", zap.String("version", obs.Version()), obs.Pairs("config", cfg.Set().All()))
	metrics, health := obs.NewRegistry(service), obs.NewHealth(log)
	context.AfterFunc(ctx, func() { health.Stop("shutting down") })

	ledger, err := openLedger(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer ledger.Close()
	health.Add("database", ledger.Ping)
	health.Add("schema", ledger.CheckSchema)

	connections := connection.New(ledger, cfg.Hook.Timeout, log)
	hooks, err := startHooks(cfg, connections, log) //nolint:contextcheck // the pool ends with Close, after the last call
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hooks.Close()) }()

	apps := registry.New(registry.Config{Dir: cfg.AppsDir, Bundler: registry.Bundles{}, Runtime: hooks, States: ledger, Log: log})
	connections.Use(apps)
	if err := apps.Reload(ctx); err != nil {
		return fmt.Errorf("load apps: %w", err)
	}
	runs, err := open.Open(open.Config{
		URL: cfg.Engine.URL, Token: cfg.Engine.Token, Workflows: cfg.Engine.Workflows, Runs: ledger, AllowPrivate: cfg.AllowPrivateEgress,
		Concurrency: cfg.Concurrency, Seams: cfg.Engine.TestSeams,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runs.Close()) }()

	triggers := manager.New(manager.Config{
		Store: ledger, Apps: apps, Hooks: apps, Workflows: runs, Connections: connections, HostURL: cfg.HostURL, HookTimeout: cfg.Hook.Timeout, Log: log,
	})
	listener := newListener(cfg, metrics, log)
	dispatcher, err := newDispatcher(cfg, instance, parts{ledger, triggers, runs, apps, listener}, metrics, log)
	if err != nil {
		return err
	}
	server, err := obs.Listen(ctx, service, cfg.Addr, pages(health, metrics), obs.Limits{Write: time.Minute}, log)
	if err != nil {
		return err
	}
	return serve(ctx, server, dispatcher, listener, apps, log)
}

// refreshEvery is how long an operator's word on an app may go unheard.
const refreshEvery = 5 * time.Second

// serve runs everything until ctx ends. Metrics and health are answered until
// the dispatcher is done.
func serve(ctx context.Context, server *obs.Server, dispatcher *dispatch.Dispatcher, listener *bell.Listener, apps *registry.Registry, log *zap.Logger) error {
	pages, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return obs.Serve(pages, obs.Shutdown{Grace: time.Second}, server) })
	group.Go(func() error { return listener.Run(ctx) })
	group.Go(func() error { return apps.Run(ctx, refreshEvery) })
	group.Go(func() error { return apps.ReloadOn(ctx, reload) })
	group.Go(func() error {
		defer stop()
		return dispatcher.Run(ctx)
	})
	log.Info("service.started")
	return group.Wait()
}

// openLedger opens the database and refuses a schema that does not fit.
func openLedger(ctx context.Context, cfg *config.Config, log *zap.Logger) (*store.DB, error) {
	ledger, err := store.Open(ctx, store.Config{
		URL: secret.Text(cfg.Database.URL.Reveal()), Application: "tocsin-" + service, Keys: cfg.Sealing.Keys, Log: log, MaxConns: 8,
	})
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, cfg.Database.URL)
	}
	if err := ledger.CheckSchema(ctx); err != nil {
		ledger.Close()
		return nil, err
	}
	return ledger, nil
}

// startHooks starts the sandbox and what it may ask of the outside.
func startHooks(cfg *config.Config, connections *connection.Keeper, log *zap.Logger) (*workerpool.Pool, error) {
	return workerpool.New(workerpool.Options{
		Host:   egress.NewHost(egress.Options{AllowPrivate: cfg.AllowPrivateEgress, Sign: connections.Sign, Log: log}),
		Log:    log,
		Limits: hook.Limits{Wall: cfg.Hook.Timeout, MemBytes: cfg.Hook.MemoryBytes(), MaxIn: maxHookInput(cfg.MaxBody)},
	})
}

// maxHookInput leaves room for the largest body as the call has it and as the
// event has it, with what JSON adds.
func maxHookInput(maxBody int64) int64 { return max(4<<20, 4*maxBody) }

func newListener(cfg *config.Config, metrics prometheus.Registerer, log *zap.Logger) *bell.Listener {
	settings := bell.Config{Application: "tocsin-" + service + "-bell", Log: log}
	if !cfg.Listen.Off {
		settings.URL = cfg.Listen.DSN
	}
	listener := bell.New(settings)
	metrics.MustRegister(
		flag("tocsin_listener_up", "1 while the bell is heard; 0: events are found by the timer.", listener.Up),
		flag("tocsin_listener_first", "1 on the dispatcher that answers the bell first.", listener.First),
	)
	return listener
}

func flag(name, help string, is func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if is() {
			return 1
		}
		return 0
	})
}

// parts are what the dispatcher joins.
type parts struct {
	ledger   *store.DB
	triggers *manager.TriggerManager
	runs     engine.Engine
	apps     *registry.Registry
	listener *bell.Listener
}

func newDispatcher(cfg *config.Config, instance string, p parts, metrics prometheus.Registerer, log *zap.Logger) (*dispatch.Dispatcher, error) {
	return dispatch.New(dispatch.Config{
		Owner: instance, Concurrency: cfg.Concurrency, Batch: cfg.Batch, Lease: cfg.Lease, Fallback: cfg.Fallback,
		EngineTimeout: cfg.EngineTimeout, Grace: cfg.ShutdownGrace, BacklogAlert: int64(cfg.BacklogAlert),
	}, dispatch.Parts{
		Queue: p.triggers, Parser: p.triggers, Ledger: p.ledger, Engine: p.runs, Wake: p.listener.Wake(), Serial: parsing(p.apps),
		Metrics: dispatch.NewMetrics(metrics), Log: log,
	})
}

// parsing lists the triggers with parseOutput. The list is made anew when the
// apps were loaded anew; its caller is one goroutine.
func parsing(apps *registry.Registry) func() []string {
	var (
		of   []*trigger.App
		keys []string
	)
	return func() []string {
		loaded := apps.Apps()
		if slices.Equal(loaded, of) {
			return keys
		}
		of, keys = slices.Clone(loaded), nil
		for _, app := range loaded {
			for _, definition := range app.Triggers {
				if definition.Has(trigger.HookParseOutput) {
					keys = append(keys, app.ID+"/"+definition.Key)
				}
			}
		}
		return keys
	}
}

// pages serves health and metrics.
func pages(health *obs.Health, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	health.Register(mux)
	mux.Handle("GET /metrics", obs.MetricsHandler(metrics))
	return mux
}
