package httpapi

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
)

// Forms that items are written in, one a line.
const (
	CSV    = "csv"    // by RFC 4180, with a line of names first
	NDJSON = "ndjson" // JSON objects, each on a line
)

// These return what writes items to w in that form, as the answers of this
// interface have them. The names of CSV are written at once.
var (
	AccountLines  = lines(accountBody)
	EntryLines    = lines(entryBody)
	TransferLines = lines(transferBody)
	HoldLines     = lines(holdBody)
)

func lines[D, T any](body func(D) T) func(w io.Writer, form string) (func(D) error, error) {
	return func(w io.Writer, form string) (func(D) error, error) {
		switch form {
		case NDJSON:
			return func(item D) error {
				data, err := json.Marshal(body(item), json.Deterministic(true))
				if err == nil {
					_, err = w.Write(append(data, '\n'))
				}
				return err
			}, nil
		case CSV:
			columns := csvColumnsOf[T]()
			row := columns.appendNames(nil)
			_, err := w.Write(row)
			return func(item D) error {
				row = columns.append(row[:0], body(item))
				_, err := w.Write(row)
				return err
			}, err
		}
		return nil, fmt.Errorf("form %q: want %s or %s", form, CSV, NDJSON)
	}
}

// A csvColumn is a member of a body, but for those marked `csv:"-"`. Marked
// `csv:"text"`, it is what callers have written.
type csvColumn struct {
	index int
	name  string
	text  bool
}

type csvColumns []csvColumn

func csvColumnsOf[T any]() (columns csvColumns) {
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if mark := t.Field(i).Tag.Get("csv"); mark != "-" {
			columns = append(columns, csvColumn{i, name, mark == "text"})
		}
	}
	return columns
}

// appendNames appends the first line: the names that the members have in JSON.
func (columns csvColumns) appendNames(row []byte) []byte {
	for _, column := range columns {
		row = append(append(row, column.name...), ',')
	}
	return endRow(row)
}

// append appends a line with body's members. What is null or left out in JSON is
// an empty cell, and an object is its JSON.
func (columns csvColumns) append(row []byte, body any) []byte {
	v := reflect.ValueOf(body)
	for _, column := range columns {
		cell := ""
		switch member := v.Field(column.index).Interface().(type) {
		case string:
			cell = member
		case *string:
			if member != nil {
				cell = *member
			}
		case map[string]string:
			data, _ := json.Marshal(member, json.Deterministic(true)) // the database has no text that JSON has not
			cell = string(data)
		default:
			panic(fmt.Sprintf("a member %s of %T", column.name, body))
		}
		if column.text {
			cell = defuse(cell)
		}
		row = append(appendCell(row, cell), ',')
	}
	return endRow(row)
}

// endRow puts an end of line in place of the last comma. encoding/csv would write
// ends of line within a text as others than they are.
func endRow(row []byte) []byte { return append(row[:len(row)-1], "\r\n"...) }

func appendCell(row []byte, cell string) []byte {
	if !strings.ContainsAny(cell, ",\"\r\n") {
		return append(row, cell...)
	}
	row = append(row, '"')
	row = append(row, strings.ReplaceAll(cell, `"`, `""`)...)
	return append(row, '"')
}

// defuse puts ' before a text that a spreadsheet would take for a formula, and
// before one that begins with ' itself: so whoever takes one ' off has the text.
// Amounts are never texts: a minus stays what it is.
func defuse(text string) string {
	for _, begin := range []string{"=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'"} {
		if strings.HasPrefix(text, begin) {
			return "'" + text
		}
	}
	return text
}
