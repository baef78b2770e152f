package workerpool_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

// Not parallel: it looks at all workers of this test binary.
func TestWorkersAreLockedDown(t *testing.T) { //nolint:paralleltest // see above
	newPool(t, &fakeHost{}, workerpool.Options{Workers: 1})
	pids := workerPIDs(t)
	if len(pids) != 1 {
		t.Fatalf("%d workers, want 1", len(pids))
	}
	read := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pids[0], name))
		if err != nil {
			t.Skipf("cannot look into the worker: %v", err)
		}
		return string(text)
	}
	if environment := read("environ"); environment != "TZ=UTC\x00" {
		t.Errorf("the worker has an environment of %d bytes", len(environment))
	}
	limits := read("limits")
	for _, want := range []string{"Max core file size 0 0", "Max file size 0 0", "Max open files 16 16"} {
		if !strings.Contains(strings.Join(strings.Fields(limits), " "), want) {
			t.Errorf("limits lack %q:\n%s", want, limits)
		}
	}
	status := strings.Join(strings.Fields(read("status")), " ")
	if !strings.Contains(status, "NoNewPrivs: 1") {
		t.Error("the worker may gain privileges")
	}
	if os.Geteuid() != 0 {
		return // namespaces depend on the machine then
	}
	for _, want := range []string{"Uid: 65534 65534 65534 65534", "Gid: 65534 65534 65534 65534", "CapEff: 0000000000000000"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q", want)
		}
	}
	own, err := os.Readlink("/proc/self/ns/net")
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pids[0]))
	if err == nil && err2 == nil && own == theirs {
		t.Log("the worker shares our network: namespaces are not allowed here")
	}
}
