package main

import (
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/store"
)

func (c *cli) version() *cobra.Command {
	return c.command("version", "Print the version of this binary and of the schema it needs", cobra.NoArgs, func(*cobra.Command, []string) error {
		view := struct {
			Version string `json:"version"`
			Commit  string `json:"commit,omitempty"`
			Schema  uint   `json:"schema"`
			Go      string `json:"go"`
		}{Version: "devel", Schema: store.LatestMigration(), Go: runtime.Version()}
		if info, ok := debug.ReadBuildInfo(); ok {
			if v := info.Main.Version; v != "" && v != "(devel)" {
				view.Version = v
			}
			for _, setting := range info.Settings {
				if setting.Key == "vcs.revision" {
					view.Commit = setting.Value
				}
			}
		}
		return c.value(view, func(p *printer) {
			p.row("tocsin", view.Version)
			p.field("commit", view.Commit)
			p.row("schema", strconv.FormatUint(uint64(view.Schema), 10))
			p.row("go", view.Go)
		})
	})
}
