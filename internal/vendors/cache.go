package vendors

import (
	"encoding/json"
	"sync"
)

// Cache keeps compiled policies, which triggers share by the thousand. The zero
// Cache is ready; it is safe for concurrent use.
type Cache struct {
	mu       sync.RWMutex
	policies map[declared]compiled
}

type declared struct{ ofTrigger, ofSubscription string }

type compiled struct {
	policy *Policy
	err    error
}

// maxPolicies is far beyond the declarations of any installation; past it the
// Cache begins anew.
const maxPolicies = 4096

// Get is Compile, done once.
func (c *Cache) Get(ofTrigger, ofSubscription json.RawMessage) (*Policy, error) {
	if len(ofTrigger) == 0 && len(ofSubscription) == 0 {
		return nil, nil // most triggers; worth no lock
	}
	key := declared{string(ofTrigger), string(ofSubscription)}
	c.mu.RLock()
	found, ok := c.policies[key]
	c.mu.RUnlock()
	if ok {
		return found.policy, found.err
	}
	found.policy, found.err = Compile(ofTrigger, ofSubscription)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.policies == nil || len(c.policies) >= maxPolicies {
		c.policies = map[declared]compiled{}
	}
	c.policies[key] = found
	return found.policy, found.err
}
