# SPDX-License-Identifier: Apache-2.0
# Sourced by the style checks. sources PATTERN...: the project's files that match, without build output.
sources() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files -- "$@" | while read -r f; do [ -e "$f" ] && echo "$f"; done
	else
		for pattern in "$@"; do
			find . -path ./build -prune -o -path './build-*' -prune -o -type f -path "./$pattern" -print
		done | sed 's|^\./||'
	fi
}
# verdict TEXT: fails with it unless it is empty
verdict() {
	[ -z "$1" ] && exit 0
	printf '%s\n' "$1"
	exit 1
}
