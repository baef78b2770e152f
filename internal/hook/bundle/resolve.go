package bundle

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// typesModule is the one package an app may import: its types vanish, its
// few values are here.
const typesModule = "@w6w/types"

//go:embed types.js
var typesSource string

const (
	artifactFile     = "./app.js"
	hostNamespace    = "tocsin"
	artifactResolved = "app.js"
)

// resolver decides what an import may reach: files inside the app's root, and
// typesModule. An artifact has no files at all.
type resolver struct {
	root    string
	module  []byte   // of an artifact
	modules []string // what the bundle starts from
}

func (r resolver) plugin() api.Plugin {
	return api.Plugin{Name: "tocsin", Setup: func(build api.PluginBuild) {
		build.OnResolve(api.OnResolveOptions{Filter: ".*"}, r.resolve)
		build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: hostNamespace}, r.loadHosted)
		build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: "file"}, r.loadFile)
	}}
}

func (r resolver) resolve(args api.OnResolveArgs) (api.OnResolveResult, error) {
	if args.Kind == api.ResolveJSDynamicImport {
		return api.OnResolveResult{}, fmt.Errorf("dynamic import of %q is not allowed in an app", args.Path)
	}
	switch {
	case args.Path == typesModule:
		return api.OnResolveResult{Path: typesModule, Namespace: hostNamespace}, nil
	case r.module != nil && args.Path == artifactFile && args.Namespace != hostNamespace:
		return api.OnResolveResult{Path: artifactResolved, Namespace: hostNamespace}, nil
	case r.module != nil:
		return api.OnResolveResult{}, fmt.Errorf("import of %q: a built app must not import anything", args.Path)
	case !isRelative(args.Path):
		return api.OnResolveResult{}, fmt.Errorf("import of %q is not allowed: an app may import its own files by relative path, and %s", args.Path, typesModule)
	}
	file, err := r.find(filepath.Join(args.ResolveDir, filepath.FromSlash(args.Path)))
	if err != nil {
		return api.OnResolveResult{}, fmt.Errorf("import of %q: %w", args.Path, err)
	}
	return api.OnResolveResult{Path: file, Namespace: "file"}, nil
}

func isRelative(path string) bool {
	return strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") || path == "." || path == ".."
}

var (
	errOutside  = errors.New("the file is outside the app's directory")
	errNotFound = errors.New("there is no such file")
)

// find is the real file behind a path: itself, with an extension added, or the
// TypeScript source of a .js name.
func (r resolver) find(name string) (string, error) {
	candidates := []string{name, name + ".ts", name + ".js", name + ".json", filepath.Join(name, "index.ts"), filepath.Join(name, "index.js")}
	if base, ok := strings.CutSuffix(name, ".js"); ok {
		candidates = append(candidates, base+".ts")
	}
	for _, candidate := range candidates {
		if !r.contains(candidate) {
			return "", errOutside
		}
		real, err := filepath.EvalSymlinks(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", errNotFound
		}
		if !r.contains(real) {
			return "", errOutside
		}
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
			return real, nil
		}
	}
	return "", errNotFound
}

func (r resolver) contains(name string) bool {
	relative, err := filepath.Rel(r.root, name)
	return err == nil && filepath.IsLocal(relative)
}

func (r resolver) loadHosted(args api.OnLoadArgs) (api.OnLoadResult, error) {
	text := typesSource
	if args.Path == artifactResolved {
		text = string(r.module)
	}
	return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS, ResolveDir: r.root}, nil
}

func (r resolver) loadFile(args api.OnLoadArgs) (api.OnLoadResult, error) {
	loader, ok := map[string]api.Loader{
		".ts": api.LoaderTS, ".mts": api.LoaderTS, ".js": api.LoaderJS, ".mjs": api.LoaderJS, ".json": api.LoaderJSON,
	}[filepath.Ext(args.Path)]
	if !ok {
		return api.OnLoadResult{}, fmt.Errorf("%s: an app is made of .ts, .js and .json files", filepath.Base(args.Path))
	}
	contents, err := os.ReadFile(args.Path)
	if err != nil {
		return api.OnLoadResult{}, fmt.Errorf("read app file: %w", err)
	}
	text := string(contents)
	return api.OnLoadResult{Contents: &text, Loader: loader, ResolveDir: filepath.Dir(args.Path)}, nil
}
