#!/usr/bin/env bash
# docker.sh sees to it that a Docker daemon answers.
#
#   docker.sh start   uses the daemon there is; where there is none and this is
#                     root, starts one of our own (on Debian it installs
#                     docker.io first). Prints the DOCKER_HOST of our own
#                     daemon on stdout, and nothing where another's is used.
#   docker.sh stop    stops our own daemon, if it runs. Never another's.
#
# Exit status 3 means that no daemon can be had; why is on stderr.
set -euo pipefail

# Ours has its own state and its own socket, so that a Docker that is installed
# here but stopped finds its images, networks and pid file as it left them.
# What must survive (images) is in lib, what must not survive a reboot in run.
lib=/var/lib/ledger-docker
run=/run/ledger-docker
host=unix://$run/docker.sock

say() { echo "docker.sh: $*" >&2; }

unavailable() {
	say "NO DOCKER: $*"
	say "Install Docker and start it, or run the tests without containers (make test)."
	exit 3
}

answers() { docker ${1+--host "$1"} info >/dev/null 2>&1; }

# own_pid prints the pid of our daemon, if it is alive. The pid file alone is no
# proof: after a reboot or a kill -9 the number may belong to somebody else.
own_pid() {
	local pid
	pid=$(cat "$run/dockerd.pid" 2>/dev/null) || return 1
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "--data-root $lib" || return 1
	echo "$pid"
}

install_docker() {
	command -v apt-get >/dev/null ||
		unavailable "no daemon answers, dockerd is not installed, and this is not Debian, where it would be installed"
	say "installing Debian's docker.io"
	{
		apt-get update &&
			DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker.io iptables
	} >&2 || unavailable "apt-get could not install docker.io"
}

# launch starts dockerd with the given flags added, and waits until it answers.
launch() {
	say "starting dockerd $* (log: $run/dockerd.log)"
	# A session of its own, so that Ctrl-C reaches the tests and not the daemon
	# they need for their clean-up. Descriptors 8 and 9 are locks (below and in
	# run.sh), which a daemon would otherwise hold for as long as it lives.
	setsid dockerd --host "$host" --data-root "$lib" --exec-root "$run/exec" \
		--pidfile "$run/dockerd.pid" "$@" >"$run/dockerd.log" 2>&1 </dev/null 8>&- 9>&- &
	local pid=$!
	for _ in {1..120}; do
		! answers "$host" || return 0
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.5
	done
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	return 1
}

start() {
	! answers || return 0
	[[ $(id -u) == 0 ]] ||
		unavailable "no daemon answers, and only root can start one ($(docker info 2>&1 | tail -n 1))"
	if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
		install_docker
		# On a machine with an init system the package has started its daemon.
		! answers || return 0
	fi
	install --directory --mode=700 "$lib" "$run"
	# Two runs that start together must not start two daemons.
	exec 8>"$run/start.lock"
	flock 8
	if ! own_pid >/dev/null || ! answers "$host"; then
		rm -f "$run/dockerd.pid"
		local flags=()
		# Without NAT in the kernel dockerd does not start unless it is told not
		# to ask for it; published ports then go through its userland proxy.
		iptables --table nat --list --numeric >/dev/null 2>&1 || flags=(--iptables=false --ip6tables=false)
		if ! launch ${flags[@]+"${flags[@]}"}; then
			tail -n 20 "$run/dockerd.log" >&2
			unavailable "dockerd does not start here; the end of its log is above"
		fi
	fi
	echo "$host"
}

stop() {
	local pid
	pid=$(own_pid) || return 0
	kill "$pid"
	for _ in {1..60}; do
		[[ -d /proc/$pid ]] || return 0
		sleep 0.5
	done
	say "dockerd (pid $pid) did not stop within 30 s"
	return 1
}

case ${1-} in
start | stop) "$1" ;;
*)
	say "usage: docker.sh start | stop"
	exit 2
	;;
esac
