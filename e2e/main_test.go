// Package e2e starts the real binaries on a real PostgreSQL and speaks HTTP to
// them, as vendors, engines and operators do.
package e2e

import (
	"os"
	"testing"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Cleanup()
	os.Exit(code)
}
