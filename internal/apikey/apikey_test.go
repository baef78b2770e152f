package apikey_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

type keys struct {
	mu      sync.Mutex
	records map[string]apikey.Record
	asked   int
	err     error
}

func (k *keys) Key(_ context.Context, id string) (apikey.Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if k.err != nil {
		return apikey.Record{}, k.err
	}
	record, ok := k.records[id]
	if !ok {
		return apikey.Record{}, apikey.ErrUnknownKey
	}
	return record, nil
}

func (k *keys) put(record apikey.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == nil {
		k.records = map[string]apikey.Record{}
	}
	k.records[record.ID] = record
}

func TestAKeyIsKnownByItsSecretAlone(t *testing.T) {
	t.Parallel()

	text, record := apikey.New("acme", "ci", []apikey.Scope{apikey.EventsRead}, time.Now(), nil)
	parts := strings.Split(text.Reveal(), "_")
	if len(parts) != 3 || parts[0] != "tk" || parts[1] != record.ID || len(parts[1]) != 10 || len(parts[2]) != 52 {
		t.Fatalf("the key has the form %d %d", len(parts), len(parts[1]))
	}
	if record.Hash != sha256.Sum256([]byte(parts[2])) || strings.Contains(fmt.Sprintf("%+v", record), parts[2]) {
		t.Error("the record holds something else than the secret's hash")
	}
	stored := &keys{}
	stored.put(record)
	auth := apikey.NewAuthenticator(stored, "")
	got, err := auth.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&apikey.Principal{KeyID: record.ID, Tenant: "acme", Scopes: []apikey.Scope{apikey.EventsRead}}, got); diff != "" {
		t.Errorf("principal (-want +got):\n%s", diff)
	}
	other, _ := apikey.New("acme", "", nil, time.Now(), nil)
	for _, wrong := range []secret.Text{
		"", "x", "tk_", "tk__", other, text[:len(text)-1], text + "0",
		secret.Text("tk_" + record.ID + "_" + strings.Repeat("0", 52)),
		secret.Text("tk_" + record.ID + "_" + strings.Split(other.Reveal(), "_")[2]),
	} {
		if _, err := auth.Authenticate(t.Context(), wrong); !errors.Is(err, apikey.ErrUnknownKey) {
			t.Errorf("a wrong key gives %v", err)
		}
	}
}

func TestExpiredAndRevokedKeysAreUnknown(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(time.Minute)
		text, record := apikey.New("acme", "", []apikey.Scope{apikey.Admin}, time.Now(), &soon)
		stored := &keys{}
		stored.put(record)
		auth := apikey.NewAuthenticator(stored, "")
		if _, err := auth.Authenticate(t.Context(), text); err != nil {
			t.Errorf("before it expires: %v", err)
		}
		time.Sleep(time.Minute) // the bubble's clock
		if _, err := auth.Authenticate(t.Context(), text); !errors.Is(err, apikey.ErrUnknownKey) {
			t.Errorf("after it expired: %v", err)
		}

		text, record = apikey.New("acme", "", []apikey.Scope{apikey.Admin}, time.Now(), nil)
		stored.put(record)
		if _, err := auth.Authenticate(t.Context(), text); err != nil {
			t.Errorf("before it is revoked: %v", err)
		}
		now := time.Now()
		record.RevokedAt = &now
		stored.put(record)
		time.Sleep(5 * time.Second) // the bubble's clock
		if _, err := auth.Authenticate(t.Context(), text); !errors.Is(err, apikey.ErrUnknownKey) {
			t.Errorf("5 s after it was revoked: %v", err)
		}
	})
}

func TestTheDatabaseIsAskedOnceInAWhile(t *testing.T) {
	t.Parallel()

	text, record := apikey.New("acme", "", []apikey.Scope{apikey.Admin}, time.Now(), nil)
	stored := &keys{}
	stored.put(record)
	auth := apikey.NewAuthenticator(stored, "")
	for range 100 {
		if _, err := auth.Authenticate(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if stored.asked != 1 {
		t.Errorf("asked %d times for 100 requests, want once", stored.asked)
	}
}

func TestADatabaseThatIsAwayIsNotAWrongKey(t *testing.T) {
	t.Parallel()

	text, _ := apikey.New("acme", "", nil, time.Now(), nil)
	away := errors.New("away")
	_, err := apikey.NewAuthenticator(&keys{err: away}, "").Authenticate(t.Context(), text)
	if !errors.Is(err, away) || errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("error %v", err)
	}
}

func TestTheBootstrapKeyIsTheDefaultTenantsAdmin(t *testing.T) {
	t.Parallel()

	auth := apikey.NewAuthenticator(&keys{}, "local-only")
	got, err := auth.Authenticate(t.Context(), "local-only")
	if err != nil || got.Tenant != "default" || !got.May(apikey.KeysManage) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []secret.Text{"", "local-onlx", "local-only "} {
		if _, err := auth.Authenticate(t.Context(), wrong); !errors.Is(err, apikey.ErrUnknownKey) {
			t.Errorf("%q: %v", wrong.Reveal(), err)
		}
	}
	if _, err := apikey.NewAuthenticator(&keys{}, "").Authenticate(t.Context(), ""); !errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("no bootstrap key, no key given: %v", err)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		has, wanted apikey.Scope
		want        bool
	}{
		{apikey.EventsRead, apikey.EventsRead, true},
		{apikey.EventsWrite, apikey.EventsRead, true},
		{apikey.EventsRead, apikey.EventsWrite, false},
		{apikey.EventsWrite, apikey.SubscriptionsRead, false},
		{apikey.Admin, apikey.KeysManage, true},
		{apikey.KeysManage, apikey.Admin, false},
	} {
		p := apikey.Principal{Scopes: []apikey.Scope{c.has}}
		if got := p.May(c.wanted); got != c.want {
			t.Errorf("%s may %s: %t", c.has, c.wanted, got)
		}
	}
	got, err := apikey.ParseScopes(" events:read,admin,,events:read")
	if diff := cmp.Diff([]apikey.Scope{apikey.EventsRead, apikey.Admin}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "events", "events:read,root"} {
		if _, err := apikey.ParseScopes(text); err == nil || !strings.Contains(err.Error(), "subscriptions:read") {
			t.Errorf("%q: %v; want an error that lists the scopes", text, err)
		}
	}
}
