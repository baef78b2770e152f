package openwop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	maxIdempotencyKey = 255
	idempotencyLease  = 30 * time.Second
)

// idempotent gives a repeat with the same Idempotency-Key the same answer
// (OpenWOP idempotency Layer 1). The key belongs to the tenant and the routed
// operation, and is kept as a hash; the answer is kept sealed, since a
// registration's holds the secret: a client that lost the first answer gets the
// whole of it again.
func (s *Surface) idempotent(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
		keys := r.Header.Values("Idempotency-Key")
		if len(keys) == 0 {
			return next(w, r, who)
		}
		if len(keys) > 1 || keys[0] == "" || len(keys[0]) > maxIdempotencyKey {
			return invalid("Idempotency-Key has from 1 to 255 characters")
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		request := trigger.IdempotentRequest{
			Tenant: who.Tenant, Operation: r.Method + " " + r.URL.Path, Key: hash(keys[0]), Digest: hash(string(body)), Owner: ident.New(ident.Claim),
		}
		earlier, err := s.Ledger.BeginIdempotent(r.Context(), request, idempotencyLease)
		if err != nil {
			return err
		}
		if earlier != nil {
			return replay(w, earlier)
		}
		return s.once(w, r, who, request, next)
	}
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func replay(w http.ResponseWriter, earlier *trigger.IdempotentAnswer) error {
	switch {
	case !earlier.SameRequest:
		return &problem{http.StatusConflict, "idempotency_key_mismatch", "this Idempotency-Key was used for another request", nil}
	case earlier.Pending:
		return &problem{http.StatusConflict, "idempotency_in_flight", "a request with this Idempotency-Key is being answered", map[string]any{"retryAfter": 1}}
	}
	w.Header().Set("openwop-Idempotent-Replay", "true")
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(earlier.Body)))
	w.WriteHeader(earlier.Status)
	_, _ = w.Write(earlier.Body) // the caller may be gone
	return nil
}

// once answers a request whose key this process holds, and keeps the answer
// also when the caller has gone.
func (s *Surface) once(w http.ResponseWriter, r *http.Request, who *apikey.Principal, request trigger.IdempotentRequest, next handler) error {
	answer := &recorder{header: w.Header()}
	if err := next(answer, r, who); err != nil {
		s.answerError(answer, r, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	if err := s.Ledger.EndIdempotent(ctx, request, answer.status, answer.body.Bytes()); err != nil {
		s.Log.Warn("openwop.answer_not_kept", zap.Error(err)) // its lease runs out
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes())
	return nil
}

// recorder keeps an answer until it is stored.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is the answer's own.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader keeps the status.
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write keeps the body.
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
