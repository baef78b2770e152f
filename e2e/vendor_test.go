package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// vendor is the box office and the counter that the apps of these tests call.
type vendor struct {
	url string

	mu       sync.Mutex
	token    string            // the access token that is good now
	tokens   int               // handed out by /token
	webhooks map[string]string // url by id
	made     int
	orders   map[string]map[string]any
	onDelete func(w http.ResponseWriter, r *http.Request) // nil: the webhook goes
	onPoll   func(w http.ResponseWriter, r *http.Request) // nil: 200
	requests []string                                     // "method path", with "unsigned " in front where that is so
	polls    []pollSeen
	running  int // checks at this moment
}

type pollSeen struct {
	name, cursor string
	at           time.Time
	overlaps     bool
}

func startVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{token: "CANARY-access-1", webhooks: map[string]string{}, orders: map[string]map[string]any{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /poll/{name}", v.poll)
	mux.HandleFunc("POST /token", v.refresh)
	mux.HandleFunc("/", v.api)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	v.url = server.URL
	return v
}

func (v *vendor) refresh(w http.ResponseWriter, r *http.Request) {
	var body struct{ RefreshToken string }
	_ = json.NewDecoder(r.Body).Decode(&body) // a body that is none has no token either
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, "POST /token")
	if body.RefreshToken != "CANARY-refresh" || r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	v.tokens++
	v.token = fmt.Sprintf("CANARY-access-%d", v.tokens+1)
	reply(w, http.StatusOK, map[string]any{"accessToken": v.token, "refreshToken": "CANARY-refresh", "expiresAt": time.Now().Add(time.Hour).UTC()})
}

func (v *vendor) api(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	signed := r.Header.Get("Authorization") == "Bearer "+v.token
	line := r.Method + " " + r.URL.Path
	if !signed {
		line = "unsigned " + line
	}
	v.requests = append(v.requests, line)
	onDelete := v.onDelete
	v.mu.Unlock()
	if !signed {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodDelete && onDelete != nil {
		onDelete(w, r)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch r.Method + " " + kind {
	case "GET webhooks":
		list := []map[string]string{}
		for id, url := range v.webhooks {
			list = append(list, map[string]string{"id": id, "url": url})
		}
		reply(w, http.StatusOK, map[string]any{"webhooks": list})
	case "POST webhooks":
		var body struct{ URL string }
		_ = json.NewDecoder(r.Body).Decode(&body) // the test looks at what was registered
		v.made++
		id = fmt.Sprintf("wh_%d", v.made)
		v.webhooks[id] = body.URL
		reply(w, http.StatusCreated, map[string]string{"id": id})
	case "DELETE webhooks":
		if v.webhooks[id] == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		delete(v.webhooks, id)
		w.WriteHeader(http.StatusNoContent)
	case "GET orders":
		if v.orders[id] == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		reply(w, http.StatusOK, v.orders[id])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (v *vendor) poll(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.polls = append(v.polls, pollSeen{r.PathValue("name"), r.URL.Query().Get("cursor"), time.Now(), v.running > 0})
	v.running++
	onPoll := v.onPoll
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.running--
	}()
	if onPoll != nil {
		onPoll(w, r)
	}
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the app may be gone
}

func (v *vendor) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func (v *vendor) seen() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.requests...)
}

func (v *vendor) registered() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.webhooks)
}

func (v *vendor) checks() []pollSeen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]pollSeen(nil), v.polls...)
}

const boxOffice = "io.tocsin.example.boxoffice"

// connect puts a connection of the box office.
func (v *vendor) connect(t *testing.T, s *rig.System, id string, more map[string]any) {
	t.Helper()
	v.mu.Lock()
	token := v.token
	v.mu.Unlock()
	body := map[string]any{
		"app": boxOffice, "auth": "token", "display": map[string]string{"baseUrl": v.url},
		"credential": map[string]string{"accessToken": token, "refreshToken": "CANARY-refresh"},
	}
	maps.Copy(body, more)
	if status, answer := s.API(http.MethodPut, "/connections/"+id, body); status != http.StatusCreated && status != http.StatusOK {
		t.Fatalf("put connection: %d %v", status, answer)
	}
}

// subscribeSold asks for a subscription with a connection.
func subscribeSold(s *rig.System, workflow, connection string) (int, map[string]any) {
	return s.API(http.MethodPost, "/apps/"+boxOffice+"/triggers/sold/subscriptions", map[string]any{"workflowId": workflow, "connectionId": connection})
}

func idOf(t *testing.T, status int, answer map[string]any) string {
	t.Helper()
	subscription, _ := answer["subscription"].(map[string]any)
	id, _ := subscription["id"].(string)
	if status != http.StatusCreated || id == "" {
		t.Fatalf("subscribe: %d %v", status, answer)
	}
	return id
}

func codeOf(answer map[string]any) string {
	failure, _ := answer["error"].(map[string]any)
	code, _ := failure["code"].(string)
	return code
}

// tells fails the test for every log line with a secret in it.
func tells(t *testing.T, secret string, processes ...*rig.Process) {
	t.Helper()
	for _, p := range processes {
		for _, line := range p.Lines() {
			if strings.Contains(line, secret) {
				t.Errorf("%s logged a secret: %s", p.Name, cut(line))
			}
		}
	}
}
