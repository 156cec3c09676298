#!/bin/bash
# The entrypoint of the image that image.sh builds. It is what the tests need of
# the official image's: POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB at the
# first start, arguments for the server after that.
#
# It runs as the user postgres, which the image names.
set -euo pipefail

user=${POSTGRES_USER:-postgres}
db=${POSTGRES_DB:-$user}
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH

if [[ ! -s $PGDATA/PG_VERSION ]]; then
	: "${POSTGRES_PASSWORD:?must be set; it becomes the password of the superuser}"
	initdb --username="$user" --pwfile=<(echo "$POSTGRES_PASSWORD") --encoding=UTF8 --locale=C.UTF-8 \
		--auth-local=trust --auth-host=scram-sha-256
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	# In single-user mode there is no temporary server that a client could take
	# for the one that stays.
	if [[ $db != postgres ]]; then
		echo "CREATE DATABASE \"${db//\"/\"\"}\"" | postgres --single postgres >/dev/null
	fi
fi

# The official image is also started as `IMAGE postgres -c …`.
[[ ${1-} != postgres ]] || shift
# exec, so that the container's signals reach the server.
exec postgres -c listen_addresses='*' "$@"
