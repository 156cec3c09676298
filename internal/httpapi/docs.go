package httpapi

import (
	"net/http"

	"github.com/swaggest/swgui/v5emb"

	"github.com/rowlock/ledger/api"
)

var page = v5emb.New("Rowlock", "/openapi.yaml", "/docs")

// docs is a page to try the interface. All of it is part of the program.
func docs(w http.ResponseWriter, r *http.Request) error {
	missing := &missingAsset{ResponseWriter: w}
	page.ServeHTTP(missing, r)
	if missing.found {
		return nil
	}
	return errNotFound
}

// A missingAsset keeps back the answer of a file server that has no such file.
type missingAsset struct {
	http.ResponseWriter
	found, answered bool
}

func (w *missingAsset) WriteHeader(status int) {
	w.answered, w.found = true, status != http.StatusNotFound
	if w.found {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	clear(w.Header())
}

func (w *missingAsset) Write(p []byte) (int, error) {
	if !w.answered {
		w.answered, w.found = true, true
	}
	if !w.found {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// contract answers with the contract itself.
func contract(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Write(api.Contract) // its error: the caller has left
	return nil
}
