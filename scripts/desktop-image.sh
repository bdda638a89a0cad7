#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The desktop image of the tests: built when it is not in the cache or what goes into it has changed, because the lab has no network and
# its writes are lost. The packages are those of the last build when there was one; so a change of our own programs takes seconds.
#
#   scripts/desktop-image.sh          build it if need be; print its name
#   scripts/desktop-image.sh --find   print its name, and fail if it is not there
#
# It lies with the other images of the boot tests, in $XDG_CACHE_HOME/coffer/boot-tests.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/${B:-build}
case ${B:-} in /*) build=$B ;; esac
XDG_DATA_HOME=${XDG_CACHE_HOME:-$HOME/.cache}/coffer/boot-tests
export XDG_DATA_HOME
more=kmscube # what draws in 3D in tests/desktop/virgl
name=desktop-$({ echo "$more"; cat "$build/coffer-session" "$build/coffer-clipboard" "$build/coffer-ready" "$top/host/image_desktop.h" \
	"$top/host/ext4_write.c" "$top/host/image_manifest.c"; } | sha256sum | cut -c1-16)
mkdir -p "$XDG_DATA_HOME"
there() { "$build/coffer" image ls --json | grep -q "\"$name\""; }

if [ "${1:-}" != --find ] && ! there; then
	exec 9>"$XDG_DATA_HOME/desktop.lock"
	flock 9
	if ! there; then
		for old in $("$build/coffer" image ls --json | sed -n 's/.*"name": "\(desktop-[0-9a-f]*\)".*/\1/p'); do
			"$build/coffer" image rm "$old" >&2 || :
		done
		"$build/coffer" image build desktop --name "$name" --include "$more" --cached >/dev/null 2>&1 ||
			"$build/coffer" image build desktop --name "$name" --include "$more" >&2
	fi
fi
there || { echo "no desktop image: run scripts/desktop-image.sh" >&2; exit 1; }
echo "$name"
