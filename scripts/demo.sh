#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job on real input: a Debian guest runs commands. Builds the image the first time (some minutes, from the
# host's Debian mirror), then starts one VM and works in it. Without a full KVM the same runs in the lab.
# Usage: scripts/demo.sh     B=build directory (default build)
set -eu
cd "$(dirname "$0")/.."
top=$PWD
B=${B:-build}
case $B in /*) ;; *) B=$top/$B ;; esac
coffer=$B/coffer

# Print a command as a user would type it, run it, and show its exit status unless that is 0.
show() {
	printf '$ coffer'
	for word; do
		case $word in
		*[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	echo
	status=0
	"$coffer" "$@" || status=$?
	[ "$status" -eq 0 ] || echo "(exit status $status)"
}

work() {
	trap '[ -z "$vm" ] || "$coffer" kill "$vm" >/dev/null 2>&1 || :; rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM
	vm=demo-$$
	tmp=$(mktemp -d)
	show run --keep --name "$vm" -- uname -a
	[ "$status" -eq 0 ] || exit 1
	show exec "$vm" python3 -c 'import platform as p; print("Python", p.python_version(), "on", p.freedesktop_os_release()["PRETTY_NAME"])'
	show exec "$vm" sh -c 'git init -q /src && cd /src && echo hello >README && git add . && git -c user.name=a -c user.email=a@b commit -qm first && git log --oneline | wc -l'
	show cp "$vm:/src/README" "$tmp/README"
	cat "$tmp/README"
	show exec "$vm" sh -c 'echo to stdout; echo to stderr >&2; exit 7'
	[ "$status" -eq 7 ] || exit 1
	show snapshot "$vm" --to "$tmp/prepared"
	show run --from "$tmp/prepared" -- git -C /src log --oneline --format=%s
	[ "$status" -eq 0 ] || exit 1
	show ps
	show kill "$vm"
	vm=
}

if [ "${1:-}" = --work ]; then
	work
	exit 0
fi

if ! "$coffer" image show debian >/dev/null 2>&1; then
	echo "building the debian image, once"
	"$coffer" image build debian --replace
fi
# What takes no VM is made here, so that it is there the next time, in the lab too.
"$coffer" run --prepare
if [ "$("$coffer" doctor --verdict || :)" = full ]; then
	echo "on this machine's own KVM:"
	work
else
	echo "in the lab, since this machine has no full KVM (an emulated machine: seconds there are not seconds on real hardware):"
	exec tests/lab/lab --in-env "B=$B" --in-env XDG_STATE_HOME=/tmp/state -- scripts/demo.sh --work
fi
