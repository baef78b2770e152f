package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
)

func (c *cli) subscriptions() *cobra.Command {
	group := c.group("subscriptions", "Subscribe workflows to triggers",
		c.subscriptionsCreate(), c.subscriptionsList(), c.subscriptionsShow(), c.subscriptionsDelete(),
		c.subscriptionsEnable("pause", "Let a subscription's events wait", false),
		c.subscriptionsEnable("resume", "Let a paused subscription's events run, oldest first", true))
	group.Aliases = []string{"subscription", "subs"}
	return group
}

// wantedSubscription is what `subscriptions create` is told.
type wantedSubscription struct {
	app, trigger, workflow, connection string
	params                             string
	pairs, files                       []string
	verify                             string
	secrets, secretFiles               []string
	every                              time.Duration
}

func (c *cli) subscriptionsCreate() *cobra.Command {
	var w wantedSubscription
	cmd := c.withAPI("create [APP TRIGGER] --workflow W", "Subscribe a workflow to a trigger", cobra.MaximumNArgs(2),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			if err := w.complete(args); err != nil {
				return err
			}
			params, err := c.subscriptionParams(cmd, api, &w)
			if err != nil {
				return err
			}
			preset, err := c.preset(&w)
			if err != nil {
				return err
			}
			answer, err := api.CreateSubscription(cmd.Context(), w.app, w.trigger,
				apiclient.NewSubscription{WorkflowID: w.workflow, ConnectionID: w.connection, Params: params, PollMs: w.every.Milliseconds(), Preset: preset})
			if err != nil {
				return err
			}
			return c.showSubscription(answer)
		})
	flags := cmd.Flags()
	flags.StringVar(&w.app, "app", "", "the app's id")
	flags.StringVar(&w.trigger, "trigger", "", "the trigger's key")
	flags.StringVar(&w.workflow, "workflow", "", "the workflow to start")
	flags.StringVar(&w.connection, "connection", "", "the connection the trigger uses, if it needs one")
	flags.DurationVar(&w.every, "poll-interval", 0, "how often a trigger that polls is checked; 0 is the host's default")
	flags.StringVar(&w.params, "params", "", "all params as a JSON object, as @file, or - for standard input")
	flags.StringArrayVar(&w.pairs, "param", nil, "one param as key=value, read by its declared type, or as key:=JSON; may be repeated")
	flags.StringArrayVar(&w.files, "param-file", nil, "one param as key=file, for secrets; - is standard input")
	flags.StringVar(&w.verify, "verify", "", "verify calls as this vendor signs them, answer its handshakes and know its repeats")
	flags.StringArrayVar(&w.secrets, "secret", nil, "with --verify: a secret the vendor signs with; several count at once")
	flags.StringArrayVar(&w.secretFiles, "secret-file", nil, "with --verify: a file with such a secret; - is standard input")
	cmd.Example = "  tocsin subscriptions create io.tocsin.example.github delivery --workflow wf_1 --param-file secret=secret.txt"
	return cmd
}

// complete joins flags and arguments.
func (w *wantedSubscription) complete(args []string) error {
	var err error
	if w.app == "" && len(args) > 0 {
		w.app, args = args[0], args[1:]
	}
	if w.app == "" {
		return &usageError{errors.New("the app is missing")}
	}
	if w.trigger, err = flagOrArg(w.trigger, "the trigger", args); err != nil {
		return err
	}
	if w.workflow == "" {
		return &usageError{errors.New("--workflow is missing")}
	}
	return nil
}

// preset is what --verify asks for; nil when nothing is.
func (c *cli) preset(w *wantedSubscription) (*apiclient.Preset, error) {
	if w.verify == "" {
		if len(w.secrets) > 0 || len(w.secretFiles) > 0 {
			return nil, &usageError{errors.New("--secret needs --verify")}
		}
		return nil, nil
	}
	preset := &apiclient.Preset{Name: w.verify, Secret: slices.Clone(w.secrets)}
	for _, name := range w.secretFiles {
		text, err := c.file(name)
		if err != nil {
			return nil, err
		}
		preset.Secret = append(preset.Secret, strings.TrimRight(string(text), "\r\n"))
	}
	return preset, nil
}

// subscriptionParams makes the params object; nil when none is given.
func (c *cli) subscriptionParams(cmd *cobra.Command, api *apiclient.Client, w *wantedSubscription) (json.RawMessage, error) {
	if w.params == "" && len(w.pairs) == 0 && len(w.files) == 0 {
		return nil, nil
	}
	params := map[string]json.RawMessage{}
	if w.params != "" {
		text, err := c.input(w.params)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &params); err != nil || params == nil {
			return nil, &usageError{errors.New("--params must be a JSON object")}
		}
	}
	types := declaredTypes{}
	if len(w.pairs) > 0 {
		answer, err := api.Triggers(cmd.Context(), w.app)
		if err != nil {
			return nil, err
		}
		types = typesOf(answer.Value.Triggers, w.trigger)
	}
	for _, pair := range w.pairs {
		if err := types.set(params, pair); err != nil {
			return nil, &usageError{err}
		}
	}
	for _, pair := range w.files {
		if err := c.setFromFile(params, pair); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, &usageError{fmt.Errorf("params: %w", err)}
	}
	return text, nil
}

func (c *cli) setFromFile(params map[string]json.RawMessage, pair string) error {
	key, name, ok := strings.Cut(pair, "=")
	if !ok {
		return &usageError{fmt.Errorf("--param-file %s: want key=file", pair)}
	}
	text, err := c.file(name)
	if err != nil {
		return err
	}
	params[key] = quoted(strings.TrimRight(string(text), "\r\n"))
	return nil
}

func quoted(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) // a string always encodes
	return quoted
}

// declaredTypes says how the text of a --param is meant.
type declaredTypes map[string]struct {
	kind string
	list bool
}

// typesOf reads a trigger's declaration, the children of sections with it.
func typesOf(triggers []apiclient.Trigger, key string) declaredTypes {
	types := declaredTypes{}
	for _, t := range triggers {
		if t.Key == key {
			types.add(t.Params)
		}
	}
	return types
}

func (d declaredTypes) add(declared json.RawMessage) {
	var params []struct {
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Repeat   bool            `json:"repeat"`
		Children json.RawMessage `json:"children"`
		Item     struct {
			Type string `json:"type"`
		} `json:"item"`
	}
	if len(declared) == 0 || json.Unmarshal(declared, &params) != nil {
		return // the server will say what is wrong
	}
	for _, p := range params {
		entry := d[p.Key]
		switch entry.kind, entry.list = p.Type, p.Repeat; p.Type {
		case "section":
			d.add(p.Children)
			continue
		case "array":
			entry.kind, entry.list = p.Item.Type, true
		case "multiselect":
			entry.kind, entry.list = "select", true
		}
		d[p.Key] = entry
	}
}

// set reads key=value or key:=JSON. A list's --param may be repeated.
func (d declaredTypes) set(params map[string]json.RawMessage, pair string) error {
	key, text, ok := strings.Cut(pair, "=")
	if !ok || key == "" || key == ":" {
		return fmt.Errorf("--param %s: want key=value, or key:=JSON", pair)
	}
	if name, isJSON := strings.CutSuffix(key, ":"); isJSON {
		if !json.Valid([]byte(text)) {
			return fmt.Errorf("--param %s: what follows := is no JSON", name)
		}
		params[name] = json.RawMessage(text)
		return nil
	}
	value := d.read(key, text)
	if !d[key].list {
		params[key] = value
		return nil
	}
	var list []json.RawMessage
	_ = json.Unmarshal(params[key], &list) // the first one starts the list
	params[key], _ = json.Marshal(append(list, value))
	return nil
}

// read gives text its declared type, when it can be read so; the server checks
// it anyway.
func (d declaredTypes) read(key, text string) json.RawMessage {
	asJSON := slices.Contains([]string{"number", "boolean", "json", "group", "object"}, d[key].kind)
	if asJSON && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return quoted(text)
}

func (c *cli) showSubscription(answer apiclient.Answer[apiclient.OneSubscription]) error {
	s := answer.Value.Subscription
	return c.show(answer.Document, func(p *printer) {
		p.row("subscription", s.ID)
		p.row("app", s.AppID)
		p.row("trigger", s.TriggerKey)
		p.row("workflow", s.WorkflowID)
		p.field("connection", s.ConnectionID)
		p.row("state", state(s))
		p.field("callback", s.CallbackURL)
		p.field("created", when(s.CreatedAt))
		pollFields(p, s.Poll)
		if params := string(s.Params); params != "" && params != "{}" && params != "null" {
			p.block("params", pretty(s.Params))
		}
	})
}

// pollFields say how a subscription's checks go, if it polls.
func pollFields(p *printer, poll *apiclient.Poll) {
	if poll == nil {
		return
	}
	p.row("polls every", (time.Duration(poll.IntervalMs) * time.Millisecond).String())
	p.field("last check", when(poll.LastAt))
	next := when(poll.NextAt)
	if poll.Running {
		next = "running now"
	}
	p.row("next check", next)
	if poll.Failures > 0 {
		p.row("failures in a row", strconv.Itoa(poll.Failures))
		p.field("last failure", poll.Error.String())
	}
}

// state is the delivery state; enabled:false is what other servers have.
func state(s apiclient.Subscription) string {
	switch {
	case s.Delivery != "":
		return s.Delivery
	case s.Enabled:
		return "active"
	}
	return "paused"
}

func (c *cli) subscriptionsList() *cobra.Command {
	var page apiclient.Page
	var workflow string
	cmd := c.withAPI("list", "List subscriptions, newest first", cobra.NoArgs,
		func(cmd *cobra.Command, api *apiclient.Client, _ []string) error {
			answer, err := api.Subscriptions(cmd.Context(), workflow, page)
			if err != nil {
				return err
			}
			err = c.show(answer.Document, func(p *printer) {
				p.row("SUBSCRIPTION", "APP", "TRIGGER", "WORKFLOW", "STATE", "CREATED")
				for _, s := range answer.Value.Subscriptions {
					p.row(s.ID, s.AppID, s.TriggerKey, s.WorkflowID, state(s), when(s.CreatedAt))
				}
			})
			c.more(answer.Value.NextCursor)
			return err
		})
	cmd.Flags().StringVar(&workflow, "workflow", "", "only those that start this workflow")
	return pageFlags(cmd, &page)
}

func (c *cli) subscriptionsShow() *cobra.Command {
	return c.withAPI("show SUBSCRIPTION", "Show one subscription", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			answer, err := api.Subscription(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.showSubscription(answer)
		})
}

func (c *cli) subscriptionsDelete() *cobra.Command {
	return c.withAPI("delete SUBSCRIPTION", "Unsubscribe: the app takes its vendor's side down, then the id is unknown", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			document, err := api.DeleteSubscription(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.show(document, func(p *printer) { p.row("deleted", args[0]) })
		})
}

func (c *cli) subscriptionsEnable(use, short string, enabled bool) *cobra.Command {
	return c.withAPI(use+" SUBSCRIPTION", short, cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			answer, err := api.SetEnabled(cmd.Context(), args[0], enabled)
			if err != nil {
				return err
			}
			return c.showSubscription(answer)
		})
}
