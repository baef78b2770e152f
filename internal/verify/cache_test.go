package verify_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-dev/tocsin/internal/verify"
)

// server answers by URL and counts.
type server struct {
	mu    sync.Mutex
	asked map[string]int
	fail  error
	wait  time.Duration
}

func (s *server) Fetch(ctx context.Context, url string) ([]byte, error) {
	s.mu.Lock()
	s.asked[url]++
	fail, wait := s.fail, s.wait
	s.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []byte("key of " + url), fail
}

func (s *server) count(url string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[url]
}

func TestCacheAsksOnceForAll(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := &server{asked: map[string]int{}, wait: time.Second}
		c := verify.NewCache(s, time.Now)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if text, err := c.Fetch(t.Context(), "u"); err != nil || string(text) != "key of u" {
					t.Errorf("%s, %v", text, err)
				}
			})
		}
		group.Wait()
		if s.count("u") != 1 {
			t.Errorf("asked %d times", s.count("u"))
		}
		time.Sleep(time.Hour) // the bubble's clock
		if _, err := c.Fetch(t.Context(), "u"); err != nil || s.count("u") != 2 {
			t.Errorf("after an hour: %v, asked %d times", err, s.count("u"))
		}
	})
}

func TestCacheOutlivesTheCallerThatAsked(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := &server{asked: map[string]int{}, wait: time.Second}
		c := verify.NewCache(s, time.Now)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Fetch(gone, "u"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Fetch(t.Context(), "u"); err != nil || s.count("u") != 1 {
			t.Errorf("%v, asked %d times", err, s.count("u"))
		}
	})
}

func TestCacheKeepsStrangersFromAskingAway(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := &server{asked: map[string]int{}}
		c := verify.NewCache(s, time.Now)
		if _, err := c.Fetch(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.fail = errors.New("not found")
		s.mu.Unlock()
		failed := 0
		for minute := range 10 {
			for i := range 100 {
				url := fmt.Sprint("evil ", minute, i)
				if _, err := c.Fetch(t.Context(), url); err == nil {
					t.Fatal("a stranger's URL is a key")
				}
				failed += s.count(url)
			}
			time.Sleep(time.Minute) // the bubble's clock
		}
		if failed > 200 {
			t.Errorf("%d requests in ten minutes", failed)
		}
		if text, err := c.Fetch(t.Context(), "good"); err != nil || string(text) != "key of good" || s.count("good") != 1 {
			t.Errorf("the key in use was pushed out: %s, %v, asked %d times", text, err, s.count("good"))
		}
	})
}
