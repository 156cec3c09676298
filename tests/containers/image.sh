#!/usr/bin/env bash
# image.sh prints the name of a PostgreSQL image that the Docker daemon has;
# everything else goes to stderr.
#
# That is the image LEDGER_TEST_POSTGRES_IMAGE, else the official one, and where
# no registry can be reached one that is built here, once, from the packages of
# the Debian (or Ubuntu) that this machine runs.
#
# Exit status 3 means that no image can be had; why is on stderr.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The same default as internal/testdb's.
official=postgres:17-alpine

say() { echo "image.sh: $*" >&2; }

unavailable() {
	say "NO IMAGE: $*"
	exit 3
}

# have is true if the daemon has the image $1 or can pull it.
have() {
	docker image inspect "$1" >/dev/null 2>&1 || docker pull "$1" >&2
}

# mirror prints where this machine gets its Debian from, as apt sees it.
mirror() {
	# apt expands these, not the shell.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F'|' -v codename="$1" '($1 == "Debian" || $1 == "Ubuntu") && $2 == codename && $3 == "main" { print $4; exit }'
}

# build makes the image $1.
build() {
	[[ $(id -u) == 0 ]] || unavailable "$official cannot be pulled, and only root can build one from packages"
	command -v apt-get >/dev/null || unavailable "$official cannot be pulled, and this is not Debian, whose packages one would be built from"
	if ! command -v debootstrap >/dev/null; then
		say "installing debootstrap"
		{ apt-get update && apt-get install -y --no-install-recommends debootstrap; } >&2 ||
			unavailable "apt-get could not install debootstrap"
	fi

	local codename from
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	from=$(mirror "$codename")
	if [[ -z $from ]]; then
		apt-get update >&2
		from=$(mirror "$codename")
	fi
	[[ -n $from ]] || unavailable "apt's sources name no mirror of $codename"

	work=$(mktemp -d)
	trap clean_up EXIT
	local root=$work/root
	say "building $1 from the packages of $codename"
	debootstrap --variant=minbase "$codename" "$root" "$from" >&2

	# Not among debootstrap's own packages, because postgresql's installation
	# makes a cluster and starts a server, here on the host, unless it finds
	# these two files.
	mkdir -p "$root/etc/postgresql-common"
	echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends postgresql >&2

	install -m 755 "$here/postgres-entrypoint.sh" "$root/usr/local/bin/postgres-entrypoint.sh"
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
	# Earlier versions of these files have left images that nobody asks for now;
	# one that another run still uses stays.
	docker image ls --quiet "${1%:*}" | xargs --no-run-if-empty docker image rm >&2 || true
	tar --create --directory "$root" . | docker import \
		--change 'ENTRYPOINT ["postgres-entrypoint.sh"]' \
		--change 'ENV PGDATA=/var/lib/postgresql/data' \
		--change 'EXPOSE 5432' \
		--change 'USER postgres' \
		- "$1" >&2
}

clean_up() {
	# debootstrap leaves it mounted when it fails.
	umount "$work/root/proc" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}

if [[ -n ${LEDGER_TEST_POSTGRES_IMAGE-} ]]; then
	# Whoever names an image means that one.
	have "$LEDGER_TEST_POSTGRES_IMAGE" || unavailable "$LEDGER_TEST_POSTGRES_IMAGE is not here and cannot be pulled"
	echo "$LEDGER_TEST_POSTGRES_IMAGE"
	exit
fi

# The tag says what it was built by, so that a change here builds it anew.
own=ledger-test-postgres:$(cat "$here"/{image,postgres-entrypoint}.sh | cksum | cut -d' ' -f1)
if docker image inspect "$own" >/dev/null 2>&1; then
	echo "$own"
elif have "$official"; then
	echo "$official"
else
	say "$official cannot be pulled"
	build "$own"
	echo "$own"
fi
