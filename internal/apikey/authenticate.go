package apikey

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

// DefaultTenant is whose key BOOTSTRAP_API_KEY is.
const DefaultTenant = "default"

// Keys finds stored keys; ErrUnknownKey when there is none of the id.
type Keys interface {
	Key(ctx context.Context, id string) (Record, error)
}

const (
	cacheFor  = 3 * time.Second // a revoked key works at most this much longer
	cacheSize = 1024
)

// Authenticator says whose key it is. It is safe for concurrent use.
type Authenticator struct {
	keys      Keys
	bootstrap *[sha256.Size]byte

	mu    sync.Mutex
	cache map[string]cached
}

type cached struct {
	record Record
	until  time.Time
}

// NewAuthenticator makes an Authenticator. bootstrap, when not empty, is
// accepted as a key of DefaultTenant with all scopes.
func NewAuthenticator(keys Keys, bootstrap secret.Text) *Authenticator {
	a := &Authenticator{keys: keys, cache: map[string]cached{}}
	if bootstrap != "" {
		hash := sha256.Sum256([]byte(bootstrap.Reveal()))
		a.bootstrap = &hash
	}
	return a
}

// Authenticate gives the principal of a key. The error is ErrUnknownKey, or
// means that the keys could not be asked.
func (a *Authenticator) Authenticate(ctx context.Context, key secret.Text) (*Principal, error) {
	if a.isBootstrap(key) {
		return &Principal{KeyID: "bootstrap", Tenant: DefaultTenant, Scopes: []Scope{Admin}}, nil
	}
	id, text, ok := split(key)
	if !ok {
		return nil, ErrUnknownKey
	}
	now := time.Now()
	record, err := a.record(ctx, id, now)
	if err != nil {
		return nil, err
	}
	if !record.opens(text, now) {
		return nil, ErrUnknownKey
	}
	return &Principal{KeyID: record.ID, Tenant: record.Tenant, Scopes: record.Scopes}, nil
}

// isBootstrap compares hashes, so that neither content nor length shows in the
// time it takes.
func (a *Authenticator) isBootstrap(key secret.Text) bool {
	if a.bootstrap == nil {
		return false
	}
	hash := sha256.Sum256([]byte(key.Reveal()))
	return subtle.ConstantTimeCompare(hash[:], a.bootstrap[:]) == 1
}

func (a *Authenticator) record(ctx context.Context, id string, now time.Time) (Record, error) {
	if record, ok := a.recall(id, now); ok {
		return record, nil
	}
	record, err := a.keys.Key(ctx, id)
	if err != nil { // an id that is not there is not remembered: it may be made any moment
		return Record{}, err
	}
	a.remember(record, now)
	return record, nil
}

func (a *Authenticator) recall(id string, now time.Time) (Record, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, ok := a.cache[id]
	return entry.record, ok && now.Before(entry.until)
}

func (a *Authenticator) remember(record Record, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= cacheSize {
		clear(a.cache)
	}
	a.cache[record.ID] = cached{record, now.Add(cacheFor)}
}
