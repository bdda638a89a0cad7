#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lab itself: TAP, one line per behaviour. Each check starts a lab of its own, as its users do.
# LAB_TEST_SMOKE names the kvm_smoke program; without it that check is left out.
lab=$(dirname "$(readlink -f "$0")")/lab
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
trap 'exit 130' INT TERM
n=0
bad=0

# is NAME COMMAND...: the command succeeds
is() {
	name=$1
	shift
	n=$((n + 1))
	if "$@" >"$t/log" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$t/log"
		bad=1
	fi
}

# ends STATUS LAB-ARGUMENTS...: how the lab ends; its output is in $t/out and $t/err
ends() {
	want=$1
	shift
	"$lab" "$@" >"$t/out" 2>"$t/err" </dev/null
	got=$?
	[ "$got" = "$want" ] || { echo "status $got, not $want"; cat "$t/err"; return 1; }
}

status_is_the_commands() { ends 7 -- sh -c 'exit 7' && ends 0 -- true; }
signal_is_128_and_its_number() { ends 137 -- sh -c 'kill -9 $$'; }
missing_command_is_127() { ends 127 -- /no/such/command && grep -q '/no/such/command' "$t/err"; }
stdout_and_stderr_are_apart() {
	ends 0 -- sh -c 'echo one; echo two >&2; echo three >/dev/stderr' &&
		[ "$(cat "$t/out")" = one ] && [ "$(cat "$t/err")" = "two
three" ]
}
a_mebibyte_each_way_is_exact() {
	head -c 1048576 /dev/urandom >"$t/data"
	"$lab" --stdin -- sh -c 'cat >/tmp/copy; cat /tmp/copy; cat /tmp/copy >&2' <"$t/data" >"$t/out" 2>"$t/err" &&
		cmp "$t/data" "$t/out" && cmp "$t/data" "$t/err"
}
piped_stdin_ends() { [ "$(printf 'a\nb\n' | "$lab" --stdin -- wc -l)" = 2 ]; }
timeout_is_124_and_says_so() {
	ends 124 --timeout 6 -- sleep 1000 && grep -q '^lab: stopped after 6 s' "$t/err"
}
out_directory_is_writable() {
	mkdir -p "$t/share"
	echo in >"$t/share/given"
	ends 0 --out "$t/share" -- sh -c 'cat "$LAB_OUT/given" && echo result >"$LAB_OUT/made" && mkdir "$LAB_OUT/dir"' &&
		[ "$(cat "$t/share/made")" = result ] && [ -d "$t/share/dir" ]
}
host_files_do_not_change() {
	ends 0 -- sh -c "echo x >'$t/leak' && test -s '$t/leak'" && [ ! -e "$t/leak" ] &&
		ends 2 -- sh -c 'echo x >/usr/leak'
}
environment_and_directory_are_passed() {
	ends 0 --in-env 'A=b c' --cwd /usr -- sh -c 'echo "$LAB $A $(pwd)"' && [ "$(cat "$t/out")" = "1 b c /usr" ]
}
devices_are_there_for_everybody() {
	ends 0 -- sh -c 'stat -c "%a %n" /dev/kvm /dev/vhost-vsock /dev/userfaultfd /dev/net/tun && ls /sys/fs/cgroup/cgroup.procs &&
		cat /sys/class/net/lo/operstate && tty </dev/ptmx; df /dev/shm /run | tail -n 2; unshare -Ur true' &&
		[ "$(grep -c '^666 ' "$t/out")" = 4 ]
}
two_labs_run_at_once_and_differ() {
	"$lab" -- sh -c 'od -An -N16 -tx1 /dev/urandom' >"$t/a" & p=$!
	"$lab" -- sh -c 'od -An -N16 -tx1 /dev/urandom' >"$t/b" && wait $p && [ -s "$t/a" ] && ! cmp -s "$t/a" "$t/b"
}
clock_is_right() {
	ends 0 -- date +%s
	now=$(date +%s)
	[ $((now - $(cat "$t/out"))) -lt 60 ] && [ $((now - $(cat "$t/out"))) -ge 0 ]
}
boots_without_a_saved_machine() { ends 0 --boot -- test -c /dev/kvm; }
broken_saved_machine_is_replaced_by_a_boot() {
	mkdir -p "$t/cache/coffer/lab"
	cp "${XDG_CACHE_HOME:-$HOME/.cache}"/coffer/lab/vmlinux-* "$t/cache/coffer/lab/"
	XDG_CACHE_HOME=$t/cache ends 0 -- true || return 1
	for state in "$t"/cache/coffer/lab/state-*; do
		head -c 1000 "$state" >"$t/cut" && cat "$t/cut" >"$state"
	done
	XDG_CACHE_HOME=$t/cache ends 0 -- true && [ ! -s "$t/err" ]
}
closed_stdout_stops_it() { [ "$("$lab" --timeout 60 -- yes | head -n 1)" = y ]; }
# children PID: the processes that it started
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
killed_lab_takes_its_machine_along() {
	rm -f "$t/up"
	"$lab" -- sh -c 'echo up; sleep 1000' >"$t/up" &
	p=$!
	while [ ! -s "$t/up" ]; do sleep 0.1; done
	qemu=$(children $p)
	kill -"$1" $p
	wait $p
	got=$?
	for q in $qemu; do
		while [ -d "/proc/$q" ] && ! grep -q '^State:.Z' "/proc/$q/status" 2>/dev/null; do sleep 0.1; done
	done
	[ -n "$qemu" ] && [ $got = "$2" ]
}
kvm_runs_guest_code() { ends 0 -- "$LAB_TEST_SMOKE"; }

is status_is_the_commands status_is_the_commands
is signal_is_128_and_its_number signal_is_128_and_its_number
is missing_command_is_127 missing_command_is_127
is stdout_and_stderr_are_apart stdout_and_stderr_are_apart
is a_mebibyte_each_way_is_exact a_mebibyte_each_way_is_exact
is piped_stdin_ends piped_stdin_ends
is timeout_is_124_and_says_so timeout_is_124_and_says_so
is out_directory_is_writable out_directory_is_writable
is host_files_do_not_change host_files_do_not_change
is environment_and_directory_are_passed environment_and_directory_are_passed
is devices_are_there_for_everybody devices_are_there_for_everybody
is two_labs_run_at_once_and_differ two_labs_run_at_once_and_differ
is clock_is_right clock_is_right
is boots_without_a_saved_machine boots_without_a_saved_machine
is broken_saved_machine_is_replaced_by_a_boot broken_saved_machine_is_replaced_by_a_boot
is closed_stdout_stops_it closed_stdout_stops_it
is interrupt_stops_the_machine killed_lab_takes_its_machine_along INT 130
is kill_stops_the_machine killed_lab_takes_its_machine_along KILL 137
[ -z "$LAB_TEST_SMOKE" ] || is kvm_runs_guest_code kvm_runs_guest_code
echo "1..$n"
exit $bad
