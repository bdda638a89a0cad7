#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# virtio-blk against bare io_uring: see bench/blk.c. BENCH_MIB: size of the file (256).
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-blk.XXXXXX")
trap 'rm -rf "$dir"' EXIT
head -c "${BENCH_MIB:-256}M" /dev/urandom >"$dir/image"
"${B:-build}/bench/blk" "$dir/image"
