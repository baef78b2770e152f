// Command ingest takes calls in: webhooks from vendors and checks of poll
// triggers become events in the ledger, and the management API shows and
// changes what is there.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/connection"
	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/engine/open"
	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/registry"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/verify"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/adapter/poll"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/adapter/schedule"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/adapter/webhook"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/api"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/config"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/openwop"
)

const service = "ingest"

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
		_, _ = fmt.Fprintf(stderr, "ingest: %v\n\nSee ingest --help for every setting.\n", err)
		return 2
	}
	log, err := obs.NewLogger(stdout, obs.LogConfig{Level: cfg.Log.Level, Format: cfg.Log.Format, Service: service, Instance: obs.Instance()})
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "ingest: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	defer stop()
	if err := run(ctx, cfg, log); err != nil {
		log.Error("service.failed", obs.Err(err))
		return 1
	}
	log.Info("service.stopped")
	return 0
}

func info(arg string, stdout, stderr io.Writer) int {
	switch arg {
	case "-h", "-help", "--help", "help":
		_, _ = fmt.Fprint(stdout, "ingest takes calls in and serves the management API.\n\nIt is configured by environment variables (name, default, meaning):\n\n")
		if err := config.Help(stdout); err != nil {
			return 1
		}
		return 0
	case "-version", "--version", "version":
		_, _ = fmt.Fprintln(stdout, "ingest", obs.Version())
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "ingest: %q is not an argument; there are --help and --version\n", arg)
	return 2
}

// run is the service: what is above the manager is built on it, what is below
// it is built first.
func run(ctx context.Context, cfg *config.Config, log *zap.Logger) (err error) {
	log.Info("service.starting", zap.String("version", obs.Version()), obs.Pairs("config", cfg.Set().All()))
	metrics, health := obs.NewRegistry(service), obs.NewHealth(log)

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
	observeHooks(metrics, hooks)

	apps := registry.New(registry.Config{Dir: cfg.AppsDir, Bundler: registry.Bundles{}, Runtime: hooks, States: ledger, Log: log})
	connections.Use(apps)
	if err := apps.Reload(ctx); err != nil {
		return fmt.Errorf("load apps: %w", err)
	}
	runs, err := open.Open(open.Config{
		URL: cfg.Engine.URL, Token: cfg.Engine.Token, Workflows: cfg.Engine.Workflows, Runs: ledger, AllowPrivate: cfg.AllowPrivateEgress, Concurrency: 8,
		Seams: cfg.Engine.TestSeams,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runs.Close()) }()

	fetch := egress.NewFetcher(egress.NewClient(cfg.AllowPrivateEgress, fetchTime))
	triggers := manager.New(manager.Config{
		Store: ledger, Apps: apps, Hooks: apps, Workflows: runs, Connections: connections, HostURL: cfg.HostURL, HookTimeout: cfg.Hook.Timeout,
		PollInterval: cfg.PollInterval, PollFloor: cfg.PollFloor, Log: log,
		Keys: verify.NewCache(fetch, time.Now), Confirm: fetch,
	})
	public := webhook.New(webhook.Config{Ingester: triggers, MaxBody: cfg.MaxBody, Log: log, Metrics: metrics})
	polls := &poll.Adapter{Manager: triggers, Log: log}
	schedules := &schedule.Adapter{Manager: triggers, Log: log}
	keys := apikey.NewAuthenticator(ledger, cfg.BootstrapKey)
	bridge, outcomes, err := newOpenWOP(cfg, openwop.Config{Manager: triggers, Ledger: ledger, Keys: keys, Engine: runs, Metrics: metrics, Log: log}, ledger)
	if err != nil {
		return err
	}
	management := api.New(api.Config{
		Manager: triggers, Ledger: ledger, Apps: apps, Keys: keys, HostURL: cfg.HostURL,
		Health: health, Metrics: metrics, Log: log,
	})

	limits := obs.Limits{Body: bodyTime, Write: bodyTime + cfg.Hook.Timeout + answerTime}
	publicServer, err := obs.Listen(ctx, "ingest", cfg.IngestAddr, split(openwop.OwnsIngest, bridge.IngestHandler(), public.Handler()), limits, log)
	if err != nil {
		return err
	}
	managementServer, err := obs.Listen(ctx, "management", cfg.APIAddr, split(openwop.Owns, bridge.Handler(), management.Handler()), limits, log) //nolint:contextcheck // each request has a context of its own
	if err != nil {
		return errors.Join(err, publicServer.Close())
	}

	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	group, ctx := errgroup.WithContext(ctx)
	// Posts that wait for their runs are told of them until the last is answered.
	answering, answered := context.WithCancel(context.WithoutCancel(ctx))
	defer answered()
	group.Go(func() error {
		defer answered()
		stop := obs.Shutdown{Health: health, Drain: obs.DrainFor(cfg.ShutdownGrace), Grace: cfg.ShutdownGrace - obs.DrainFor(cfg.ShutdownGrace)}
		return obs.Serve(ctx, stop, publicServer, managementServer)
	})
	group.Go(func() error { return polls.Run(ctx) })
	group.Go(func() error { return schedules.Run(ctx) })
	group.Go(func() error { return bridge.Run(answering) })
	group.Go(func() error { return outcomes.Run(answering) })
	group.Go(func() error { return bridge.Run(ctx) })
	group.Go(func() error { return outcomes.Run(ctx) })
	group.Go(func() error { return triggers.RunConfirmations(ctx) })
	group.Go(func() error { return apps.Run(ctx, refreshEvery) })
	group.Go(func() error { return apps.ReloadOn(ctx, reload) })
	group.Go(func() error { return sweep(ctx, ledger, sweepEvery, log) })
	group.Go(func() error { return operate(ctx, ledger, log) })
	group.Go(func() error { return purge(ctx, ledger, cfg.Retention, cfg.RetentionEvery, log) })
	return group.Wait()
}

const (
	bodyTime     = 30 * time.Second // to send a call
	answerTime   = 30 * time.Second // to commit it and to send the answer, beside its hook
	fetchTime    = 10 * time.Second // to get a vendor's key
	refreshEvery = 5 * time.Second  // how long another process's word on an app may go unheard
	sweepEvery   = time.Minute      // how long what a dead process left may lie around
)

// openLedger opens the database and refuses a schema that does not fit.
func openLedger(ctx context.Context, cfg *config.Config, log *zap.Logger) (*store.DB, error) {
	ledger, err := store.Open(ctx, store.Config{
		URL: secret.Text(cfg.Database.URL.Reveal()), Application: "tocsin-" + service, Keys: cfg.Sealing.Keys, Log: log,
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

// maxHookInput leaves room for the largest body three times: as it came, and
// parsed, each with what JSON adds.
func maxHookInput(maxBody int64) int64 { return max(4<<20, 4*maxBody) }
