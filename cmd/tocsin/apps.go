package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
)

func (c *cli) apps() *cobra.Command {
	group := c.group("apps", "See the apps that are loaded, and check one before", c.appsList(), c.appsShow(), c.appsCheck(),
		c.appsState("enable", "Let an app's triggers work again", "active"),
		c.appsState("disable", "Keep an app's calls without acting on them, and stop its polls", "disabled"),
		c.appsState("archive", "Like disable, for good", "archived"),
		c.appsReload())
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
			appTable(p, answer.Value.Apps)
		})
	})
}

func appTable(p *printer, apps []apiclient.App) {
	p.row("APP", "VERSION", "STATE", "TRIGGERS", "TITLE")
	for _, app := range apps {
		p.row(app.ID, orDash(app.Version), appState(app), strconv.Itoa(app.TriggerCount), app.Title)
	}
}

func (c *cli) appsState(use, short, state string) *cobra.Command {
	return c.withAPI(use+" APP", short, cobra.ExactArgs(1), func(cmd *cobra.Command, api *apiclient.Client, args []string) error {
		answer, err := api.SetAppState(cmd.Context(), args[0], state)
		if err != nil {
			return err
		}
		return c.show(answer.Document, func(p *printer) { appTable(p, []apiclient.App{answer.Value.App}) })
	})
}

func (c *cli) appsReload() *cobra.Command {
	return c.withAPI("reload", "Have ingest and dispatchers read APPS_DIR again", cobra.NoArgs, func(cmd *cobra.Command, api *apiclient.Client, _ []string) error {
		answer, err := api.ReloadApps(cmd.Context())
		if err != nil {
			return err
		}
		return c.show(answer.Document, func(p *printer) { appTable(p, answer.Value.Apps) })
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
