package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// failed gives a driver error its meaning: trigger.ErrUnavailable when the
// database could not do it now, the error as it is when it will not do it.
func failed(doing string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: %w", doing, trigger.ErrUnavailable, err)
	}
	if isUnavailable(err) {
		return unavailable(doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, trigger.ErrUnavailable, err)
}

// notFound turns the absence of a row into the given sentinel.
func notFound(doing string, err, sentinel error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return sentinel
	}
	return failed(doing, err)
}

// isUnavailable says whether another try may succeed without anyone changing
// the statement: no answer at all, or an answer of a class that speaks of the
// server's state.
func isUnavailable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true
	}
	switch pg.Code[:2] {
	case "08", // connection exception
		"40", // serialization failure, deadlock
		"53", // out of disk, memory, connections
		"55", // object in use, lock not available
		"57", // shutdown, query canceled
		"58", // system error
		"XX": // internal error
		return true
	}
	return pg.Code == "25006" // read-only: a standby, or a full disk made so
}

// isRetryable says whether the same transaction may be tried at once.
func isRetryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
