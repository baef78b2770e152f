// Command healthcheck asks one URL and ends with 0 if the answer is 200: what a
// container's health check calls in an image that holds nothing else.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: healthcheck URL")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // whoever starts the container names the URL
	if err != nil {
		return fmt.Errorf("read the URL: %w", err)
	}
	answer, err := http.DefaultClient.Do(request) //nolint:gosec // as above
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, answer.Status)
	}
	return nil
}
