// Package connection keeps the w6w Connection RFC for trigger hooks: a hook
// runs only with a connection that is fit for use, sees it redacted, and has its
// requests signed by the app's own auth hooks, which alone see the credential.
// The package knows neither storage nor HTTP servers.
package connection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Store is where connections are kept.
type Store interface {
	Connection(ctx context.Context, tenant, id string) (*trigger.Connection, error)
	// ClaimRefresh takes the right to refresh one version across processes.
	ClaimRefresh(ctx context.Context, c *trigger.Connection, token string, lease time.Duration) (bool, error)
	EndRefresh(ctx context.Context, c *trigger.Connection, token string, credential trigger.Credential, expires *time.Time) error
	FailRefresh(ctx context.Context, c *trigger.Connection, token, reason string, wait time.Duration) error
}

// Apps is the registry of loaded apps, and runs their hooks.
type Apps interface {
	App(appID string) (*trigger.App, error)
	Invoke(ctx context.Context, call hook.Call) (hook.Result, error)
}

// Keeper makes connections ready and signs with them. It is safe for concurrent
// use once Use was called.
type Keeper struct {
	store   Store
	apps    Apps
	timeout time.Duration
	log     *zap.Logger
	flights singleflight.Group
}

// New makes a Keeper; timeout bounds one auth hook. The sandbox needs its Sign
// before there are apps, so they come with Use.
func New(store Store, timeout time.Duration, log *zap.Logger) *Keeper {
	return &Keeper{store: store, timeout: timeout, log: log}
}

// Use says where the apps are. It comes before any hook runs.
func (k *Keeper) Use(apps Apps) { k.apps = apps }

const (
	// refreshRest keeps a refresh that failed from being tried again for every
	// call that comes in.
	refreshRest = 10 * time.Second
	// refreshLook is how often a process looks whether another has refreshed.
	refreshLook = 200 * time.Millisecond
	// saveTime is for storing a new credential, which is lost otherwise: many
	// vendors let a refresh token be used once.
	saveTime = 10 * time.Second
)

// Ready gives the redacted connection that a hook of the app may see (w6w
// contract §5, gates). A *hook.Error of phase auth says why there is none; any
// other error wraps trigger.ErrUnavailable.
func (k *Keeper) Ready(ctx context.Context, tenant, appID, id string) (json.RawMessage, error) {
	c, err := k.usable(ctx, tenant, appID, id)
	if err != nil {
		return nil, err
	}
	if c.RefreshDue {
		if c, err = k.refreshed(ctx, c); err != nil {
			return nil, err
		}
	}
	return Redacted(c), nil
}

// usable reads a connection and holds it against the gates.
func (k *Keeper) usable(ctx context.Context, tenant, appID, id string) (*trigger.Connection, error) {
	c, err := k.store.Connection(ctx, tenant, id)
	if errors.Is(err, trigger.ErrUnknownConnection) || err == nil && c.AppID != appID {
		return nil, gate(hook.CodeUnknownConnection, "the app has no such connection")
	}
	if err != nil {
		return nil, err
	}
	switch c.State {
	case trigger.ConnectionConnected, trigger.ConnectionNeedsRefresh:
		return c, nil
	case trigger.ConnectionPending:
		return nil, gate(hook.CodeConnectionPending, "the connection is not complete yet")
	case trigger.ConnectionRevoked:
		return nil, gate(hook.CodeConnectionRevoked, "the connection was revoked")
	case trigger.ConnectionBroken:
	}
	return nil, gate(hook.CodeConnectionBroken, "the connection is broken; connect anew")
}

func gate(code, message string) error {
	return &hook.Error{Code: code, Phase: "auth", Message: message}
}

// refreshed waits until the credential is fresh. In this process one caller
// sees to it for all, across processes one process for all.
func (k *Keeper) refreshed(ctx context.Context, c *trigger.Connection) (*trigger.Connection, error) {
	flight := k.flights.DoChan(c.Tenant+"\x00"+c.ID, func() (any, error) {
		// Those who wait come and go; the refresh is for whoever is left.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.timeout+saveTime)
		defer cancel()
		return k.refresh(ctx, c.Tenant, c.AppID, c.ID)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a refresh: %w: %w", trigger.ErrUnavailable, ctx.Err())
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		fresh, _ := result.Val.(*trigger.Connection)
		return fresh, nil
	}
}

func (k *Keeper) refresh(ctx context.Context, tenant, appID, id string) (*trigger.Connection, error) {
	token := ident.New(ident.Claim)
	for {
		c, err := k.usable(ctx, tenant, appID, id)
		if err != nil || !c.RefreshDue {
			return c, err
		}
		if c.RefreshHeld && !c.Refreshing {
			return nil, gate(hook.CodeConnectionBroken, "the last refresh failed: "+c.Error)
		}
		mine, err := k.store.ClaimRefresh(ctx, c, token, k.timeout+saveTime)
		if err != nil {
			return nil, err
		}
		if mine {
			if err := k.refreshNow(ctx, c, token); err != nil {
				return nil, err
			}
			continue // what was stored is what counts
		}
		timer := time.NewTimer(refreshLook)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, gate(hook.CodeConnectionBroken, "another process did not end its refresh in time")
		case <-timer.C:
		}
	}
}

// refreshNow runs the app's refresh (“unsigned fetch, failure =
// connection_broken”) and stores what it gave.
func (k *Keeper) refreshNow(ctx context.Context, c *trigger.Connection, token string) error {
	credential, expires, err := k.askRefresh(ctx, c)
	if err != nil {
		reason := scrub(err.Error(), c.Credential)
		k.log.Warn("connection.refresh_failed", zap.String("app_id", c.AppID), zap.String("tenant", c.Tenant), zap.String("connection_id", c.ID), zap.String("error", reason))
		if err := k.store.FailRefresh(ctx, c, token, reason, refreshRest); err != nil {
			return err
		}
		return gate(hook.CodeConnectionBroken, "refresh: "+reason)
	}
	err = k.store.EndRefresh(ctx, c, token, credential, expires)
	if errors.Is(err, trigger.ErrConflict) {
		return nil // put anew meanwhile: that one counts
	}
	if err != nil {
		return err
	}
	k.log.Info("connection.refreshed", zap.String("app_id", c.AppID), zap.String("tenant", c.Tenant), zap.String("connection_id", c.ID))
	return nil
}

func (k *Keeper) askRefresh(ctx context.Context, c *trigger.Connection) (trigger.Credential, *time.Time, error) {
	app, err := k.apps.App(c.AppID)
	if err != nil {
		return nil, nil, err
	}
	method := app.AuthFor(c.Auth)
	if method == nil || !method.Hooks["refresh"] {
		return nil, nil, errors.New("the credential has expired and the app has no refresh hook")
	}
	result, err := k.apps.Invoke(ctx, hook.Call{
		App: authRef(app, c.Tenant), Hook: "auth:" + method.Key + "/refresh", Limits: hook.Limits{Wall: k.timeout},
		Input: object("credential", c.Credential.Reveal()), Ctx: object("connection", Redacted(c)),
	})
	if err != nil {
		return nil, nil, err
	}
	if string(result.Output) == "null" {
		return nil, nil, errors.New("the refresh hook returned no credential")
	}
	return trigger.Credential(result.Output), expiry(result.Output, time.Now()), nil
}

// authRef names a VM that auth hooks have to themselves: what they keep of a
// credential is out of reach for the app's other hooks, and a hook that waits
// for its request's signature holds no place that the signature needs.
func authRef(app *trigger.App, tenant string) hook.AppRef {
	return hook.AppRef{ID: app.ID, Version: app.Hash, Tenant: tenant + "\x00auth"}
}

// expiry reads when a refreshed credential ends: expiresAt as a time or in Unix
// seconds or milliseconds, or expiresIn in seconds; nil when it does not say.
func expiry(credential json.RawMessage, now time.Time) *time.Time {
	var says struct {
		ExpiresAt  json.RawMessage `json:"expiresAt"`
		ExpiresAt2 json.RawMessage `json:"expires_at"`
		ExpiresIn  float64         `json:"expiresIn"`
		ExpiresIn2 float64         `json:"expires_in"`
	}
	if json.Unmarshal(credential, &says) != nil {
		return nil
	}
	for _, text := range []json.RawMessage{says.ExpiresAt, says.ExpiresAt2} {
		if at := instant(text); at != nil {
			return at
		}
	}
	for _, seconds := range []float64{says.ExpiresIn, says.ExpiresIn2} {
		if seconds > 0 && seconds < 1e9 {
			at := now.Add(time.Duration(seconds * float64(time.Second)))
			return &at
		}
	}
	return nil
}

func instant(text json.RawMessage) *time.Time {
	var at time.Time
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	if json.Unmarshal(text, &at) == nil {
		return &at
	}
	const milliseconds = 1e11 // as seconds this is the year 5138
	var number float64
	if json.Unmarshal(text, &number) != nil || number <= 0 || number > 1e15 {
		return nil
	}
	if number < milliseconds {
		number *= 1000
	}
	at = time.UnixMilli(int64(number))
	return &at
}
