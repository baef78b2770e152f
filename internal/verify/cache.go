package verify

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Cache keeps what a Fetcher got. Calls name the URLs, and so decide what is
// asked for: what is known stays, what fails is remembered too, and what is new
// is asked for at a bounded rate. It is safe for concurrent use.
type Cache struct {
	next Fetcher
	now  func() time.Time

	mu      sync.Mutex
	entries map[string]*cached
	asked   int // in this minute
	minute  time.Time
}

type cached struct {
	done    chan struct{} // closed when text and err are set
	text    []byte
	err     error
	expires time.Time
}

const (
	keepKeys    = time.Hour // vendors announce new keys longer before
	keepFailure = time.Minute
	maxKeys     = 64
	maxAsked    = 20 // a minute
	fetchTime   = 10 * time.Second
)

// NewCache puts a Cache before a Fetcher.
func NewCache(next Fetcher, now func() time.Time) *Cache {
	return &Cache{next: next, now: now, entries: map[string]*cached{}}
}

var errTooMany = errors.New("too many unknown key URLs")

// Fetch gives what is kept, or asks once for all who wait for it.
func (c *Cache) Fetch(ctx context.Context, url string) ([]byte, error) {
	entry, mine, err := c.entry(url)
	if err != nil {
		return nil, err
	}
	if mine {
		go c.fill(context.WithoutCancel(ctx), url, entry) // others wait for it when this caller has gone
	}
	select {
	case <-entry.done:
		return entry.text, entry.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cache) entry(url string) (entry *cached, mine bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if known, ok := c.entries[url]; ok && (known.expires.IsZero() || now.Before(known.expires)) {
		return known, false, nil
	}
	if now.Sub(c.minute) >= time.Minute {
		c.minute, c.asked = now, 0
	}
	if c.asked == maxAsked || !c.makeRoom(now) {
		return nil, false, errTooMany
	}
	c.asked++
	entry = &cached{done: make(chan struct{})}
	c.entries[url] = entry
	return entry, true, nil
}

// makeRoom drops what has run out, then failures: strangers can make those, and
// they must not push out a key that is in use.
func (c *Cache) makeRoom(now time.Time) bool {
	if len(c.entries) < maxKeys {
		return true
	}
	for url, entry := range c.entries {
		if !entry.expires.IsZero() && (entry.err != nil || !now.Before(entry.expires)) {
			delete(c.entries, url)
		}
	}
	return len(c.entries) < maxKeys
}

func (c *Cache) fill(ctx context.Context, url string, entry *cached) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	text, err := c.next.Fetch(ctx, url)
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.text, entry.err, entry.expires = text, err, c.now().Add(keepKeys)
	if err != nil {
		entry.expires = c.now().Add(keepFailure)
	}
	close(entry.done)
}
