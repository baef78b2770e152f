package workerpool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/hook/jsvm"
)

// framePlace finds the places in the bundle that a JS stack names.
var framePlace = regexp.MustCompile(`\b` + regexp.QuoteMeta(jsvm.AppFile) + `:(\d+)(?::(\d+))?`)

// mapStack rewrites the places in a JS stack to the author's files, and drops
// the frames of the Web surface, which the author cannot see.
func mapStack(stack string, sourceMap []byte) string {
	if stack == "" {
		return ""
	}
	places, err := parseSourceMap(sourceMap)
	if err != nil {
		places = nil // a stack in the bundle's own lines is better than none
	}
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(stack, "\n"), "\n") {
		if strings.Contains(line, "(host:") || strings.HasSuffix(line, "at call (native)") {
			continue
		}
		out = append(out, framePlace.ReplaceAllStringFunc(line, places.replace))
	}
	return strings.Join(out, "\n")
}

// place is one mapping: from a position in the bundle, counted from 0, to one
// in a source file, counted from 0 too.
type place struct {
	column               int
	file                 string
	sourceLine, sourceAt int
}

// sourceMap is the mappings of each line of the bundle.
type sourceMap [][]place

func (m sourceMap) replace(text string) string {
	groups := framePlace.FindStringSubmatch(text)
	line, _ := strconv.Atoi(groups[1])
	column, _ := strconv.Atoi(groups[2])
	if line < 1 || line > len(m) {
		return text
	}
	row := m[line-1]
	i := sort.Search(len(row), func(i int) bool { return row[i].column > max(column-1, 0) }) - 1
	if i < 0 {
		return text
	}
	return fmt.Sprintf("%s:%d:%d", row[i].file, row[i].sourceLine+1, row[i].sourceAt+1)
}

// parseSourceMap reads a version 3 source map.
func parseSourceMap(text []byte) (sourceMap, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var document struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read source map: %w", err)
	}
	var m sourceMap
	// All but the column in the bundle are differences that run on from line
	// to line: source, line, column.
	var state [3]int
	for line := range strings.SplitSeq(document.Mappings, ";") {
		var row []place
		column := 0
		for segment := range strings.SplitSeq(line, ",") {
			values := decodeVLQ(segment)
			if len(values) == 0 {
				continue
			}
			column += values[0]
			if len(values) < 4 {
				continue
			}
			for i := range state {
				state[i] += values[i+1]
			}
			if state[0] < 0 || state[0] >= len(document.Sources) {
				return nil, fmt.Errorf("read source map: no source %d", state[0])
			}
			row = append(row, place{column: column, file: document.Sources[state[0]], sourceLine: state[1], sourceAt: state[2]})
		}
		slices.SortStableFunc(row, func(a, b place) int { return a.column - b.column })
		m = append(m, row)
	}
	return m, nil
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// decodeVLQ reads base64 numbers of five bits a digit, the sign in the lowest
// bit. It stops at what is none.
func decodeVLQ(segment string) []int {
	var values []int
	value, shift := 0, 0
	for i := range len(segment) {
		digit := strings.IndexByte(base64Digits, segment[i])
		if digit < 0 || shift > 30 {
			return values
		}
		value |= (digit & 31) << shift
		shift += 5
		if digit&32 != 0 {
			continue
		}
		if value&1 != 0 {
			value = -(value >> 1)
		} else {
			value >>= 1
		}
		values = append(values, value)
		value, shift = 0, 0
	}
	return values
}
