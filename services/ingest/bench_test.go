package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkCalls is a vendor's view: signed-looking calls of 1 KiB to a trigger
// without hooks, over HTTP, each answered after its commit. The callers share
// the machine with the service and PostgreSQL.
func BenchmarkCalls(b *testing.B) {
	for _, connections := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			s := startIngest(b)
			url := s.public + "/triggers/webhooks/" + s.subscribe(receiver, "call", "{}")
			body := []byte(`{"text":"` + strings.Repeat("0123456789", 100) + `"}`)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
			next := make(chan struct{})
			b.ResetTimer()
			done := make(chan error, connections)
			for range connections {
				go func() { done <- callUntilClosed(b, client, url, body, next) }()
			}
			for range b.N {
				next <- struct{}{}
			}
			close(next)
			for range connections {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

func callUntilClosed(b *testing.B, client *http.Client, url string, body []byte, next <-chan struct{}) error {
	b.Helper()
	for range next {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
		request.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("answered with %d", response.StatusCode)
		}
	}
	return nil
}
