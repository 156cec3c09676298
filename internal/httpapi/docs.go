package httpapi

import (
	"net/http"

	"github.com/swaggest/swgui/v5emb"

	"github.com/rowlock/ledger/api"
)

// docs is a page to try the interface. All of it is part of the program.
var docs http.Handler = v5emb.New("Rowlock", "/openapi.yaml", "/docs")

// contract answers with the contract itself.
func contract(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Write(api.Contract) // its error: the caller has left
	return nil
}
