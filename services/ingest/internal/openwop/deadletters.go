package openwop

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// attemptJSON is the payload of trigger.delivery.attempted; it has no content.
type attemptJSON struct {
	SubscriptionID string `json:"subscriptionId"`
	DedupKey       string `json:"dedupKey"`
	Attempt        int    `json:"attempt"`
	Outcome        string `json:"outcome"`
}

// changeJSON is the payload of trigger.subscription.state.changed.
type changeJSON struct {
	SubscriptionID string                `json:"subscriptionId"`
	Source         string                `json:"source"`
	From           trigger.DeliveryState `json:"fromState"`
	To             trigger.DeliveryState `json:"toState"`
	Reason         string                `json:"reason,omitempty"`
}

func changeOf(s *trigger.Subscription, c *trigger.StateChange) *changeJSON {
	return &changeJSON{s.ID.Reveal(), sourceOf(s), c.From, c.To, c.Reason}
}

// deadLetterJSON is a record of trigger-dead-letter-page.schema.json; it is
// closed.
type deadLetterJSON struct {
	SubscriptionID string      `json:"subscriptionId"`
	AttemptEventID string      `json:"attemptEventId"`
	Attempt        attemptJSON `json:"attempt"`
	StateChange    *changeJSON `json:"stateChange,omitempty"`
	Reason         string      `json:"reason"`
	DeadLetteredAt string      `json:"deadLetteredAt"`
	ExpiresAt      string      `json:"expiresAt"`
}

func deadLetterOf(s *trigger.Subscription, d *trigger.DeadLetter) deadLetterJSON {
	out := deadLetterJSON{
		SubscriptionID: s.ID.Reveal(), AttemptEventID: d.AttemptID, Reason: "retries_exhausted",
		Attempt:        attemptJSON{s.ID.Reveal(), cmp.Or(d.DedupKey, d.EventID), d.Attempt, trigger.AttemptDeadLettered},
		DeadLetteredAt: iso(d.At), ExpiresAt: iso(d.At.Add(trigger.DeadLetterRetention)),
	}
	if d.Refused {
		out.Reason = "verification_failed"
	}
	if d.Change != nil {
		out.StateChange = changeOf(s, d.Change)
	}
	return out
}

// deadLetters shows a page of a subscription's dead letters, newest first (RFC
// 0232 §B).
func (s *Surface) deadLetters(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	subscription, err := s.find(r, who)
	if err != nil {
		return err
	}
	limit, err := pageSize(r.URL.Query().Get("limit"))
	if err != nil {
		return err
	}
	var after *trigger.DeadLetterPosition
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		if after = readCursor(subscription, cursor); after == nil {
			return invalid("the cursor is not one that this subscription's list gave out")
		}
	}
	found, err := s.Ledger.DeadLetters(r.Context(), subscription.SID, after, limit+1)
	if err != nil {
		return err
	}
	out := struct {
		Deliveries []deadLetterJSON `json:"deliveries"`
		NextCursor string           `json:"nextCursor,omitempty"`
	}{Deliveries: []deadLetterJSON{}}
	if len(found) > limit {
		found = found[:limit]
		out.NextCursor = cursorAt(subscription, &found[limit-1])
	}
	for i := range found {
		out.Deliveries = append(out.Deliveries, deadLetterOf(subscription, &found[i]))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// pageSize reads a limit and cuts it to the largest page.
func pageSize(text string) (int, error) {
	if text == "" {
		return maxPage, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 {
		return 0, invalid("limit must be a whole number from 1")
	}
	return min(limit, maxPage), nil
}

const (
	boundBytes = 8
	maxCursor  = 2048
)

// bound ties a cursor to its subscription.
func bound(s *trigger.Subscription) []byte {
	sum := sha256.Sum256([]byte("dead letters of " + s.ID.Reveal()))
	return sum[:boundBytes]
}

func cursorAt(s *trigger.Subscription, d *trigger.DeadLetter) string {
	raw := binary.BigEndian.AppendUint64(bound(s), uint64(d.At.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(raw, d.AttemptID...))
}

// readCursor gives the position of a cursor; nil when it is not one of this
// subscription's.
func readCursor(s *trigger.Subscription, cursor string) *trigger.DeadLetterPosition {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(cursor) > maxCursor || len(raw) <= boundBytes+8 || subtle.ConstantTimeCompare(raw[:boundBytes], bound(s)) != 1 {
		return nil
	}
	attempt := string(raw[boundBytes+8:])
	if !plain(attempt) {
		return nil
	}
	at := int64(binary.BigEndian.Uint64(raw[boundBytes:])) // a made-up time finds nothing
	return &trigger.DeadLetterPosition{At: time.UnixMicro(at), AttemptID: attempt}
}
