package workerpool

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user without rights.
const nobody = 65534

// selfPath is the running binary, even after its file was replaced.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// isolation is one way to start a worker.
type isolation struct {
	name       string
	attributes *syscall.SysProcAttr
}

// isolations lists the ways to start a worker, strictest first. Containers
// often forbid the first two.
func isolations() []isolation {
	const spaces = unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWUTS
	plain := isolation{name: "limits", attributes: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if os.Geteuid() != 0 {
		return []isolation{{
			name: "user namespace",
			attributes: &syscall.SysProcAttr{
				Pdeathsig: syscall.SIGKILL, Cloneflags: spaces | unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}},
			},
		}, plain}
	}
	credential := &syscall.Credential{Uid: nobody, Gid: nobody}
	return []isolation{
		{name: "namespaces", attributes: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: spaces, Credential: credential}},
		{name: "nobody", attributes: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: credential}},
		plain,
	}
}

type resourceLimit struct {
	resource int
	value    uint64
}

// limitProcess gives up what a worker does not need. It runs in the worker.
func limitProcess(c config) error {
	limits := []resourceLimit{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 16},
	}
	if limitData {
		limits = append(limits, resourceLimit{unix.RLIMIT_DATA, uint64(c.dataLimit)})
	}
	for _, l := range limits {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.resource, err)
		}
	}
	return nil
}

// forbidPrivileges makes what the calling thread starts unable to gain rights
// by running a set-user-id program. The thread itself stays so.
func forbidPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return nil
}

// residentBytes is the most memory this process ever had resident.
func residentBytes() int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Maxrss << 10
}
