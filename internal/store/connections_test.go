package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Issue 3: “Connections. Stored encrypted …, write-only over the API”.
func TestAConnectionIsSealedAndItsTenants(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	s := storetest.Open(t, url)
	put := func(tenant, app, credential, label string) (bool, error) {
		return s.PutConnection(t.Context(), &trigger.Connection{
			ID: "conn_1", Tenant: tenant, AppID: app, Auth: "token", State: trigger.ConnectionConnected, Label: label,
			Credential: trigger.Credential(credential), Display: json.RawMessage(`{"host":"h"}`),
		})
	}
	for _, tenant := range []string{"acme", "other"} {
		if created, err := put(tenant, "io.x", `{"secret":"CANARY-`+tenant+`"}`, "first"); err != nil || !created {
			t.Fatalf("%s: %v %v", tenant, created, err)
		}
	}
	if created, err := put("acme", "io.x", "", "second"); err != nil || created {
		t.Fatalf("again: %v %v", created, err)
	}
	if _, err := put("acme", "io.y", "", ""); !errors.Is(err, trigger.ErrConflict) {
		t.Errorf("another app's connection of the same id: %v", err)
	}
	c, err := s.Connection(t.Context(), "acme", "conn_1")
	if err != nil || string(c.Credential.Reveal()) != `{"secret":"CANARY-acme"}` || c.Label != "second" || c.RefreshDue || string(c.Display) != `{"host":"h"}` {
		t.Errorf("read %+v, %v", c, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c.Credential); strings.Contains(text, "CANARY") {
		t.Errorf("it prints: %s", text)
	}
	var row string
	if err := storetest.Conn(t, url).QueryRow(t.Context(), "SELECT string_agg(encode(credential, 'escape'), ' ') FROM connections").Scan(&row); err != nil || strings.Contains(row, "CANARY") {
		t.Errorf("at rest: %s, %v", row, err)
	}
	if err := s.DeleteConnection(t.Context(), "acme", "conn_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Connection(t.Context(), "acme", "conn_1"); !errors.Is(err, trigger.ErrUnknownConnection) {
		t.Errorf("deleted: %v", err)
	}
	if err := s.DeleteConnection(t.Context(), "acme", "conn_1"); !errors.Is(err, trigger.ErrUnknownConnection) {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := s.Connection(t.Context(), "other", "conn_1"); err != nil {
		t.Errorf("the other tenant's went with it: %v", err)
	}
}

func TestOneOfTenRefreshes(t *testing.T) {
	t.Parallel()

	url := storetest.NewURL(t)
	s, past := storetest.Open(t, url), time.Now().Add(-time.Hour)
	want := &trigger.Connection{ID: "c", Tenant: "acme", AppID: "io.x", State: trigger.ConnectionConnected, Credential: trigger.Credential(`1`), ExpiresAt: &past}
	if _, err := s.PutConnection(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	c, err := s.Connection(t.Context(), "acme", "c")
	if err != nil || !c.RefreshDue || c.RefreshHeld {
		t.Fatalf("expired: %+v, %v", c, err)
	}
	var wins atomic.Int64
	var token atomic.Value
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			mine, err := s.ClaimRefresh(t.Context(), c, fmt.Sprint("t", i), time.Minute)
			if err != nil {
				t.Error(err)
			}
			if mine {
				wins.Add(1)
				token.Store(fmt.Sprint("t", i))
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d refresh at once", wins.Load())
	}
	if held, err := s.Connection(t.Context(), "acme", "c"); err != nil || !held.RefreshHeld || !held.Refreshing {
		t.Errorf("held: %+v, %v", held, err)
	}
	if err := s.EndRefresh(t.Context(), c, "another", trigger.Credential(`2`), nil); !errors.Is(err, trigger.ErrConflict) {
		t.Errorf("with another's token: %v", err)
	}
	mine, _ := token.Load().(string)
	if err := s.EndRefresh(t.Context(), c, mine, trigger.Credential(`2`), nil); err != nil {
		t.Fatal(err)
	}
	fresh, err := s.Connection(t.Context(), "acme", "c")
	if err != nil || fresh.RefreshDue || string(fresh.Credential.Reveal()) != "2" || fresh.LastRefreshedAt == nil {
		t.Errorf("fresh: %+v, %v", fresh, err)
	}
	if again, err := s.ClaimRefresh(t.Context(), c, "late", time.Minute); err != nil || again {
		t.Errorf("a stale version was refreshed: %v %v", again, err)
	}
}

func TestAFailedRefreshRestsAndARenameLetsOneGoOn(t *testing.T) {
	t.Parallel()

	s := storetest.Open(t, storetest.NewURL(t))
	want := &trigger.Connection{ID: "c", Tenant: "acme", AppID: "io.x", State: trigger.ConnectionNeedsRefresh, Credential: trigger.Credential(`1`)}
	if _, err := s.PutConnection(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	c, err := s.Connection(t.Context(), "acme", "c")
	if err != nil {
		t.Fatal(err)
	}
	if mine, err := s.ClaimRefresh(t.Context(), c, "t", time.Minute); err != nil || !mine {
		t.Fatalf("%v %v", mine, err)
	}
	renamed := *want
	renamed.Credential, renamed.Label = nil, "renamed"
	if _, err := s.PutConnection(t.Context(), &renamed); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Connection(t.Context(), "acme", "c"); err != nil || !now.Refreshing {
		t.Errorf("a rename ended the refresh: %+v %v", now, err)
	}
	if err := s.FailRefresh(t.Context(), c, "t", "no", time.Minute); err != nil {
		t.Fatal(err)
	}
	if rests, err := s.Connection(t.Context(), "acme", "c"); err != nil || !rests.RefreshHeld || rests.Refreshing || rests.Error != "no" {
		t.Errorf("after a failure: %+v %v", rests, err)
	}
	if _, err := s.PutConnection(t.Context(), want); err != nil { // connected anew
		t.Fatal(err)
	}
	if anew, err := s.Connection(t.Context(), "acme", "c"); err != nil || anew.RefreshHeld || anew.Error != "" {
		t.Errorf("with a new credential: %+v %v", anew, err)
	}
}
