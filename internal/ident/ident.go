// Package ident mints ids: a prefix and a ULID in lower case, so that ids made
// by one process sort in the order they were made.
package ident

import (
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// Prefixes of the ids minted here.
const (
	Event     = "evt_"
	Attempt   = "att_"
	Run       = "run_"
	Claim     = "clm_"
	Change    = "chg_"
	Operation = "op_"
)

var (
	mu      sync.Mutex
	entropy = ulid.Monotonic(rand.Reader, 0)
)

// New mints an id. It is safe for concurrent use; ids are strictly increasing
// within the process, also within a millisecond and when the clock steps back.
func New(prefix string) string {
	mu.Lock()
	defer mu.Unlock()
	now := max(ulid.Timestamp(time.Now()), last)
	id, err := ulid.New(now, entropy)
	if err != nil { // 2^80 ids in one millisecond
		now++
		id = ulid.MustNew(now, entropy)
	}
	last = now
	return prefix + strings.ToLower(id.String())
}

var last uint64

// RunOfEvent gives the run id that belongs to an event id: one event, one run,
// so the run's primary key is what keeps a second start from making a second
// run.
func RunOfEvent(eventID string) string { return Run + strings.TrimPrefix(eventID, Event) }

// Before gives the least id of a moment: ids minted before it are smaller.
func Before(prefix string, moment time.Time) string {
	var id ulid.ULID
	if err := id.SetTime(ulid.Timestamp(moment)); err != nil { // before 1970 or after 10889
		return prefix
	}
	return prefix + strings.ToLower(id.String())
}
