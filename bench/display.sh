#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The display: VNC against libvncserver alone and its cost when idle (bench/display.c), the gpu device's transfers against memcpy
# (bench/display_transfer.c), from a click to its frame (bench/display_click.c); where VMs run also in a real desktop
# (bench/display_guest.py). The last line is `display name=value ...`.
set -euo pipefail
cd "$(dirname "$0")/.."
export B=${B:-build}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-display.XXXXXX")
trap 'rm -rf "$dir"' EXIT
line=display
runs=("$B/bench/display $dir $B/coffer" "$B/bench/display_transfer" "$B/bench/display_click")
if [ -w /dev/kvm ] && scripts/desktop-image.sh >/dev/null; then
	runs+=(bench/display_guest.py)
fi
for run in "${runs[@]}"; do
	$run | tee "$dir/out"
	line="$line $(tail -n 1 "$dir/out" | grep -o '[a-z_0-9]*=[^ ]*' | paste -sd' ')"
done
echo "$line"
