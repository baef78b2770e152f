package verify_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainComparisons are the functions in which two texts are compared that are
// both unknown at compile time, and why that may be done in any time. Whatever
// touches a secret goes through hmac.Equal.
func plainComparisons() map[string]string {
	return map[string]string{
		"verify.any":          "names of signature versions",
		"verify.has":          "names in a template",
		"verify.headerValues": "header names",
		"verify.queryValues":  "query names",
		"verify.lookup":       "names of pairs and form fields",
		"verify.form":         "orders a form's fields",
		"verify.jwtSignature": "algorithm and key id, which the token says aloud",

		"handshake.texts":      "header names",
		"handshake.formValues": "form names",
		"handshake.holds":      "a discriminator; tokens have a method of their own",
		"handshake.isEmpty":    "brackets",
		"handshake.options":    "origins, which are public",
	}
}

// TestSecretsAreComparedInConstantTime reads the code of packages verify and
// handshake and finds every comparison whose time could depend on a text.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()

	exports := exportFiles(t)
	found := map[string]bool{}
	equal := 0
	for _, folder := range []string{".", "../handshake"} {
		c := check{t: t, fset: token.NewFileSet(), found: found}
		c.load(folder, exports)
		equal += c.constantTime
	}
	allowed := plainComparisons()
	for where := range found {
		if allowed[where] == "" {
			t.Errorf("%s compares texts in a time that depends on them; use hmac.Equal, or say in plainComparisons why it may", where)
		}
	}
	for where := range allowed {
		if !found[where] {
			t.Errorf("%s compares nothing any more; take it out of plainComparisons", where)
		}
	}
	if equal == 0 {
		t.Error("nothing calls hmac.Equal: this test looks at the wrong thing")
	}
}

// The check itself finds what it is for.
func TestTheConstantTimeCheckSeesComparisons(t *testing.T) {
	t.Parallel()

	const source = `package p
import ("bytes"; "strings")
func a(x, y string) bool { return x == y }
func b(x, y []byte) bool { return bytes.Equal(x, y) }
func c(x, y string) bool { switch x { case y: return true }; return false }
func d(x [4]byte, y [4]byte) bool { return x != y }
func e(x, y string) bool { return strings.EqualFold(x, y) || strings.HasPrefix(x, y) }
func f(m map[string]bool, x string) bool { return m[x] && x == "" && len(x) == 3 }
`
	c := check{t: t, fset: token.NewFileSet(), found: map[string]bool{}}
	file, err := parser.ParseFile(c.fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.inspect("p", []*ast.File{file}, exportFiles(t))
	var got []string
	for where := range c.found {
		got = append(got, where)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"p.a", "p.b", "p.c", "p.d", "p.e"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// exportFiles gives the compiler's export data of everything imported here.
func exportFiles(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", ".", "../handshake").Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	files := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
}

type check struct {
	t            *testing.T
	fset         *token.FileSet
	info         *types.Info
	found        map[string]bool
	constantTime int
}

func (c *check) load(folder string, exports map[string]string) {
	c.t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		c.t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.fset, name, nil, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		c.t.Fatalf("no code in %s", folder)
	}
	c.inspect(files[0].Name.Name, files, exports)
}

func (c *check) inspect(pkg string, files []*ast.File, exports map[string]string) {
	c.t.Helper()
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(c.fset, "gc", lookup)}
	c.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := config.Check(pkg, c.fset, files, c.info); err != nil {
		c.t.Fatal(err)
	}
	for _, file := range files {
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if c.compares(n) {
					c.found[pkg+"."+f.Name.Name] = true
				}
				return true
			})
		}
	}
}

func (c *check) compares(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.GTR, token.LEQ, token.GEQ}, n.Op) && c.unknown(n.X) && c.unknown(n.Y)
	case *ast.SwitchStmt:
		return n.Tag != nil && c.unknown(n.Tag) && slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool {
			clause, ok := s.(*ast.CaseClause)
			return ok && slices.ContainsFunc(clause.List, c.unknown)
		})
	case *ast.CallExpr:
		return c.call(n)
	}
	return false
}

// call finds functions that compare. Those with a constant argument look for
// something that everybody knows.
func (c *check) call(n *ast.CallExpr) bool {
	selector, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	f, ok := c.info.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return false
	}
	name := f.Pkg().Path() + "." + f.Name()
	if name == "crypto/hmac.Equal" || name == "crypto/subtle.ConstantTimeCompare" {
		c.constantTime++
	}
	comparing := []string{
		"bytes.Equal", "bytes.EqualFold", "bytes.Compare", "bytes.Contains", "bytes.HasPrefix", "bytes.HasSuffix", "bytes.Index",
		"strings.Compare", "strings.EqualFold", "strings.HasPrefix", "strings.HasSuffix", "reflect.DeepEqual", "slices.Equal", "slices.Compare",
		"cmp.Compare", "maps.Equal",
	}
	return slices.Contains(comparing, name) && !slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return !c.unknown(arg) })
}

// unknown says whether an expression is text that is not a constant.
func (c *check) unknown(e ast.Expr) bool {
	value, ok := c.info.Types[e]
	if !ok || value.Value != nil || value.IsNil() {
		return false
	}
	switch kind := value.Type.Underlying().(type) {
	case *types.Basic:
		return kind.Info()&types.IsString != 0
	case *types.Slice:
		return isByte(kind.Elem())
	case *types.Array:
		return isByte(kind.Elem())
	}
	return false
}

func isByte(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Kind() == types.Byte
}
