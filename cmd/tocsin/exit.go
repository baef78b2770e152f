package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Exit codes; exitHelp documents them.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitUnauthorised = 4
	exitUnavailable  = 5
	exitInterrupted  = 130
)

const exitHelp = `  0    done
  1    it failed
  2    the command line or the environment is wrong
  3    there is no such object
  4    the API key is missing, wrong or may not do this
  5    the API or the database does not answer, or is overloaded
  130  interrupted
`

// usageError is a command line or an environment that cannot be used.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// finish prints what went wrong and what to do, and gives the exit code.
func (c *cli) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	code := exitCode(err)
	if !c.started {
		code = exitUsage // cobra refused the arguments
	}
	if _, ok := errors.AsType[*silentError](err); ok {
		return code
	}
	_, _ = fmt.Fprintln(c.err, "tocsin:", err)
	if refused, ok := errors.AsType[*apiclient.Error](err); ok {
		for _, field := range refused.Details {
			if len(refused.Details) == 1 {
				break // the message names it
			}
			_, _ = fmt.Fprintf(c.err, "  %s: %s\n", field.Path, field.Message)
		}
	}
	if hint := hintFor(code, err); hint != "" {
		_, _ = fmt.Fprintln(c.err, hint)
	}
	return code
}

// silentError is a failure that the command's own output has told.
type silentError struct{ err error }

func (e *silentError) Error() string { return e.err.Error() }

func (e *silentError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var usage *usageError
	var refused *apiclient.Error
	var gone *apiclient.UnreachableError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &gone), errors.Is(err, trigger.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, apikey.ErrUnknownKey):
		return exitNotFound
	case errors.As(err, &refused):
		return exitOfStatus(refused.Status)
	}
	return exitFailure
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitUnauthorised
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnavailable
	}
	return exitFailure
}

// hintFor says what to do next.
func hintFor(code int, err error) string {
	var gone *apiclient.UnreachableError
	var refused *apiclient.Error
	switch {
	case errors.As(err, &gone):
		return "Is ingest running? Set TOCSIN_API_URL to where its API_ADDR is."
	case code == exitUnauthorised && errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		return "The key lacks a scope; tocsin keys create --scopes makes one that has it."
	case code == exitUnauthorised:
		return "Set TOCSIN_API_KEY, or make a key: DATABASE_URL=… tocsin keys create --tenant T --scopes admin"
	case code == exitUnavailable:
		return "Try again in a moment."
	case code == exitUsage:
		return "tocsin --help, or --help behind any command, says how it is used."
	}
	return ""
}
