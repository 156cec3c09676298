package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/rowlock/ledger/"

// A tree is all sources of the module, whatever they are built for.
type tree struct {
	fset       *token.FileSet
	files      []file
	migrations map[string]string // text by path
}

// A file is one file of Go.
type file struct {
	path string // from the module's root
	dir  string
	ast  *ast.File
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// in reports whether f is in one of the directories, or below it.
func (f file) in(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return f.dir == dir || strings.HasPrefix(f.dir, dir+"/") })
}

// imports returns the paths that f imports.
func (f file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), migrations: map[string]string{}}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case strings.HasSuffix(name, ".go"):
			return t.add(fsys, name)
		case path.Dir(name) == "migrations" && strings.HasSuffix(name, ".sql"):
			text, err := fs.ReadFile(fsys, name)
			t.migrations[name] = string(text)
			return err
		}
		return nil
	})
	return t, err
}

func (t *tree) add(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	t.files = append(t.files, file{path: name, dir: path.Dir(name), ast: parsed})
	return nil
}

// program returns the files that are no tests and in none of the directories.
func (t *tree) program(except ...string) []file {
	return slices.DeleteFunc(slices.Clone(t.files), func(f file) bool { return f.isTest() || f.in(except...) })
}

// at says where a node is, for a fault.
func (t *tree) at(node ast.Node) string {
	p := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// calls calls found for every call of a method or function of these names that
// is reached through a dot.
func calls(f file, found func(call *ast.CallExpr, name string), names ...string) {
	ast.Inspect(f.ast, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(names, selector.Sel.Name) {
			found(call, selector.Sel.Name)
		}
		return true
	})
}

// texts calls found for every string literal that is no import's path or tag.
func texts(f file, found func(node ast.Node, text string)) {
	ast.Inspect(f.ast, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				found(node, text)
			}
		}
		return true
	})
}
