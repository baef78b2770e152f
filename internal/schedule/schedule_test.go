package schedule_test

import (
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/schedule"
)

func slots(t *testing.T, expression, zone, from string, n int) []string {
	t.Helper()
	c, err := schedule.Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for range n {
		next, ok := c.Next(at)
		if !ok {
			return append(list, "none")
		}
		if !next.After(at) {
			t.Fatalf("%s after %s does not lie after it", next, at)
		}
		location, err := schedule.Zone(zone)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, next.In(location).Format(time.RFC3339))
		at = next
	}
	return list
}

// "DST rule stated: a daily job runs once a local day", in two zones, across
// both changes of the year.
func TestSlotsAcrossAChangeOfTheClocks(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		expression, zone, from string
		want                   []string
	}{
		"a daily job within Berlin's gap runs at its end": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"a daily job in Berlin's hour that is there twice runs in the first": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		"a daily job within New York's gap runs at its end": {
			"15 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"},
		},
		"a daily job in New York's hour that is there twice runs in the first": {
			"30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		},
		"several times within a gap are one": {
			"*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00", "2026-03-30T02:20:00+02:00"},
		},
		"an hourly job runs each hour over the gap": {
			"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00",
			[]string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		},
		"an hourly job runs in both of the hours": {
			"0 * * * *", "America/New_York", "2026-11-01T00:30:00-04:00",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"},
		},
		"half an hour's change": {
			"0 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:00:00+11:00"},
		},
		"midnight in a gap": {
			"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00",
			[]string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		},
		"six fields": {
			"*/20 * * * * *", "UTC", "2026-01-01T00:00:01Z",
			[]string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"},
		},
		"day of month or day of week": {
			"0 12 13 * 5", "UTC", "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T12:00:00Z", "2026-02-13T12:00:00Z", "2026-02-20T12:00:00Z"},
		},
		"a day that never comes": {"0 0 31 2 *", "UTC", "2026-02-01T00:00:00Z", []string{"none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := slots(t, c.expression, c.zone, c.from, len(c.want))
			for i := range c.want {
				if i >= len(got) || got[i] != c.want[i] {
					t.Fatalf("slots %v, want %v", got, c.want)
				}
			}
		})
	}
}

// Over ten years, a daily job runs once on each local day, whatever the hour.
func TestADailyJobRunsOnceALocalDay(t *testing.T) {
	t.Parallel()

	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"} {
		for _, expression := range []string{"30 0 * * *", "30 1 * * *", "30 2 * * *", "59 23 * * *"} {
			c, err := schedule.Parse(expression, zone)
			if err != nil {
				t.Fatal(err)
			}
			location, _ := schedule.Zone(zone)
			at, day := time.Date(2026, 1, 1, 0, 0, 0, 0, location), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			for range 3650 {
				next, ok := c.Next(at)
				if got := next.In(location).Format(time.DateOnly); !ok || got != day.Format(time.DateOnly) {
					t.Fatalf("%s in %s: after %s comes %s, want a slot on %s", expression, zone, at, next.In(location), day.Format(time.DateOnly))
				}
				at, day = next, day.AddDate(0, 0, 1)
			}
		}
	}
}

func TestWhatIsNoScheduleIsRefused(t *testing.T) {
	t.Parallel()

	for _, c := range [][2]string{
		{"", "UTC"},
		{"* * * *", "UTC"},
		{"* * * * * * *", "UTC"},
		{"61 * * * *", "UTC"},
		{"@daily", "UTC"},
		{"@every 1s", "UTC"},
		{"TZ=UTC * * * * *", "UTC"},
		{"* * * * *", "Mars/Olympus"},
		{"* * * * *", "Local"},
		{"x * * * *", "UTC"},
	} {
		if _, err := schedule.Parse(c[0], c[1]); err == nil {
			t.Errorf("%q in %q is taken", c[0], c[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3 * JAN-MAR MON", "Europe/Berlin")
	f.Add("0 0 29 2 *", "")
	f.Fuzz(func(t *testing.T, expression, zone string) {
		c, err := schedule.Parse(expression, zone)
		if err != nil {
			return
		}
		from := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
		if next, ok := c.Next(from); ok && !next.After(from) {
			t.Errorf("%q: %s does not lie after %s", expression, next, from)
		}
	})
}
