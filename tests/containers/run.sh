#!/usr/bin/env bash
# run.sh CMD ARG... runs a command with the tests' PostgreSQL in containers: for
# example  tests/containers/run.sh go test ./tests/race/...
#
# It finds or starts a Docker daemon (docker.sh), finds or builds an image
# (image.sh), and afterwards removes the containers that the command left and
# stops the daemon, if it is ours. The exit status is the command's, or 3 where
# there is no daemon or no image.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

(($# > 0)) || {
	echo "usage: run.sh CMD ARG..." >&2
	exit 2
}

# testcontainers puts this on its containers as a label; here it names those of
# one run.
TESTCONTAINERS_SESSION_ID=ledger-$$-$(date +%s)
export TESTCONTAINERS_SESSION_ID

own=$("$here/docker.sh" start)
if [[ -n $own ]]; then
	export DOCKER_HOST=$own
	# Several runs may share our daemon. Each holds this lock in shared mode; the
	# one that can have it alone at its end is the last, and stops the daemon.
	exec 9>"${own#unix://}.lock"
	flock --shared 9
	# While we waited, the last of the others may have stopped it.
	"$here/docker.sh" start >/dev/null
fi

clean_up() {
	local left
	left=$(docker ps --all --quiet --filter "label=org.testcontainers.sessionId=$TESTCONTAINERS_SESSION_ID") || true
	# Ids have no spaces, and there may be several.
	# shellcheck disable=SC2086
	[[ -z $left ]] || docker rm --force --volumes $left >/dev/null || true
	if [[ -n $own ]] && flock --nonblock 9; then
		"$here/docker.sh" stop || true
	fi
}
trap clean_up EXIT

LEDGER_TEST_POSTGRES_IMAGE=$("$here/image.sh")
export LEDGER_TEST_POSTGRES_IMAGE
export LEDGER_TEST_POSTGRES=container
# So that nothing in this run falls back on it.
unset LEDGER_TEST_DATABASE_URL

if [[ -n $own ]]; then
	# Our daemon is on this side of any container that we may be in ourselves,
	# where testcontainers would look for it at the gateway.
	export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1
fi
if [[ -n $own || $LEDGER_TEST_POSTGRES_IMAGE == ledger-test-postgres:* ]]; then
	# Ryuk, which removes the containers of test processes that died, comes from
	# a registry. This script removes them itself.
	export TESTCONTAINERS_RYUK_DISABLED=true
fi

echo "run.sh: PostgreSQL in containers of $LEDGER_TEST_POSTGRES_IMAGE" >&2
"$@" 9>&-
