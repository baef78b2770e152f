package store

import (
	"context"
	"errors"
	"time"

	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// ClaimPolls takes up to limit due checks under a lease (amendment §Polling):
// across processes, one check an interval, and none while another runs.
func (db *DB) ClaimPolls(ctx context.Context, limit int, lease time.Duration) ([]*trigger.DuePoll, error) {
	token := ident.New(ident.Claim)
	rows, err := db.queries.PollClaim(ctx, db.pool, &dbsqlc.PollClaimParams{
		Token: token, LeaseMs: lease.Milliseconds(), MaxRows: int32(limit),
	})
	if err != nil {
		return nil, failed("claim polls", err)
	}
	var due []*trigger.DuePoll
	for _, row := range rows {
		// Read after the claim: the state is the last check's.
		s, err := db.SubscriptionBySID(ctx, row.Sid)
		if errors.Is(err, trigger.ErrUnknownSubscription) {
			continue
		}
		if err != nil {
			return due, err // what is claimed already is worth doing
		}
		due = append(due, &trigger.DuePoll{
			Subscription: s, Token: token, Failures: int(row.Failures), Interval: time.Duration(row.IntervalMs) * time.Millisecond,
		})
	}
	return due, nil
}

// EndPoll ends a check. failure is nil when it went well; wait, when not
// negative, says when to check next in place of the interval. False means that
// the lease was lost to another process.
func (db *DB) EndPoll(ctx context.Context, poll *trigger.DuePoll, failure *trigger.StepError, wait time.Duration) (bool, error) {
	p := &dbsqlc.PollDoneParams{Sid: poll.Subscription.SID, Token: poll.Token, WaitMs: wait.Milliseconds()}
	if wait < 0 {
		p.WaitMs = -1
	}
	if failure != nil {
		p.Failures, p.ErrorCode, p.Error = int32(min(poll.Failures+1, 1<<20)), failure.Code, cleanText(failure.Message)
	}
	n, err := db.queries.PollDone(ctx, db.pool, p)
	if err != nil {
		return false, failed("end poll", err)
	}
	return n == 1, nil
}

// PollState says how a subscription's checks go; nil for the webhook form.
func (db *DB) PollState(ctx context.Context, sid int64) (*trigger.PollState, error) {
	row, err := db.queries.PollGet(ctx, db.pool, sid)
	if err := notFound("get poll state", err, trigger.ErrUnknownSubscription); errors.Is(err, trigger.ErrUnknownSubscription) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &trigger.PollState{
		Interval: time.Duration(row.IntervalMs) * time.Millisecond, NextAt: row.DueAt, LastAt: row.CheckedAt, Failures: int(row.Failures),
		Code: orEmpty(row.ErrorCode), Message: orEmpty(row.Error), Running: row.Token != nil,
	}, nil
}
