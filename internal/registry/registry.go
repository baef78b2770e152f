// Package registry loads app packages and knows what they declare: app
// manifests become trigger.Apps, their triggers trigger.Definitions of the
// webhook or the poll form (w6w Trigger RFC §Shape, amendment §Two forms). The
// code itself is bundled and described behind two interfaces; the package knows
// nothing of storage or transport.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// AppStates is where loaded apps are mirrored (RFC §AppDefinition update,
// app_triggers) and where the operator's word on each of them is kept.
type AppStates interface {
	// MirrorApps writes the apps, and sets each one's State.
	MirrorApps(ctx context.Context, apps []*trigger.App) error
	AppStates(ctx context.Context) (map[string]trigger.AppState, error)
	// ReloadsRequested counts how often any process was asked to reload.
	ReloadsRequested(ctx context.Context) (int64, error)
}

// Config of New.
type Config struct {
	Dir     string // APPS_DIR
	Bundler Bundler
	Runtime Runtime
	States  AppStates // nil: nothing is mirrored and every app is active
	Log     *zap.Logger
}

// Registry is the set of loaded apps. It is safe for concurrent use: readers
// see one whole load or the next.
type Registry struct {
	cfg     Config
	loader  *loader
	tenancy *tenancy
	current atomic.Pointer[snapshot]
	mu      sync.Mutex // one Reload or Refresh at a time
	retired []hook.AppRef
	seen    int64 // requests for a reload that were answered
}

// snapshot is one load. It never changes once it is current.
type snapshot struct {
	apps     []*trigger.App // by id
	byID     map[string]*trigger.App
	triggers map[string]map[string]*trigger.Definition
	byDir    map[string]*loaded
}

// New makes an empty registry; Reload fills it.
func New(cfg Config) *Registry {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	r := &Registry{cfg: cfg, loader: &loader{bundler: cfg.Bundler, runtime: cfg.Runtime}, tenancy: newTenancy(cfg.Runtime)}
	r.current.Store(newSnapshot(nil, nil))
	return r
}

// Apps lists the apps by id, the broken ones too. The result is not to be
// changed.
func (r *Registry) Apps() []*trigger.App { return r.current.Load().apps }

// App finds an app, broken or not; trigger.ErrUnknownApp when there is none.
func (r *Registry) App(appID string) (*trigger.App, error) {
	app, ok := r.current.Load().byID[appID]
	if !ok {
		return nil, fmt.Errorf("app %q: %w", appID, trigger.ErrUnknownApp)
	}
	return app, nil
}

// Trigger finds a trigger of a loaded app; trigger.ErrUnknownApp or
// trigger.ErrUnknownTrigger when there is none.
func (r *Registry) Trigger(appID, key string) (*trigger.Definition, error) {
	now := r.current.Load()
	app, ok := now.byID[appID]
	if !ok {
		return nil, fmt.Errorf("app %q: %w", appID, trigger.ErrUnknownApp)
	}
	if def, ok := now.triggers[appID][key]; ok {
		return def, nil
	}
	if app.LoadError != "" {
		return nil, fmt.Errorf("app %q is broken (%s): %w", appID, app.LoadError, trigger.ErrUnknownApp)
	}
	return nil, fmt.Errorf("app %q, trigger %q: %w", appID, key, trigger.ErrUnknownTrigger)
}

// Invoke runs a hook of a loaded app (manager.Hooks). It is the runtime's
// Invoke, which knows code only under the tenants it was loaded for.
func (r *Registry) Invoke(ctx context.Context, call hook.Call) (hook.Result, error) {
	return r.tenancy.invoke(ctx, call)
}

// Reload reads APPS_DIR again and swaps the result in at once. An app that
// does not load is reported in its LoadError and in the log; the version that
// was loaded before, if any, stays in use. Apps whose files did not change are
// kept as they are. An error means that the directory could not be read, and
// nothing changed, or that the states could not, and the apps were swapped in
// with the states known before.
func (r *Registry) Reload(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	requested := r.requested(ctx) // before the look: what is asked for meanwhile is not answered by it
	dirs, err := appDirs(r.cfg.Dir)
	if err != nil {
		return err
	}
	before := r.current.Load()
	results := r.loadAll(ctx, dirs, before)
	if ctx.Err() != nil {
		return fmt.Errorf("load apps: %w", ctx.Err())
	}
	apps := r.collect(results, before)
	stateErr := r.mirror(ctx, apps, before)
	r.current.Store(newSnapshot(apps, results))
	r.retire(before)
	r.forgetBroken(before, results)
	r.seen = max(r.seen, requested)
	r.cfg.Log.Info("app.reloaded", zap.Int("apps", len(apps)))
	return stateErr
}

// requested counts the reloads asked for; 0 while that cannot be known, and then
// the next look at it reloads.
func (r *Registry) requested(ctx context.Context) int64 {
	if r.cfg.States == nil {
		return 0
	}
	n, err := r.cfg.States.ReloadsRequested(ctx)
	if err != nil {
		return 0
	}
	return n
}

// loadAll loads the directories, as many at once as there are processors.
func (r *Registry) loadAll(ctx context.Context, dirs []string, before *snapshot) []*loaded {
	results := make([]*loaded, len(dirs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(dirs)) {
		workers.Go(func() {
			for i := range next {
				results[i] = r.loadOne(ctx, dirs[i], before.byDir[dirs[i]])
			}
		})
	}
	for i := range dirs {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

// loadOne keeps what was loaded from the same files before.
func (r *Registry) loadOne(ctx context.Context, dir string, before *loaded) (out *loaded) {
	started := time.Now()
	s, err := openSource(ctx, dir)
	if err == nil && before != nil && before.err == nil && before.source.hash == s.hash {
		return before
	}
	out = r.loader.loadSource(ctx, dir, s, err)
	out.source.forget()
	if out.err == nil {
		r.tenancy.keep(out.ref, out.bundle)
		r.cfg.Log.Info("app.loaded",
			zap.String("app_id", out.app.ID), zap.String("version", out.app.Version), zap.String("hash", short(out.app.Hash)),
			zap.Int("triggers", len(out.app.Triggers)), zap.Duration("duration", time.Since(started)))
		return out
	}
	if ctx.Err() == nil {
		r.reportBroken(out)
	}
	return out
}

func (r *Registry) reportBroken(out *loaded) {
	r.cfg.Log.Error("app.load_failed",
		zap.String("app_id", out.app.ID), zap.String("dir", out.dir), zap.String("phase", out.err.Phase()),
		zap.String("error.code", out.err.Code), zap.String("error", out.err.Error()))
}

// collect makes the new list of apps: one for each id, sorted by it. Each is a
// copy, since its state is about to be set.
func (r *Registry) collect(results []*loaded, before *snapshot) []*trigger.App {
	byID := map[string]*trigger.App{}
	for i, out := range results {
		app := *out.app
		if _, taken := byID[app.ID]; taken {
			results[i] = r.duplicate(out)
			continue
		}
		if last, ok := before.byID[app.ID]; ok && out.err != nil && len(before.triggers[app.ID]) > 0 {
			app = *last // the last good one, with what is wrong with the new one
			app.LoadError = out.err.Error()
		}
		byID[app.ID] = &app
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *trigger.App) int { return cmp.Compare(a.ID, b.ID) })
}

func (r *Registry) duplicate(out *loaded) *loaded {
	twice := &loaded{dir: out.dir, source: out.source, app: out.app, err: refuse(CodeInvalidManifest, "the id %s is taken by another directory", out.app.ID)}
	r.reportBroken(twice)
	return twice
}

// mirror writes the apps to the database, which says what operators decided.
func (r *Registry) mirror(ctx context.Context, apps []*trigger.App, before *snapshot) error {
	for _, app := range apps {
		app.State = trigger.AppActive
		if last, ok := before.byID[app.ID]; ok {
			app.State = last.State
		}
	}
	if r.cfg.States == nil {
		return nil
	}
	if err := r.cfg.States.MirrorApps(ctx, apps); err != nil {
		return fmt.Errorf("mirror apps: %w", err)
	}
	return nil
}

func newSnapshot(apps []*trigger.App, results []*loaded) *snapshot {
	s := &snapshot{
		apps: apps, byID: map[string]*trigger.App{}, byDir: map[string]*loaded{},
		triggers: map[string]map[string]*trigger.Definition{},
	}
	for _, app := range apps {
		s.byID[app.ID] = app
		s.triggers[app.ID] = map[string]*trigger.Definition{}
		for _, def := range app.Triggers {
			s.triggers[app.ID][def.Key] = def
		}
	}
	for _, out := range results {
		s.byDir[out.dir] = out
	}
	return s
}

// retire has the runtime forget what was replaced one Reload ago. What this
// one replaced may have been looked up a moment since, and is forgotten next
// time.
func (r *Registry) retire(before *snapshot) {
	now := r.current.Load()
	for _, ref := range r.retired {
		if !now.uses(ref) && !before.uses(ref) {
			r.tenancy.forget(ref)
		}
	}
	r.retired = nil
	for _, app := range before.apps {
		if ref := refOf(app); ref.Version != "" && !now.uses(ref) {
			r.retired = append(r.retired, ref)
		}
	}
}

// forgetBroken has the runtime forget code that loaded and then did not pass.
func (r *Registry) forgetBroken(before *snapshot, results []*loaded) {
	now := r.current.Load()
	for _, out := range results {
		if out.err != nil && out.ref.Version != "" && !now.uses(out.ref) && !before.uses(out.ref) {
			r.tenancy.forget(out.ref)
		}
	}
}

func refOf(app *trigger.App) hook.AppRef { return hook.AppRef{ID: app.ID, Version: app.Hash} }

func (s *snapshot) uses(ref hook.AppRef) bool {
	app, ok := s.byID[ref.ID]
	return ok && app.Hash == ref.Version
}

// Refresh reads the operator's word on the apps, which any process may have
// changed.
func (r *Registry) Refresh(ctx context.Context) error {
	if r.cfg.States == nil {
		return nil
	}
	states, err := r.cfg.States.AppStates(ctx)
	if err != nil {
		return fmt.Errorf("refresh app states: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.current.Load()
	apps := slices.Clone(before.apps)
	changed := false
	for i, app := range apps {
		state := cmp.Or(states[app.ID], trigger.AppActive)
		if state == app.State {
			continue
		}
		changed = true
		renewed := *app
		renewed.State = state
		apps[i] = &renewed
		r.cfg.Log.Info("app.state_changed", zap.String("app_id", app.ID), zap.String("status", string(state)))
	}
	if changed {
		r.current.Store(newSnapshot(apps, slices.Collect(maps.Values(before.byDir))))
	}
	return nil
}

// Run follows what any process was told, until ctx ends: the operator's word on
// apps, and requests to reload.
func (r *Registry) Run(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var outage obs.Outage
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		switch err := r.follow(ctx); {
		case err == nil:
			outage.Over(r.cfg.Log, "app.states_known")
		case !errors.Is(err, context.Canceled):
			outage.Note(r.cfg.Log, "app.states_unknown", err)
		}
	}
}

func (r *Registry) follow(ctx context.Context) error {
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	if r.requested(ctx) > seen {
		return r.Reload(ctx)
	}
	return r.Refresh(ctx)
}

// ReloadOn reloads at each signal, which is to be SIGHUP, until ctx ends.
func (r *Registry) ReloadOn(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
		}
		if err := r.Reload(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("app.reload_failed", zap.Error(err))
		}
	}
}

// short is enough of a hash to tell two versions apart.
func short(hash string) string { return hash[:min(len(hash), 12)] }
