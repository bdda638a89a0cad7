#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The display: VNC against libvncserver alone and its cost when idle (bench/display.c), the gpu device's transfers against memcpy
# (bench/display_transfer.c), from a click to its frame (bench/display_click.c). The last line is `display name=value ...`.
set -euo pipefail
cd "$(dirname "$0")/.."
export B=${B:-build}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-display.XXXXXX")
trap 'rm -rf "$dir"' EXIT
line=display
for run in "display $dir $B/coffer" display_transfer display_click; do
	"$B/bench/"$run | tee "$dir/out"
	line="$line $(tail -n 1 "$dir/out" | grep -o '[a-z_0-9]*=[^ ]*' | paste -sd' ')"
done
echo "$line"
