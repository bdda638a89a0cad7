#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# virtio-vsock against a bare Unix socket: see bench/vsock.c.
set -eu
cd "$(dirname "$0")/.."
program=$(realpath "${B:-build}/bench/vsock")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-vsock.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
"$program"
