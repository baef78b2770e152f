package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func kebab() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`) }

// appDirs lists the directories of APPS_DIR that hold apps: those a
// w6w-pack.json names, else every directory in it. A directory of built
// versions, <id>/<version>/manifest.json, stands for its highest one. Names
// that start with a dot or an underscore are passed over.
func appDirs(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("read apps directory: %w", err)
	}
	if listed, ok, err := packDirs(root); ok || err != nil {
		return listed, err
	}
	var dirs []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") || entry.Name() == "node_modules" {
			continue
		}
		// The operator may link to an app from here; an app may not link out.
		dir, err := filepath.EvalSymlinks(filepath.Join(root, entry.Name()))
		if err != nil || !isDir(dir) {
			continue
		}
		dirs = append(dirs, highestVersion(dir))
	}
	return dirs, nil
}

// packDirs reads w6w-pack.json (contract §1.1).
func packDirs(root string) ([]string, bool, error) {
	text, err := os.ReadFile(filepath.Join(root, "w6w-pack.json")) //nolint:gosec // the operator's own directory
	if os.IsNotExist(err) {
		return nil, false, nil
	}
	var pack struct {
		Apps []struct {
			Path string `json:"path"`
		} `json:"apps"`
	}
	if err == nil {
		err = json.Unmarshal(text, &pack)
	}
	if err != nil {
		return nil, true, fmt.Errorf("read w6w-pack.json: %w", err)
	}
	var dirs []string
	for _, app := range pack.Apps {
		if !filepath.IsLocal(app.Path) {
			return nil, true, fmt.Errorf("read w6w-pack.json: %q is not a path inside it", app.Path)
		}
		dirs = append(dirs, filepath.Join(root, app.Path))
	}
	return dirs, true, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// highestVersion gives the newest of a directory of built versions, and any
// other directory as it is.
func highestVersion(dir string) string {
	if isFile(filepath.Join(dir, "package.json")) || isFile(filepath.Join(dir, artifactManifest)) {
		return dir
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dir
	}
	best := ""
	for _, entry := range entries {
		if isFile(filepath.Join(dir, entry.Name(), artifactManifest)) && (best == "" || compareVersions(entry.Name(), best) > 0) {
			best = entry.Name()
		}
	}
	return filepath.Join(dir, best)
}

// compareVersions orders versions as SemVer does, near enough for picking the
// newest: numbers by value, a release after its pre-releases.
func compareVersions(a, b string) int {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	coreA, preA, isPreA := strings.Cut(a, "-")
	coreB, preB, isPreB := strings.Cut(b, "-")
	if order := compareDotted(coreA, coreB); order != 0 {
		return order
	}
	if isPreA != isPreB {
		if isPreA {
			return -1
		}
		return 1
	}
	return compareDotted(preA, preB)
}

func compareDotted(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		n, errN := strconv.Atoi(x)
		m, errM := strconv.Atoi(y)
		if errN == nil && errM == nil {
			return cmp.Compare(n, m)
		}
		return cmp.Compare(x, y)
	})
}

func baseName(dir string) string {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return filepath.Base(dir)
	}
	return filepath.Base(absolute)
}
