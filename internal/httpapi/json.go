package httpapi

import (
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rowlock/ledger/internal/invalid"
)

// bodyField is the field of a fault of the body as a whole.
const bodyField = "body"

// A text is a string member of a body. Null is no string.
type text struct {
	value string
	given bool
}

func (t *text) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	t.value, err = readString(dec)
	t.given = true
	return err
}

// A nullableText is a string member that may be null, which then says something.
type nullableText struct {
	text // where it is not null
	null bool
}

func (n *nullableText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != jsontext.KindNull {
		return n.text.UnmarshalJSONFrom(dec)
	}
	n.null = true
	_, err := dec.ReadToken()
	return err
}

// A number is an integer member of a body. Null is no number.
type number struct {
	value int // where it is beyond an int, the largest or the least
	given bool
}

func (n *number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != jsontext.KindNumber && kind != jsontext.KindInvalid {
		return errors.New("must be a number")
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	n.given = true
	if n.value, err = strconv.Atoi(token.String()); errors.Is(err, strconv.ErrSyntax) {
		return errors.New("must be an integer, without a fraction or exponent")
	}
	return nil
}

// A flag is a boolean member of a body. Null is none.
type flag struct{ value, given bool }

func (b *flag) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != jsontext.KindTrue && kind != jsontext.KindFalse && kind != jsontext.KindInvalid {
		return errors.New("must be true or false")
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	b.value, b.given = token.Bool(), true
	return nil
}

// labels are a member that maps strings to strings.
type labels map[string]string

func (l *labels) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return errors.New("must be an object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*l = labels{}
	for dec.PeekKind() == jsontext.KindString {
		name, err := readString(dec)
		if err != nil {
			return err
		}
		if (*l)[name], err = readString(dec); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

func readString(dec *jsontext.Decoder) (string, error) {
	if kind := dec.PeekKind(); kind != jsontext.KindString && kind != jsontext.KindInvalid {
		return "", errors.New("must be a string")
	}
	token, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	return token.String(), nil
}

// decode reads the body of r, which must be one JSON object, into v. The
// library's defaults are strict: no duplicates, exact names, valid UTF-8, no
// lone surrogates, nothing after the object.
func decode(r *http.Request, v any) error {
	if !isJSON(r.Header) {
		return errUnsupportedMediaType
	}
	return unmarshal(callOf(r).body, v)
}

func unmarshal(body []byte, v any) error {
	if jsontext.Value(body).Kind() != jsontext.KindBeginObject {
		return &invalid.Error{Faults: []invalid.Fault{{Field: bodyField, Detail: "must be a JSON object"}}}
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return &invalid.Error{Faults: []invalid.Fault{jsonFault(err)}}
	}
	return nil
}

// isJSON reports whether the body is said to be JSON, as it is.
func isJSON(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 || len(h.Values("Content-Encoding")) > 0 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	if err != nil || mediaType != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return len(params) == 0 || len(params) == 1 && given && strings.EqualFold(charset, "utf-8")
}

// jsonFault says what the library found, in our words, and names the member.
func jsonFault(err error) invalid.Fault {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		detail := "is not valid JSON"
		switch {
		case errors.Is(e, jsontext.ErrDuplicateName):
			detail = "must not be given twice"
		case strings.Contains(e.Err.Error(), "UTF-8"), strings.Contains(e.Err.Error(), "surrogate"):
			detail = "must be valid Unicode"
		}
		return invalid.Fault{Field: field(e.JSONPointer), Detail: detail}
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		switch {
		case errors.Is(e, json.ErrUnknownName):
			return invalid.Fault{Field: field(e.JSONPointer), Detail: "is unknown"}
		case e.Err != nil:
			return invalid.Fault{Field: field(e.JSONPointer), Detail: e.Err.Error()}
		case e.GoType != nil && e.GoType.Kind() == reflect.Slice:
			return invalid.Fault{Field: field(e.JSONPointer), Detail: "must be an array"}
		case e.GoType != nil && e.GoType.Kind() == reflect.Struct:
			return invalid.Fault{Field: field(e.JSONPointer), Detail: "must be an object"}
		}
	}
	return invalid.Fault{Field: bodyField, Detail: "cannot be read"}
}

// field is the name of the member that p points at.
func field(p jsontext.Pointer) string {
	if p == "" {
		return bodyField
	}
	var tokens []string
	for token := range p.Tokens() {
		tokens = append(tokens, token)
	}
	return strings.Join(tokens, "/")
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return write(w, status, v)
}

// write sends v, always as the same bytes: an answer may be replayed.
func write(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	data = append(data, '\n')
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(data))) // a large one would come in chunks
	w.WriteHeader(status)
	w.Write(data) // its error: the caller has left
	return nil
}
