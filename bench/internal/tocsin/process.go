package tocsin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Binaries are the built programs.
type Binaries struct{ Ingest, Dispatcher string }

// Build builds the programs into dir. With profile they also serve net/http/pprof
// on PROFILE_ADDR: that file is laid over their source for this build only.
func Build(ctx context.Context, root, dir string, profile bool) (Binaries, error) {
	args := []string{"build", "-trimpath", "-o", dir + "/"}
	if profile {
		overlay := filepath.Join(dir, "overlay.json")
		source := filepath.Join(root, "bench", "internal", "tocsin", "testdata", "profile.go.txt")
		text := fmt.Sprintf(`{"Replace":{%q:%q,%q:%q}}`, filepath.Join(root, "services", "ingest", "zz_profile.go"), source,
			filepath.Join(root, "services", "dispatcher", "zz_profile.go"), source)
		if err := os.WriteFile(overlay, []byte(text), 0o600); err != nil {
			return Binaries{}, err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./services/ingest", "./services/dispatcher")...)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOWORK=") })
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	return Binaries{filepath.Join(dir, "ingest"), filepath.Join(dir, "dispatcher")}, nil
}

// Process is one running program.
type Process struct {
	URL     string // where /readyz and /metrics are
	Profile string // where pprof is, in a profile build
	log     string
	cmd     *exec.Cmd
	done    chan struct{}
}

func start(ctx context.Context, binary, url, log string, env map[string]string) (*Process, error) {
	profile, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	p := &Process{URL: url, Profile: "http://" + profile, log: log, cmd: exec.CommandContext(ctx, binary), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "PROFILE_ADDR=" + profile}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	return p, nil
}

// ready waits until the process says that it is.
func (p *Process) ready(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if status, _ := get(ctx, p.URL+"/readyz"); status == http.StatusOK {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", filepath.Base(p.cmd.Path), p.tail())
		default:
		}
	}
	return fmt.Errorf("%s does not become ready: %s", filepath.Base(p.cmd.Path), p.tail())
}

func (p *Process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2000):])
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the process and waits.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = os.Remove(p.log)
}

// Metric sums a metric's samples; filter is a part of the labels, or "".
func (p *Process) Metric(ctx context.Context, name, filter string) float64 {
	_, text := get(ctx, p.URL+"/metrics")
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !strings.Contains(rest, filter) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err == nil {
			sum += value
		}
	}
	return sum
}

var client = &http.Client{Timeout: 30 * time.Second}

func get(ctx context.Context, url string) (int, []byte) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, body
}

func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = socket.Close() }()
	return socket.Addr().String(), nil
}
