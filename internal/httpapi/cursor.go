package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/url"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// A cursor is a place in one list: a check sum, then the place. The sum covers
// the list, by a text of all that decides its items and their order, so a
// cursor of another list is refused, and so is one that was changed. It is no
// secret: who forges one reads what a request without it reads, too.

const sumSize = 8

// sealCursor makes the cursor of a place in a list.
func sealCursor(list string, place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(cursorSum(list, place), place...))
}

// openCursor returns the place of a cursor of list, which has size bytes.
func openCursor(list, cursor string, size int) (place []byte, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) != sumSize+size {
		return nil, false
	}
	// The same place has one spelling: the decoder ignores line breaks.
	place = data[sumSize:]
	return place, sealCursor(list, place) == cursor
}

func cursorSum(list string, place []byte) []byte {
	hash := sha256.New()
	hash.Write([]byte("cursor 1\x00" + list + "\x00"))
	hash.Write(place)
	return hash.Sum(nil)[:sumSize]
}

// cursor reads the place that the request's cursor names in list; nil where
// there is none.
func (f *form) cursor(q url.Values, list string, size int) []byte {
	if !q.Has("cursor") {
		return nil
	}
	place, ok := openCursor(list, q.Get("cursor"), size)
	if !ok {
		f.Add("cursor", "must be the next_cursor of a page of this list, with the same filter and order")
	}
	return place
}

// paged cuts off the item that was read only to see whether there is a next
// page, and returns its cursor. place is where an item stands in list.
func paged[T any](items []T, limit int, list string, place func(T) []byte) (page []T, next *string) {
	if len(items) <= limit {
		return items, nil
	}
	page = items[:limit]
	cursor := sealCursor(list, place(page[limit-1]))
	return page, &cursor
}

// Places, as bytes.
const (
	idSize       = 16
	versionSize  = 8
	positionSize = versionSize + 8 + 8 + idSize
)

func versionPlace(version int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(version)) }

func placeVersion(place []byte) int64 { return int64(binary.BigEndian.Uint64(place)) }

func positionPlace(p transfer.Position) []byte {
	place := binary.BigEndian.AppendUint64(versionPlace(p.Version), uint64(p.Cluster))
	place = binary.BigEndian.AppendUint64(place, p.TxID)
	return append(place, p.ID[:]...)
}

func placePosition(place []byte) transfer.Position {
	return transfer.Position{
		Version: placeVersion(place[:versionSize]),
		Cluster: int64(binary.BigEndian.Uint64(place[versionSize:])),
		TxID:    binary.BigEndian.Uint64(place[versionSize+8:]),
		ID:      uuid.UUID(place[positionSize-idSize:]),
	}
}
