package workerpool_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
)

// BenchmarkPassthrough is the trivial hook on a body of 1 KiB.
func BenchmarkPassthrough(b *testing.B) {
	body := `{"id":"evt_1","type":"order.created","amount":1250,"note":"` + strings.Repeat("x", 950) + `"}`
	benchmarkHook(b, `handleIngest(input) { return [input.raw.body]; }`, hook.Call{
		Input:   json.RawMessage(`{"raw":{"method":"POST","path":"/triggers/webhooks/sub_1","query":{},"headers":{"content-type":"application/json","user-agent":"vendor/1.0"},"body":` + body + `},"params":{},"state":null,"subscriptionId":"sub_1"}`),
		RawBody: []byte(body),
	})
}

// BenchmarkSigned checks an HMAC-SHA256 over a body of 10 KiB with 76 line
// items and adds them up.
func BenchmarkSigned(b *testing.B) {
	items := make([]string, 76)
	for i := range items {
		items[i] = fmt.Sprintf(`{"sku":"item-%04d","quantity":%d,"price":{"amount":%d,"currency":"USD"},"description":"%s"}`, i, i%5+1, 100+i, strings.Repeat("d", 50))
	}
	body := `{"id":"evt_1","type":"order.created","items":[` + strings.Join(items, ",") + `]}`
	mac := hmac.New(sha256.New, []byte("whsec"))
	mac.Write([]byte(body))
	benchmarkHook(b, `async handleIngest(input) {
		const text = new TextEncoder();
		const key = await crypto.subtle.importKey("raw", text.encode(input.params.secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
		const signature = Uint8Array.fromHex(input.raw.headers["x-signature"]);
		if (!(await crypto.subtle.verify("HMAC", key, signature, text.encode(input.raw.rawBody)))) throw new Error("bad signature");
		const order = JSON.parse(input.raw.rawBody);
		return [{ id: order.id, total: order.items.reduce((sum, item) => sum + item.quantity * item.price.amount, 0) }];
	}`, hook.Call{
		Input:   json.RawMessage(`{"raw":{"method":"POST","path":"/p","query":{},"headers":{"x-signature":"` + hex.EncodeToString(mac.Sum(nil)) + `"},"body":` + body + `},"params":{"secret":"whsec"},"state":null,"subscriptionId":"sub_1"}`),
		RawBody: []byte(body),
	})
}

func benchmarkHook(b *testing.B, members string, call hook.Call) {
	b.Helper()
	const workers = 2
	pool := newPool(b, &fakeHost{}, workerpool.Options{Workers: workers})
	for pool.Stats().Workers < workers {
		runtime.Gosched() // New waits for the first only
	}
	call.App = loadHooks(b, pool, "app.bench", members)
	call.Hook = "t/handleIngest"
	for range 2 { // so that the VMs exist
		if _, err := pool.Invoke(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
	pids := workerPIDs(b)
	before := cpuTime(pids)
	b.ReportAllocs()
	b.SetBytes(int64(len(call.RawBody)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := pool.Invoke(context.Background(), call); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(pids)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// cpuTime is what this process and the given ones have used.
func cpuTime(pids []int) time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	total := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		const tick = 10 * time.Millisecond
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		user, _ := strconv.Atoi(after[11])
		system, _ := strconv.Atoi(after[12])
		total += time.Duration(user+system) * tick
	}
	return total
}
