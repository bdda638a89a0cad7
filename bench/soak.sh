#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make bench-soak: restore, run, discard, and count what stays (bench/soak.py). In the lab where there is no full KVM. Last line:
#   soak payload_cycles=... linux_cycles=... grown=0
#
# Environment: B (build directory), PAYLOAD (1000), LINUX (200): cycles of each, 0 leaves one out.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${B:-build}
case $build in /*) ;; *) build=$top/$build ;; esac

for program in coffer coffer-vmm bench/restore; do
	[ -x "$build/$program" ] || { echo "bench-soak: $build/$program is not there: make bench-soak builds it, or set B" >&2; exit 1; }
done

full_kvm() { [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; }

if [ -z "${LAB:-}" ] && ! full_kvm; then
	echo "# no full KVM on this machine: in the lab"
	exec "$top/tests/lab/lab" --timeout 7200 --in-env "B=$build" --in-env "PAYLOAD=${PAYLOAD:-1000}" --in-env "LINUX=${LINUX:-200}" -- "$0"
fi

T=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-soak.XXXXXX")
trap 'rm -rf "$T"' EXIT INT TERM
TOP=$top COFFER=$build/coffer B=$build
mkdir "$T/run" "$T/work"
export TOP COFFER B T XDG_RUNTIME_DIR="$T/run"
. "$top/tests/boot/common.sh"
need_image
IMAGE=$IMAGE WORK=$T CACHE=$cache "$top/bench/soak.py"
