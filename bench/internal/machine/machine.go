// Package machine tells whose CPU time a run took: that of the programs under
// test, and that of everybody else on the machine. It reads /proc, so that on
// other systems than Linux the shares are unknown.
package machine

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MaxOthers is the share of the machine that others may take in a quiet run.
const MaxOthers = 0.12

// tick is what /proc counts in.
const tick = 10 * time.Millisecond

// Usage is what a run took.
type Usage struct {
	Elapsed time.Duration
	CPU     map[string]time.Duration // by part; "bench" is this process
	Others  float64                  // share of all cores that nobody of the parts used; -1 when not known
}

// Measure runs f and says what the given process trees and this process used.
func Measure(parts map[string]int, f func() error) (Usage, error) {
	before, all, began := cpu(parts), busy(), time.Now()
	err := f()
	u := Usage{Elapsed: time.Since(began), CPU: cpu(parts), Others: -1}
	ours := time.Duration(0)
	for name := range u.CPU {
		u.CPU[name] = max(0, u.CPU[name]-before[name])
		ours += u.CPU[name]
	}
	if all >= 0 {
		u.Others = max(0, float64(busy()-all-ours)/float64(u.Elapsed)/float64(runtime.NumCPU()))
	}
	return u, err
}

func cpu(parts map[string]int) map[string]time.Duration {
	used := map[string]time.Duration{"bench": self()}
	stats := processes()
	for name, pid := range parts {
		used[name] += tree(stats, pid)
	}
	return used
}

func self() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type process struct {
	parent int
	used   time.Duration // with that of children that have ended
}

func processes() map[int]process {
	list := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the first is the state
		if len(fields) < 15 {
			continue
		}
		p := process{}
		p.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] {
			n, _ := strconv.Atoi(field)
			p.used += time.Duration(n) * tick
		}
		list[pid] = p
	}
	return list
}

// tree sums a process and all below it.
func tree(list map[int]process, root int) time.Duration {
	sum := list[root].used
	for pid, p := range list {
		if p.parent == root {
			sum += tree(list, pid)
		}
	}
	return sum
}

// busy is what the whole machine has worked, stolen time included; -1 when not
// known.
func busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return -1
	}
	line, _, _ := strings.Cut(string(text), "\n")
	sum := time.Duration(0)
	for i, field := range strings.Fields(line) {
		if n, err := strconv.Atoi(field); err == nil && i <= 8 && i != 4 && i != 5 { // not idle, not iowait
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// WaitQuiet waits until the machine is mostly idle, but no longer than limit.
func WaitQuiet(limit time.Duration) {
	const look = 300 * time.Millisecond
	for end := time.Now().Add(limit); time.Now().Before(end); {
		before := busy()
		time.Sleep(look)
		if before < 0 || float64(busy()-before) < MaxOthers*float64(look)*float64(runtime.NumCPU()) {
			return
		}
	}
}

// RSS is what a process has resident, in MiB, and the most that it had; without
// its children.
func RSS(pid int) (now, peak float64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak
}

// Model names the CPU and says how much memory there is.
func Model() string {
	model := runtime.GOARCH
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return model
}
