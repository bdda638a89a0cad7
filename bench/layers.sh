#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Layers: see bench/layers.c. BENCH_MIB: size of the disk (128). What other programs measure (packing, the wire, first
# output) is a script bench/layers-NAME.sh each, whose last line is name=value pairs; those that are there are run.
set -euo pipefail
cd "$(dirname "$0")/.."
export B=${B:-build}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-layers.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$B/bench/layers" "$dir" "${BENCH_MIB:-128}" | tee "$dir/out"
line="layers $(tail -n 1 "$dir/out")"
for script in bench/layers-*.sh; do
	[ -x "$script" ] || continue
	"$script" | tee "$dir/out"
	line="$line $(tail -n 1 "$dir/out")"
done
echo "$line"
