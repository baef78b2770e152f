package obs

import (
	"time"

	"go.uber.org/zap"
)

// outageReminder is the time between two lines about one outage.
const outageReminder = 30 * time.Second

// Outage keeps what a loop says of something that is away to one line at its
// start, few while it lasts, and one at its end. It is for one goroutine.
type Outage struct {
	since time.Time // zero: there is none
	said  time.Time
}

// Note takes one more failure; the line is written as message.
func (o *Outage) Note(log *zap.Logger, message string, err error) {
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	} else if now.Sub(o.said) < outageReminder {
		return
	}
	o.said = now
	log.Warn(message, Err(err), Duration(now.Sub(o.since)))
}

// Over notes a success, which ends an outage if there was one.
func (o *Outage) Over(log *zap.Logger, message string) {
	if o.since.IsZero() {
		return
	}
	log.Info(message, Duration(time.Since(o.since)))
	*o = Outage{}
}
