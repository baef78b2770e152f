package openwop

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	discoveryPath = "/.well-known/openwop"
	noop          = "conformance-noop"
	retentionDays = int(trigger.DeadLetterRetention / (24 * time.Hour))
	maxPage       = 100 // of dead letters
)

//go:embed openapi.json
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(openAPI)
}

type object map[string]any

// document is the discovery document and its ETag.
type document struct {
	text []byte
	etag string
}

// discovery says what this host does, and nothing that is not driven for real
// (capabilities.md; RFC 0099 §F.3). webhooks.supported is left out: it claims
// the outbound surface.
func (s *Surface) discovery() document {
	fixtures := []string{}
	if known, err := s.Engine.WorkflowExists(context.Background(), apikey.DefaultTenant, noop); err == nil && known && s.Embedded {
		fixtures = append(fixtures, noop)
	}
	policy := trigger.DefaultPolicy()
	doc := object{
		"protocolVersion":    "1.0",
		"implementation":     object{"name": "tocsin", "version": obs.Version(), "vendor": "tocsin-dev"},
		"supportedEnvelopes": []string{}, "schemaVersions": object{},
		"limits":              object{"clarificationRounds": 0, "schemaRounds": 0, "envelopesPerTurn": 0, "maxRequestBodyBytes": maxRequest},
		"supportedTransports": []string{"rest"},
		"triggerBridge": object{
			"supported":          true,
			"subscriptionStates": []trigger.DeliveryState{trigger.DeliveryActive, trigger.DeliveryPaused, trigger.DeliveryFailed, trigger.DeliveryDeadLettered},
			"dedup":              true,
			"retryPolicy":        object{"maxAttempts": policy.MaxAttempts, "backoff": policy.Backoff},
			"sources":            []trigger.Source{trigger.SourceWebhook, trigger.SourceSchedule},
			"ingestion": object{
				"externalSources": []trigger.Source{trigger.SourceWebhook}, "maxBodyBytes": s.MaxBody, "verification": []string{"webhook-signature"},
				"registrationEndpoint": true, "inboundSigning": []string{"standard-webhooks-1"},
			},
			"deadLetter": object{"retentionDays": retentionDays, "maxPageSize": maxPage},
		},
		"deadLetter": object{"supported": true, "retentionDays": retentionDays},
		"webhooks":   object{"durable": true},
		"scheduling": object{"supported": true, "cron": true, "delayed": true, "calendar": false, "maxFutureHorizon": manager.HorizonText},
	}
	if len(fixtures) > 0 {
		doc["fixtures"] = fixtures
	}
	text, _ := json.Marshal(doc) //nolint:errchkjson // literals
	sum := sha256.Sum256(text)
	return document{text, `"` + hex.EncodeToString(sum[:12]) + `"`}
}

func (s *Surface) serveDiscovery(w http.ResponseWriter, r *http.Request, doc document) {
	header := w.Header()
	header.Set("ETag", doc.etag)
	header.Set("Cache-Control", "public, max-age=300")
	if matches(r.Header.Get("If-None-Match"), doc.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json")
	_, _ = w.Write(doc.text)
}

// matches compares weakly, as If-None-Match does.
func matches(list, etag string) bool {
	for candidate := range strings.SplitSeq(list, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}
