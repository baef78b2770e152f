// Package archtest is the dependency diagram of docs/architecture.md as a test:
// it lists every package of the workspace and refuses an import that no arrow
// of the diagram allows.
package archtest

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/tocsin-dev/tocsin/"

// mayImport says, for a folder and everything below it, which folders of this
// repository its packages may import. The longest entry that fits a package
// counts; a folder may always import itself.
var mayImport = map[string][]string{
	// Nouns and mechanisms that know nothing of the rest.
	"db":                   {},
	"deploy/healthcheck":   {},
	"internal/archtest":    {},
	"internal/ident":       {},
	"internal/jsonpointer": {},
	"internal/obs":         {},
	"internal/schedule":    {},
	"internal/secret":      {},
	"internal/trigger":     {},

	// Rules. None of them knows how anything is stored, sent or received.
	"internal/apikey":      {"internal/secret"},
	"internal/config":      {"internal/secret"},
	"internal/connection":  {"internal/hook", "internal/ident", "internal/trigger"},
	"internal/dedup":       {"internal/jsonpointer", "internal/trigger"},
	"internal/explain":     {"internal/trigger"},
	"internal/handshake":   {"internal/jsonpointer", "internal/secret", "internal/trigger", "internal/verify"},
	"internal/manager":     {"internal/handshake", "internal/hook", "internal/params", "internal/schedule", "internal/secret", "internal/trigger", "internal/triggercall", "internal/vendors", "internal/verify"},
	"internal/params":      {"internal/trigger"},
	"internal/registry":    {"internal/hook", "internal/obs", "internal/params", "internal/trigger", "internal/vendors"},
	"internal/triggercall": {"internal/trigger"},
	"internal/vendors":     {"internal/dedup", "internal/handshake", "internal/jsonpointer", "internal/secret", "internal/trigger", "internal/verify"},
	"internal/verify":      {"internal/jsonpointer", "internal/secret", "internal/trigger"},

	// The outside world: hooks, what they fetch, engines, and the API seen from outside.
	"internal/apiclient": {"internal/secret", "internal/trigger"},
	"internal/egress":    {"internal/hook"},
	"internal/engine":    {"internal/egress", "internal/ident", "internal/trigger"},
	"internal/hook":      {},

	// PostgreSQL.
	"internal/bell":  {"db", "internal/obs"},
	"internal/store": {"db", "internal/apikey", "internal/ident", "internal/secret", "internal/trigger"},

	// Programs: main joins what it needs, what it joins knows the domain alone. Ingest and dispatcher
	// never import each other.
	"cmd/tocsin":                   {"db", "internal"},
	"e2e":                          {"db", "internal"},
	"examples":                     {"internal"},
	"services/dispatcher":          {"db", "internal"},
	"services/dispatcher/internal": {"internal/config", "internal/engine", "internal/ident", "internal/obs", "internal/secret", "internal/trigger"},
	"services/ingest":              {"db", "internal"},
	"services/ingest/internal": {
		"internal/apikey", "internal/config", "internal/explain", "internal/manager", "internal/obs", "internal/params",
		"internal/secret", "internal/trigger", "internal/triggercall",
	},
	"services/ingest/internal/openwop": {
		"internal/apikey", "internal/engine", "internal/ident", "internal/manager", "internal/obs", "internal/secret", "internal/trigger",
		"internal/verify",
	},
}

// onlyIn says which folders may import a library, by the prefix of its path.
var onlyIn = map[string][]string{
	"github.com/labstack/echo":              {"services/ingest"},
	"github.com/netresearch/go-cron":        {"internal/schedule"},
	"github.com/jackc/pgx":                  {"internal/store", "internal/bell", "db", "e2e"},
	"github.com/golang-migrate":             {"internal/store", "db"},
	"github.com/stretchr/testify":           {},
	module + "internal/store/storetest":     {"internal/store/storetest", "e2e"},
	module + "internal/manager/managertest": {},
	module + "internal/engine/enginetest":   {},
}

func TestDependenciesPointOneWay(t *testing.T) {
	t.Parallel()

	command := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "work")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("list the workspace's packages: %v\n%s", err, stderr.String())
	}
	for _, problem := range violations(string(output)) {
		t.Error(problem)
	}
}

func TestAForbiddenImportIsNoticed(t *testing.T) {
	t.Parallel()

	got := violations(strings.ReplaceAll(`
M/internal/manager M/internal/store errors
M/internal/store/pgx M/internal/trigger github.com/jackc/pgx/v5
M/internal/obs github.com/jackc/pgx/v5/pgxpool
M/services/ingest M/services/dispatcher/internal/dispatch
M/internal/novelty`, "M/", module))
	want := []string{
		"internal/manager imports internal/store; internal/manager may import only " +
			"[internal/handshake internal/hook internal/params internal/schedule internal/secret internal/trigger internal/triggercall internal/vendors internal/verify]",
		"internal/obs imports github.com/jackc/pgx/v5/pgxpool; only [internal/store internal/bell db e2e] may import github.com/jackc/pgx",
		"services/ingest imports services/dispatcher/internal/dispatch; services/ingest may import only [db internal]",
		"internal/novelty has no rule; say in internal/archtest what it may import",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// violations reads lines of "package import import …" and says in a sentence
// what each forbidden import breaks.
func violations(list string) []string {
	var problems []string
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		pkg := strings.TrimPrefix(words[0], module)
		folder, known := folderOf(pkg)
		if !known {
			problems = append(problems, pkg+" has no rule; say in internal/archtest what it may import")
			continue
		}
		for _, path := range words[1:] {
			for library, allowed := range onlyIn {
				if strings.HasPrefix(path, library) && !within(pkg, allowed) {
					problems = append(problems, fmt.Sprintf("%s imports %s; only %v may import %s", pkg, path, allowed, library))
				}
			}
			local, ours := strings.CutPrefix(path, module)
			if ours && !within(local, append(slices.Clip(mayImport[folder]), folder)) {
				problems = append(problems, fmt.Sprintf("%s imports %s; %s may import only %v", pkg, local, folder, mayImport[folder]))
			}
		}
	}
	return problems
}

// folderOf gives the longest entry of mayImport that holds pkg.
func folderOf(pkg string) (string, bool) {
	for folder := pkg; folder != ""; {
		if _, ok := mayImport[folder]; ok {
			return folder, true
		}
		folder = folder[:max(strings.LastIndexByte(folder, '/'), 0)]
	}
	return "", false
}

// within says whether path is one of the folders or lies below one.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}
