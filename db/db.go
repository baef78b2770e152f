// Package db holds the schema's migrations and the words that SQL and Go share.
package db

import "embed"

// Schema is db/schema, in golang-migrate's numbered pairs.
//
//go:embed schema/*.sql
var Schema embed.FS

// Channel is the NOTIFY channel of the bell. Its payload is always empty.
const Channel = "tocsin_events"

// OutcomeChannel is the NOTIFY channel that rings when an event came to its
// end that somebody waits for (OpenWOP's ingest). Its payload is always empty.
const OutcomeChannel = "tocsin_outcomes"
