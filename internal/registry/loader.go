package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/bundle"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Bundler makes one script of an app; Bundles is the real one.
type Bundler interface {
	// Dir bundles a source directory's entry module, and the modules that hooks
	// are named by.
	Dir(dir string, modules ...string) (hook.Bundle, error)
	// Artifact bundles a built app's module.
	Artifact(module []byte, allow []string) (hook.Bundle, error)
}

// Bundles is the Bundler that package bundle is.
type Bundles struct{}

// Dir implements Bundler.
func (Bundles) Dir(dir string, modules ...string) (hook.Bundle, error) {
	return bundle.Dir(dir, modules...)
}

// Artifact implements Bundler.
func (Bundles) Artifact(module []byte, allow []string) (hook.Bundle, error) {
	return bundle.Artifact(module, allow)
}

// Runtime is the part of hook.Runtime that the registry calls.
type Runtime interface {
	Load(ctx context.Context, app hook.AppRef, bundle hook.Bundle) (hook.Description, error)
	Invoke(ctx context.Context, call hook.Call) (hook.Result, error)
	Unload(app hook.AppRef)
}

// loader loads one app (contract §1.2).
type loader struct {
	bundler Bundler
	runtime Runtime
}

// loadTimeout bounds the evaluation of one module, which takes milliseconds
// unless it means harm: an app must not hold up the others' start for the time
// a hook may take.
const loadTimeout = 10 * time.Second

// loaded is one app's directory, loaded or not.
type loaded struct {
	dir    string
	source *source
	app    *trigger.App // at least its ID, also when it is broken
	err    *LoadError
	ref    hook.AppRef // set when the runtime knows the app
	bundle hook.Bundle
	hooks  []string // all that the code has
}

// load reads, bundles and describes an app. It never fails as a whole: what is
// wrong is in the result.
func (l *loader) load(ctx context.Context, dir string) *loaded {
	s, err := openSource(ctx, dir)
	return l.loadSource(ctx, dir, s, err)
}

func (l *loader) loadSource(ctx context.Context, dir string, s *source, err error) *loaded {
	out := &loaded{dir: dir, source: s, app: &trigger.App{ID: baseName(dir)}}
	if err == nil {
		err = l.fill(ctx, out)
	}
	if err != nil {
		out.err = asLoadError(err)
		out.err.locate(s)
		out.app.Triggers = nil
		out.app.LoadError = out.err.Error()
	}
	return out
}

func (l *loader) fill(ctx context.Context, out *loaded) error {
	id, promised, err := readIdentity(out.source)
	if err != nil {
		return err
	}
	app := out.app
	app.ID, app.Version, app.Title, app.Description = id.id, id.version, id.title, id.description
	app.Manifest, app.Allow = id.manifest, id.allow
	description, err := l.describe(ctx, out, id)
	if err != nil {
		return err
	}
	out.hooks = description.Hooks
	if promised != nil {
		if lost := missingHooks(promised.Hooks, description.Hooks); len(lost) > 0 {
			return refuse(CodeInvalidManifest, "%s lists hooks that %s lacks: %s", artifactManifest, artifactCode, strings.Join(lost, ", ")).
				at(artifactManifest)
		}
		description = promised
	}
	declared, err := readDeclaration(description.Definition)
	if err != nil {
		return err
	}
	if err := declared.check(); err != nil {
		return err
	}
	app.HasAuth, app.Auth = len(declared.Auth) > 0, declared.auth(description.Hooks)
	if app.Triggers, err = declared.triggers(out.source, app, description.Hooks); err != nil {
		return err
	}
	return l.widen(ctx, out, declared.Auth)
}

// readIdentity reads either form of an app; the description is that of a built
// one.
func readIdentity(s *source) (*identity, *hook.Description, error) {
	if isArtifact(s) {
		return readArtifact(s)
	}
	id, err := readPackage(s)
	return id, nil, err
}

// describe bundles the app and has the sandbox say what it declares. Hooks
// given as paths are known only then; they are bundled in a second round.
func (l *loader) describe(ctx context.Context, out *loaded, id *identity) (*hook.Description, error) {
	description, err := l.describeWith(ctx, out, id, nil)
	if err != nil {
		return nil, err
	}
	declared, err := readDeclaration(description.Definition)
	if err != nil {
		return nil, err
	}
	if paths := declared.pathHooks(); len(paths) > 0 {
		return l.describeWith(ctx, out, id, paths)
	}
	return description, nil
}

func (l *loader) describeWith(ctx context.Context, out *loaded, id *identity, modules []string) (*hook.Description, error) {
	made, err := l.bundle(out, id, modules)
	if err != nil {
		return nil, err
	}
	made.Allow = id.allow
	out.app.Hash, out.bundle = made.Hash, made
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	description, err := l.runtime.Load(ctx, hook.AppRef{ID: id.id, Version: made.Hash}, made)
	if err != nil {
		return nil, err
	}
	out.ref = hook.AppRef{ID: id.id, Version: made.Hash}
	return &description, nil
}

func (l *loader) bundle(out *loaded, id *identity, modules []string) (hook.Bundle, error) {
	if isArtifact(out.source) {
		return l.bundler.Artifact(out.source.files[artifactCode], id.allow)
	}
	return l.bundler.Dir(out.dir, modules...)
}

// widen gives the runtime the OAuth hosts too, which only the definition names.
func (l *loader) widen(ctx context.Context, out *loaded, auth listOf) error {
	allow := withOAuthHosts(out.app.Allow, auth)
	if len(allow) == len(out.app.Allow) {
		return nil
	}
	out.app.Allow, out.bundle.Allow = allow, allow
	_, err := l.runtime.Load(ctx, out.ref, out.bundle)
	return err
}

// Problem is one thing that an author should know of.
type Problem struct {
	// Code is a LoadError code; "warning" for what does not stop the app.
	Code    string `json:"code"`
	Where   string `json:"where,omitempty"`
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
}

// CodeWarning marks a Problem the app loads in spite of.
const CodeWarning = "warning"

// Report is what Check found.
type Report struct {
	App      *trigger.App
	Ref      hook.AppRef // how to Invoke its hooks
	Problems []Problem
}

// OK says whether the app loads.
func (r *Report) OK() bool { return r.App.LoadError == "" }

// Check loads one app's directory and lists every problem it can name.
func Check(ctx context.Context, dir string, bundler Bundler, runtime Runtime) *Report {
	l := &loader{bundler: bundler, runtime: runtime}
	out := l.load(ctx, dir)
	report := &Report{App: out.app, Ref: out.ref}
	if out.err != nil {
		report.Problems = append(report.Problems, problemsOf(out.err)...)
		return report
	}
	for _, def := range out.app.Triggers {
		report.Problems = append(report.Problems, warnings(out, def)...)
	}
	return report
}

// problemsOf lists the bundler's problems one by one.
func problemsOf(err *LoadError) []Problem {
	if err.Code != CodeInvalidBundle || len(err.Details) == 0 {
		return []Problem{{Code: err.Code, Where: err.Where, Message: err.Message, Stack: err.Stack}}
	}
	var problems []Problem
	for _, cause := range err.Details {
		problems = append(problems, Problem{Code: err.Code, Where: cause.Path, Message: cause.Message})
	}
	return problems
}

// warnings lists what the reference loader accepts and an author hardly meant.
func warnings(of *loaded, def *trigger.Definition) []Problem {
	var out []Problem
	where := of.source.keyLine(def.Key)
	warn := func(format string, args ...any) {
		out = append(out, Problem{Code: CodeWarning, Where: where, Message: fmt.Sprintf("trigger %q ", def.Key) + fmt.Sprintf(format, args...)})
	}
	if def.Title == "" {
		warn("has no title")
	}
	if !kebab().MatchString(def.Key) {
		warn("has a key that is not lower case with dashes")
	}
	if def.Type == trigger.TypePoll && def.Has(trigger.HookHandleIngest) {
		warn("polls, so its handleIngest is never called")
	}
	if def.Has(trigger.HookOnUnsubscribe) && !def.Has(trigger.HookOnSubscribe) {
		warn("has onUnsubscribe without onSubscribe")
	}
	for _, name := range params.Hooks(def.Params) {
		if !slices.Contains(of.hooks, def.Key+"/"+name) {
			warn("has params that name the hook %q, which is neither a function of the trigger nor a module with a default export", name)
		}
	}
	for _, field := range params.Warnings(def.Params) {
		warn("param %s: %s", field.Path, field.Message)
	}
	return out
}
