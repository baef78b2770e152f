package openwop

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// handler answers a request of somebody known; its error becomes the answer.
type handler func(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error

// behindKey lets keys with the scope in. The key is looked at before anything
// else, so that nobody without one learns what exists.
func (s *Surface) behindKey(scope apikey.Scope, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.authenticate(r, scope)
		if err == nil {
			err = handle(w, r, who)
		}
		if err != nil {
			s.answerError(w, r, err)
		}
	})
}

func (s *Surface) authenticate(r *http.Request, scope apikey.Scope) (*apikey.Principal, error) {
	unauthenticated := &problem{http.StatusUnauthorized, "unauthenticated", "a valid key is needed: Authorization: Bearer tk_…", nil}
	scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if key = strings.TrimSpace(key); !ok || key == "" || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthenticated
	}
	who, err := s.Keys.Authenticate(r.Context(), secret.Text(key))
	switch {
	case errors.Is(err, apikey.ErrUnknownKey):
		return nil, unauthenticated
	case err != nil:
		return nil, err
	case !who.May(scope):
		return nil, &problem{http.StatusForbidden, "forbidden", "the key lacks a scope", map[string]any{"scopeRequired": string(scope)}}
	}
	return who, nil
}

const (
	maxRequest = 1 << 20
	maxName    = 256
)

// plain says whether a text can be a name of anything.
func plain(text string) bool {
	return text != "" && len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func subscriptionID(r *http.Request) (trigger.SubscriptionID, error) {
	id := r.PathValue("id")
	if !plain(id) {
		return "", notFound()
	}
	return trigger.SubscriptionID(id), nil
}

// readObject reads the body, one JSON object with members of the list alone:
// records are closed.
func readObject(w http.ResponseWriter, r *http.Request, members ...string) (map[string]json.RawMessage, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return nil, err
	}
	return parseObject(raw, "the body", members...)
}

func parseObject(raw []byte, what string, members ...string) (map[string]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	var object map[string]json.RawMessage
	if len(raw) == 0 || raw[0] != '{' || !utf8.Valid(raw) || json.Unmarshal(raw, &object) != nil {
		return nil, invalid(what + " must be a JSON object in UTF-8")
	}
	for name := range object {
		if !slices.Contains(members, name) {
			return nil, invalid(what + " has a member that is not known; it may have: " + strings.Join(members, ", "))
		}
	}
	return object, nil
}

// text reads a member that must be a string; the default when it is absent.
func text(object map[string]json.RawMessage, name, absent string) (string, error) {
	raw, ok := object[name]
	if !ok {
		return absent, nil
	}
	var value *string
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return "", invalid(name + " must be a string")
	}
	return *value, nil
}
