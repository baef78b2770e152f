package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits of one app's directory. The largest of the public apps has a few
// hundred files of some kilobytes.
const (
	maxFiles    = 5_000
	maxDepth    = 24
	maxFile     = 8 << 20
	maxTree     = 64 << 20
	maxManifest = 1 << 20
	// npmDepth is how deep the reference loader looks for node_modules.
	npmDepth = 12
)

// source is an app's directory, read once and never left: a symlink that leads
// out of it is refused.
type source struct {
	dir string
	// files holds the code and the manifests, by slash path.
	files map[string][]byte
	// hash covers every file of the tree.
	hash string
}

// openSource reads an app's directory.
func openSource(ctx context.Context, dir string) (*source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open app directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	w := &treeWalk{root: root, source: &source{dir: dir, files: map[string][]byte{}}, sum: sha256.New()}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return w.visit(name, entry)
	})
	if err != nil {
		return w.source, err
	}
	w.source.hash = hex.EncodeToString(w.sum.Sum(nil))
	return w.source, nil
}

// treeWalk hashes a tree and keeps what the loader reads.
type treeWalk struct {
	root   *os.Root
	source *source
	sum    hash.Hash
	count  int
	size   int64
}

func (w *treeWalk) visit(name string, entry fs.DirEntry) error {
	depth := strings.Count(name, "/") + 1
	if entry.IsDir() && entry.Name() == "node_modules" && depth <= npmDepth {
		return refuse(CodeNPMDependencies, "the app has a node_modules directory; apps bring no npm packages").at(name)
	}
	if entry.IsDir() {
		switch {
		case entry.Name() == ".git":
			return fs.SkipDir
		case depth > maxDepth:
			return refuse(CodeInvalidBundle, "directories are nested deeper than %d", maxDepth).at(name)
		}
		return nil
	}
	if w.count++; w.count > maxFiles {
		return refuse(CodeInvalidBundle, "the app has more than %d files", maxFiles)
	}
	return w.file(name, entry)
}

func (w *treeWalk) file(name string, entry fs.DirEntry) error {
	info, err := w.root.Stat(name) // follows links, inside the root only
	switch {
	case err != nil && entry.Type()&fs.ModeSymlink != 0:
		return refuse(CodeInvalidBundle, "the symlink leads out of the app's directory, or nowhere").at(name)
	case err != nil:
		return fmt.Errorf("read app directory: %w", err)
	case info.IsDir(): // a link to a directory inside: its files are met there
		return nil
	case !info.Mode().IsRegular():
		return refuse(CodeInvalidBundle, "is neither a file nor a directory").at(name)
	}
	return w.content(name)
}

func (w *treeWalk) content(name string) error {
	file, err := w.root.Open(name)
	if err != nil {
		return fmt.Errorf("read app directory: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return fmt.Errorf("read app directory: %w", err)
	}
	if len(content) > maxFile {
		return refuse(CodeInvalidBundle, "is larger than %d MiB", maxFile>>20).at(name)
	}
	if w.size += int64(len(content)); w.size > maxTree {
		return refuse(CodeInvalidBundle, "the app's files are larger than %d MiB together", maxTree>>20)
	}
	_, _ = fmt.Fprintf(w.sum, "%q %d\n", name, len(content)) // a hash never fails
	_, _ = w.sum.Write(content)
	if slices.Contains([]string{".json", ".ts", ".tsx", ".js", ".mjs", ".mts", ".jsx"}, path.Ext(name)) {
		w.source.files[name] = content
	}
	return nil
}

// forget lets go of the text, which nobody needs once the app is loaded.
func (s *source) forget() {
	if s != nil {
		s.files = nil
	}
}

// has says whether the tree has a file that the loader reads.
func (s *source) has(name string) bool {
	_, ok := s.files[name]
	return ok
}

// object reads a JSON file that must be an object.
func (s *source) object(name string) (map[string]json.RawMessage, error) {
	content := bytes.TrimPrefix(s.files[name], []byte("\xef\xbb\xbf"))
	if len(content) > maxManifest {
		return nil, refuse(CodeInvalidJSON, "is larger than %d MiB", maxManifest>>20).at(name)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(content, &o); err != nil {
		return nil, invalidJSON(name, content, err)
	}
	if o == nil {
		return nil, refuse(CodeInvalidJSON, "must be a JSON object").at(name)
	}
	return o, nil
}

// invalidJSON names the line.
func invalidJSON(name string, content []byte, err error) *LoadError {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return refuse(CodeInvalidJSON, "%s", syntax).at(fmt.Sprintf("%s:%d", name, lineAt(content, syntax.Offset)))
	case errors.As(err, &wrong):
		return refuse(CodeInvalidJSON, "must be a JSON object, not a %s", wrong.Value).at(name)
	}
	return refuse(CodeInvalidJSON, "%s", err).at(name)
}

func lineAt(content []byte, offset int64) int {
	return 1 + bytes.Count(content[:min(max(offset, 0), int64(len(content)))], []byte("\n"))
}

// line gives file:line of the first place where a pattern matches, or the file
// alone.
func (s *source) line(name string, pattern *regexp.Regexp) string {
	at := pattern.FindIndex(s.files[name])
	if at == nil {
		return name
	}
	return fmt.Sprintf("%s:%d", name, lineAt(s.files[name], int64(at[0])))
}

// keyLine looks through the code for where a key is declared; "" when that
// cannot be told.
func (s *source) keyLine(key string) string {
	if key == "" {
		return ""
	}
	pattern := regexp.MustCompile(`\bkey["']?\s*:\s*["'` + "`" + `]` + regexp.QuoteMeta(key) + `["'` + "`" + `]`)
	var found []string
	for name, content := range s.files {
		if path.Ext(name) != ".json" && !strings.Contains(name, "test") && pattern.Match(content) {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int { // triggers live in triggers/, or close to the top
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	if len(found) == 0 {
		return ""
	}
	return s.line(found[0], pattern)
}

func rank(name string) int {
	if strings.Contains(name, "trigger") {
		return 0
	}
	return 1 + strings.Count(name, "/")
}
