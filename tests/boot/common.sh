# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016
# What boot tests share; sourced, not run. The runner sets COFFER, B, T, TOP and XDG_RUNTIME_DIR (tests/run says how).
#
#   need_image          IMAGE: a small root with busybox, built once and kept in the cache
#   raw_image FILE      the same as a file, a disk without layers
#   run ARGS...         coffer run with that image and little memory
#   need_vm             VM: the name of a running VM. In the lab all tests share one, since a boot takes long there and the
#                       lab ends with it; on a real machine each has its own, which ends with the test
#   expect N CMD...     CMD must end with status N
#   same A B            two strings must be equal
#   gone                nothing of any VM may be left below XDG_RUNTIME_DIR and XDG_STATE_HOME
#   until_true CMD...   wait until CMD succeeds; the runner's time limit is the limit
set -eu
export XDG_STATE_HOME="$T/state"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/coffer
LC_ALL=C
export LC_ALL

fail() {
	echo "FAILED: $*"
	exit 1
}

# The last line says why the runner skips it.
skip() {
	echo "$*"
	exit 77
}

same() {
	[ "$1" = "$2" ] || fail "'$1' should be '$2'"
}

expect() {
	expect_status=$1
	shift
	status=0
	"$@" || status=$?
	[ "$status" = "$expect_status" ] || fail "status $status, not $expect_status: $*"
}

until_true() {
	until "$@"; do
		sleep 0.1
	done
}

need_image() {
	busybox=$(command -v busybox) || skip "no busybox: install busybox-static"
	export XDG_DATA_HOME="$cache/boot-tests"
	IMAGE=busybox-$(cat "$busybox" "$TOP/tests/boot/common.sh" "$TOP/host/ext4_write.c" "$TOP/host/image_manifest.c" | sha256sum | cut -c1-16)
	mkdir -p "$XDG_DATA_HOME"
	exec 9>"$XDG_DATA_HOME/lock"
	flock 9
	"$COFFER" image ls --json | grep -q "\"$IMAGE\"" || build_image
	exec 9>&-
}

make_root() {
	root=$1
	for dir in bin dev etc proc root run sys tmp usr/bin var; do
		mkdir -p "$root/$dir"
	done
	cp "$busybox" "$root/bin/busybox"
	for applet in $("$busybox" --list); do
		[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
	done
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	chmod 1777 "$root/tmp"
}

raw_image() {
	make_root "$T/root"
	mke2fs -q -F -t ext4 -E root_owner=0:0 -d "$T/root" "$1" 64M
	chmod 644 "$1"
	rm -rf "$T/root"
}

build_image() {
	make_root "$T/root"
	"$COFFER" image build "$root" --name "$IMAGE" --root-owner >&2
	rm -rf "$root"
}

run() {
	"$COFFER" run --image "$IMAGE" --memory 256M "$@"
}

need_vm() {
	need_image
	VM=shared
	if [ -z "${LAB:-}" ]; then
		# shellcheck disable=SC2064
		trap "\"$COFFER\" kill $VM 2>/dev/null || :" EXIT
		run --name "$VM" --keep -- true
		return
	fi
	export XDG_RUNTIME_DIR=/run/boot-tests XDG_STATE_HOME=/run/boot-tests/state
	mkdir -p "$XDG_RUNTIME_DIR"
	chmod 700 "$XDG_RUNTIME_DIR"
	exec 9>"$XDG_RUNTIME_DIR/lock"
	flock 9
	"$COFFER" exec "$VM" true 2>/dev/null || { "$COFFER" kill "$VM" 2>/dev/null || :; run --name "$VM" --keep -- true 9>&-; }
	exec 9>&-
}

gone() {
	same "$("$COFFER" ps -q)" ""
	same "$(find "$XDG_RUNTIME_DIR/coffer" "$XDG_STATE_HOME/coffer/vms" -mindepth 1 2>/dev/null)" ""
}
