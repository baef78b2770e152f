package trigger

import "time"

// Retention says how long what is over is kept; 0 means for ever.
type Retention struct {
	// Events is for calls and their events, attempts and deliveries, from their
	// end on. A call is kept for as long as any of its events is.
	Events time.Duration
	// DeadLetters is for failed events, which can still be requeued.
	DeadLetters time.Duration
	// Runs is for runs of the embedded engine.
	Runs time.Duration
}
