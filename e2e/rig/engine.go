package rig

import (
	"net/http/httptest"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// Engine is a scriptable engine on loopback; its URL is an ENGINE_URL.
type Engine struct {
	*fakeengine.Engine
	URL string
}

// StartEngine starts an engine that answers ok until it is told otherwise.
func StartEngine(t testing.TB) *Engine {
	t.Helper()
	engine := fakeengine.New(nil)
	server := httptest.NewServer(engine)
	t.Cleanup(func() {
		server.CloseClientConnections() // a start that hangs would hold Close up
		server.Close()
	})
	return &Engine{Engine: engine, URL: server.URL}
}
