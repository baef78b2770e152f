package trigger

import "time"

// DuePoll is a check that this process is to make.
type DuePoll struct {
	Subscription *Subscription
	Token        string // fences the check
	Failures     int    // in a row, before this check
	Interval     time.Duration
}

// PollState is how a poll subscription's checks go.
type PollState struct {
	Interval time.Duration
	NextAt   time.Time
	LastAt   *time.Time // nil before the first check
	Failures int        // in a row
	Code     string     // the last failure's, "" after a check that went well
	Message  string
	Running  bool
}
