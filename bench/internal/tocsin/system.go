// Package tocsin runs what is measured: the real binaries as processes, and the
// ledger in this process.
package tocsin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// App is the app of bench/apps.
const App = "io.tocsin.bench.calls"

const bootstrapKey = "bench-bootstrap-key-of-a-private-run"

// System is Tocsin on one database.
type System struct {
	Ingest      *Process
	Dispatchers []*Process
	PublicURL   string

	binaries Binaries
	root     string
	dir      string
	env      map[string]string
	names    atomic.Int64
}

// New sets a system up; nothing runs yet. env is added to every process.
func New(root, dir, database string, binaries Binaries, env map[string]string) *System {
	s := &System{binaries: binaries, root: root, dir: dir, env: map[string]string{
		"DATABASE_URL": database, "APPS_DIR": filepath.Join(root, "bench", "apps"), "TOCSIN_DEV": "1", "BOOTSTRAP_API_KEY": bootstrapKey,
		"ALLOW_PRIVATE_EGRESS": "true", "SHUTDOWN_GRACE": "3s",
	}}
	maps.Copy(s.env, env)
	return s
}

func (s *System) log(name string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d.log", name, os.Getpid(), s.names.Add(1)))
}

// StartIngest starts ingest.
func (s *System) StartIngest(ctx context.Context) error {
	public, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	api, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	s.PublicURL = "http://" + public
	env := maps.Clone(s.env)
	env["INGEST_ADDR"], env["API_ADDR"], env["HOST_URL"] = public, api, s.PublicURL
	if s.Ingest, err = start(ctx, s.binaries.Ingest, "http://"+api, s.log("ingest"), env); err != nil {
		return err
	}
	return s.Ingest.ready(ctx)
}

// StartDispatcher adds a dispatcher.
func (s *System) StartDispatcher(ctx context.Context) (*Process, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(s.env)
	env["DISPATCHER_ADDR"] = addr
	p, err := start(ctx, s.binaries.Dispatcher, "http://"+addr, s.log("dispatcher"), env)
	if err != nil {
		return nil, err
	}
	s.Dispatchers = append(s.Dispatchers, p)
	return p, p.ready(ctx)
}

// Stop ends everything.
func (s *System) Stop() {
	if s.Ingest != nil {
		s.Ingest.Stop()
	}
	for _, p := range s.Dispatchers {
		p.Stop()
	}
}

// Parts are the processes, for machine.Measure.
func (s *System) Parts(postgres int) map[string]int {
	parts := map[string]int{"postgres": postgres}
	if s.Ingest != nil {
		parts["ingest"] = s.Ingest.PID()
	}
	for i, p := range s.Dispatchers {
		name := "dispatcher"
		if i > 0 {
			name = fmt.Sprintf("dispatcher %d", i+1)
		}
		parts[name] = p.PID()
	}
	return parts
}

// Delivered counts the runs that the dispatchers have started.
func (s *System) Delivered(ctx context.Context) float64 {
	sum := 0.0
	for _, p := range s.Dispatchers {
		sum += p.Metric(ctx, "tocsin_dispatch_attempts_total", `outcome="delivered"`)
	}
	return sum
}

// Subscribe asks the management API for a subscription of the bench app and
// gives its callback URL.
func (s *System) Subscribe(ctx context.Context, trigger string, params map[string]any) (string, error) {
	if params == nil {
		params = map[string]any{}
	}
	body, err := json.Marshal(map[string]any{"workflowId": "wf_bench", "params": params})
	if err != nil {
		return "", err
	}
	url := s.Ingest.URL + "/apps/" + App + "/triggers/" + trigger + "/subscriptions"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+bootstrapKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		CallbackURL  string `json:"callbackUrl"`
		Subscription struct {
			ID string `json:"id"`
		} `json:"subscription"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Subscription.ID == "" {
		return "", fmt.Errorf("subscribe: %d %.300s", response.StatusCode, text)
	}
	return s.PublicURL + "/triggers/webhooks/" + answer.Subscription.ID, nil
}

// SaveProfiles fetches profiles of a process into files that start with prefix.
func SaveProfiles(ctx context.Context, p *Process, prefix string, cpu time.Duration) error {
	for _, kind := range []string{fmt.Sprintf("profile?seconds=%d", max(1, int(cpu.Seconds()))), "heap", "block", "mutex"} {
		status, body := get(ctx, p.Profile+"/debug/pprof/"+kind)
		if status != http.StatusOK {
			return fmt.Errorf("profile %s: %d", kind, status)
		}
		name, _, _ := strings.Cut(kind, "?")
		if name == "profile" {
			name = "cpu"
		}
		if err := os.WriteFile(prefix+"-"+name+".pprof", body, 0o600); err != nil {
			return err
		}
	}
	return nil
}
