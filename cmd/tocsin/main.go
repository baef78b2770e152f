// Command tocsin is the operator's tool: it speaks the management API, and SQL
// for two things only, migrating the database and making the first keys.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

func main() {
	workerpool.Main() // `apps check` runs hooks in workers, which are this binary again

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], system{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv,
		now: time.Now, after: time.After,
	})
	stop()
	os.Exit(code)
}

// system is the world around a command.
type system struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
	after    func(time.Duration) <-chan time.Time
}

// run runs one command and gives its exit code.
func run(ctx context.Context, args []string, sys system) int {
	c := &cli{system: sys}
	root := c.root() //nolint:contextcheck // commands get ctx from ExecuteContext
	root.SetArgs(args)
	root.SetIn(sys.in)
	root.SetOut(sys.out)
	root.SetErr(sys.err)
	return c.finish(ctx, root.ExecuteContext(ctx))
}
