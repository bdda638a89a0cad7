#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of packages.txt that are missing: as root, or with sudo where that asks no password or there
# is a terminal to ask on. Says nothing when all is there; a stamp in the build directory makes that quick.
# Usage: scripts/setup.sh     B=build directory (default build)
set -eu
cd "$(dirname "$0")/.."
stamp=${B:-build}/setup.stamp
wanted=$(sed 's/#.*//' packages.txt | tr -s ' \t\n' '   ')
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ "$stamp" -nt /var/lib/dpkg/status ] && exit 0

die() {
	echo "setup: $*" >&2
	exit 1
}
command -v dpkg-query >/dev/null || die "this is no Debian system; install the equivalent of: $wanted"
# shellcheck disable=SC2086
have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^[ih]i *//p' | tr '\n' ' ')
missing=
for p in $wanted; do
	case " $have " in
	*" $p "*) ;;
	*) missing="$missing $p" ;;
	esac
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ]; then
		root=
	elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
		root=sudo
	else
		die "not root, and sudo does not help; as root: apt-get install$missing"
	fi
	# The tests start a registry of their own, on loopback: Debian's is not to run on this machine because of them.
	service=
	case "$missing " in
	*" docker-registry "*) [ ! -d /run/systemd/system ] || service=docker-registry ;;
	esac
	[ -z "$service" ] || $root systemctl -q mask --runtime "$service"
	echo "setup: installing$missing"
	$root apt-get update -qq || die "apt-get update failed; is there a network?"
	# shellcheck disable=SC2086
	$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing ||
		die "apt-get could not install$missing"
	[ -z "$service" ] || $root systemctl -q unmask --runtime "$service"
	[ -z "$service" ] || $root systemctl -q disable "$service"
fi
# Where the stamp cannot be written, the build says so better.
{ mkdir -p "$(dirname "$stamp")" && echo "$wanted" >"$stamp"; } 2>/dev/null || :
