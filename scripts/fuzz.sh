#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzz: build tests/fuzz/NAME_fuzz.c with clang, libFuzzer and sanitizers, and run each on its corpus.
#
#   scripts/fuzz.sh [NAME...]          all, or these
#   FUZZ_SECONDS=60                    how long each
#   FUZZ_MERGE=1                       add what was found to tests/fuzz/corpus/NAME, smallest inputs only
#
# Works in $B-fuzz: findings go to corpus/NAME there, inputs that crash to crash-NAME-*. Exit status 1 when there was one.
set -eu
cd "$(dirname "$0")/.."
build=${B:-build}-fuzz
seconds=${FUZZ_SECONDS:-60}

command -v clang >/dev/null || { echo "fuzz: clang is missing: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
if ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { (void)d; (void)n; return 0; }' |
	clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null; then
	echo "fuzz: clang cannot link libFuzzer: apt-get install libclang-rt-14-dev" >&2
	exit 1
fi

[ $# -gt 0 ] || set -- $(ls tests/fuzz/*_fuzz.c | sed 's|.*/||; s|_fuzz\.c$||')
targets=
for name; do
	[ -f "tests/fuzz/${name}_fuzz.c" ] || { echo "fuzz: there is no tests/fuzz/${name}_fuzz.c" >&2; exit 1; }
	targets="$targets $build/tests/fuzz/${name}_fuzz"
done
# shellcheck disable=SC2086
${MAKE:-make} --no-print-directory -s -j"$(nproc)" B="$build" CC=clang HARDEN= OPT="-O1 -g" \
	SANITIZE="-fsanitize=address,undefined -fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined" $targets

failed=
for name; do
	work=$build/corpus/$name
	seeds=tests/fuzz/corpus/$name
	log=$build/fuzz-$name.log
	mkdir -p "$work" "$seeds"
	if "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=16384 \
		-print_final_stats=1 -artifact_prefix="$build/crash-$name-" "$work" "$seeds" >"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		cover=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
		echo "ok $name ($runs inputs, ${cover:-cov: ?}, $(ls "$work" | wc -l) found)"
	else
		echo "FAIL $name: see $log"
		tail -30 "$log" | sed 's/^/    /'
		failed="$failed $name"
		continue
	fi
	if [ -n "${FUZZ_MERGE:-}" ]; then
		"$build/tests/fuzz/${name}_fuzz" -merge=1 -timeout=20 -max_len=16384 "$seeds" "$work" >>"$log" 2>&1
		echo "   $(ls "$seeds" | wc -l) inputs in $seeds"
	fi
done
[ -z "$failed" ] || { echo "fuzz: crashes in$failed; inputs are $build/crash-*" >&2; exit 1; }
