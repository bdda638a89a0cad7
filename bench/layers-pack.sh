#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packing: see bench/layers_pack.c. BENCH_PACK_MIB: bytes that have changed (256), the contents of this machine's own files.
set -euo pipefail
cd "$(dirname "$0")/.."
export B=${B:-build}
command -v zstd >/dev/null || { echo "no zstd: install it" >&2; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-layers-pack.XXXXXX")
trap 'rm -rf "$dir"' EXIT
mib=${BENCH_PACK_MIB:-256}
find /usr /opt /var/lib -xdev -type f -size +0 -print0 2>/dev/null | sort -z | { xargs -0 cat 2>/dev/null || :; } | head -c "${mib}M" >"$dir/raw" || :
"$B/bench/layers_pack" "$dir" "${BENCH_PACK_ROUNDS:-5}"
