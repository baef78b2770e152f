package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/registry"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// checking is what `apps check` is told.
type checking struct {
	dir                string
	call, hook         string
	params, state      string
	allowPrivateEgress bool
}

func (c *cli) appsCheck() *cobra.Command {
	k := &checking{}
	cmd := c.command("check DIR", "Load an app's directory, say what it declares and what is wrong, and run a hook of it", cobra.ExactArgs(1),
		func(cmd *cobra.Command, args []string) error {
			k.dir = args[0]
			return c.check(cmd.Context(), k)
		})
	cmd.Long = `Load an app's directory, say what it declares and what is wrong with it. Nothing
but the directory is needed. Exits with 1 when the app does not load, or when
the hook that was run fails.

--hook runs one hook on --call: for handleIngest the call, as
{"method","path","query","headers","body"}; for any other hook its whole input.
A body that is text, or a rawBody, is also what the hook finds as rawBody.
The hook's ctx.fetch is real, within the app's allow-list.`
	cmd.Example = "  tocsin apps check examples/apps/github --hook delivery/handleIngest --call call.json --params '{\"secret\":\"…\"}'"
	flags := cmd.Flags()
	flags.StringVar(&k.hook, "hook", "", "the hook to run, as trigger/hook")
	flags.StringVar(&k.call, "call", "", "a file with the sample call; - is standard input")
	flags.StringVar(&k.params, "params", "", "the subscription's params: JSON, @file, or -")
	flags.StringVar(&k.state, "state", "", "the subscription's state: JSON, @file, or -")
	flags.BoolVar(&k.allowPrivateEgress, "allow-private-egress", false, "let the hook reach private and loopback addresses")
	return cmd
}

// checkJSON is the document of a check.
type checkJSON struct {
	App      checkedApp         `json:"app"`
	Triggers []checkedTrigger   `json:"triggers"`
	Problems []registry.Problem `json:"problems"`
	Run      *checkedRun        `json:"run,omitempty"`
}

type checkedApp struct {
	ID      string   `json:"id"`
	Version string   `json:"version"`
	Title   string   `json:"title"`
	Hash    string   `json:"hash"`
	HasAuth bool     `json:"hasAuth"`
	Allow   []string `json:"allow"`
	Loads   bool     `json:"loads"`
}

type checkedTrigger struct {
	Key           string          `json:"key"`
	Title         string          `json:"title"`
	Type          trigger.Type    `json:"type"`
	RequiresAuth  bool            `json:"requiresAuth"`
	MinIntervalMs int64           `json:"minIntervalMs,omitempty"`
	Hooks         []string        `json:"hooks"`
	Params        json.RawMessage `json:"params,omitempty"`
	Host          json.RawMessage `json:"host,omitempty"`
}

// checkedRun is what a hook gave on a sample call.
type checkedRun struct {
	Hook       string          `json:"hook"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      *runError       `json:"error,omitempty"`
	Log        []logged        `json:"log"`
	DurationMs float64         `json:"durationMs"`
}

type runError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
}

func (c *cli) check(ctx context.Context, k *checking) error {
	if info, err := os.Stat(k.dir); err != nil || !info.IsDir() {
		return &usageError{fmt.Errorf("%s is no directory", k.dir)}
	}
	if (k.call != "" || k.params != "" || k.state != "") && k.hook == "" {
		return &usageError{errors.New("--hook is missing")}
	}
	host := &checkHost{Host: egress.NewHost(egress.Options{AllowPrivate: k.allowPrivateEgress})}
	defer host.Close()
	pool, err := workerpool.New(workerpool.Options{Host: host, Workers: 1}) //nolint:contextcheck // a pool outlives the calls it is given
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()

	report := registry.Check(ctx, k.dir, registry.Bundles{}, pool)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	document := checkOf(report)
	if k.hook != "" && report.OK() {
		if document.Run, err = c.runHook(ctx, k, report, pool, host); err != nil {
			return err
		}
	}
	if err := c.value(document, func(p *printer) { checkTable(p, document) }); err != nil {
		return err
	}
	if !report.OK() || document.Run != nil && document.Run.Error != nil {
		return &silentError{errors.New("the app has problems")}
	}
	return nil
}

func checkOf(report *registry.Report) *checkJSON {
	app := report.App
	out := &checkJSON{
		App: checkedApp{
			ID: app.ID, Version: app.Version, Title: app.Title, Hash: app.Hash, HasAuth: app.HasAuth, Allow: app.Allow, Loads: report.OK(),
		},
		Triggers: []checkedTrigger{}, Problems: report.Problems,
	}
	if out.Problems == nil {
		out.Problems = []registry.Problem{}
	}
	for _, def := range app.Triggers {
		t := checkedTrigger{
			Key: def.Key, Title: def.Title, Type: def.Type, RequiresAuth: def.RequiresAuth, MinIntervalMs: def.MinInterval.Milliseconds(),
			Hooks: []string{}, Params: def.Params, Host: def.Host,
		}
		for _, kind := range hook.Kinds() {
			if def.Has(kind) {
				t.Hooks = append(t.Hooks, kind)
			}
		}
		out.Triggers = append(out.Triggers, t)
	}
	return out
}

func checkTable(p *printer, d *checkJSON) {
	p.row("app", d.App.ID)
	p.field("title", d.App.Title)
	p.field("version", d.App.Version)
	p.row("auth", yesNo(d.App.HasAuth))
	p.row("may reach", orDash(strings.Join(d.App.Allow, ", ")))
	if len(d.Triggers) > 0 {
		p.row("")
		p.row("TRIGGER", "TYPE", "AUTH", "HOOKS", "TITLE")
	}
	for _, t := range d.Triggers {
		p.row(t.Key, string(t.Type), yesNo(t.RequiresAuth), orDash(strings.Join(t.Hooks, ", ")), t.Title)
	}
	p.row("")
	for _, problem := range d.Problems {
		where := ""
		if problem.Where != "" {
			where = problem.Where + ": "
		}
		p.block(problem.Code, where+problem.Message+"\n"+problem.Stack)
	}
	switch {
	case !d.App.Loads:
		p.row("The app does not load.")
	case len(d.Problems) == 0:
		p.row("The app loads; nothing is wrong with it.")
	default:
		p.row("The app loads.")
	}
	if d.Run != nil {
		runTable(p, d.Run)
	}
}

func runTable(p *printer, r *checkedRun) {
	for _, line := range r.Log {
		p.row("log", line.Level, line.Message, string(line.Data))
	}
	if r.Error != nil {
		p.block(r.Hook+" failed: "+r.Error.Code, r.Error.Message+"\n"+r.Error.Stack)
		return
	}
	p.block(fmt.Sprintf("%s returned, after %.1f ms:", r.Hook, r.DurationMs), pretty(r.Output))
}

// runHook runs a hook on a sample call.
func (c *cli) runHook(ctx context.Context, k *checking, report *registry.Report, runtime hook.Runtime, host *checkHost) (*checkedRun, error) {
	key, kind, _ := cutLast(k.hook, "/")
	i := slices.IndexFunc(report.App.Triggers, func(def *trigger.Definition) bool { return def.Key == key })
	if i < 0 || !report.App.Triggers[i].Has(kind) {
		return nil, &usageError{fmt.Errorf("--hook %s: the app has no such hook", k.hook)}
	}
	call, err := c.hookCall(ctx, k, report.App.Triggers[i], kind)
	if err != nil {
		return nil, err
	}
	call.App, call.Hook = report.Ref, k.hook
	started := c.now()
	result, err := runtime.Invoke(ctx, call)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	run := &checkedRun{Hook: k.hook, Output: result.Output, Log: host.lines(), DurationMs: float64(c.now().Sub(started).Microseconds()) / 1000}
	if failed, ok := errors.AsType[*hook.Error](err); ok {
		message := failed.Message
		if failed.Name != "" {
			message = failed.Name + ": " + message
		}
		run.Error = &runError{Code: failed.Code, Message: message, Stack: failed.Stack}
		return run, nil
	}
	return run, err
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// hookCall makes the hook's input. Params are resolved as at subscribe.
func (c *cli) hookCall(ctx context.Context, k *checking, def *trigger.Definition, kind string) (hook.Call, error) {
	sample := json.RawMessage("{}")
	if k.call != "" {
		text, err := c.file(k.call)
		if err != nil {
			return hook.Call{}, err
		}
		if !json.Valid(text) {
			return hook.Call{}, &usageError{fmt.Errorf("--call %s: is no JSON", k.call)}
		}
		sample = text
	}
	if kind != trigger.HookHandleIngest && k.call != "" {
		return hook.Call{Input: sample}, nil
	}
	supplied, err := c.jsonInput("--params", k.params)
	if err != nil {
		return hook.Call{}, err
	}
	resolved, err := params.ResolveWith(ctx, def.Params, supplied, nil)
	if err != nil {
		return hook.Call{}, &usageError{fmt.Errorf("--params: %w", err)}
	}
	state, err := c.jsonInput("--state", k.state)
	if err != nil {
		return hook.Call{}, err
	}
	const callback = "http://localhost:8080" + trigger.CallbackPath + "sub_sample"
	input, err := json.Marshal(map[string]any{
		"raw": sample, "params": resolved, "state": state, "subscriptionId": "sub_sample",
		"callbackUrl": callback, "hostUrl": "http://localhost:8080",
	})
	if err != nil {
		return hook.Call{}, fmt.Errorf("write the hook's input: %w", err)
	}
	return hook.Call{Input: input, RawBody: rawBody(sample)}, nil
}

func (c *cli) jsonInput(flag, value string) (json.RawMessage, error) {
	if value == "" {
		return json.RawMessage("null"), nil
	}
	text, err := c.input(value)
	if err != nil {
		return nil, err
	}
	if !json.Valid(text) {
		return nil, &usageError{fmt.Errorf("%s is no JSON", flag)}
	}
	return text, nil
}

// rawBody is the sample's exact body: its rawBody, its body's text, or the
// body's JSON.
func rawBody(call json.RawMessage) []byte {
	var sample struct {
		RawBody *string         `json:"rawBody"`
		Body    json.RawMessage `json:"body"`
	}
	_ = json.Unmarshal(call, &sample) // any other shape has no body
	if sample.RawBody != nil {
		return []byte(*sample.RawBody)
	}
	var text string
	if json.Unmarshal(sample.Body, &text) == nil {
		return []byte(text)
	}
	if sample.Body == nil {
		return []byte{}
	}
	return sample.Body
}

// checkHost fetches for real and keeps the hook's log.
type checkHost struct {
	*egress.Host
	mu  sync.Mutex
	log []logged
}

type logged struct {
	Level   string          `json:"level"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Log implements hook.Host.
func (h *checkHost) Log(_ *hook.Call, line hook.LogLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, logged{line.Level, line.Message, line.Data})
}

func (h *checkHost) lines() []logged {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]logged{}, h.log...)
}

var _ hook.Host = (*checkHost)(nil)
