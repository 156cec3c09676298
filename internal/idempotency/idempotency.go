// Package idempotency makes a key take effect once. A key is claimed inside
// the transaction of its effect: either both exist or neither does, so there
// is no state in between to clean up. Start reading at [QueueClaims].
package idempotency

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
)

// ErrKeyReused says that the key was first used for something else. Nothing
// was done.
var ErrKeyReused = errors.New("the idempotency key was first used for something else")

// A Key is a client's name for one intended effect. Keys of different
// principals are different keys.
type Key struct {
	Principal string // who names it; "" where callers are not told apart
	Value     string // 1 to 255 printable ASCII characters
}

// Check notes a fault of k, under the name of the header that carries it.
func (k Key) Check(c *invalid.Check) {
	printable := !strings.ContainsFunc(k.Value, func(r rune) bool { return r < ' ' || r > '~' })
	if len(k.Value) < 1 || len(k.Value) > 255 || !printable {
		c.Add("Idempotency-Key", "must be 1 to 255 printable ASCII characters")
	}
}

// A Fingerprint tells one meaning of a key from another.
type Fingerprint [sha256.Size]byte

// Sum is the fingerprint of a route and of what was asked for there, in its
// validated and canonical form: two spellings of one request are one meaning.
func Sum(route string, fields ...string) Fingerprint {
	hash := sha256.New()
	for _, s := range append([]string{route}, fields...) {
		hash.Write(binary.AppendUvarint(nil, uint64(len(s)))) // so that no two lists run together
		hash.Write([]byte(s))
	}
	return Fingerprint(hash.Sum(nil))
}

// SumMap is the canonical form of a map as a field of [Sum].
func SumMap(m map[string]string) string {
	fields := make([]string, 0, 2*len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fields = append(fields, key, m[key])
	}
	sum := Sum("", fields...)
	return string(sum[:])
}

// A Claim ties a key to the effect that it names, which is known by an id that
// was chosen before the first attempt.
type Claim struct {
	Key         Key
	Fingerprint Fingerprint
	ResourceID  uuid.UUID

	// Known is set when the claim has been answered, and Won where the key is
	// this transaction's. Otherwise it was taken before, and [Recall] says for
	// what.
	Known, Won bool
}

// An Outcome is what a key was used for.
type Outcome struct {
	ResourceID uuid.UUID
	Refusal    []byte // JSON; nil for a success
	Answer     []byte // JSON; nil where the resource's row is the answer
}

// A key that another transaction has inserted and not yet committed makes this
// wait for that transaction: equal requests take turns here. The order of the
// rows is the order of the locks.
const insertKeysSQL = `
	INSERT INTO idempotency_keys (principal, key, fingerprint, resource_id)
	SELECT principal, key, fingerprint, resource_id
	  FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) AS claim (principal, key, fingerprint, resource_id)
	 ORDER BY principal COLLATE "C", key COLLATE "C"
	ON CONFLICT (principal, key) DO NOTHING
	RETURNING resource_id`

// QueueClaims queues the claiming of keys, no two of them equal, in the order
// of their bytes, which is the order of their locks everywhere.
func QueueClaims(b *pgx.Batch, claims []*Claim) {
	if len(claims) == 0 {
		return
	}
	sortByKey(claims)
	var (
		principals   = make(pgtype.FlatArray[string], len(claims))
		keys         = make(pgtype.FlatArray[string], len(claims))
		fingerprints = make(pgtype.FlatArray[[]byte], len(claims))
		resources    = make(pgtype.FlatArray[pgtype.UUID], len(claims))
	)
	for i, c := range claims {
		c.Known, c.Won = false, false
		principals[i], keys[i] = c.Key.Principal, c.Key.Value
		fingerprints[i], resources[i] = c.Fingerprint[:], pgtype.UUID{Bytes: c.ResourceID, Valid: true}
	}
	b.Queue(insertKeysSQL, principals, keys, fingerprints, resources).Query(func(rows pgx.Rows) error {
		won, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		for _, c := range claims {
			c.Known, c.Won = err == nil, len(won) == len(claims) || slices.Contains(won, c.ResourceID)
		}
		return err
	})
}

// QueueClaimsApart is [QueueClaims] with a statement for each key.
func QueueClaimsApart(b *pgx.Batch, claims []*Claim) {
	sortByKey(claims)
	for i := range claims {
		QueueClaims(b, claims[i:i+1])
	}
}

func sortByKey(claims []*Claim) {
	slices.SortFunc(claims, func(a, b *Claim) int {
		return cmp.Or(strings.Compare(a.Key.Principal, b.Key.Principal), strings.Compare(a.Key.Value, b.Key.Value))
	})
}

// FOR UPDATE, though nothing is written: the lock makes this transaction write,
// and so its commit waits for what the first answer's commit waited for. A
// commit whose wait for a standby was cancelled is visible here already, and a
// replay that merely read it could be acknowledged and lost at a failover.
const lockKeySQL = `
	SELECT fingerprint, resource_id, refusal, answer
	  FROM idempotency_keys
	 WHERE principal = $1
	   AND key = $2
	   FOR UPDATE`

// QueueRecalls queues the look at what the keys of claims that were not won
// were used for, in the order of their locks. recalled is called for each when
// the batch has run, with [ErrKeyReused] where the key was used for something
// else. The batch's error matches [retry.ErrConflict] where a key has expired
// in between.
func QueueRecalls(b *pgx.Batch, claims []*Claim, recalled func(*Claim, Outcome, error) error) {
	sortByKey(claims)
	for _, c := range claims {
		b.Queue(lockKeySQL, c.Key.Principal, c.Key.Value).QueryRow(func(row pgx.Row) error {
			var o Outcome
			var fingerprint []byte
			err := row.Scan(&fingerprint, &o.ResourceID, &o.Refusal, &o.Answer)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return fmt.Errorf("%w: the idempotency key has just expired", retry.ErrConflict)
			case err != nil:
				return fmt.Errorf("lock idempotency key: %w", err)
			case Fingerprint(fingerprint) != c.Fingerprint:
				return recalled(c, Outcome{}, ErrKeyReused)
			}
			return recalled(c, o, nil)
		})
	}
}

// Recall is [QueueRecalls] for one claim, sent at once.
func Recall(ctx context.Context, tx pgx.Tx, c *Claim) (outcome Outcome, err error) {
	var reused error
	b := &pgx.Batch{}
	QueueRecalls(b, []*Claim{c}, func(_ *Claim, o Outcome, err error) error {
		outcome, reused = o, err
		return nil
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return Outcome{}, err
	}
	return outcome, reused
}

// Await waits until no other transaction claims k or replays it, in a
// transaction that leaves nothing behind.
func Await(ctx context.Context, tx pgx.Tx, k Key) error {
	b := &pgx.Batch{}
	QueueClaims(b, []*Claim{{Key: k}})
	b.Queue(lockKeySQL, k.Principal, k.Value)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("await idempotency key: %w", err)
	}
	return nil
}

const updateRefusalSQL = `
	UPDATE idempotency_keys
	   SET refusal = $3
	 WHERE principal = $1
	   AND key = $2`

// QueueRefusal queues the storing of a refusal, as JSON, under a claimed key.
func QueueRefusal(b *pgx.Batch, k Key, refusal []byte) {
	b.Queue(updateRefusalSQL, k.Principal, k.Value, refusal)
}

const updateAnswerSQL = `
	UPDATE idempotency_keys
	   SET answer = $3
	 WHERE principal = $1
	   AND key = $2`

// QueueAnswer queues the storing of an answer, as JSON, whose resource may
// change later.
func QueueAnswer(b *pgx.Batch, k Key, answer []byte) {
	b.Queue(updateAnswerSQL, k.Principal, k.Value, answer)
}
