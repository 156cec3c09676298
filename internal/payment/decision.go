package payment

import (
	"context"
	"time"
)

// A Verdict is what a [Decide] function says.
type Verdict int

const (
	Allow Verdict = iota + 1 // make it now
	Deny                     // never make it
	Later                    // ask again
)

// A Decision is an answer to whether a payment may be made.
type Decision struct {
	Verdict Verdict
	Reason  string        // for Deny: a sentence for people, which the payment keeps
	After   time.Duration // for Later: not before that long from now; 0 leaves the pause to the worker
}

// Decide says whether p may be made. It runs outside any transaction, may take
// long, and must end with ctx. It may be asked about a payment more than once,
// whatever it answered before. An error means that there is no answer: the
// payment is tried again later, and no attempt is counted.
type Decide func(ctx context.Context, p Payment) (Decision, error)
