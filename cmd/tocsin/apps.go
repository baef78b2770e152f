package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
)

func (c *cli) apps() *cobra.Command {
	group := c.group("apps", "See the apps that are loaded, and check one before", c.appsList(), c.appsShow(), c.appsCheck())
	group.Aliases = []string{"app"}
	return group
}

func (c *cli) appsList() *cobra.Command {
	return c.withAPI("list", "List the apps", cobra.NoArgs, func(cmd *cobra.Command, api *apiclient.Client, _ []string) error {
		answer, err := api.Apps(cmd.Context())
		if err != nil {
			return err
		}
		return c.show(answer.Document, func(p *printer) {
			p.row("APP", "VERSION", "STATE", "TRIGGERS", "TITLE")
			for _, app := range answer.Value.Apps {
				p.row(app.ID, orDash(app.Version), appState(app), strconv.Itoa(app.TriggerCount), app.Title)
			}
		})
	})
}

func appState(app apiclient.App) string {
	if app.LoadError != "" {
		return app.State + ", broken"
	}
	return app.State
}

func (c *cli) appsShow() *cobra.Command {
	return c.withAPI("show APP", "Show one app and its triggers", cobra.ExactArgs(1), func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
		answer, err := api.App(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		app := answer.Value.App
		return c.show(answer.Document, func(p *printer) {
			p.row("app", app.ID)
			p.field("title", app.Title)
			p.field("version", app.Version)
			p.row("state", appState(app))
			p.field("broken", app.LoadError)
			p.field("description", app.Description)
			if len(answer.Value.Triggers) == 0 {
				return
			}
			p.row("")
			p.row("TRIGGER", "TYPE", "AUTH", "TITLE")
			for _, t := range answer.Value.Triggers {
				p.row(t.Key, t.Type, yesNo(t.RequiresAuth), t.Title)
			}
		})
	})
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
