package dispatch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// ledger is a ledger in memory with the store's semantics: at most one claim a
// subscription, fenced, leased, settled whole. Its clock is the bubble's.
type ledger struct {
	mu     sync.Mutex
	events map[string]*entry
	claims map[int64]*claim
	token  int
	down   error // every question fails

	noRenewal bool // renewals fail, nothing else does

	peeks, drains, marks, renewals int
	refuse                         func(trigger.Outcome) error // of a mark
	problems                       []string
}

type entry struct {
	trigger.PendingEvent
	due    time.Time
	status trigger.Status
	runID  string
	err    *trigger.StepError
	log    []string // outcomes, in order
}

type claim struct {
	token  string
	until  time.Time
	events []*entry
}

func newLedger() *ledger {
	return &ledger{events: map[string]*entry{}, claims: map[int64]*claim{}}
}

// add puts an event in; ids sort by insertion.
func (l *ledger) add(sid int64, n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := fmt.Sprintf("evt_%d_%04d", sid, n)
	l.events[id] = &entry{status: trigger.StatusReceived, due: time.Now(), PendingEvent: trigger.PendingEvent{
		ID: id, SID: sid, Subscription: trigger.SubscriptionID(fmt.Sprintf("sub_%030d", sid)), Tenant: "default", WorkflowID: "wf",
		AppID: "app", TriggerKey: "key", Normalized: json.RawMessage(`{"n":1}`), ReceivedAt: time.Now(),
	}}
	return id
}

func (l *ledger) get(id string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.events[id]
}

func (l *ledger) setDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = err
}

func (l *ledger) renewFails(fails bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noRenewal = fails
}

// open lists the events that have not ended.
func (l *ledger) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.events {
		if e.status == trigger.StatusReceived || e.status == trigger.StatusDispatching {
			n++
		}
	}
	return n
}

// lane gives a subscription's due events in order.
func (l *ledger) lane(sid int64) []*entry {
	var list []*entry
	for _, e := range l.events {
		if e.SID == sid && e.status == trigger.StatusReceived && !e.due.After(time.Now()) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Or(a.ReceivedAt.Compare(b.ReceivedAt), cmp.Compare(a.ID, b.ID)) })
	return list
}

func (l *ledger) dueLanes() []int64 {
	seen := map[int64]bool{}
	var list []int64
	for _, e := range l.events {
		if !seen[e.SID] && l.claims[e.SID] == nil && len(l.lane(e.SID)) > 0 {
			list = append(list, e.SID)
		}
		seen[e.SID] = true
	}
	slices.Sort(list)
	return list
}

func (l *ledger) DrainPending(_ context.Context, request trigger.ClaimRequest) ([]*trigger.PendingEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drains++
	if l.down != nil {
		return nil, l.down
	}
	var out []*trigger.PendingEvent
	for _, sid := range l.dueLanes() {
		room := request.Limit - len(out)
		if room <= 0 {
			break
		}
		per := max(request.PerSubscription, 1)
		list := l.lane(sid)
		if slices.Contains(request.Serial, list[0].AppID+"/"+list[0].TriggerKey) {
			per = 1
		}
		list = list[:min(len(list), per, room)]
		l.token++
		c := &claim{token: fmt.Sprintf("clm_%d", l.token), until: time.Now().Add(request.Lease), events: list}
		l.claims[sid] = c
		for _, e := range list {
			e.status = trigger.StatusDispatching
			event := e.PendingEvent
			event.Claim = trigger.Claim{SID: sid, Token: c.token}
			event.Age = time.Since(e.ReceivedAt)
			out = append(out, &event)
		}
	}
	return out, nil
}

func (l *ledger) MarkDispatched(_ context.Context, outcomes ...trigger.Outcome) ([]*trigger.PendingEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks++
	if l.down != nil {
		return nil, l.down
	}
	byClaim := map[trigger.Claim][]trigger.Outcome{}
	for _, o := range outcomes {
		if l.refuse != nil {
			if err := l.refuse(o); err != nil {
				return nil, err
			}
		}
		byClaim[o.Event.Claim] = append(byClaim[o.Event.Claim], o)
	}
	var lost []*trigger.PendingEvent
	for key, list := range byClaim {
		c := l.claims[key.SID]
		if c == nil || c.token != key.Token {
			for _, o := range list {
				lost = append(lost, o.Event)
			}
			continue
		}
		if len(list) != len(c.events) {
			l.problems = append(l.problems, fmt.Sprintf("claim of %d events settled with %d outcomes", len(c.events), len(list)))
		}
		delete(l.claims, key.SID)
		for _, o := range list {
			l.settle(o)
		}
	}
	return lost, nil
}

func (l *ledger) settle(o trigger.Outcome) {
	e := l.events[o.Event.ID]
	if o.Unattempted {
		e.status = trigger.StatusReceived
		e.log = append(e.log, "unattempted")
		return
	}
	e.Attempts++
	e.err, e.runID = o.Err, o.RunID
	wait, again := e.RetryAfter(e.Attempts)
	switch {
	case o.Err == nil:
		e.status = trigger.StatusDispatched
		e.log = append(e.log, trigger.AttemptDelivered)
	case o.Err.Retryable && again:
		e.status, e.due = trigger.StatusReceived, time.Now().Add(wait)
		e.log = append(e.log, trigger.AttemptRetrying)
	default:
		e.status = trigger.StatusFailed
		e.log = append(e.log, trigger.AttemptDeadLettered)
	}
}

func (l *ledger) Peek(context.Context) (trigger.DuePeek, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peeks++
	if l.down != nil {
		return trigger.DuePeek{}, l.down
	}
	now := time.Now()
	peek := trigger.DuePeek{Due: len(l.dueLanes()) > 0}
	soon := func(at time.Time) {
		if wait := at.Sub(now); wait > 0 && (peek.Next == 0 || wait < peek.Next) {
			peek.Next = wait.Truncate(time.Millisecond)
		}
	}
	for _, e := range l.events {
		if e.status == trigger.StatusReceived && e.due.After(now) {
			soon(e.due)
		}
	}
	for _, c := range l.claims {
		soon(c.until)
		peek.Expired = peek.Expired || !c.until.After(now)
	}
	return peek, nil
}

func (l *ledger) Backlog(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

func (l *ledger) RenewClaims(_ context.Context, claims []trigger.Claim, lease time.Duration) ([]trigger.Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewals++
	if l.noRenewal {
		return nil, trigger.ErrUnavailable
	}
	if l.down != nil {
		return nil, l.down
	}
	var lost []trigger.Claim
	for _, key := range claims {
		c := l.claims[key.SID]
		if c == nil || c.token != key.Token || !c.until.After(time.Now()) {
			lost = append(lost, key)
			continue
		}
		c.until = time.Now().Add(lease)
	}
	return lost, nil
}

func (l *ledger) ReapExpired(context.Context) ([]trigger.LostAttempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		return nil, l.down
	}
	var lost []trigger.LostAttempt
	for sid, c := range l.claims {
		if c.until.After(time.Now()) {
			continue
		}
		delete(l.claims, sid)
		for _, e := range c.events {
			e.Attempts++
			e.log = append(e.log, trigger.AttemptLost)
			e.status, e.due = trigger.StatusReceived, c.until.Add(trigger.RetryWait(e.Attempts))
			if e.Attempts >= trigger.MaxAttempts {
				e.status = trigger.StatusFailed
			}
			lost = append(lost, trigger.LostAttempt{EventID: e.ID, SID: sid, Attempt: e.Attempts})
		}
	}
	return lost, nil
}

// revoke takes a claim away, as another dispatcher's reaping does.
func (l *ledger) revoke(sid int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.claims[sid].events {
		e.status = trigger.StatusDispatched
	}
	delete(l.claims, sid)
}

// plain is a parser without parseOutput, but for the events named.
type plain struct {
	parse func(ctx context.Context, event *trigger.PendingEvent) (json.RawMessage, *trigger.StepError)
}

func (p plain) HasParseOutput(*trigger.PendingEvent) bool { return p.parse != nil }

func (p plain) ParseOutput(ctx context.Context, event *trigger.PendingEvent) (json.RawMessage, bool, *trigger.StepError) {
	if p.parse == nil {
		return event.Normalized, false, nil
	}
	payload, failure := p.parse(ctx, event)
	return payload, true, failure
}

// fakeEngine does what do says and watches for overlaps within a subscription.
type fakeEngine struct {
	mu       sync.Mutex
	do       func(ctx context.Context, request engine.StartRequest) engine.StartResult
	ping     func() error
	calls    []call
	running  map[int64]int
	most     int // starts at once
	now      int
	overlaps int
	pings    int
}

type call struct {
	engine.StartRequest
	at time.Time
}

func (e *fakeEngine) StartRun(ctx context.Context, request engine.StartRequest) engine.StartResult {
	e.mu.Lock()
	e.calls = append(e.calls, call{request, time.Now()})
	if e.running == nil {
		e.running = map[int64]int{}
	}
	if e.running[request.SID] > 0 {
		e.overlaps++
	}
	e.running[request.SID]++
	e.now++
	e.most = max(e.most, e.now)
	do := e.do
	e.mu.Unlock()
	result := started(request)
	if do != nil {
		result = do(ctx, request)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[request.SID]--
	e.now--
	return result
}

func (e *fakeEngine) set(do func(context.Context, engine.StartRequest) engine.StartResult) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.do = do
}

// times gives when the event was started, counted from the given time.
func (e *fakeEngine) times(id string, from time.Time) []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []time.Duration
	for _, c := range e.calls {
		if c.EventID == id {
			list = append(list, c.at.Sub(from).Round(100*time.Millisecond))
		}
	}
	return list
}

func (e *fakeEngine) order() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]string, len(e.calls))
	for i, c := range e.calls {
		list[i] = c.EventID
	}
	return list
}

func (e *fakeEngine) WorkflowExists(context.Context, string, string) (bool, error) { return true, nil }

func (e *fakeEngine) Ping(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pings++
	if e.ping == nil {
		return nil
	}
	return e.ping()
}

func (e *fakeEngine) Close() error { return nil }

// batchEngine starts many at once.
type batchEngine struct {
	fakeEngine
	batches []int
}

func (e *batchEngine) StartRuns(ctx context.Context, requests []engine.StartRequest) []engine.StartResult {
	e.mu.Lock()
	e.batches = append(e.batches, len(requests))
	e.mu.Unlock()
	results := make([]engine.StartResult, len(requests))
	for i, request := range requests {
		results[i] = e.StartRun(ctx, request)
	}
	return results
}

func started(request engine.StartRequest) engine.StartResult {
	return engine.StartResult{Kind: engine.Started, RunID: "run_of_" + request.EventID}
}

func failing(kind engine.Kind, message string) engine.StartResult {
	return engine.StartResult{Kind: kind, Err: &trigger.StepError{Code: "code", Message: message, Phase: "execute", Retryable: kind != engine.NonRetryable}}
}

func always(result engine.StartResult) func(context.Context, engine.StartRequest) engine.StartResult {
	return func(context.Context, engine.StartRequest) engine.StartResult { return result }
}

func after(wait time.Duration) func(context.Context, engine.StartRequest) engine.StartResult {
	return func(ctx context.Context, request engine.StartRequest) engine.StartResult {
		select {
		case <-time.After(wait):
			return started(request)
		case <-ctx.Done():
			return failing(engine.Retryable, "gave up")
		}
	}
}
