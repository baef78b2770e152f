package api

import (
	"errors"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/secret"
)

var (
	errUnauthorized = errors.New("a valid key is needed: Authorization: Bearer tk_…")
	errForbidden    = errors.New("the key lacks the scope")
)

// behindKey lets a route be used by keys that have its scope. The key is looked
// at before anything else, so that nobody without one learns what exists.
func (a *API) behindKey(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		key, ok := bearer(c.Request().Header.Get("Authorization"))
		if !ok {
			return errUnauthorized
		}
		who, err := a.Keys.Authenticate(c.Request().Context(), key)
		if errors.Is(err, apikey.ErrUnknownKey) {
			return errUnauthorized
		}
		if err != nil {
			return err
		}
		if !who.May(r.scope) {
			return &scopeError{r.scope}
		}
		return r.handle(c, who)
	}
}

func bearer(header string) (secret.Text, bool) {
	scheme, key, ok := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	return secret.Text(key), ok && key != "" && strings.EqualFold(scheme, "Bearer")
}

type scopeError struct{ scope apikey.Scope }

func (e *scopeError) Error() string { return errForbidden.Error() + " " + string(e.scope) }

func (*scopeError) Unwrap() error { return errForbidden }
