package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func (c *cli) events() *cobra.Command {
	group := c.group("events", "See what was received and what became of it", c.eventsList(), c.eventsShow(), c.eventsTail())
	group.Aliases = []string{"event"}
	return group
}

func checkStatus(status string) error {
	if status == "" || trigger.Status(status).Valid() {
		return nil
	}
	return &usageError{fmt.Errorf("--status %s: want one of %v", status, trigger.Statuses)}
}

func (c *cli) eventsList() *cobra.Command {
	var page apiclient.Page
	var subscription, status string
	cmd := c.withAPI("list [SUBSCRIPTION]", "List a subscription's events, newest first", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			id, err := flagOrArg(subscription, "the subscription", args)
			if err == nil {
				err = checkStatus(status)
			}
			if err != nil {
				return err
			}
			answer, err := api.Events(cmd.Context(), id, status, page)
			if err != nil {
				return err
			}
			err = c.show(answer.Document, func(p *printer) {
				eventHeader(p)
				for _, e := range answer.Value.Events {
					eventRow(p, e)
				}
			})
			c.more(answer.Value.NextCursor)
			return err
		})
	cmd.Flags().StringVar(&subscription, "subscription", "", "the subscription's id")
	cmd.Flags().StringVar(&status, "status", "", "only events of this status")
	return pageFlags(cmd, &page)
}

func eventHeader(p *printer) { p.row("EVENT", "RECEIVED", "STATUS", "ATTEMPTS", "RUN", "REASON") }

func eventRow(p *printer, e apiclient.Event) {
	p.row(e.ID, when(e.ReceivedAt), e.Status, strconv.Itoa(e.Attempts), orDash(e.RunID), e.Reason)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (c *cli) eventsShow() *cobra.Command {
	var raw bool
	cmd := c.withAPI("show EVENT", "Show one event: its call, payload, attempts, and why it has or has not run", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			if raw {
				return c.rawEvent(cmd.Context(), api, args[0])
			}
			answer, err := api.Event(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.show(answer.Document, func(p *printer) { eventDetail(p, &answer.Value) })
		})
	cmd.Flags().BoolVar(&raw, "raw", false, "print the exact bytes of the request's body and nothing else")
	return cmd
}

func (c *cli) rawEvent(ctx context.Context, api *apiclient.Client, id string) error {
	body, err := api.RawEvent(ctx, id)
	if err != nil {
		return err
	}
	_, err = c.out.Write(body)
	return err
}

func eventDetail(p *printer, d *apiclient.OneEvent) {
	e := d.Event
	p.row("event", e.ID)
	p.row("subscription", e.SubscriptionID)
	p.field("workflow", e.WorkflowID)
	p.row("status", e.Status)
	p.field("reason", e.Reason)
	p.row("received", when(e.ReceivedAt))
	p.field("dispatched", when(e.DispatchedAt))
	p.field("run", e.RunID)
	if e.Attempts > 0 {
		p.field("next attempt", when(e.NextAttemptAt))
	}
	p.field("duplicate of", e.DuplicateOf)
	p.field("error", e.Error.String())
	p.field("why", d.Explain)
	p.block("stack", e.ErrorStack)
	if len(d.Attempts) > 0 {
		p.row("")
		p.row("ATTEMPT", "OUTCOME", "ENDED", "TOOK", "RUN OR ERROR")
	}
	for _, a := range d.Attempts {
		p.row(strconv.Itoa(a.Attempt), a.Outcome, when(a.EndedAt), strconv.FormatInt(a.DurationMs, 10)+" ms", cmp.Or(a.RunID, a.Error.String(), "-"))
	}
	p.block("call", callText(d.Call))
	p.block("payload", pretty(d.Payload))
}

// callText shows a stored call as a request looks on the wire; --json has all
// there is of it.
func callText(text json.RawMessage) string {
	var call struct {
		Method   string            `json:"method"`
		Path     string            `json:"path"`
		RawQuery string            `json:"rawQuery"`
		Headers  map[string]string `json:"headers"`
		Body     json.RawMessage   `json:"body"`
	}
	if len(text) == 0 || json.Unmarshal(text, &call) != nil || call.Method == "" {
		return pretty(text)
	}
	var b strings.Builder
	b.WriteString(call.Method + " " + call.Path)
	if call.RawQuery != "" {
		b.WriteString("?" + call.RawQuery)
	}
	for _, name := range slices.Sorted(maps.Keys(call.Headers)) {
		b.WriteString("\n" + name + ": " + call.Headers[name])
	}
	var body string
	if json.Unmarshal(call.Body, &body) != nil {
		body = pretty(call.Body)
	}
	return b.String() + "\n\n" + body
}

func (c *cli) eventsTail() *cobra.Command {
	var subscription string
	var every time.Duration
	cmd := c.withAPI("tail [SUBSCRIPTION]", "Follow a subscription's events until interrupted", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			id, err := flagOrArg(subscription, "the subscription", args)
			if err != nil {
				return err
			}
			t := &tail{cli: c, api: api, subscription: id, seen: map[string]string{}}
			return t.follow(cmd.Context(), every)
		})
	cmd.Long = "Follow a subscription's events until interrupted: a line for each new event and for each\nchange of its status. With --json each line is one JSON document."
	cmd.Flags().StringVar(&subscription, "subscription", "", "the subscription's id")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	return cmd
}

// tail follows the newest events of a subscription. Lists are newest first, so
// each look reads pages until it meets an event that is settled and known.
type tail struct {
	cli          *cli
	api          *apiclient.Client
	subscription string
	seen         map[string]string // status by event
	started      bool
}

func (t *tail) follow(ctx context.Context, every time.Duration) error {
	for {
		if err := t.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is how a tail ends
		case <-t.cli.after(every):
		}
	}
}

// look prints what is new, oldest first. What was there at the start is known
// without being printed, but for the newest few.
func (t *tail) look(ctx context.Context) error {
	const history, most = 10, trigger.MaxPage
	var fresh []apiclient.Event
	page := apiclient.Page{Limit: most}
	for {
		answer, err := t.api.Events(ctx, t.subscription, "", page)
		if err != nil {
			return err
		}
		known := t.collect(answer.Value.Events, &fresh)
		page.Cursor = answer.Value.NextCursor
		if known || page.Cursor == "" || !t.started {
			break
		}
	}
	if !t.started {
		fresh = fresh[:min(history, len(fresh))]
		t.started = true
	}
	slices.Reverse(fresh)
	return t.print(fresh)
}

// collect adds the events whose status is new; true when the page reached one
// that is known.
func (t *tail) collect(events []apiclient.Event, fresh *[]apiclient.Event) bool {
	reached := false
	for _, e := range events {
		before, known := t.seen[e.ID]
		reached = reached || known
		if before != e.Status {
			*fresh = append(*fresh, e)
		}
		t.seen[e.ID] = e.Status
	}
	return reached
}

func (t *tail) print(events []apiclient.Event) error {
	for _, e := range events {
		if t.cli.json {
			if err := t.cli.line(e); err != nil {
				return err
			}
			continue
		}
		reason := ""
		if e.Reason != "" {
			reason = " (" + e.Reason + ")"
		}
		_, err := fmt.Fprintf(t.cli.out, "%s  %s  %-11s  %d  %s%s\n", when(e.ReceivedAt), e.ID, e.Status, e.Attempts, orDash(e.RunID), printable(reason))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) reingest() *cobra.Command {
	return c.withAPI("reingest EVENT", "Run a call whose handleIngest failed through it again, once the app is mended", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			answer, err := api.Reingest(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.show(answer.Document, func(p *printer) {
				p.row("status", answer.Value.Status)
				p.field("reason", answer.Value.Reason)
				p.field("error", answer.Value.Error.String())
				p.field("events", strings.Join(answer.Value.EventIDs, " "))
			})
		})
}
