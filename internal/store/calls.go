package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Group commit: callers hand their calls to a writer, which writes what has
// queued up while it was busy as one transaction and then releases them. An
// idle ledger commits a single call at once, so nobody waits for a batch to
// fill. Two writers; a subscription keeps to one of them, so that its events
// are inserted in the order in which they came.
const (
	writerCount   = 2
	maxBatchCalls = 500
	maxBatchBytes = 8 << 20

	// commitTimeout bounds one transaction, the wait for a connection included.
	commitTimeout = 10 * time.Second
)

// pendingCall is one caller waiting for its commit.
type pendingCall struct {
	ctx    context.Context
	record *trigger.CallRecord
	body   []byte   // sealed
	events [][]byte // sealed; nil where the body is the event
	size   int64
	done   chan callResult // cap 1
}

type callResult struct {
	saved *trigger.SavedCall
	err   error
}

// SaveCall stores a call with its events and returns after the commit
// (RFC §Persist-first). trigger.ErrBackPressure when too much is waiting,
// trigger.ErrUnavailable on database trouble, trigger.ErrConflict when the
// subscription is no longer what the record says.
func (db *DB) SaveCall(ctx context.Context, record *trigger.CallRecord) (*trigger.SavedCall, error) {
	pending := db.seal(ctx, record)
	if record.NextState != nil {
		return db.savePoll(ctx, pending)
	}
	if record.Tick != nil {
		return db.saveTick(ctx, pending)
	}
	if db.queued.Add(pending.size) > db.limit {
		db.queued.Add(-pending.size)
		return nil, trigger.ErrBackPressure
	}
	defer db.queued.Add(-pending.size)
	if err := db.writerOf(record.Subscription.ID).enqueue(pending); err != nil {
		return nil, err
	}
	select {
	case result := <-pending.done:
		if errors.Is(result.err, trigger.ErrConflict) {
			db.cache.forget(record.Subscription.ID)
		}
		return result.saved, result.err
	case <-ctx.Done():
		return nil, fmt.Errorf("save call: %w", ctx.Err())
	}
}

// seal does in the caller's goroutine what does not need the writer.
func (db *DB) seal(ctx context.Context, record *trigger.CallRecord) *pendingCall {
	p := &pendingCall{ctx: ctx, record: record, done: make(chan callResult, 1)}
	if record.Of == "" && record.Call.Source != trigger.SourcePoll {
		body := record.Call.Body
		if body == nil {
			body = []byte{}
		}
		p.body = db.keys.Seal(sealBody, body)
	}
	p.size = int64(len(p.body) + len(record.MaskedHeader) + 256)
	p.events = make([][]byte, len(record.Events))
	for i, event := range record.Events {
		if event.Normalized != nil {
			p.events[i] = db.keys.Seal(sealNormalized, event.Normalized)
		}
		p.size += int64(len(p.events[i])) + 256
	}
	return p
}

func (db *DB) writerOf(id trigger.SubscriptionID) *writer {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return db.writers[h.Sum32()%uint32(len(db.writers))]
}

// savePoll stores a poll's events and its cursor in one transaction of its own
// (amendment §Polling).
func (db *DB) savePoll(ctx context.Context, p *pendingCall) (*trigger.SavedCall, error) {
	var saved *trigger.SavedCall
	err := db.inTx(ctx, func(tx pgx.Tx) error {
		if saved = new(trigger.SavedCall); len(p.events) > 0 {
			results, err := db.writeCalls(ctx, tx, []*pendingCall{p}, true)
			if err != nil {
				return err
			}
			if results[0].err != nil {
				return results[0].err
			}
			saved = results[0].saved
		}
		s := p.record.Subscription
		_, err := db.queries.SubscriptionSetHookState(ctx, tx, &dbsqlc.SubscriptionSetHookStateParams{
			HookState: db.keys.Seal(sealState, p.record.NextState), Sid: s.SID, Version: s.Version,
		})
		return notFound("save poll state", err, trigger.ErrConflict)
	})
	db.cache.forget(p.record.Subscription.ID)
	if errors.Is(err, trigger.ErrConflict) {
		return nil, err
	}
	if err != nil {
		return nil, failed("save poll", err)
	}
	return saved, nil
}

// writer commits batches on a connection of its own.
type writer struct {
	db     *DB
	queue  chan *pendingCall
	mu     sync.RWMutex
	closed atomic.Bool
}

func newWriter(db *DB, size int) *writer {
	return &writer{db: db, queue: make(chan *pendingCall, max(size, 1))}
}

func (w *writer) enqueue(p *pendingCall) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed.Load() {
		return fmt.Errorf("save call: shutting down: %w", trigger.ErrUnavailable)
	}
	select {
	case w.queue <- p:
		return nil
	default:
		return trigger.ErrBackPressure
	}
}

// close lets run finish what is queued.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed.Swap(true) {
		close(w.queue)
	}
}

// run commits until the queue is closed and empty. ctx bounds the statements.
func (w *writer) run(ctx context.Context) {
	batch := make([]*pendingCall, 0, maxBatchCalls)
	for first := range w.queue {
		runtime.Gosched() // callers that are ready to run queue up too
		batch = w.collect(append(batch[:0], first))
		w.commit(ctx, batch)
		clear(batch)
	}
}

// collect takes what else has queued up, within the bounds, and leaves out
// callers that have gone.
func (w *writer) collect(batch []*pendingCall) []*pendingCall {
	size := batch[0].size
	for len(batch) < maxBatchCalls && size < maxBatchBytes {
		select {
		case p, ok := <-w.queue:
			if !ok {
				return batch
			}
			if p.ctx.Err() != nil {
				p.done <- callResult{err: p.ctx.Err()}
				continue
			}
			batch = append(batch, p)
			size += p.size
		default:
			return batch
		}
	}
	return batch
}

// commit writes a batch and answers its callers. A batch that fails for what
// is in it is written again call by call, so that one bad call fails alone.
func (w *writer) commit(ctx context.Context, batch []*pendingCall) {
	results, err := w.try(ctx, batch)
	switch {
	case err == nil:
		for i, p := range batch {
			p.done <- results[i]
		}
	case len(batch) == 1 || isUnavailable(err):
		for _, p := range batch {
			p.done <- callResult{err: failed("save call", err)}
		}
	default:
		for _, p := range batch {
			w.commit(ctx, []*pendingCall{p})
		}
	}
}

// try commits a batch, again after a deadlock.
func (w *writer) try(ctx context.Context, batch []*pendingCall) (results []callResult, err error) {
	for range 3 {
		results, err = w.write(ctx, batch)
		if !isRetryable(err) {
			break
		}
	}
	return results, err
}

func (w *writer) write(ctx context.Context, batch []*pendingCall) ([]callResult, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	conn, err := w.db.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	if !needsTx(batch) {
		return w.db.writeCalls(ctx, conn, batch, false)
	}
	var results []callResult
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		results, err = w.db.writeCalls(ctx, tx, batch, true)
		if err != nil {
			return err
		}
		return firstConflict(results)
	})
	if !errors.Is(err, trigger.ErrConflict) {
		return results, err
	}
	return w.withoutConflicts(ctx, conn, batch, results)
}

// withoutConflicts writes a batch again less the calls that were refused: what
// they had claimed went with the transaction.
func (w *writer) withoutConflicts(ctx context.Context, conn *pgxpool.Conn, batch []*pendingCall, results []callResult) ([]callResult, error) {
	var rest []*pendingCall
	var at []int
	for i, result := range results {
		if result.err == nil {
			rest, at = append(rest, batch[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return results, nil
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		again, err := w.db.writeCalls(ctx, tx, rest, true)
		if err != nil {
			return err
		}
		for i, result := range again {
			results[at[i]] = result
		}
		return firstConflict(again)
	})
	if errors.Is(err, trigger.ErrConflict) { // changed once more: all of them decide anew
		for _, i := range at {
			results[i] = callResult{err: trigger.ErrConflict}
		}
		return results, nil
	}
	return results, err
}

func firstConflict(results []callResult) error {
	for _, result := range results {
		if result.err != nil {
			return result.err
		}
	}
	return nil
}

// needsTx says whether more than one round trip is needed.
func needsTx(batch []*pendingCall) bool {
	for _, p := range batch {
		for i := range p.record.Events {
			if p.record.Events[i].DedupKey != "" {
				return true
			}
		}
	}
	return false
}

// batcher is a connection or a transaction.
type batcher interface {
	dbsqlc.DBTX
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// writeCalls writes the rows of a batch. Without dedup keys it is one round
// trip and one implicit transaction: the rows, and the bell when it is this
// commit's turn to ring.
func (db *DB) writeCalls(ctx context.Context, tx batcher, batch []*pendingCall, dedup bool) ([]callResult, error) {
	plan := newWritePlan(batch)
	if dedup {
		if err := db.claimKeys(ctx, tx, plan); err != nil {
			return nil, err
		}
	}
	rows := plan.rows()
	ring := plan.queued && db.bell.claim()
	send := &pgx.Batch{}
	send.Queue(dbsqlc.EventInsertBatch, insertArgs(rows)...)
	if ring {
		send.Queue(dbsqlc.BellRing, bellChannel)
	}
	refused, err := readRefused(tx.SendBatch(ctx, send), ring)
	if err != nil {
		return nil, err
	}
	if plan.queued && !ring {
		db.bell.after()
	}
	return plan.results(refused), nil
}

func readRefused(results pgx.BatchResults, ring bool) (refused map[string]bool, err error) {
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	if ring {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
	}
	if len(ids) > 0 {
		refused = make(map[string]bool, len(ids))
		for _, id := range ids {
			refused[id] = true
		}
	}
	return refused, nil
}

const bellChannel = db.Channel

// claimKeys claims the dedup keys of a batch and marks the events whose key is
// taken. It runs in the events' own transaction.
func (db *DB) claimKeys(ctx context.Context, tx dbsqlc.DBTX, plan *writePlan) error {
	params, first := plan.keys()
	if len(params.Sids) == 0 {
		return nil
	}
	won, err := db.queries.DedupClaimBatch(ctx, tx, params)
	if err != nil {
		return err
	}
	if len(won) == len(params.Sids) {
		return nil
	}
	for _, row := range won {
		delete(first, dedupID{row.Sid, [32]byte(row.Key)})
	}
	lost := &dbsqlc.DedupHoldersParams{}
	for id := range first {
		lost.Sids, lost.Keys = append(lost.Sids, id.sid), append(lost.Keys, id.key[:])
	}
	holders, err := db.queries.DedupHolders(ctx, tx, lost)
	if err != nil {
		return err
	}
	for _, row := range holders {
		plan.taken(dedupID{row.Sid, [32]byte(row.Key)}, row.EventID)
	}
	return nil
}

type dedupID struct {
	sid int64
	key [32]byte
}

// plannedEvent is one event of a batch on its way to a row.
type plannedEvent struct {
	id          string
	dedup       dedupID
	duplicateOf string // the event that holds the key, "" when this one is new
}

// writePlan gives ids to a batch's events and remembers what became of them.
type writePlan struct {
	batch  []*pendingCall
	events [][]plannedEvent // by call
	rowIDs []string         // by call: the id of its first row
	queued bool
}

func newWritePlan(batch []*pendingCall) *writePlan {
	plan := &writePlan{batch: batch, events: make([][]plannedEvent, len(batch)), rowIDs: make([]string, len(batch))}
	for i, p := range batch {
		for j := range p.record.Events {
			event := plannedEvent{id: ident.New(ident.Event)}
			if key := p.record.Events[j].DedupKey; key != "" {
				event.dedup = dedupID{p.record.Subscription.SID, sha256.Sum256([]byte(key))}
			}
			plan.events[i] = append(plan.events[i], event)
		}
	}
	return plan
}

// keys lists each key once, for the first event that has it; later events of
// the batch with the same key are its duplicates.
func (plan *writePlan) keys() (*dbsqlc.DedupClaimBatchParams, map[dedupID]bool) {
	params := &dbsqlc.DedupClaimBatchParams{}
	holder := map[dedupID]string{}
	first := map[dedupID]bool{}
	for i, p := range plan.batch {
		for j := range plan.events[i] {
			event := &plan.events[i][j]
			if event.dedup == (dedupID{}) {
				continue
			}
			if id, ok := holder[event.dedup]; ok {
				event.duplicateOf = id
				continue
			}
			holder[event.dedup], first[event.dedup] = event.id, true
			params.Sids = append(params.Sids, event.dedup.sid)
			params.Keys = append(params.Keys, event.dedup.key[:])
			params.EventIds = append(params.EventIds, event.id)
			params.WindowMs = append(params.WindowMs, p.record.Events[j].DedupWindow.Milliseconds())
		}
	}
	return params, first
}

// taken marks every event of the batch that has the key.
func (plan *writePlan) taken(id dedupID, holder string) {
	for i := range plan.events {
		for j := range plan.events[i] {
			if plan.events[i][j].dedup == id {
				plan.events[i][j].duplicateOf = holder
			}
		}
	}
}

// rows lays out the rows: a call's first row carries the call.
func (plan *writePlan) rows() *dbsqlc.EventInsertBatchParams {
	rows := &dbsqlc.EventInsertBatchParams{}
	for i, p := range plan.batch {
		call := p.record.Of
		for j, event := range plan.events[i] {
			if event.duplicateOf != "" {
				continue
			}
			addRow(rows, p, event.id, &call, string(trigger.StatusReceived), "", "", p.events[j])
			plan.queued = true
			if plan.rowIDs[i] == "" {
				plan.rowIDs[i] = event.id
			}
		}
		if plan.rowIDs[i] == "" {
			plan.rowIDs[i] = ident.New(ident.Event)
			status, reason, duplicateOf := plan.without(i)
			addRow(rows, p, plan.rowIDs[i], &call, string(status), string(reason), duplicateOf, nil)
		}
	}
	return rows
}

// without says how a call without a new event is stored.
func (plan *writePlan) without(i int) (trigger.Status, trigger.Reason, string) {
	if len(plan.events[i]) > 0 {
		return trigger.StatusIgnored, trigger.ReasonDuplicate, plan.events[i][0].duplicateOf
	}
	record := plan.batch[i].record
	return record.Status, record.Reason, ""
}

func addRow(rows *dbsqlc.EventInsertBatchParams, p *pendingCall, id string, call *string, status, reason, duplicateOf string, normalized []byte) {
	record := p.record
	carries := *call == ""
	if carries {
		*call = id
	}
	rows.EventIds = append(rows.EventIds, id)
	rows.CallIds = append(rows.CallIds, *call)
	rows.Sids = append(rows.Sids, record.Subscription.SID)
	rows.Versions = append(rows.Versions, record.Subscription.Version)
	rows.InitialStatuses = append(rows.InitialStatuses, status)
	rows.Reasons = append(rows.Reasons, reason)
	rows.Errors = append(rows.Errors, ingestError(record))
	rows.DuplicatesOf = append(rows.DuplicatesOf, duplicateOf)
	rows.AppVersions = append(rows.AppVersions, record.AppVersion)
	rows.Normalizeds = append(rows.Normalizeds, normalized)
	rows.DedupKeys = append(rows.DedupKeys, record.DedupKey)
	c := record.Call
	rows.Sources = append(rows.Sources, string(c.Source))
	rows.Traceparents = append(rows.Traceparents, c.Trace)
	if !carries {
		c = &trigger.Call{}
	}
	rows.Methods = append(rows.Methods, c.Method)
	rows.Paths = append(rows.Paths, cleanText(unusualPath(c.Path, record.Subscription.ID)))
	if !carries {
		rows.RawQueries = append(rows.RawQueries, "")
		rows.Headers = append(rows.Headers, "")
		rows.Bodies = append(rows.Bodies, nil)
		rows.Verifications = append(rows.Verifications, "")
		return
	}
	rows.RawQueries = append(rows.RawQueries, cleanText(record.MaskedQuery))
	rows.Headers = append(rows.Headers, string(record.MaskedHeader))
	rows.Bodies = append(rows.Bodies, p.body)
	rows.Verifications = append(rows.Verifications, string(record.Verification))
}

// unusualPath gives a path that is not the canonical one. Only that is stored:
// the canonical one holds the secret and nothing that the id does not say.
func unusualPath(path string, id trigger.SubscriptionID) string {
	if path == trigger.CallbackPath+id.Reveal() {
		return ""
	}
	return path
}

// storedError is the error column's JSON.
type storedError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Phase   string `json:"phase,omitempty"`
	Stack   string `json:"stack,omitempty"`
}

func ingestError(record *trigger.CallRecord) string {
	if record.Err == nil || len(record.Events) > 0 {
		return ""
	}
	text, err := json.Marshal(storedError{record.Err.Code, cleanText(record.Err.Message), record.Err.Phase, cleanText(record.Stack)})
	if err != nil {
		return ""
	}
	return string(text)
}

// results says what became of each call.
func (plan *writePlan) results(refused map[string]bool) []callResult {
	results := make([]callResult, len(plan.batch))
	for i := range plan.batch {
		if refused[plan.rowIDs[i]] {
			results[i].err = trigger.ErrConflict
			continue
		}
		results[i].saved = plan.saved(i)
	}
	return results
}

func (plan *writePlan) saved(i int) *trigger.SavedCall {
	saved := &trigger.SavedCall{CallID: plan.rowIDs[i]}
	if of := plan.batch[i].record.Of; of != "" {
		saved.CallID = of
	}
	fresh := false
	seen := map[string]bool{}
	for _, event := range plan.events[i] {
		id := event.id
		if event.duplicateOf != "" {
			id = event.duplicateOf
		} else {
			fresh = true
		}
		if len(plan.events[i]) > 1 && seen[id] {
			continue
		}
		seen[id] = true
		saved.EventIDs = append(saved.EventIDs, id)
	}
	if fresh {
		saved.Status = trigger.StatusReceived
		return saved
	}
	saved.Status, saved.Reason, _ = plan.without(i)
	return saved
}

func insertArgs(r *dbsqlc.EventInsertBatchParams) []any {
	return []any{
		r.EventIds, r.CallIds, r.Sids, r.Versions, r.InitialStatuses, r.Reasons, r.Errors, r.DuplicatesOf, r.Sources,
		r.AppVersions, r.Traceparents, r.Normalizeds, r.Methods, r.Paths, r.RawQueries, r.Headers, r.Bodies, r.Verifications, r.DedupKeys,
	}
}
