package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/store"
)

// databaseURL is where migrate and keys work.
func (c *cli) databaseURL() (secret.Text, error) {
	s, err := c.settings()
	if err != nil {
		return "", err
	}
	if s.database.IsZero() {
		return "", &usageError{errors.New("DATABASE_URL is not set; this command works on the database itself")}
	}
	return secret.Text(s.database.Reveal()), nil
}

// withDatabase makes a command that works on the ledger.
func (c *cli) withDatabase(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, db *store.DB, args []string) error) *cobra.Command {
	return c.command(use, short, args, func(cmd *cobra.Command, args []string) error {
		url, err := c.databaseURL()
		if err != nil {
			return err
		}
		db, err := store.Open(cmd.Context(), store.Config{URL: url, Application: "tocsin", MaxConns: 2})
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.CheckSchema(cmd.Context()); err != nil {
			return err
		}
		return run(cmd.Context(), db, args)
	})
}

func (c *cli) migrate() *cobra.Command {
	up := func(cmd *cobra.Command, _ []string) error {
		return c.migration(cmd, store.Migrate)
	}
	cmd := c.command("migrate", "Bring the database's schema to this version; safe to repeat", cobra.NoArgs, up)
	cmd.AddCommand(
		c.command("up", "The same as migrate alone", cobra.NoArgs, up),
		c.command("status", "Say how far the schema is, and change nothing", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			return c.migration(cmd, store.ReadMigrationStatus)
		}))
	return cmd
}

func (c *cli) migration(cmd *cobra.Command, work func(context.Context, secret.Text) (store.MigrationStatus, error)) error {
	url, err := c.databaseURL()
	if err != nil {
		return err
	}
	status, err := work(cmd.Context(), url)
	if err != nil {
		return err
	}
	view := struct {
		Version uint `json:"version"`
		Latest  uint `json:"latest"`
		Dirty   bool `json:"dirty"`
	}{status.Version, status.Latest, status.Dirty}
	return c.value(view, func(p *printer) {
		p.row(fmt.Sprintf("The schema is at version %d of %d.", status.Version, status.Latest))
		if status.Dirty {
			p.row("Its last migration was cut off.")
		}
	})
}

func (c *cli) keys() *cobra.Command {
	group := c.group("keys", "Make and revoke API keys, in the database itself", c.keysCreate(), c.keysList(), c.keysRevoke())
	group.Aliases = []string{"key"}
	return group
}

// keyJSON is a key as it is printed; Key is there once, when it was made.
type keyJSON struct {
	ID        string         `json:"id"`
	Key       string         `json:"key,omitempty"`
	Tenant    string         `json:"tenant"`
	Name      string         `json:"name"`
	Scopes    []apikey.Scope `json:"scopes"`
	CreatedAt time.Time      `json:"createdAt"`
	ExpiresAt *time.Time     `json:"expiresAt"`
	RevokedAt *time.Time     `json:"revokedAt"`
}

func keyOf(r apikey.Record) keyJSON {
	return keyJSON{
		ID: r.ID, Tenant: r.Tenant, Name: r.Name, Scopes: r.Scopes, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: utc(r.ExpiresAt), RevokedAt: utc(r.RevokedAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func (c *cli) keysCreate() *cobra.Command {
	var tenant, name, scopes string
	var expires time.Duration
	cmd := c.withDatabase("create --tenant T --scopes a,b", "Make a key and print it, once", cobra.NoArgs,
		func(ctx context.Context, db *store.DB, _ []string) error {
			if tenant == "" {
				return &usageError{errors.New("--tenant is missing")}
			}
			wanted, err := apikey.ParseScopes(scopes)
			if err != nil {
				return &usageError{err}
			}
			var until *time.Time
			if expires != 0 {
				t := c.now().Add(expires)
				until = &t
			}
			key, record := apikey.New(tenant, name, wanted, c.now(), until)
			if err := db.CreateKey(ctx, record); err != nil {
				return err
			}
			view := keyOf(record)
			view.Key = key.Reveal()
			return c.value(view, func(p *printer) {
				p.row("key", view.Key)
				keyFields(p, view)
				p.block("It is shown this once. Use it as:", "export TOCSIN_API_KEY="+view.Key)
			})
		})
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose key it is")
	cmd.Flags().StringVar(&scopes, "scopes", "", "what it may do, separated by commas")
	cmd.Flags().StringVar(&name, "name", "", "a name for people")
	cmd.Flags().DurationVar(&expires, "expires", 0, "for how long it is good, such as 720h; for ever if not given")
	cmd.Long = "Make a key and print it, once. Scopes: " + joinScopes(apikey.Scopes()) + ".\nA write scope holds its read scope, and admin holds everything."
	return cmd
}

func joinScopes(scopes []apikey.Scope) string {
	words := make([]string, len(scopes))
	for i, scope := range scopes {
		words[i] = string(scope)
	}
	return strings.Join(words, ", ")
}

func keyFields(p *printer, k keyJSON) {
	p.row("id", k.ID)
	p.row("tenant", k.Tenant)
	p.field("name", k.Name)
	p.row("scopes", joinScopes(k.Scopes))
	p.row("expires", orNever(k.ExpiresAt))
}

func orNever(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return when(t.Format(time.RFC3339Nano))
}

func (c *cli) keysList() *cobra.Command {
	var tenant string
	cmd := c.withDatabase("list", "List keys, oldest first", cobra.NoArgs,
		func(ctx context.Context, db *store.DB, _ []string) error {
			records, err := db.Keys(ctx, tenant)
			if err != nil {
				return err
			}
			view := struct {
				Keys []keyJSON `json:"keys"`
			}{make([]keyJSON, len(records))}
			for i, record := range records {
				view.Keys[i] = keyOf(record)
			}
			return c.value(view, func(p *printer) {
				p.row("KEY", "TENANT", "NAME", "SCOPES", "CREATED", "EXPIRES", "REVOKED")
				for _, k := range view.Keys {
					revoked := "-"
					if k.RevokedAt != nil {
						revoked = orNever(k.RevokedAt)
					}
					p.row(k.ID, k.Tenant, orDash(k.Name), joinScopes(k.Scopes), orNever(&k.CreatedAt), orNever(k.ExpiresAt), revoked)
				}
			})
		})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant's keys")
	return cmd
}

func (c *cli) keysRevoke() *cobra.Command {
	return c.withDatabase("revoke KEY", "End a key; its id is the part between tk_ and the second _", cobra.ExactArgs(1),
		func(ctx context.Context, db *store.DB, args []string) error {
			id := keyID(args[0])
			if err := db.RevokeKey(ctx, "", id); err != nil {
				return err
			}
			return c.value(map[string]any{"ok": true, "id": id}, func(p *printer) { p.row("revoked", id) })
		})
}

// keyID takes the id out of a whole key, should somebody paste that.
func keyID(text string) string {
	rest, whole := strings.CutPrefix(text, "tk_")
	if !whole {
		return text
	}
	id, _, _ := strings.Cut(rest, "_")
	return id
}
