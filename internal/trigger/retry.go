package trigger

import "time"

// The platform constant of RFC §Retry backoff: {maxAttempts: 5, backoff:
// "exponential", delayMs: 5000}.
const (
	MaxAttempts = 5
	retryDelay  = 5 * time.Second
	maxWait     = 300 * time.Second // workflow.md's ceiling for one wait
)

// RetryWait is the wait after the given number of failed attempts (1-based),
// from the end of the last one: 5, 10, 20, 40 s. It has no jitter.
func RetryWait(failed int) time.Duration {
	if failed < 1 {
		return 0
	}
	if failed > 6 {
		return maxWait // 5 s · 2^6 is past the ceiling already
	}
	return min(retryDelay<<(failed-1), maxWait)
}

// StepError is how an attempt failed (w6w invocation RFC).
type StepError struct {
	Code      string
	Message   string
	Phase     string // resolution, auth, execute or output
	Retryable bool
}

func (e *StepError) Error() string { return e.Code + ": " + e.Message }
