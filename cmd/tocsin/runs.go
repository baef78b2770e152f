package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
)

func (c *cli) runs() *cobra.Command {
	group := c.group("runs", "See the runs of the embedded engine", c.runsList(), c.runsShow())
	group.Aliases = []string{"run"}
	return group
}

func (c *cli) runsList() *cobra.Command {
	var page apiclient.Page
	var workflow string
	cmd := c.withAPI("list --workflow W", "List a workflow's runs, newest first", cobra.NoArgs,
		func(cmd *cobra.Command, api *apiclient.Client, _ []string) error {
			if workflow == "" {
				return &usageError{errors.New("--workflow is missing")}
			}
			answer, err := api.Runs(cmd.Context(), workflow, page)
			if err != nil {
				return err
			}
			err = c.show(answer.Document, func(p *printer) {
				p.row("RUN", "STATUS", "TRIGGER", "STARTED", "FINISHED")
				for _, r := range answer.Value.Runs {
					p.row(r.ID, r.Status, r.Trigger, when(r.StartedAt), orDash(when(r.FinishedAt)))
				}
			})
			c.more(answer.Value.NextCursor)
			return err
		})
	cmd.Flags().StringVar(&workflow, "workflow", "", "the workflow's id")
	return pageFlags(cmd, &page)
}

func (c *cli) runsShow() *cobra.Command {
	return c.withAPI("show RUN", "Show one run and its log", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
			answer, err := api.Run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r := answer.Value.Run
			return c.show(answer.Document, func(p *printer) {
				p.row("run", r.ID)
				p.row("workflow", r.WorkflowID)
				p.row("status", r.Status)
				p.field("trigger", r.Trigger)
				p.field("event", r.EventID)
				p.field("started", when(r.StartedAt))
				p.field("finished", when(r.FinishedAt))
				p.block("document", pretty(answer.Document))
			})
		})
}
