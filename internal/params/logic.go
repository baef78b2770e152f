package params

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one condition: loops over supplied lists must not multiply, and
// reduce must not double a text or a list, without end.
const (
	maxSteps = 10_000
	maxText  = 64 << 10
)

// lookup gives the value at a dot path, nil when there is none.
type lookup func(path string) any

// holds says whether a showIf is fulfilled. There are two spellings: JSONLogic
// (Param RFC), and the short {field, equals|eq|notEquals|in|notIn|truthy} that
// apps and editors also write. What cannot be read hides nothing.
func holds(showIf json.RawMessage, get lookup) bool {
	rule := decode(showIf)
	if rule == nil {
		return true
	}
	if short, ok := rule.(map[string]any); ok && is[string](short["field"]) {
		return shortHolds(short, get)
	}
	l := &logic{}
	result := truthy(l.eval(rule, get))
	return result || l.unreadable
}

func shortHolds(rule map[string]any, get lookup) bool {
	field, _ := rule["field"].(string)
	v := get(field)
	for name, want := range rule {
		if check, known := shortOperators()[name]; known && !check(v, want) {
			return false
		}
	}
	return true
}

func shortOperators() map[string]func(v, want any) bool {
	return map[string]func(v, want any) bool{
		"equals":    same,
		"eq":        same,
		"notEquals": func(v, want any) bool { return !same(v, want) },
		"in":        contains,
		"notIn":     func(v, want any) bool { return !contains(v, want) },
		"truthy":    func(v, want any) bool { return truthy(v) == truthy(want) },
	}
}

// contains says whether v, or one of v's elements, is in the wanted list.
func contains(v, want any) bool {
	list, ok := want.([]any)
	if !ok {
		return same(v, want)
	}
	if values, many := v.([]any); many {
		return slices.ContainsFunc(values, func(v any) bool { return contains(v, want) })
	}
	return slices.ContainsFunc(list, func(w any) bool { return same(v, w) })
}

// logic evaluates one JSONLogic rule.
type logic struct {
	steps      int
	unreadable bool
}

func (l *logic) eval(rule any, get lookup) any {
	if l.steps++; l.steps > maxSteps {
		l.unreadable = true
	}
	if l.unreadable {
		return nil
	}
	switch rule := rule.(type) {
	case map[string]any:
		for name, args := range rule {
			if len(rule) == 1 {
				return l.apply(name, arguments(args), get)
			}
		}
		return rule // plain data
	case []any:
		return l.all(rule, get)
	}
	return rule
}

func arguments(args any) []any {
	if list, ok := args.([]any); ok {
		return list
	}
	return []any{args} // {"var": "a"} is short for {"var": ["a"]}
}

func (l *logic) all(rules []any, get lookup) []any {
	values := make([]any, len(rules))
	for i, rule := range rules {
		values[i] = l.eval(rule, get)
	}
	return values
}

// apply runs one operator. Those in the first switch decide themselves which
// arguments they look at.
func (l *logic) apply(name string, args []any, get lookup) any {
	switch name {
	case "if", "?:":
		return l.choose(args, get)
	case "and", "or":
		return l.connect(args, name == "and", get)
	case "map", "filter", "all", "some", "none", "reduce":
		return l.each(name, args, get)
	}
	values := l.all(args, get)
	switch name {
	case "var":
		return variable(values, get)
	case "missing":
		return missing(values, get)
	case "missing_some":
		return missingSome(values, get)
	case "cat":
		return l.cat(values)
	case "merge":
		return l.merge(values)
	}
	if result, known := operate(name, values); known {
		return result
	}
	l.unreadable = true
	return nil
}

func (l *logic) choose(args []any, get lookup) any {
	for len(args) > 1 {
		if truthy(l.eval(args[0], get)) {
			return l.eval(args[1], get)
		}
		args = args[2:]
	}
	if len(args) == 0 {
		return nil
	}
	return l.eval(args[0], get)
}

// connect gives the value that decided, as && and || do.
func (l *logic) connect(args []any, and bool, get lookup) any {
	var v any
	for _, arg := range args {
		if v = l.eval(arg, get); truthy(v) != and {
			return v
		}
	}
	return v
}

func (l *logic) each(name string, args []any, get lookup) any {
	list, _ := l.eval(at(args, 0), get).([]any)
	rule := at(args, 1)
	if name == "reduce" {
		return l.reduce(list, rule, l.eval(at(args, 2), get))
	}
	results := make([]any, len(list))
	kept := []any{}
	for i, element := range list {
		results[i] = l.eval(rule, within(element))
		if truthy(results[i]) {
			kept = append(kept, element)
		}
	}
	switch name {
	case "map":
		return results
	case "filter":
		return kept
	case "all":
		return len(list) > 0 && len(kept) == len(list)
	case "some":
		return len(kept) > 0
	}
	return len(kept) == 0
}

func (l *logic) reduce(list []any, rule, accumulator any) any {
	for _, element := range list {
		accumulator = l.eval(rule, within(map[string]any{"current": element, "accumulator": accumulator}))
	}
	return accumulator
}

func within(v any) lookup { return func(path string) any { return dig(v, path) } }

func variable(args []any, get lookup) any {
	path := text(at(args, 0))
	if v := get(path); v != nil {
		return v
	}
	return at(args, 1)
}

func missing(keys []any, get lookup) []any {
	if list, ok := at(keys, 0).([]any); ok {
		keys = list
	}
	gone := []any{}
	for _, key := range keys {
		if v := get(text(key)); v == nil || v == "" {
			gone = append(gone, key)
		}
	}
	return gone
}

func missingSome(args []any, get lookup) []any {
	keys, _ := at(args, 1).([]any)
	gone := missing(keys, get)
	if float64(len(keys)-len(gone)) >= numeric(at(args, 0)) {
		return []any{}
	}
	return gone
}

// operate runs the operators that see values only.
func operate(name string, v []any) (any, bool) {
	a, b := at(v, 0), at(v, 1)
	switch name {
	case "==":
		return loose(a, b), true
	case "!=":
		return !loose(a, b), true
	case "===":
		return same(a, b), true
	case "!==":
		return !same(a, b), true
	case "!":
		return !truthy(a), true
	case "!!":
		return truthy(a), true
	case "in":
		return isIn(a, b), true
	case "<", "<=":
		return ascends(v, name == "<="), true
	case ">", ">=":
		slices.Reverse(v)
		return ascends(v, name == ">="), true
	}
	return arithmetic(name, v)
}

func ascends(v []any, orEqual bool) bool {
	for i := 1; i < len(v); i++ {
		if order := compare(v[i-1], v[i]); order > 0 || order == 0 && !orEqual {
			return false
		}
	}
	return len(v) > 1
}

// compare gives -1, 0 or 1, or 2 for what has no order.
func compare(a, b any) int {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	}
	x, y := numeric(a), numeric(b)
	switch {
	case x < y:
		return -1
	case x == y:
		return 0
	case x > y:
		return 1
	}
	return 2
}

func arithmetic(name string, v []any) (any, bool) {
	operators := map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b }, "-": func(a, b float64) float64 { return a - b },
		"*": func(a, b float64) float64 { return a * b }, "/": func(a, b float64) float64 { return a / b },
		"%": math.Mod, "min": math.Min, "max": math.Max,
	}
	operator, known := operators[name]
	if !known || len(v) == 0 {
		return nil, known
	}
	result := numeric(v[0])
	if name == "-" && len(v) == 1 {
		result = -result
	}
	for _, operand := range v[1:] {
		result = operator(result, numeric(operand))
	}
	return json.Number(number(result)), true
}

func isIn(a, b any) bool {
	if whole, ok := b.(string); ok {
		return strings.Contains(whole, text(a))
	}
	list, _ := b.([]any)
	return slices.ContainsFunc(list, func(v any) bool { return same(a, v) })
}

func (l *logic) cat(v []any) string {
	var out strings.Builder
	for _, part := range v {
		if s := text(part); out.Len()+len(s) <= maxText {
			out.WriteString(s)
			continue
		}
		l.unreadable = true
	}
	return out.String()
}

func (l *logic) merge(v []any) []any {
	out := []any{}
	for _, part := range v {
		if list, ok := part.([]any); ok {
			out = append(out, list...)
			continue
		}
		out = append(out, part)
	}
	if len(out) > maxSteps {
		l.unreadable = true
	}
	return out
}

// truthy is JSONLogic's: as JavaScript's, but an empty list is false.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		n := numeric(v)
		return n != 0 && !math.IsNaN(n)
	case []any:
		return len(v) > 0
	}
	return true
}

// loose is JavaScript's == on values that are no objects.
func loose(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if is[string](a) && is[string](b) {
		return a == b
	}
	if isScalar(a) && isScalar(b) {
		return numeric(a) == numeric(b)
	}
	return same(a, b)
}

func isScalar(v any) bool { return is[string](v) || is[json.Number](v) || is[bool](v) }

// numeric is JavaScript's Number(v).
func numeric(v any) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case json.Number:
		n, _ := strconv.ParseFloat(v.String(), 64) // ±Inf when it is too large
		return n
	case string:
		if strings.TrimSpace(v) == "" {
			return 0
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return n
		}
	}
	return math.NaN()
}

// text is JavaScript's String(v) for scalars.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

func at(v []any, i int) any {
	if i < len(v) {
		return v[i]
	}
	return nil
}

func elementAt(list []any, index string) any {
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 {
		return nil
	}
	return at(list, i)
}
