#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make bench-restore: starts from a snapshot beside the least they could cost (bench/restore.c says what is measured). Runs on any
# /dev/kvm, in the lab where there is none. Last line:
#   restore floor_ratio=... warm_ratio=... warm_growth=... clones_per_s=... idle_clone_mib=... fork100_ms=... qemu_ratio=...
# The last one needs a full KVM (a Linux guest): unknown without.
#
# Environment: B (build directory), RUNS (15), CLONES (100), ONLY (growth: the three of growth alone), LAB_MEMORY (of the lab: larger
# guests than it has are left out).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${B:-build}
case $build in /*) ;; *) build=$top/$build ;; esac
runs=${RUNS:-15}
clones=${CLONES:-100}

if [ -z "${LAB:-}" ] && ! [ -w /dev/kvm ]; then
	echo "# no KVM on this machine: in the lab, where only the ratios mean something"
	exec "$top/tests/lab/lab" --timeout 7200 --in-env "B=$build" --in-env "RUNS=$runs" --in-env "CLONES=$clones" \
		--in-env "ONLY=${ONLY:-}" -- "$0"
fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-restore.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
if [ "${ONLY:-}" = growth ]; then
	"$build/bench/restore" growth "$work" "$runs"
	exit
fi
echo "# $runs runs each, $clones clones"
"$build/bench/restore" "$work" "$runs" "$clones" | tee "$work/own"
ratio=unknown
if [ -n "${LAB:-}" ] || [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; then
	T=$work B=$build RUNS=$runs "$top/bench/restore_qemu.py" | tee "$work/qemu"
	ratio=$(sed -n 's/^restore_qemu ratio=//p' "$work/qemu")
fi
echo "$(tail -n 1 "$work/own") qemu_ratio=$ratio"
