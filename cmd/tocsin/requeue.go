package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
)

// requeue takes one event, or a filter for many.
func (c *cli) requeue() *cobra.Command {
	var filter apiclient.RequeueFilter
	var wait bool
	cmd := c.withAPI("requeue [EVENT]", "Give a failed event, or all that fit, a new set of attempts", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			many := filter != (apiclient.RequeueFilter{})
			switch {
			case many && len(args) > 0:
				return &usageError{errors.New("give an event or a filter, not both")}
			case many:
				return c.requeueAll(cmd.Context(), api, filter, wait)
			case len(args) == 0:
				return &usageError{errors.New("the event is missing; --subscription, --workflow, --app, --error and --all requeue many")}
			}
			document, err := api.Requeue(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.show(document, func(p *printer) { p.row("requeued", args[0]) })
		})
	cmd.Long = "Give a failed event a new set of attempts; or, with a filter, every dead letter that fits it\nnow, in the background: `tocsin operations show` tells how far it is."
	flags := cmd.Flags()
	flags.StringVar(&filter.SubscriptionID, "subscription", "", "dead letters of this subscription")
	flags.StringVar(&filter.WorkflowID, "workflow", "", "dead letters of this workflow")
	flags.StringVar(&filter.AppID, "app", "", "dead letters of this app")
	flags.StringVar(&filter.ErrorCode, "error", "", "dead letters whose last error has this code")
	flags.StringVar(&filter.FailedAfter, "failed-after", "", "dead letters since this time (RFC 3339)")
	flags.StringVar(&filter.FailedBefore, "failed-before", "", "dead letters before this time (RFC 3339)")
	flags.BoolVar(&filter.All, "all", false, "every dead letter there is")
	flags.BoolVar(&wait, "wait", false, "wait until it is done; interrupting does not cancel it")
	return cmd
}

func (c *cli) requeueAll(ctx context.Context, api *apiclient.Client, filter apiclient.RequeueFilter, wait bool) error {
	answer, err := api.RequeueAll(ctx, filter)
	for wait && err == nil && answer.Value.Operation.State == "running" {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.after(time.Second):
		}
		answer, err = api.Operation(ctx, answer.Value.Operation.ID)
	}
	return c.showOperation(answer, err)
}

func (c *cli) showOperation(answer apiclient.Answer[apiclient.OneOperation], err error) error {
	if err != nil {
		return err
	}
	return c.show(answer.Document, func(p *printer) {
		op := answer.Value.Operation
		p.row("operation", op.ID)
		p.row("state", op.State)
		p.row("requeued", strconv.FormatInt(op.Requeued, 10)+" of "+strconv.FormatInt(op.Total, 10))
		p.field("ended", when(op.EndedAt))
	})
}

func (c *cli) operations() *cobra.Command {
	show := c.withAPI("show OPERATION", "Show how far an operation is", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			return c.showOperation(api.Operation(cmd.Context(), args[0]))
		})
	cancel := c.withAPI("cancel OPERATION", "Stop an operation where it is", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			return c.showOperation(api.CancelOperation(cmd.Context(), args[0]))
		})
	return c.group("operations", "See and stop what runs in the background", show, cancel)
}
