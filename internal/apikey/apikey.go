// Package apikey is how the management API knows who asks: keys of the form
// tk_<id>_<secret>, of which only the id and a hash are kept. A key carries a
// tenant and scopes. The package knows neither HTTP nor storage.
//
// The secret is 256 random bits, which nobody can guess however fast the hash
// is, so a plain SHA-256 is stored: a slow password hash would protect nothing
// more and would cost every request.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

// ErrUnknownKey is a key that does not exist, or not any more, or whose secret
// is wrong. Which of them it is, is nobody's business.
var ErrUnknownKey = errors.New("unknown api key")

// Record is a key as it is stored.
type Record struct {
	ID        string
	Hash      [sha256.Size]byte // of the secret
	Tenant    string
	Name      string // for people
	Scopes    []Scope
	CreatedAt time.Time
	ExpiresAt *time.Time // nil: never
	RevokedAt *time.Time // nil: not revoked
}

const (
	prefix    = "tk_"
	idLength  = 10 // 50 bits: enough for nobody to meet another's id
	keyLength = 52 // 256 bits and 4 to spare
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// New makes a key. The text is what its owner gets, once; the record is what is
// stored.
func New(tenant, name string, scopes []Scope, now time.Time, expires *time.Time) (secret.Text, Record) {
	id, key := random(idLength), random(keyLength)
	return secret.Text(prefix + id + "_" + key), Record{
		ID: id, Hash: sha256.Sum256([]byte(key)), Tenant: tenant, Name: name, Scopes: slices.Clone(scopes), CreatedAt: now, ExpiresAt: expires,
	}
}

// random draws n characters of 5 bits each.
func random(n int) string {
	raw := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(raw) // never fails: crypto/rand aborts the process instead
	return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(raw)[:n]
}

// split takes a key apart; false when it has not the form of one.
func split(text secret.Text) (id, key string, ok bool) {
	rest, ok := strings.CutPrefix(text.Reveal(), prefix)
	if !ok {
		return "", "", false
	}
	id, key, ok = strings.Cut(rest, "_")
	return id, key, ok && len(id) == idLength && len(key) == keyLength
}

// opens says whether the secret is the record's and the record holds.
func (r *Record) opens(key string, now time.Time) bool {
	hash := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(hash[:], r.Hash[:]) != 1 {
		return false
	}
	return r.RevokedAt == nil && (r.ExpiresAt == nil || now.Before(*r.ExpiresAt))
}

// Principal is who asks.
type Principal struct {
	KeyID  string // "bootstrap" for the configured key
	Tenant string
	Scopes []Scope
}

// May says whether the principal has a scope.
func (p *Principal) May(wanted Scope) bool {
	return slices.ContainsFunc(p.Scopes, func(s Scope) bool { return s.holds(wanted) })
}
