package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
	"github.com/tocsin-dev/tocsin/internal/config"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

// cli is one run of the tool.
type cli struct {
	system
	json    bool // --json
	started bool // the command line was good, and a command ran
}

// settings are the environment variables of the tool.
type settings struct {
	api       *url.URL
	key       secret.Text
	bootstrap secret.Text
	database  config.DSN
	set       config.Set
}

func declareSettings() *settings {
	s := &settings{}
	config.Add(&s.set, &s.api, config.Var{Name: "TOCSIN_API_URL", Default: "http://localhost:8081", Doc: "where ingest's management API is"}, config.URL("http", "https"))
	config.Add(&s.set, &s.key, config.Var{Name: "TOCSIN_API_KEY", Doc: "key for the API; else BOOTSTRAP_API_KEY is used"}, config.Secret("a key"))
	config.Add(&s.set, &s.bootstrap, config.Var{Name: "BOOTSTRAP_API_KEY", Doc: "the key ingest was started with; for local use"}, config.Secret("a key"))
	config.Add(&s.set, &s.database, config.Var{Name: "DATABASE_URL", Doc: "PostgreSQL; for migrate and keys only"}, config.PostgreSQL())
	return s
}

// settings reads the environment.
func (c *cli) settings() (*settings, error) {
	s := declareSettings()
	if err := s.set.FromEnv(c.getenv); err != nil {
		return nil, &usageError{err}
	}
	return s, nil
}

// api makes the client that most commands need.
func (c *cli) api() (*apiclient.Client, error) {
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	key := s.key
	if key == "" {
		key = s.bootstrap
	}
	client, err := apiclient.New(s.api.String(), key, nil)
	if err != nil {
		return nil, &usageError{fmt.Errorf("TOCSIN_API_URL: %w", err)}
	}
	return client, nil
}

const about = `The operator's tool of Tocsin.

A trigger is something an app declares; a subscription starts a workflow for
each of its events. Ids are printed as they are used: subscription ids are
secrets, whoever has one can send calls to it.`

// root makes the tree of commands.
func (c *cli) root() *cobra.Command {
	root := c.group("tocsin", "The operator's tool of Tocsin",
		c.migrate(), c.keys(), c.apps(), c.subscriptions(), c.events(), c.requeue(), c.operations(), c.reingest(), c.runs(), c.send(), c.version())
	root.Long = about + "\n\nEnvironment:\n" + settingsHelp() + "\nExit codes:\n" + exitHelp
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print one JSON document instead of a table")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

func settingsHelp() string {
	var text strings.Builder
	if declareSettings().set.Help(&text) != nil {
		return ""
	}
	return text.String()
}

// group makes a command that has only commands in it.
func (c *cli) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return &usageError{unknownCommand(cmd, args[0])}
		},
	}
	g.AddCommand(commands...)
	return g
}

func unknownCommand(cmd *cobra.Command, name string) error {
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return fmt.Errorf("%s has no command %q; did you mean %s?", cmd.CommandPath(), name, strings.Join(near, " or "))
	}
	return fmt.Errorf("%s has no command %q", cmd.CommandPath(), name)
}

// command makes a command that does something.
func (c *cli) command(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.started = true
			return run(cmd, args)
		},
	}
}

// withAPI makes a command that speaks the API.
func (c *cli) withAPI(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, api *apiclient.Client, args []string) error) *cobra.Command {
	return c.command(use, short, args, func(cmd *cobra.Command, args []string) error {
		client, err := c.api()
		if err != nil {
			return err
		}
		return run(cmd, client, args)
	})
}

// flagOrArg takes a value that may be given either way, and must be.
func flagOrArg(flag, name string, args []string) (string, error) {
	switch {
	case flag != "" && len(args) > 0:
		return "", &usageError{fmt.Errorf("%s is given twice", name)}
	case flag != "":
		return flag, nil
	case len(args) > 0:
		return args[0], nil
	}
	return "", &usageError{errors.New(name + " is missing")}
}

// pageFlags adds --limit and --cursor.
func pageFlags(cmd *cobra.Command, page *apiclient.Page) *cobra.Command {
	cmd.Flags().IntVar(&page.Limit, "limit", 50, "how many to list, at most 200")
	cmd.Flags().StringVar(&page.Cursor, "cursor", "", "go on where the page before ended")
	return cmd
}
