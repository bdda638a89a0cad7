#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make bench-boot: start-up and boot times beside QEMU's microvm machine (bench/boot.c says what is measured). Runs
# in the lab when this machine's KVM is not a full one. Last line:
#   boot start_ratio=... ratio_qemu=... exits_ratio=... rss_mib=...
#
# Environment: B (build directory), RUNS (10), KERNEL (the small guest kernel when built, else Debian's cloud kernel),
# MEMORY (MiB, 256).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${B:-build}
case $build in /*) ;; *) build=$top/$build ;; esac
runs=${RUNS:-10}
memory=${MEMORY:-256}

die() { echo "bench-boot: $*" >&2; exit 1; }

full_kvm() { [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; }

if [ -z "${LAB:-}" ] && ! full_kvm; then
	echo "# no full KVM on this machine: in the lab, where only the ratios mean something"
	exec "$top/tests/lab/lab" --timeout 7200 --in-env "B=$build" --in-env "RUNS=$runs" --in-env "MEMORY=$memory" \
		--in-env "KERNEL=${KERNEL:-}" -- "$0"
fi

newest() { # of the files that exist
	for f; do [ -r "$f" ] && echo "$f"; done | sort -V | tail -n 1
}

kernel=${KERNEL:-}
[ -n "$kernel" ] || kernel=$(newest "${XDG_CACHE_HOME:-$HOME/.cache}/coffer/kernel/current/vmlinux")
[ -n "$kernel" ] || kernel=$(newest /boot/vmlinuz-*-cloud-amd64)
[ -n "$kernel" ] || die "no kernel: run make guest-kernel, install linux-image-cloud-amd64, or set KERNEL"
[ -x /usr/bin/qemu-system-x86_64 ] || die "QEMU is missing: apt-get install qemu-system-x86"

# VM exits are counted by KVM in debugfs; without root exits_ratio is "unknown".
if [ "$(id -u)" = 0 ] && [ ! -d /sys/kernel/debug/kvm ]; then
	mount -t debugfs debugfs /sys/kernel/debug || echo "# no debugfs: exits cannot be counted"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
echo "# kernel $kernel, $memory MiB, $runs runs each"
"$build/bench/boot" "$build/coffer-vmm" "$kernel" "$work" "$runs" "$memory"
