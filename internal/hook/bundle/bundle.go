// Package bundle makes one import-free script of an app: a directory of
// TypeScript, or the single module of a built artifact. It reads only the
// app's own directory, and runs nothing.
package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// Error is why an app cannot be bundled: one problem per cause, with the
// author's own file and line where there is one.
type Error struct{ Problems []Problem }

// Problem is one cause. Line and Column count from 1; both are 0 when the
// problem has no place.
type Problem struct {
	File    string // relative to the app's directory
	Line    int
	Column  int
	Message string
}

func (p Problem) String() string {
	if p.File == "" {
		return p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "bundle app: " + strings.Join(lines, "; ")
}

const (
	defaultEntry = "./index.ts"
	// startFile is the name of the generated module that imports all others.
	startFile = "bundle.js"
)

// target is what the engine understands.
const target = api.ES2022

// Dir bundles the app in directory dir. Its package.json names the entry
// module (w6w.entry, else main, else ./index.ts) and the hosts it may reach
// (w6w.network.allow). modules are further entry paths as path-string hooks
// write them ("./triggers/x/handleIngest.ts"): see PathHooks.
func Dir(dir string, modules ...string) (hook.Bundle, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return hook.Bundle{}, fmt.Errorf("find app directory: %w", err)
	}
	manifest, err := readManifest(root)
	if err != nil {
		return hook.Bundle{}, err
	}
	return build(resolver{root: root}, manifest.entry(), manifest.W6w.Network.Allow, modules)
}

// Artifact bundles the module of a built artifact: import-free ES module
// text. allow is its egress allow-list, which is in the manifest beside it.
func Artifact(module []byte, allow []string) (hook.Bundle, error) {
	return build(resolver{module: module}, artifactFile, allow, nil)
}

// PathHooks lists the modules that an app's definition names in place of
// functions, for Dir to bundle too.
func PathHooks(definition json.RawMessage) ([]string, error) {
	var app struct {
		Triggers []map[string]any `json:"triggers"`
	}
	if err := json.Unmarshal(definition, &app); err != nil {
		return nil, fmt.Errorf("read the app's triggers: %w", err)
	}
	var paths []string
	for _, trigger := range app.Triggers {
		for _, kind := range hook.Kinds() {
			if p, ok := trigger[kind].(string); ok && isRelative(p) {
				paths = append(paths, p)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

type manifest struct {
	Main string `json:"main"`
	W6w  struct {
		Entry   string `json:"entry"`
		Network struct {
			Allow []string `json:"allow"`
		} `json:"network"`
	} `json:"w6w"`
}

func readManifest(root string) (manifest, error) {
	var m manifest
	text, err := os.ReadFile(filepath.Join(root, "package.json")) //nolint:gosec // the operator chose root
	if errors.Is(err, fs.ErrNotExist) {
		return m, &Error{Problems: []Problem{{Message: "the app has no package.json"}}}
	}
	if err != nil {
		return m, fmt.Errorf("read package.json: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		line, column := placeOf(text, err)
		return m, &Error{Problems: []Problem{{File: "package.json", Line: line, Column: column, Message: err.Error()}}}
	}
	return m, nil
}

func placeOf(text []byte, err error) (line, column int) {
	var offset int64
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	before := string(text[:min(int(offset), len(text))])
	return 1 + strings.Count(before, "\n"), max(1, len(before)-strings.LastIndex(before, "\n")-1)
}

// entry is the entry module as a path that starts with "./".
func (m manifest) entry() string {
	for _, name := range []string{m.W6w.Entry, m.Main} {
		if name != "" {
			if isRelative(name) {
				return name
			}
			return "./" + name
		}
	}
	return defaultEntry
}

func build(r resolver, entry string, allow, modules []string) (hook.Bundle, error) {
	r.modules = append([]string{entry}, modules...)
	result := api.Build(api.BuildOptions{
		Stdin:         &api.StdinOptions{Contents: exportsOf(entry, modules), Sourcefile: startFile, ResolveDir: r.root, Loader: api.LoaderJS},
		AbsWorkingDir: r.root,
		Bundle:        true,
		Format:        api.FormatIIFE,
		GlobalName:    hook.BundleGlobal,
		Target:        target,
		Platform:      api.PlatformNeutral,
		TreeShaking:   api.TreeShakingTrue,
		Charset:       api.CharsetUTF8,
		LegalComments: api.LegalCommentsNone,
		Sourcemap:     api.SourceMapExternal,
		// The map names the author's files; their text stays with the author.
		SourcesContent: api.SourcesContentExclude,
		TsconfigRaw:    "{}",
		Outfile:        filepath.Join(r.root, "app.js"),
		Write:          false,
		LogLevel:       api.LogLevelSilent,
		Plugins:        []api.Plugin{r.plugin()},
	})
	if len(result.Errors) > 0 {
		return hook.Bundle{}, errorFrom(result.Errors)
	}
	made := hook.Bundle{Allow: slices.Clone(allow)}
	for _, file := range result.OutputFiles {
		if strings.HasSuffix(file.Path, ".map") {
			made.SourceMap = file.Contents
		} else {
			made.JS = file.Contents
		}
	}
	sum := sha256.Sum256(made.JS)
	made.Hash = hex.EncodeToString(sum[:])
	return made, nil
}

// exportsOf is the module that a bundle starts from.
func exportsOf(entry string, modules []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "import * as app from %s;\n", quote(entry))
	for i, m := range modules {
		fmt.Fprintf(&b, "import * as module%d from %s;\n", i, quote(m))
	}
	b.WriteString("export { app };\nexport const modules = {\n")
	for i, m := range modules {
		fmt.Fprintf(&b, "  [%s]: module%d,\n", quote(m), i)
	}
	b.WriteString("};\n")
	return b.String()
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string always has a JSON form
	return string(text)
}

func errorFrom(messages []api.Message) *Error {
	e := &Error{}
	for _, m := range messages {
		p := Problem{Message: m.Text}
		if m.Location != nil && m.Location.File != startFile {
			p.File, p.Line, p.Column = path.Clean(filepath.ToSlash(m.Location.File)), m.Location.Line, m.Location.Column+1
		}
		e.Problems = append(e.Problems, p)
	}
	return e
}
