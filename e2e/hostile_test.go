package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// hostileHooks are the bodies of hooks that mean harm, by what they do, and the
// codes that may end them; a flood that is merely bounded ends well.
func hostileHooks() map[string]struct {
	body  string
	codes []string
} {
	timeout, memory := []string{"hook_timeout"}, []string{"hook_out_of_memory", "hook_timeout", "hook_crashed", "hook_threw"}
	return map[string]struct {
		body  string
		codes []string
	}{
		"endless-loop":       {`for (;;) {}`, timeout},
		"endless-microtasks": {`return (async () => { for (;;) await null; })();`, timeout},
		"arrays":             {`const a = []; for (;;) a.push(new Array(1e6).fill(1));`, memory},
		"strings":            {`let s = "x"; for (;;) s += s + s.toUpperCase();`, memory},
		"typed-arrays":       {`const a = []; for (;;) a.push(new Uint8Array(1 << 20));`, memory},
		"huge-join":          {`return (new Array(3e8) + "").length;`, memory},
		"deep-json":          {`let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; return [o];`, append(memory, "hook_threw", "hook_returned_invalid")},
		"deep-recursion":     {`const f = () => f() + 1; return [f()];`, []string{"hook_threw"}},
		"regexp":             {`return [/^(a+)+$/.test("a".repeat(40) + "b")];`, timeout},
		"never-settles":      {`return new Promise(() => {});`, []string{"hook_unsettled"}},
		"timer-flood":        {`for (let i = 0; i < 1e6; i++) setTimeout(() => {}, 1e6); return [1];`, []string{"hook_threw"}},
		"fetch-flood":        {`for (let i = 0; i < 1e4; i++) ctx.fetch("https://x.invalid/" + i).catch(() => {}); return [1];`, nil},
		"log-flood":          {`for (let i = 0; i < 1e5; i++) ctx.log("info", "x".repeat(1000)); return [1];`, nil},
		"big-result":         {`return ["x".repeat(100 << 20)];`, []string{"hook_out_of_memory", "hook_too_large", "hook_timeout"}},
		"pollution":          {`try { Object.prototype.evil = 1; } catch {} try { Array.prototype.map = null; } catch {} globalThis.evil = 1; return [1];`, nil},
	}
}

// writeApps writes an app for each hostile hook, which is its handleIngest and
// its parseOutput, and one that means well.
func writeApps(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, hook := range hostileHooks() {
		writeApp(t, root, name, `export default { triggers: [
			{ key: "in", title: "In", handleIngest(input, ctx) { if (input.raw.body.well) return [typeof ({}).evil + typeof globalThis.evil]; `+hook.body+` } },
			{ key: "out", title: "Out", parseOutput(input, ctx) { `+hook.body+` } },
		] };`)
	}
	writeApp(t, root, "good", `export default { triggers: [{ key: "in", title: "In", handleIngest({ raw }) { return [[raw.body].map((n) => typeof ({}).evil + n)[0]]; } }] };`)
	return root
}

// Issue 3, “must show” 3: “The hostile set, each stopped within its limit while
// 100 good calls/s go on, process alive, memory back … parseOutput doing each of
// these.”
func TestHostileHooksAreStoppedWhileGoodCallsGoOn(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	s := rig.Start(t, rig.Options{Apps: writeApps(t), Env: map[string]string{
		"HOOK_TIMEOUT": limit.String(), "HOOK_MEMORY_MB": "32", "ALLOW_PRIVATE_EGRESS": "false", "LOG_LEVEL": "info",
	}})
	good := s.Subscribe("test.good", "in", "wf_good", nil)
	goodCalls(t, s, good, 200, nil) // every VM is warm
	ingest, dispatcher := s.Ingest.PID(), s.Dispatchers[0].PID()
	before := []int{resident(t, ingest), resident(t, dispatcher)}

	stop := make(chan struct{})
	answered := make(chan int, 1)
	started := time.Now()
	go func() { answered <- goodCalls(t, s, good, 0, stop) }()
	hostile := map[string]string{}
	for name := range hostileHooks() {
		hostile[name] = attackIngest(t, s, name, limit)
	}
	for name, event := range attackDispatch(t, s) {
		checkAttack(t, s, name, event)
	}
	close(stop)
	n := <-answered
	rate := float64(n) / time.Since(started).Seconds()
	t.Logf("%d good calls beside %d attacks, %.0f/s", n, 2*len(hostile), rate)
	if rate < 50 { // 100/s were sent; the machine is shared
		t.Errorf("only %.0f good calls/s", rate)
	}

	if s.Ingest.Exited() || s.Dispatchers[0].Exited() || s.Ingest.PID() != ingest {
		t.Fatal("a process has ended")
	}
	rig.Eventually(t, time.Minute, "every good event is dispatched", func() bool {
		return s.Count("SELECT count(*) FROM trigger_queue JOIN subscriptions USING (sid) WHERE workflow_id = 'wf_good'") == 0
	})
	for name, id := range hostile {
		if got := normalized(t, s, s.Post(id, []byte(`{"well":true}`), "Content-Type", "application/json")); got != `"undefinedundefined"` {
			t.Errorf("%s left behind: %s", name, got)
		}
	}
	if got := normalized(t, s, s.Post(good, []byte(`7`), "Content-Type", "application/json")); got != `"undefined7"` {
		t.Errorf("another app sees %s", got)
	}
	const slack = 160 << 20 // each attacked app keeps a VM, of which some are still warm
	rig.Eventually(t, time.Minute, "the memory is back", func() bool {
		return resident(t, ingest) < before[0]+slack && resident(t, dispatcher) < before[1]+slack
	})
	t.Logf("resident MiB before %d, %d; after %d, %d", before[0]>>20, before[1]>>20, resident(t, ingest)>>20, resident(t, dispatcher)>>20)
}

// goodCalls makes n calls, or with n 0 a hundred a second until stop, each of
// which must be answered with its event. It gives how many were.
func goodCalls(t *testing.T, s *rig.System, id string, n int, stop <-chan struct{}) int {
	var answered atomic.Int64
	var wg sync.WaitGroup
	call := func(i int) {
		answer, err := rig.Send(t.Context(), http.MethodPost, s.Callback(id), []byte(strconv.Itoa(i)), "Content-Type", "application/json")
		if err != nil || answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
			t.Errorf("a good call: %d %s %v", answer.Status, answer.Body, err)
			return
		}
		answered.Add(1)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; n == 0 || i < n; i++ {
		select {
		case <-stop:
			wg.Wait()
			return int(answered.Load())
		case <-ticker.C:
		}
		wg.Go(func() { call(i) })
	}
	wg.Wait()
	return int(answered.Load())
}

// attackIngest has a hostile handleIngest run: it is answered within its limit,
// and is one row that says why. It gives the subscription.
func attackIngest(t *testing.T, s *rig.System, name string, limit time.Duration) string {
	t.Helper()
	id := s.Subscribe("test."+name, "in", "wf_bad", nil)
	started := time.Now()
	answer := s.Post(id, []byte(`{}`), "Content-Type", "application/json")
	if took := time.Since(started); answer.Status != http.StatusOK || took > limit+10*time.Second {
		t.Errorf("%s: %d %s after %v", name, answer.Status, answer.Body, took)
	}
	codes := endings(name)
	if len(codes) == 0 {
		return id
	}
	_, list := s.API(http.MethodGet, "/subscriptions/"+id+"/events", nil)
	rows, _ := list["events"].([]any)
	if len(rows) != 1 {
		t.Errorf("%s: %d rows", name, len(rows))
		return id
	}
	row, _ := rows[0].(map[string]any)
	failure, _ := s.Event(fmt.Sprint(row["id"]))["error"].(map[string]any)
	if code := fmt.Sprint(failure["code"]); row["status"] != "failed" || !slices.Contains(codes, code) {
		t.Errorf("%s: %v with %v, want one of %v", name, row["status"], failure, codes)
	}
	return id
}

// endings are the codes that may end a hook; on a machine with much else to do,
// any of them may run out of time first.
func endings(name string) []string {
	codes := hostileHooks()[name].codes
	if len(codes) == 0 {
		return nil
	}
	// The attacks run together, and one may take a worker's memory from another.
	return append(slices.Clip(codes), "hook_timeout", "hook_out_of_memory", "hook_crashed")
}

// attackDispatch gives each app's parseOutput an event.
func attackDispatch(t *testing.T, s *rig.System) map[string]string {
	t.Helper()
	events := map[string]string{}
	for name := range hostileHooks() {
		answer := s.Post(s.Subscribe("test."+name, "out", "wf_bad", nil), []byte(`{}`), "Content-Type", "application/json")
		if len(answer.EventIDs) != 1 {
			t.Fatalf("%s: %d %s", name, answer.Status, answer.Body)
		}
		events[name] = answer.EventIDs[0]
	}
	return events
}

// checkAttack waits for the first attempt, and looks how it ended.
func checkAttack(t *testing.T, s *rig.System, name, event string) {
	t.Helper()
	var outcome map[string]any
	rig.Eventually(t, time.Minute, name+" has had an attempt", func() bool {
		attempts, _ := s.Detail(event)["attempts"].([]any)
		if len(attempts) == 0 {
			return false
		}
		outcome, _ = attempts[0].(map[string]any)
		return true
	})
	failure, _ := outcome["error"].(map[string]any)
	if codes := endings(name); len(codes) > 0 && !slices.Contains(codes, fmt.Sprint(failure["code"])) {
		// A huge join and deep JSON end well when nobody asks for a list.
		if outcome["outcome"] != "delivered" || name != "huge-join" && name != "deep-json" {
			t.Errorf("parseOutput %s: %v, want one of %v", name, outcome, codes)
		}
	}
}

func normalized(t *testing.T, s *rig.System, answer rig.Answer) string {
	t.Helper()
	if len(answer.EventIDs) != 1 {
		return fmt.Sprintf("%d %s", answer.Status, answer.Body)
	}
	text, err := json.Marshal(s.Detail(answer.EventIDs[0])["payload"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// resident is the memory of a process and its hook workers, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	total := rss(strconv.Itoa(pid))
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("there is no /proc to look into")
	}
	for _, entry := range entries {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // no process, or gone
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			total += rss(entry.Name())
		}
	}
	return total
}

func rss(pid string) int {
	text, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}
