package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// routes lists every route. Requests pass the middlewares in the order in which
// they are named; those of a group know the route already.
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
		r.Get("/docs", handle(docs))
		r.Get("/docs/*", handle(docs))
	})

	r.Group(func(r chi.Router) {
		r.Use(s.refuseOtherOrigins, s.authenticate, s.readBody(maxBatchBody), limit, s.detach)
		r.Post("/v1/transfers/batch", handle(query(s.createBatch, dryRun)))
	})

	r.Group(func(r chi.Router) {
		// A body that trickles in takes none of the places for work.
		r.Use(s.refuseOtherOrigins, s.authenticate, s.readBody(s.MaxBody), limit, s.detach)

		r.Post("/v1/accounts", handle(query(s.openAccount)))
		r.Get("/v1/accounts", handle(query(s.listAccounts, "currency", "status", "limit", "cursor")))
		r.Get("/v1/accounts/{id}", handle(query(s.getAccount)))
		r.Patch("/v1/accounts/{id}", handle(query(s.updateAccount)))
		r.Post("/v1/accounts/{id}/limits", handle(query(s.setLimits)))
		r.Post("/v1/accounts/{id}/directions", handle(query(s.setDirections)))
		r.Post("/v1/accounts/{id}/freeze", handle(query(change(s.Accounts.Freeze, accountBody))))
		r.Post("/v1/accounts/{id}/unfreeze", handle(query(change(s.Accounts.Unfreeze, accountBody))))
		r.Post("/v1/accounts/{id}/close", handle(query(change(s.Accounts.Close, accountBody))))
		r.Get("/v1/accounts/{id}/entries", handle(query(s.listEntries, "order", "limit", "cursor")))
		r.Get("/v1/accounts/{id}/balance", handle(query(s.getBalance, "at", "version")))
		r.Get("/v1/accounts/{id}/statement", handle(query(s.getStatement, "from", "to", "limit", "cursor")))

		r.Post("/v1/transfers", handle(query(s.createTransfer, dryRun)))
		r.Post("/v1/debits", handle(query(s.createDebit, dryRun)))
		r.Post("/v1/credits", handle(query(s.createCredit, dryRun)))
		r.Post("/v1/transfers/{id}/reverse", handle(query(s.reverseTransfer, dryRun)))
		r.Get("/v1/transfers", handle(query(s.listTransfers, transferParams...)))
		r.Get("/v1/transfers/{id}", handle(query(s.getTransfer)))

		r.Post("/v1/holds", handle(query(s.createHold, dryRun)))
		r.Get("/v1/holds", handle(query(s.listHolds, "account_id", "status", "limit", "cursor")))
		r.Get("/v1/holds/{id}", handle(query(s.getHold)))
		r.Post("/v1/holds/{id}/capture", handle(query(s.captureHold, dryRun)))
		r.Post("/v1/holds/{id}/void", handle(query(s.voidHold, dryRun)))

		r.Post("/v1/payments", handle(query(s.createPayment)))
		r.Get("/v1/payments", handle(query(s.listPayments, "status", "account_id", "limit", "cursor")))
		r.Get("/v1/payments/{id}", handle(query(s.getPayment)))
		r.Post("/v1/payments/{id}/approve", handle(query(s.approvePayment)))
		r.Post("/v1/payments/{id}/cancel", handle(query(change(s.Payments.Cancel, paymentBody))))
		r.Post("/v1/payments/{id}/retry", handle(query(change(s.Payments.Retry, paymentBody))))
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
		path := cmp.Or(r.URL.RawPath, r.URL.Path) // as chi has it
		var allowed []string
		if routes.Match(chi.NewRouteContext(), http.MethodGet, path) {
			allowed = append(allowed, http.MethodGet, http.MethodHead)
		}
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			if routes.Match(chi.NewRouteContext(), method, path) {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			return errNotFound // a method that chi does not know, on a path that nobody does
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return errMethodNotAllowed
	}
}
