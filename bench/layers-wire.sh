#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes over the wire of a remote image: see bench/layers_wire.py.
set -eu
cd "$(dirname "$0")/.."
export B="${B:-build}"
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-wire.XXXXXX")
trap 'rm -rf "$dir"' EXIT
bench/layers_wire.py "$dir"
