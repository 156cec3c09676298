package httpapi

import (
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// transferParams are the parameters of a list of transfers.
var transferParams = []string{
	"account_id", "reference", metadataFamily, "currency", "amount_min", "amount_max", "created_from", "created_to",
	"hold_id", "reverses_transfer_id", "batch_id", "order", "limit", "cursor",
}

const metadataFamily = "metadata[]"

// maxLabels bounds the members of metadata in one search.
const maxLabels = 10

// transferFilter reads what a list of transfers selects, and its order.
func (f *form) transferFilter(q url.Values) transfer.Filter {
	filter := transfer.Filter{
		AccountID:          f.optionalID(q, "account_id"),
		Reference:          q.Get("reference"),
		Metadata:           f.labels(q),
		Currency:           q.Get("currency"),
		CreatedFrom:        f.optionalTime(q, "created_from"),
		CreatedTo:          f.optionalTime(q, "created_to"),
		HoldID:             f.optionalID(q, "hold_id"),
		ReversesTransferID: f.optionalID(q, "reverses_transfer_id"),
		BatchID:            f.optionalID(q, "batch_id"),
		Descending:         f.descending(q, "desc"),
	}
	if q.Has("reference") && filter.Reference == "" {
		f.Add("reference", "must not be empty")
	}
	if q.Has("currency") && !money.IsCurrency(filter.Currency) {
		f.Add("currency", "must be an ISO 4217 code in capitals, like USD")
	}
	for name, bound := range map[string]**decimal.Decimal{"amount_min": &filter.AmountMin, "amount_max": &filter.AmountMax} {
		if !q.Has(name) {
			continue
		}
		if !q.Has("currency") {
			f.Add("currency", "is required with amount_min and amount_max")
		}
		*bound = new(f.amount(name, text{value: q.Get(name), given: true}, filter.Currency, money.ParseAmount))
	}
	return filter
}

// labels reads the members of metadata that are asked for.
func (f *form) labels(q url.Values) map[string]string {
	found := map[string]string{}
	for param, values := range q {
		name, ok := memberOf(metadataFamily, param)
		if !ok {
			continue
		}
		if name == "" {
			f.Add(param, "must name a member of metadata: metadata[NAME]=VALUE")
		}
		f.Text(param, name, invalid.MaxMetadataKey)
		f.Text(param, values[0], invalid.MaxMetadataValue)
		found[name] = values[0]
	}
	if len(found) > maxLabels {
		f.Add("metadata", "must be at most %d members", maxLabels)
	}
	return found
}

func (f *form) optionalID(q url.Values, name string) uuid.UUID {
	if !q.Has(name) {
		return uuid.Nil
	}
	return f.id(name, q.Get(name))
}

func (f *form) optionalTime(q url.Values, name string) time.Time {
	if !q.Has(name) {
		return time.Time{}
	}
	return f.time(name, q.Get(name))
}

// transferList names the list that filter selects, as cursors are bound to it:
// all that decides which transfers it has and in which order.
func transferList(filter transfer.Filter) string {
	list := url.Values{
		"descending": {strconv.FormatBool(filter.Descending)},
		"account_id": {filter.AccountID.String()}, "hold_id": {filter.HoldID.String()},
		"reverses_transfer_id": {filter.ReversesTransferID.String()}, "batch_id": {filter.BatchID.String()},
		"reference": {filter.Reference}, "currency": {filter.Currency},
		"created_from": {filter.CreatedFrom.UTC().Format(time.RFC3339Nano)},
		"created_to":   {filter.CreatedTo.UTC().Format(time.RFC3339Nano)},
	}
	for name, value := range filter.Metadata {
		list.Set("metadata["+name+"]", value)
	}
	if filter.AmountMin != nil {
		list.Set("amount_min", filter.AmountMin.String())
	}
	if filter.AmountMax != nil {
		list.Set("amount_max", filter.AmountMax.String())
	}
	return "transfers?" + list.Encode()
}
