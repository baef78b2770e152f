package registry

import (
	"context"
	"sync"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// tenancy knows which tenants the runtime has which code for. The runtime
// keeps tenants apart by treating the same code under two tenants as two apps.
type tenancy struct {
	runtime Runtime
	mu      sync.Mutex
	codes   map[hook.AppRef]*code // by ref without tenant
}

// code is one bundle in use.
type code struct {
	bundle  hook.Bundle
	mu      sync.Mutex // held while a tenant's copy is loaded
	tenants map[string]bool
}

func newTenancy(runtime Runtime) *tenancy {
	return &tenancy{runtime: runtime, codes: map[hook.AppRef]*code{}}
}

// keep remembers what was loaded, for the tenants that will call it. The same
// code may come with another allow-list, so tenants load it anew.
func (t *tenancy) keep(ref hook.AppRef, bundle hook.Bundle) {
	t.mu.Lock()
	before := t.codes[ref]
	t.codes[ref] = &code{bundle: bundle, tenants: map[string]bool{}}
	t.mu.Unlock()
	t.unloadTenants(ref, before)
}

// forget has the runtime drop a bundle for everyone.
func (t *tenancy) forget(ref hook.AppRef) {
	t.mu.Lock()
	c := t.codes[ref]
	delete(t.codes, ref)
	t.mu.Unlock()
	t.runtime.Unload(ref)
	t.unloadTenants(ref, c)
}

func (t *tenancy) unloadTenants(ref hook.AppRef, c *code) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for tenant := range c.tenants {
		t.runtime.Unload(hook.AppRef{ID: ref.ID, Version: ref.Version, Tenant: tenant})
	}
}

// invoke runs a hook, and makes the code known to its tenant first if need be.
func (t *tenancy) invoke(ctx context.Context, call hook.Call) (hook.Result, error) {
	result, err := t.runtime.Invoke(ctx, call)
	if hook.CodeOf(err) != hook.CodeUnknownApp || call.App.Tenant == "" {
		return result, err
	}
	known, loadErr := t.load(ctx, call.App)
	if loadErr != nil {
		return hook.Result{}, loadErr
	}
	if !known {
		return result, err
	}
	return t.runtime.Invoke(ctx, call)
}

// load loads the code for a tenant; false when the code is not in use.
func (t *tenancy) load(ctx context.Context, ref hook.AppRef) (bool, error) {
	t.mu.Lock()
	c := t.codes[hook.AppRef{ID: ref.ID, Version: ref.Version}]
	t.mu.Unlock()
	if c == nil {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenants[ref.Tenant] {
		return true, nil // another call was first
	}
	if _, err := t.runtime.Load(ctx, ref, c.bundle); err != nil {
		return false, err
	}
	c.tenants[ref.Tenant] = true
	return true, nil
}
