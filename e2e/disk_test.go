package e2e

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// smallDisk mounts a file system of a few MiB that PostgreSQL may write to.
func smallDisk(t *testing.T, size string) (path string, grow func(size string)) {
	t.Helper()
	path, err := os.MkdirTemp("", "tocsin-disk-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	mount := func(args ...string) error {
		return exec.CommandContext(t.Context(), "mount", append(args, "tmpfs", path)...).Run()
	}
	if os.Getuid() != 0 || mount("-t", "tmpfs", "-o", "size="+size) != nil {
		t.Skip("NOT TESTED: a full disk needs a small file system, and none can be mounted here (root, and mount of tmpfs)")
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", path).Run() }) //nolint:noctx // the test's context has ended
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			if err := os.Chown(path, uid, -1); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return path, func(size string) {
		t.Helper()
		if err := mount("-o", "remount,size="+size); err != nil {
			t.Fatalf("make the disk larger: %v", err)
		}
	}
}

// “Any database trouble is 503 with Retry-After, never 2xx, 400 or 404” (DESIGN
// §4.1): also when the disk is full, and what was answered is there.
func TestAFullDiskIs503AndLosesNothing(t *testing.T) {
	t.Parallel()
	disk, grow := smallDisk(t, "24m")
	cluster := rig.StartCluster(t)
	cluster.Exec(t.Context(), "CREATE TABLESPACE small LOCATION '"+disk+"'")
	cluster.Exec(t.Context(), "ALTER TABLE trigger_events SET TABLESPACE small")
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Database: cluster.URL, Env: map[string]string{"ENGINE_URL": engine.URL}})
	id := s.Receiver("wf")
	h := &checker.History{}
	post := func() rig.Answer {
		sent := time.Now()
		answer := s.Post(id, noise(200<<10), "Content-Type", "application/json")
		h.Posts = append(h.Posts, checker.Post{Subscription: id, Sent: sent, Answered: time.Now(), Status: answer.Status, EventIDs: answer.EventIDs})
		return answer
	}
	full := 0
	for n := 0; full < 10 && n < 500; n++ {
		switch answer := post(); {
		case answer.Status == http.StatusOK:
		case answer.Status == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "":
			full++
		default:
			t.Fatalf("a call on a full disk: %d %s", answer.Status, answer.Body)
		}
	}
	if full < 10 {
		t.Fatal("the disk did not fill up: the test proved nothing")
	}
	grow("200m")
	rig.Eventually(t, 20*time.Second, "calls are taken again", func() bool { return post().Status == http.StatusOK })
	rig.Eventually(t, time.Minute, "everything is at its end", func() bool { return s.Open() == 0 })
	if err := rig.ReadHistory(t.Context(), s.Pool, engine.Engine, h); err != nil {
		t.Fatal(err)
	}
	report := checker.Check(h, checker.Rules{})
	for _, v := range report.Violations {
		t.Error(v)
	}
	t.Logf("%d calls, %d answered 503\n%s\n%s", len(h.Posts), full, checker.Header, report.Row())
}

// noise is a JSON text that does not compress well.
func noise(n int) []byte {
	raw := make([]byte, n/2)
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	return bytes.Join([][]byte{[]byte(`{"text":"`), []byte(hex.EncodeToString(raw)), []byte(`"}`)}, nil)
}
