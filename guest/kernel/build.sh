#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Build the guest kernel from Debian's linux-source package, or find it in the cache.
#
#   guest/kernel/build.sh          build if needed; print the directory that holds the kernel
#   guest/kernel/build.sh --find   print the directory if it is built, else exit 1; builds nothing
#
# The directory is $XDG_CACHE_HOME/coffer/kernel/HASH with vmlinux (stripped, with the PVH note), bzImage,
# config and System.map. HASH covers the source tarball, coffer.config and this script. It appears by
# one rename when everything in it is whole. `kernel/current` is a link to the last one built or found,
# for programs that cannot compute the hash.
#
# Environment: LINUX_SOURCE (tarball), JOBS (parallel make jobs), NICE (default 5), KEEP_FAILED=1.
# Progress goes to stderr, the directory alone to stdout.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
fragment=$here/coffer.config
source=${LINUX_SOURCE:-/usr/src/linux-source-6.12.tar.xz}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/coffer/kernel
jobs=${JOBS:-$(nproc)}

say() { echo "guest-kernel: $*" >&2; }
die() { say "$*"; exit 1; }

[ "$#" -le 1 ] || die "usage: build.sh [--find]"
case ${1:-} in
'') find_only=0 ;;
--find) find_only=1 ;;
*) die "unknown argument '$1' (usage: build.sh [--find])" ;;
esac

[ -r "$source" ] || die "no kernel source at $source: apt-get install linux-source-6.12, or set LINUX_SOURCE"
[ "$(uname -m)" = x86_64 ] || die "builds natively on x86_64 only, this is $(uname -m)"

hash=$(sha256sum -- "$source" "$fragment" "$here/build.sh" | cut -c1-64 | sha256sum | cut -c1-24)
out=$cache/$hash

publish() {
	# ln -sfn is unlink and create; a rename has no moment without the link.
	ln -s "$hash" "$cache/.current.$$"
	mv -T "$cache/.current.$$" "$cache/current"
}

if [ -e "$out/vmlinux" ]; then
	[ "$(readlink "$cache/current" 2>/dev/null)" = "$hash" ] || publish
	echo "$out"
	exit 0
fi
[ "$find_only" = 0 ] || die "not built yet: make guest-kernel"

missing=
for tool in gcc make flex bison bc lz4 xz tar strip flock; do
	command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -e /usr/include/libelf.h ] || missing="$missing libelf-dev"
[ -z "$missing" ] || die "missing:$missing (apt-get install gcc make flex bison bc lz4 xz-utils binutils libelf-dev)"

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock -n 9 || { say "another build is running, waiting for it"; flock 9; }
if [ -e "$out/vmlinux" ]; then
	echo "$out"
	exit 0
fi

# Holding the lock, whatever is left of an earlier build belongs to nobody.
rm -rf "$cache"/.build.*
free_mib=$(df -Pm "$cache" | awk 'NR == 2 { print $4 }')
[ "$free_mib" -ge 3000 ] || die "needs 3000 MiB in $cache, $free_mib MiB are free"

work=$cache/.build.$$
finish() {
	if [ "${KEEP_FAILED:-0}" = 1 ] && [ ! -e "$out/vmlinux" ]; then
		say "kept $work"
	else
		rm -rf "$work"
	fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir -p "$work/src" "$work/obj" "$work/new"
start=$(date +%s)

say "unpacking $source"
# Two thirds of the files are no part of this kernel, and most of the time on a busy disk. Kconfig and Makefiles stay.
set -f
excludes='*/Documentation/*/* */tools/perf/* */tools/testing/* */samples/*.c */sound/soc/*.[ch] */sound/pci/*.[ch]'
for dir in gpu/drm/amd gpu/drm/nouveau gpu/drm/i915 gpu/drm/xe gpu/drm/msm infiniband media net/ethernet net/wireless scsi \
	staging usb iio hwmon clk pinctrl; do
	excludes="$excludes */drivers/$dir/*.[ch]"
done
for dir in alpha arc arm arm64 csky hexagon loongarch m68k microblaze mips nios2 openrisc parisc powerpc riscv s390 sh sparc um \
	xtensa; do
	excludes="$excludes */arch/$dir/*.[chS] */arch/$dir/*.dts*"
done
# shellcheck disable=SC2086
tar -C "$work/src" --strip-components=1 $(printf -- '--exclude=%s ' $excludes) -xf "$source"
set +f

export KBUILD_BUILD_USER=coffer KBUILD_BUILD_HOST=coffer KBUILD_BUILD_VERSION=1
KBUILD_BUILD_TIMESTAMP=$(date -u -r "$work/src/Makefile" '+%Y-%m-%d %H:%M:%S UTC')
export KBUILD_BUILD_TIMESTAMP
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS LDFLAGS CC ARCH CROSS_COMPILE O B V || :

kmake() {
	nice -n "${NICE:-5}" make -C "$work/src" O="$work/obj" -j"$jobs" "$@" 9>&-
}

say "configuring"
kmake -s KCONFIG_ALLCONFIG="$fragment" allnoconfig >"$work/config.log" 2>&1 || {
	cat "$work/config.log" >&2
	die "configuration failed"
}
absent=$(grep '^CONFIG_' "$fragment" | grep -vxFf "$work/obj/.config" || :)
if [ -n "$absent" ]; then
	echo "$absent" >&2
	die "the kernel did not accept the settings above from $fragment (renamed, or a dependency is off)"
fi

say "compiling $(sed -n 's/^# Linux\/x86 \([^ ]*\).*/\1/p' "$work/obj/.config") with $jobs jobs"
if [ -t 2 ]; then
	count=0
	status=$work/status
	{ kmake bzImage 2>"$work/build.err" || echo failed >"$status"; } | while read -r line; do
		count=$((count + 1))
		[ $((count % 20)) -ne 0 ] || printf '\rguest-kernel: %5d files  %-50.50s' "$count" "$line" >&2
	done
	printf '\r%79s\r' '' >&2
	[ ! -e "$status" ] || { tail -n 40 "$work/build.err" >&2; die "compilation failed"; }
else
	kmake -s bzImage >"$work/build.err" 2>&1 || { tail -n 40 "$work/build.err" >&2; die "compilation failed"; }
fi

strip --strip-all -o "$work/new/vmlinux" "$work/obj/vmlinux"
cp "$work/obj/arch/x86/boot/bzImage" "$work/obj/System.map" "$work/new/"
cp "$work/obj/.config" "$work/new/config"
readelf -n "$work/new/vmlinux" 2>/dev/null | grep -q '^  Xen' || die "vmlinux lost its PVH note"
chmod 0644 "$work/new"/*
sync "$work/new"/*
rm -rf "$out"
mv -T "$work/new" "$out"
publish
say "built in $(($(date +%s) - start)) s: vmlinux $(du -k "$out/vmlinux" | cut -f1) KiB, bzImage $(du -k "$out/bzImage" | cut -f1) KiB"
echo "$out"
