// Package schedule says when a schedule fires: cron expressions of five or six
// fields in an IANA time zone. It knows nothing of storage, and of no clock but
// the time it is given.
//
// The rule across a change of the clocks is Vixie cron's. A schedule that names
// its hours runs by the wall clock: once for each local time that it names,
// also when that hour is there twice, and right after the gap when it is not
// there at all, so that a daily job runs once a local day. A schedule of every
// hour runs by elapsed time: the clocks do not matter to it.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Cron is a parsed expression in its zone.
type Cron struct {
	spec      cron.Schedule
	zone      *time.Location
	everyHour bool
}

const maxExpression = 256

// Parse reads an expression of five fields, or six with seconds first, and the
// name of an IANA zone ("" is UTC).
func Parse(expression, zone string) (*Cron, error) {
	location, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(expression)
	if len(expression) > maxExpression || len(fields) != 5 && len(fields) != 6 {
		return nil, errors.New("cron: want five fields, or six with seconds first")
	}
	if strings.Contains(fields[0], "=") {
		return nil, errors.New("cron: the time zone has a field of its own")
	}
	parser, err := cron.TryNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)
	if err != nil {
		return nil, err
	}
	spec, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("cron: %w", err)
	}
	// The zone is ours to apply: the library works on wall-clock time.
	if s, ok := spec.(*cron.SpecSchedule); ok {
		s.Location = time.UTC
	}
	hour := fields[len(fields)-4]
	return &Cron{spec: spec, zone: location, everyHour: hour == "*" || hour == "*/1"}, nil
}

// Zone finds an IANA zone; "" is UTC. The host's own zone has no name here:
// replicas may disagree on it.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if strings.EqualFold(name, "local") {
		return nil, errors.New("timezone: want an IANA name such as Europe/Berlin")
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone: %q is not an IANA name", name)
	}
	return location, nil
}

// tries bounds a search: over changes of the clocks, or over the local times of a
// gap.
const tries = 1000

// Next gives the first slot after t; false when there is none.
func (c *Cron) Next(t time.Time) (time.Time, bool) {
	if c.everyHour {
		return c.nextElapsed(t)
	}
	wall := wallClock(t, c.zone)
	for range tries {
		if wall = c.spec.Next(wall); wall.IsZero() {
			return time.Time{}, false
		}
		if slot := instant(wall, c.zone); slot.After(t) {
			return slot.UTC(), true
		}
	}
	return time.Time{}, false
}

// nextElapsed counts on within one offset, and from its end on within the next
// one.
func (c *Cron) nextElapsed(t time.Time) (time.Time, bool) {
	for range tries {
		_, offset := t.In(c.zone).Zone()
		shift := time.Duration(offset) * time.Second
		next := c.spec.Next(t.UTC().Add(shift))
		if next.IsZero() {
			return time.Time{}, false
		}
		slot := next.Add(-shift)
		_, end := t.In(c.zone).ZoneBounds()
		if end.IsZero() || slot.Before(end) {
			return slot.UTC(), true
		}
		if t = end; c.at(end) { // the change itself may be a slot
			return end.UTC(), true
		}
	}
	return time.Time{}, false
}

// at says whether t itself is a slot.
func (c *Cron) at(t time.Time) bool {
	wall := wallClock(t, c.zone)
	return c.spec.Next(wall.Add(-time.Second)).Equal(wall)
}

// wallClock is the local time at t, as if it were UTC.
func wallClock(t time.Time, zone *time.Location) time.Time {
	local := t.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
}

// instant is when a local time is: the first time when it is there twice, and
// the end of the gap when it is not there.
func instant(wall time.Time, zone *time.Location) time.Time {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	start, end := guess.ZoneBounds()
	if got := wallClock(guess, zone); !got.Equal(wall) { // in a gap
		if got.After(wall) {
			return start
		}
		return end
	}
	if start.IsZero() {
		return guess
	}
	_, before := start.Add(-time.Second).Zone()
	if earlier := wall.Add(-time.Duration(before) * time.Second); earlier.Before(start) && wallClock(earlier, zone).Equal(wall) {
		return earlier
	}
	return guess
}
