package httpapi

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// routes lists every route. Requests pass the middlewares in the order in which
// they are named.
func (s *server) routes() chi.Router {
	r := chi.NewRouter()
	r.Use(s.identify, s.observe, recoverPanics, middleware.GetHead)
	r.NotFound(handle(notFound))
	r.MethodNotAllowed(handle(methodNotAllowed(r)))

	// For those who run the service: answered under any load, to anybody.
	r.Get("/livez", handle(livez))
	r.Get("/readyz", handle(s.readyz))
	r.Method(http.MethodGet, "/metrics", s.Metrics)

	limit := s.limitInFlight()
	r.Group(func(r chi.Router) {
		r.Use(limit)
		r.Get("/openapi.yaml", handle(contract))
		r.Method(http.MethodGet, "/docs", docs)
		r.Method(http.MethodGet, "/docs/*", docs)
	})

	r.Route("/v1", func(r chi.Router) {
		r.Use(limit, s.refuseOtherOrigins, s.authenticate, s.readBody, s.detach)

		r.Post("/accounts", handle(query(s.openAccount)))
		r.Get("/accounts", handle(query(s.listAccounts, "currency", "status", "limit", "cursor")))
		r.Get("/accounts/{id}", handle(query(s.getAccount)))
		r.Post("/accounts/{id}/freeze", handle(query(s.setStatus(s.Accounts.Freeze))))
		r.Post("/accounts/{id}/unfreeze", handle(query(s.setStatus(s.Accounts.Unfreeze))))
		r.Post("/accounts/{id}/close", handle(query(s.setStatus(s.Accounts.Close))))
		r.Get("/accounts/{id}/entries", handle(query(s.listEntries, "order", "limit", "cursor")))

		r.Post("/transfers", handle(query(s.createTransfer)))
		r.Post("/debits", handle(query(s.createDebit)))
		r.Post("/credits", handle(query(s.createCredit)))
		r.Get("/transfers", handle(query(s.listTransfers, "account_id", "order", "limit", "cursor")))
		r.Get("/transfers/{id}", handle(query(s.getTransfer)))
	})
	return r
}

// A handler answers r, or returns the error that should be its answer.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle makes h a standard handler. It is the only caller of writeProblem.
func handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			writeProblem(w, r, err)
		}
	}
}

func notFound(http.ResponseWriter, *http.Request) error { return errNotFound }

// methodNotAllowed says which methods the path has.
func methodNotAllowed(routes chi.Routes) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			return errNotFound // a method that chi does not know, on a path that nobody does
		}
		if allowed[0] == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return errMethodNotAllowed
	}
}
