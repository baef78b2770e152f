package manager

import (
	"context"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Confirmations are few: one for each subscription that a vendor makes.
const (
	confirmQueue   = 64
	confirmWorkers = 4
	confirmTime    = 10 * time.Second
)

type confirmation struct {
	subscription *trigger.Subscription
	url          string
}

// confirmLater hands a URL on to RunConfirmations.
func (m *TriggerManager) confirmLater(s *trigger.Subscription, address string) {
	if address == "" {
		return
	}
	select {
	case m.confirms <- confirmation{s, address}:
	default:
		m.log.Error("handshake.confirm_dropped", append(fields(s), zap.String("host", hostOf(address)))...)
	}
}

// RunConfirmations fetches the URLs by which vendors have a subscription
// confirmed (vendors contract §3, class 9), each after its call is stored. It
// returns when ctx ends.
func (m *TriggerManager) RunConfirmations(ctx context.Context) error {
	var workers sync.WaitGroup
	for range confirmWorkers {
		workers.Go(func() { m.confirmAll(ctx) })
	}
	workers.Wait()
	return nil
}

func (m *TriggerManager) confirmAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-m.confirms:
			m.confirm(ctx, c)
		}
	}
}

// confirm asks once. The URL holds a token, so only its host is logged.
func (m *TriggerManager) confirm(ctx context.Context, c confirmation) {
	log := append(fields(c.subscription), zap.String("host", hostOf(c.url)))
	if m.confirmer == nil {
		m.log.Error("handshake.confirm_failed", append(log, zap.String("error", "this host fetches nothing"))...)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if _, err := m.confirmer.Fetch(ctx, c.url); err != nil {
		m.log.Error("handshake.confirm_failed", append(log, zap.Error(err))...)
		return
	}
	m.log.Info("handshake.confirmed", log...)
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
