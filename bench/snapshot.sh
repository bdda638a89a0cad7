#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make bench-snapshot: memory of a snapshot, written and read, beside what its bytes cost alone, and how long the guest stands still
# (bench/snapshot.c). The pause needs KVM: in the lab where there is none. Last line:
#   snapshot write_ratio=... write_first_ratio=... zstd_ratio=... zstd_buffer_ratio=... zstd_first_ratio=... diff_time=... diff_size=... pause_ms=... pause_dirty_mib=...
#
# Environment: B (build directory), MIB (512), RUNS (5).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${B:-build}
case $build in /*) ;; *) build=$top/$build ;; esac
runs=${RUNS:-5}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-snapshot.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
if [ "${1:-}" = pause ]; then
	"$build/bench/snapshot" pause "$work" "$runs"
	exit
fi
"$build/bench/snapshot" memory "$work" "${MIB:-512}" "$runs" | tee "$work/memory"
if [ -w /dev/kvm ]; then
	"$build/bench/snapshot" pause "$work" "$runs" | tee "$work/pause"
else
	echo "# no KVM on this machine: the pause is measured in the lab"
	"$top/tests/lab/lab" --timeout 1200 --in-env "B=$build" --in-env "RUNS=$runs" -- "$0" pause | tee "$work/pause"
fi
echo "snapshot $(sed -n 's/^memory //p' "$work/memory") $(sed -n 's/^pause //p' "$work/pause")"
