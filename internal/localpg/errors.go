package localpg

import "errors"

// What can go wrong that a caller may want to tell apart.
var (
	// ErrInUse says that another live process holds the data directory. Nothing
	// was touched.
	ErrInUse = errors.New("data directory is in use by another ledger")

	// ErrNoBinaries says that no usable PostgreSQL was found or could be
	// downloaded. The text names everything that was tried.
	ErrNoBinaries = errors.New("no usable PostgreSQL binaries")

	// ErrNoAccount says that we are root, as whom PostgreSQL does not run, and
	// that there is no other user to run it as.
	ErrNoAccount = errors.New("no user to run PostgreSQL as")

	// ErrVersion says that the data directory was made by another major version
	// of PostgreSQL than the binaries are. Nothing was touched.
	ErrVersion = errors.New("data directory is of another PostgreSQL version")
)
