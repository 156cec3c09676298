package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// What can go wrong before the domain is asked.
var (
	errNotFound             = errors.New("no such route")
	errMethodNotAllowed     = errors.New("method not allowed")
	errForbidden            = errors.New("request of another origin")
	errUnauthenticated      = errors.New("no valid token")
	errOverloaded           = errors.New("too many requests in flight")
	errNotAcceptable        = errors.New("neither JSON nor CSV is accepted")
	errRequestTimeout       = errors.New("the body did not arrive in time")
	errPayloadTooLarge      = errors.New("the body is too large")
	errUnsupportedMediaType = errors.New("the body is not plain application/json")
	errNotReady             = errors.New("not ready")
)

// A kind of problem: the errors that it is made of, and what a caller is told.
type kind struct {
	matches   func(error) bool
	status    int
	code      string
	title     string
	detail    string // of errors that do not bring one of their own, which is fit to be sent
	retryable bool   // the same request, as it is, may succeed later
}

// kinds is the one table from errors to answers. The first line that matches
// counts. A commit whose outcome is unknown comes first: whatever else the
// error says, money may have moved.
var kinds = []kind{
	{is(retry.ErrCommitUnknown), 503, "outcome-unknown", "The outcome is unknown",
		"The database did not say whether this took effect. Send the same request with the same Idempotency-Key again to find out.", true},

	{as[*invalid.Error], 400, "invalid-request", "The request is invalid", "", false},
	{is(errUnauthenticated), 401, "unauthenticated", "Authentication is needed", "Send a valid token: Authorization: Bearer TOKEN.", false},
	{is(errForbidden), 403, "forbidden", "This is not allowed", "A web page of another origin may not do this.", false},
	{is(errNotFound), 404, "not-found", "Not found", "There is nothing at this path.", false},
	{is(accounts.ErrNotFound), 404, "not-found", "Not found", "There is no account with this id.", false},
	{is(transfer.ErrNotFound), 404, "not-found", "Not found", "There is no transfer with this id.", false},
	{is(transfer.ErrHoldNotFound), 404, "not-found", "Not found", "There is no hold with this id.", false},
	{is(payment.ErrNotFound), 404, "not-found", "Not found", "There is no payment with this id.", false},
	{is(errMethodNotAllowed), 405, "method-not-allowed", "The method is not allowed", "This path has other methods: see Allow.", false},
	{is(errNotAcceptable), 406, "not-acceptable", "No acceptable form", "This list is answered as application/json or, from HTTP/1.1 on, text/csv: Accept has to have one of them.", false},
	{is(transfer.ErrPositionExpired), 410, "cursor-expired", "The cursor has expired",
		"This cursor is of another database than the one that answers now. Read the list from its start.", false},
	{is(errRequestTimeout), 408, "request-timeout", "The request took too long", "The body did not arrive in time. Nothing was done.", true},
	{is(errPayloadTooLarge), 413, "payload-too-large", "The body is too large", "The body is larger than this server reads.", false},
	{is(errUnsupportedMediaType), 415, "unsupported-media-type", "The body is of another type", "Send the body as Content-Type: application/json, without a Content-Encoding.", false},

	{is(accounts.ErrExists), 409, "account-exists", "The account exists", "An account with this id is there already.", false},
	{is(accounts.ErrNotEmpty), 409, "account-not-empty", "The account is not empty", "An account is closed with a zero balance only, and while nothing of it is held.", false},
	{is(accounts.ErrClosed), 422, "account-closed", "The account is closed", "The account is closed, for good.", false},
	{is(accounts.ErrExternal), 422, "external-account", "The account is external", "External accounts are not changed but by transfers.", false},

	{as[*accounts.OutOfLimitsError], 409, "balance-out-of-limits", "The balance is beyond the limit", "", false},

	{as[*payment.StatusError], 409, "payment-status", "The payment's status does not allow this", "", false},

	{is(transfer.ErrSameAccount), 422, "same-account", "Both accounts are the same", "The debit and the credit account must differ.", false},
	{is(transfer.ErrAccountNotFound), 422, "account-not-found", "An account does not exist", "", false},
	{is(transfer.ErrCurrencyMismatch), 422, "currency-mismatch", "The currencies differ", "", false},
	{is(transfer.ErrAccountFrozen), 422, "account-frozen", "An account is frozen", "", false},
	{is(transfer.ErrAccountClosed), 422, "account-closed", "The account is closed", "", false},
	{is(transfer.ErrDebitsBlocked), 422, "debits-blocked", "An account's debits are blocked", "", false},
	{is(transfer.ErrCreditsBlocked), 422, "credits-blocked", "An account's credits are blocked", "", false},
	{is(transfer.ErrReferenceUsed), 409, "reference-used", "The reference is used", "", false},
	{is(transfer.ErrVersionMismatch), 409, "version-mismatch", "The account has another version", "", false},
	{is(transfer.ErrInsufficientFunds), 422, "insufficient-funds", "Insufficient funds", "", false},
	{is(transfer.ErrMaxBalanceExceeded), 422, "max-balance-exceeded", "A balance would exceed its maximum", "", false},
	{is(transfer.ErrLimitExceeded), 422, "limit-exceeded", "A balance would leave its range", "", false},
	{is(transfer.ErrHoldStatus), 409, "hold-status", "The hold's status does not allow this", "", false},
	{is(transfer.ErrCaptureExceedsHold), 422, "capture-exceeds-hold", "More than what is left of the hold", "", false},
	{is(transfer.ErrReversalExceedsTransfer), 422, "reversal-exceeds-transfer", "More than what is left of the transfer", "", false},
	{is(transfer.ErrReversalOfReversal), 422, "reversal-of-reversal", "The transfer is a reversal", "A reversal is not reversed: make another transfer.", false},
	{is(idempotency.ErrKeyReused), 422, "idempotency-key-reused", "The idempotency key is used",
		"This Idempotency-Key was first used for something else. Nothing was done; use another key.", false},

	{is(transfer.ErrOverloaded), 503, "overloaded", "Too many requests", "Too many transfers are waiting. Nothing was done.", true},
	{is(errOverloaded), 503, "overloaded", "Too many requests", "Too many requests are in flight. Nothing was done.", true},
	{is(errNotReady), 503, "unavailable", "The service is unavailable", "The service is not ready.", true},
	{is(retry.ErrLockUnavailable), 409, "lock-unavailable", "A lock is not available", "Somebody else held what this needs for too long. Nothing was done.", true},
	{is(retry.ErrUnavailable), 503, "unavailable", "The service is unavailable", "The database cannot serve this now. Nothing was done.", true},
	{as[*retry.ExhaustedError], 503, "contention", "Too much contention", "Others kept changing the same accounts. Nothing was done.", true},
	{is(retry.ErrConflict), 503, "contention", "Too much contention", "Others kept changing the same accounts. Nothing was done.", true},
}

// unknown is for errors that no line of the table matches. Their text is
// logged and never sent.
var unknown = kind{status: 500, code: "internal", title: "Internal error",
	detail: "Something is wrong with the service, and has been logged. Send the same request with the same Idempotency-Key again later."}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func kindOf(err error) kind {
	for _, k := range kinds {
		if k.matches(err) {
			return k
		}
	}
	return unknown
}

// documentation is where each code has its heading.
const documentation = "https://github.com/rowlock/ledger/blob/main/docs/problems.md#"

// A problem is the body of an answer that is none, by RFC 9457.
type problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Instance  string  `json:"instance"`
	Code      string  `json:"code"`
	Retryable bool    `json:"retryable"`
	Errors    []fault `json:"errors,omitempty"`
	AccountID string  `json:"account_id,omitempty"`
	Currency  string  `json:"currency,omitempty"`
	Available string  `json:"available,omitempty"`
	Required  string  `json:"required,omitempty"`

	// For holds, reversals, references, versions and batches.
	TransferID string `json:"transfer_id,omitempty"`
	HoldID     string `json:"hold_id,omitempty"`
	HoldStatus string `json:"hold_status,omitempty"`
	Version    string `json:"version,omitempty"`
	Index      *int   `json:"index,omitempty"`

	// For a limit that is not set.
	Balance    string  `json:"balance,omitempty"`
	Held       string  `json:"held,omitempty"`
	MinBalance *string `json:"min_balance,omitempty"`
	MaxBalance *string `json:"max_balance,omitempty"`
}

type fault struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// An occurrence is an error whose instance is known: a replay must name the
// same one.
type occurrence struct {
	error
	instance string
}

func (o *occurrence) Unwrap() error { return o.error }

// describe is the problem that err is, in the request of that id.
func describe(err error, requestID string) problem {
	k := kindOf(err)
	p := problem{
		Type: documentation + k.code, Title: k.title, Status: k.status, Detail: k.detail,
		Instance: instance(requestID), Code: k.code, Retryable: k.retryable,
	}
	if o, ok := errors.AsType[*occurrence](err); ok {
		p.Instance = o.instance
	}
	if k.detail != "" {
		return p
	}
	if e, ok := errors.AsType[*invalid.Error](err); ok {
		p.Errors, p.Detail = faults(e)
	}
	if e, ok := errors.AsType[*payment.StatusError](err); ok {
		p.Detail = e.Error()
	}
	if e, ok := errors.AsType[*accounts.OutOfLimitsError](err); ok {
		p.Detail, p.AccountID, p.Currency = e.Error(), e.AccountID.String(), e.Currency
		p.Balance, p.Held = money.Format(e.Balance, e.Currency), money.Format(e.Held, e.Currency)
		p.MinBalance, p.MaxBalance = formatOptional(e.MinBalance, e.Currency), formatOptional(e.MaxBalance, e.Currency)
	}
	if refusal, ok := errors.AsType[*transfer.Refusal](err); ok {
		p.Detail = refusal.Error()
		p.Instance = "urn:uuid:" + refusal.TransferID.String()
		p.AccountID = refusal.AccountID.String()
		p.Currency, p.Available, p.Required = refusal.Currency, refusal.Available, refusal.Required
		p.HoldStatus, p.Version, p.Index = refusal.Status, refusal.Version, refusal.Index
		switch {
		case refusal.OtherID == nil:
		case errors.Is(refusal, transfer.ErrHoldStatus), errors.Is(refusal, transfer.ErrCaptureExceedsHold):
			p.HoldID = refusal.OtherID.String()
		default:
			p.TransferID = refusal.OtherID.String()
		}
	}
	return p
}

// instance names the request as a URI.
func instance(requestID string) string {
	if _, err := uuid.Parse(requestID); err == nil {
		return "urn:uuid:" + requestID
	}
	return "urn:x-request-id:" + requestID
}

// faults are e's, in the order of their fields, and in one sentence.
func faults(e *invalid.Error) (all []fault, detail string) {
	sorted := slices.SortedFunc(slices.Values(e.Faults), func(a, b invalid.Fault) int { return strings.Compare(a.Field, b.Field) })
	var sentences []string
	for _, f := range sorted {
		f.Field, f.Detail = cmp.Or(clip(f.Field), `""`), clip(f.Detail) // a name may be empty
		all = append(all, fault(f))
		sentences = append(sentences, f.Field+" "+f.Detail)
	}
	return all, strings.Join(sentences, "; ")
}

// clip shortens and cleans text that the caller chose.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		cut := limit
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// writeProblem answers with the problem that err is.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r)
	p := describe(err, c.id)
	c.code, c.err = p.Code, err
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Retryable && p.Status != http.StatusRequestTimeout {
		w.Header().Set("Retry-After", "1")
	}
	write(w, p.Status, p)
}
