// Package openwop is the OpenWOP surface (RFC 0083 openwop-trigger-bridge, RFC
// 0099, 0230, 0232): discovery, trigger subscriptions, dead letters and runs
// under /v1 behind bearer keys, and the signed ingest of posts. Its
// subscriptions, events and attempts are the ones of the w6w surface, seen
// through another API (docs/openwop.md). What happens is decided in the
// TriggerManager; this package translates.
package openwop

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Manager is the part of the TriggerManager this surface calls.
type Manager interface {
	Subscribe(ctx context.Context, tenant string, request manager.SubscribeRequest) (*trigger.Subscription, error)
	Unsubscribe(ctx context.Context, tenant string, id trigger.SubscriptionID) error
	GetSubscription(ctx context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error)
	ListSubscriptionsForWorkflow(ctx context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error)
	SetEnabled(ctx context.Context, tenant string, id trigger.SubscriptionID, enabled bool) (*trigger.Subscription, error)
	OpenWOPSubscription(ctx context.Context, id trigger.SubscriptionID) (*trigger.Subscription, error)
	Deliver(ctx context.Context, id trigger.SubscriptionID, judge func(*trigger.Subscription) (*manager.Post, error)) (trigger.IngestResult, error)
}

// Ledger is the part of the store this surface reads, and where it keeps its
// answers.
type Ledger interface {
	Outcomes(ctx context.Context, eventIDs []string) ([]trigger.EventOutcome, error)
	DeadLetters(ctx context.Context, sid int64, after *trigger.DeadLetterPosition, limit int) ([]trigger.DeadLetter, error)
	Deliveries(ctx context.Context, sid int64, limit int) ([]trigger.Delivery, error)
	Run(ctx context.Context, tenant, runID string) (*trigger.Run, error)
	SaveRuns(ctx context.Context, runs []trigger.Run) error
	BeginIdempotent(ctx context.Context, r trigger.IdempotentRequest, lease time.Duration) (*trigger.IdempotentAnswer, error)
	EndIdempotent(ctx context.Context, r trigger.IdempotentRequest, status int, body []byte) error
}

// Authenticator knows keys; apikey.Authenticator fits.
type Authenticator interface {
	Authenticate(ctx context.Context, key secret.Text) (*apikey.Principal, error)
}

// Config of a Surface. All but Wake, Wait and Seams is required.
type Config struct {
	Manager Manager
	Ledger  Ledger
	Keys    Authenticator
	Engine  engine.Engine
	// Embedded says that Engine's runs are in the ledger, so that this host can
	// show them.
	Embedded bool
	HostURL  string
	MaxBody  int64
	// Wake gives a value when events have come to their end.
	Wake <-chan struct{}
	// Wait bounds how long a post waits for its run; 0 means 10 s.
	Wait time.Duration
	// Seams, when not nil, are the test-only routes (OPENWOP_TEST_SEAMS).
	Seams   SeamLedger
	Metrics prometheus.Registerer
	Log     *zap.Logger
}

// Surface serves OpenWOP.
type Surface struct {
	Config
	hub      *hub
	verifier *verify.Verifier
	refusals *refusals
	posts    *prometheus.CounterVec
	sampled  *zap.Logger
}

// New makes a Surface; Run must run for posts to be answered.
func New(c Config) (*Surface, error) {
	if c.Wait == 0 {
		c.Wait = 10 * time.Second
	}
	c.HostURL = strings.TrimRight(c.HostURL, "/")
	verifier, err := verify.New(verify.Spec{Preset: "standard-webhooks", Secret: verify.Stored()})
	if err != nil {
		return nil, err
	}
	s := &Surface{
		Config: c, hub: newHub(c.Ledger, c.Wake, c.Log), verifier: verifier, refusals: newRefusals(), sampled: obs.Sampled(c.Log),
		posts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_openwop_posts_total", Help: "Posts to OpenWOP ingest URLs by outcome."}, []string{"outcome"}),
	}
	c.Metrics.MustRegister(s.posts)
	return s, nil
}

// Run answers posts that wait for their runs, until ctx ends.
func (s *Surface) Run(ctx context.Context) error { return s.hub.run(ctx) }

// Owns says whether a path on the management listener is this surface's.
func Owns(path string) bool {
	return path == discoveryPath || path == "/v1" || strings.HasPrefix(path, "/v1/")
}

// Handler serves discovery and /v1.
func (s *Surface) Handler() http.Handler {
	document := s.discovery()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, func(w http.ResponseWriter, r *http.Request) { s.serveDiscovery(w, r, document) })
	mux.HandleFunc("GET /v1/openapi.json", serveOpenAPI)
	for _, route := range []struct {
		pattern string
		scope   apikey.Scope
		handle  handler
	}{
		{"POST /v1/trigger-subscriptions", apikey.WebhooksManage, s.idempotent(s.register)},
		{"GET /v1/trigger-subscriptions", apikey.WebhooksManage, s.list},
		{"GET /v1/trigger-subscriptions/{id}", apikey.WebhooksManage, s.get},
		{"PATCH /v1/trigger-subscriptions/{id}", apikey.WebhooksManage, s.idempotent(s.change)},
		{"GET /v1/trigger-subscriptions/{id}/dead-letters", apikey.WebhooksManage, s.deadLetters},
		{"POST /v1/runs", apikey.RunsCreate, s.idempotent(s.createRun)},
		{"GET /v1/runs/{id}", apikey.RunsRead, s.getRun},
		{"GET /v1/runs/{id}/events/poll", apikey.RunsRead, s.pollRun},
		{"GET /v1/runs/{id}/events", apikey.RunsRead, s.streamRun},
	} {
		mux.Handle(route.pattern, s.behindKey(route.scope, route.handle))
	}
	if s.Seams != nil {
		s.mountSeams(mux)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.answerError(w, r, &problem{http.StatusNotFound, "not_found", "there is no such route", nil})
	})
	return s.recovering(mux)
}
