package registry_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-dev/tocsin/internal/registry"
)

// Issue 3: “Reload without restart (tocsin apps reload, and on SIGHUP)”. A
// request that any process took reaches this one.
func TestARequestAndASignalEachReloadOnce(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	app(t, filepath.Join(root, "a"), "package.json", withID("a"), "index.ts", described(`{"triggers":[{"key":"t"}]}`, "t/handleIngest"))
	synctest.Test(t, func(t *testing.T) {
		said := &states{asked: 3} // by processes that are long gone
		code := &fakeCode{}
		r := registry.New(registry.Config{Dir: root, Bundler: code, Runtime: code, States: said})
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signals := make(chan os.Signal)
		go func() { _ = r.Run(ctx, time.Second) }()
		go func() { _ = r.ReloadOn(ctx, signals) }()
		loads := func() int { said.mu.Lock(); defer said.mu.Unlock(); return said.mirrors }

		time.Sleep(5 * time.Second) // the bubble's clock
		synctest.Wait()
		if n := loads(); n != 1 {
			t.Errorf("%d loads without any new request, want the first", n)
		}
		said.mu.Lock()
		said.asked++
		said.mu.Unlock()
		time.Sleep(5 * time.Second) // the bubble's clock
		synctest.Wait()
		if n := loads(); n != 2 {
			t.Errorf("%d loads after a request, want 2", n)
		}
		signals <- syscall.SIGHUP
		synctest.Wait()
		if n := loads(); n != 3 {
			t.Errorf("%d loads after a SIGHUP, want 3", n)
		}
	})
}
