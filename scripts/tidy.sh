#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (checks in .clang-tidy) over all sources, two at a time; a line a file, then the totals.
# Usage: scripts/tidy.sh [FILE.c...]   B=build directory with generated headers (default build)
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
command -v clang-tidy >/dev/null || {
	echo "tidy: clang-tidy is not installed: make setup" >&2
	exit 1
}
make -s --no-print-directory B="$B" "$B/seccomp_filter.h"
[ $# -gt 0 ] || set -- $(git ls-files -- 'lib/*.c' 'vmm/*.c' 'devices/*.c' 'snapshot/*.c' 'guest/*.c' 'host/*.c')
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export B out
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
	log=$out/$(echo "{}" | tr / _)
	if clang-tidy --quiet "{}" -- -std=gnu11 -D_GNU_SOURCE -I. -I"$B" -DCOFFER_VERSION=\"0\" >"$log" 2>/dev/null; then
		echo "ok tidy {}"
		echo ok >>$out/.passed
	else
		echo "FAIL tidy {}"
		cat "$log"
		echo fail >>$out/.failed
	fi'
passed=$(cat "$out/.passed" 2>/dev/null | wc -l)
failed=$(cat "$out/.failed" 2>/dev/null | wc -l)
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
