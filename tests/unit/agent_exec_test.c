/* SPDX-License-Identifier: Apache-2.0 */
/* exec over a Unix socket: how commands end, what they are given, what becomes of their processes. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/util.h"
#include "tests/harness/agent_guest.h"

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;

#define EXPECT_EXIT(k, v)                            \
	do {                                         \
		assert_int_equal(r.final, AGENT_EXIT); \
		assert_int_equal(r.kind, (k));       \
		assert_int_equal(r.value, (v));      \
	} while (0)

static void sh(const char *script)
{
	char request[2048];

	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"%s\"]}", script);
	agent_guest_run(&guest, request, &r);
}

static void exit_statuses_arrive(void **s)
{
	static const int statuses[] = { 0, 1, 7, 124, 137, 255 };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		char script[32];

		snprintf(script, sizeof(script), "exit %d", statuses[i]);
		sh(script);
		EXPECT_EXIT(AGENT_EXIT_STATUS, (uint32_t)statuses[i]);
		assert_true(r.out_ended && r.err_ended);
	}
}

static void signals_that_end_it_arrive(void **s)
{
	(void)s;
	sh("kill -TERM $$");
	EXPECT_EXIT(AGENT_EXIT_SIGNAL, SIGTERM);
	sh("kill -9 $$");
	EXPECT_EXIT(AGENT_EXIT_SIGNAL, SIGKILL);
}

static void streams_are_separate(void **s)
{
	(void)s;
	sh("echo out; echo err >&2; printf more");
	assert_string_equal(r.out, "out\nmore");
	assert_string_equal(r.err, "err\n");
	EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
}

static void without_stdin_it_reads_nothing(void **s)
{
	(void)s;
	sh("cat; readlink /proc/self/fd/0");
	assert_string_equal(r.out, "/dev/null\n");
}

static void no_descriptor_leaks_into_it(void **s)
{
	(void)s;
	/* 3 is the directory that ls reads */
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"ls\",\"/proc/self/fd\"]}", &r);
	assert_string_equal(r.out, "0\n1\n2\n3\n");
}

static void it_leads_its_session_with_default_signals(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"grep -E '^Sig(Blk|Ign)' /proc/self/status; "
				"awk '{print ($1==$5 && $1==$6)}' /proc/$$/stat; umask\"]}",
			&r);
	assert_string_equal(r.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n1\n0022\n");
}

static void a_program_that_is_not_there_is_no_error_line(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"no-such-program\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, ENOENT);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"/no/such\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, ENOENT);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"/etc/passwd\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, EACCES);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"/etc\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, EACCES);
}

static void the_program_is_found_by_the_commands_own_path(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"true\"],\"env\":[\"PATH=/nowhere\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, ENOENT);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"passwd\"],\"env\":[\"PATH=/nowhere:/etc\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, EACCES);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"true\"],\"env\":[\"PATH=/etc/passwd:/bin\"]}", &r);
	EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
}

static void environment_and_directory_are_what_was_asked_for(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"pwd; echo $A$B$TERM; echo $PATH\"],\"cwd\":\"/usr\","
				"\"env\":[\"A=x y\",\"B=1\",\"B=2\"]}",
			&r);
	assert_string_equal(r.out, "/usr\nx y2\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
}

static void arguments_need_not_be_utf8(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"printf\",\"%s.\",\"\xff\xfe\",\"\"]}", &r);
	assert_string_equal(r.out, "\xff\xfe..");
}

static void what_prevents_it_is_an_error_line(void **s)
{
	static const char *const cases[][2] = {
		{ "\"cwd\":\"/no/such\"", "\"error\":\"cwd '/no/such': No such file or directory\",\"errno\":2,\"code\":\"not-found\"" },
		{ "\"cwd\":\"/etc/passwd\"", "\"code\":\"not-directory\"" },
		{ "\"user\":\"no-such-user\"", "\"code\":\"not-found\"" },
		{ "\"user\":\"0:no-such-group\"", "\"code\":\"not-found\"" },
		{ "\"user\":\"\"", "\"code\":\"bad-request\"" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char request[256];

		snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"true\"],%s}", cases[i][0]);
		agent_peer_request(&peer, &guest, request);
		if (!strstr(peer.line, cases[i][1]))
			fail_msg("%s: %s", request, peer.line);
		assert_false(agent_peer_frame(&peer));
		agent_peer_close(&peer);
	}
}

static void it_runs_as_the_user_asked_for(void **s)
{
	(void)s;
	if (geteuid() != 0) {
		print_message("changing users needs root\n");
		skip();
	}
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"id -u; id -g; id -G; echo $USER\"],\"user\":\"daemon\"}", &r);
	assert_string_equal(r.out, "1\n1\n1\ndaemon\n");
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"id -u; id -g; id -G\"],\"user\":\"54321:12\"}", &r);
	assert_string_equal(r.out, "54321\n12\n12\n");
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"/root/x\"],\"user\":\"54321\"}", &r);
	EXPECT_EXIT(AGENT_EXIT_NOEXEC, EACCES);
}

static void time_out_ends_it_with_sigterm(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"],\"timeout_ms\":50}", &r);
	EXPECT_EXIT(AGENT_EXIT_TIMEOUT, SIGTERM);
}

static void time_out_ends_with_sigkill_what_ignores_sigterm(void **s)
{
	char request[256];

	(void)s;
	/* longer and longer until the trap was set in time, on a machine however slow */
	for (int ms = 100; !strstr(r.out, "on"); ms *= 2) {
		snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"trap '' TERM; echo on; while :; do sleep 1000; done\"],"
						   "\"timeout_ms\":%d,\"grace_ms\":50}", ms);
		agent_guest_run(&guest, request, &r);
	}
	EXPECT_EXIT(AGENT_EXIT_TIMEOUT, SIGKILL);
}

static void time_out_reaches_what_is_stopped(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"kill -STOP $$\"],\"timeout_ms\":100,\"grace_ms\":600000}", &r);
	EXPECT_EXIT(AGENT_EXIT_TIMEOUT, SIGTERM);
}

static void a_command_that_ends_in_time_is_not_timed_out(void **s)
{
	(void)s;
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"true\"],\"timeout_ms\":600000}", &r);
	EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
}

static void signals_reach_the_whole_group(void **s)
{
	le32 sig = le32_make(SIGUSR1);

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"(trap 'echo child; exit' USR1; echo a; while :; do sleep 0.01; done) & "
					  "trap 'wait; exit 5' USR1; echo b; while :; do sleep 0.01; done\"]}");
	for (size_t seen = 0; seen < 4; seen += peer.length) /* "a\nb\n" in any order: both traps are set */
		assert_true(agent_peer_frame(&peer));
	agent_peer_put(&peer, AGENT_SIGNAL, &sig, sizeof(sig));
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "child\n");
	EXPECT_EXIT(AGENT_EXIT_STATUS, 5);
	agent_peer_close(&peer);
}

/* The pid that a command has printed. */
static pid_t printed_pid(void)
{
	assert_true(agent_peer_frame(&peer));
	assert_int_equal(peer.type, AGENT_STDOUT);
	peer.payload[peer.length] = '\0';
	return (pid_t)atoi((char *)peer.payload);
}

static bool is_gone(pid_t pid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return true;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return !line[0] || strstr(line, ") Z ") || strstr(line, ") X ");
}

/* Until it is; a test that waits in vain is ended from outside. */
static void wait_until_gone(pid_t pid)
{
	while (!is_gone(pid))
		usleep(1000);
}

#define DAEMON "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"setsid sh -c 'echo $$; exec sleep 1000' & wait\"]%s}"

static void sigkill_reaches_what_left_the_group(void **s)
{
	le32 sig = le32_make(SIGKILL);
	char request[256];
	pid_t pid;

	(void)s;
	snprintf(request, sizeof(request), DAEMON, "");
	agent_peer_request(&peer, &guest, request);
	pid = printed_pid();
	assert_false(is_gone(pid));
	agent_peer_put(&peer, AGENT_SIGNAL, &sig, sizeof(sig));
	agent_peer_collect(&peer, &r);
	EXPECT_EXIT(AGENT_EXIT_SIGNAL, SIGKILL);
	wait_until_gone(pid);
	agent_peer_close(&peer);
}

static void time_out_leaves_nothing_alive(void **s)
{
	char request[256];
	pid_t pid;

	(void)s;
	for (int ms = 200;; ms *= 2) { /* until it has come as far as printing in time */
		char more[64];

		snprintf(more, sizeof(more), ",\"timeout_ms\":%d", ms);
		snprintf(request, sizeof(request), DAEMON, more);
		agent_peer_request(&peer, &guest, request);
		assert_true(agent_peer_frame(&peer));
		if (peer.length > 0)
			break;
		agent_peer_close(&peer);
	}
	peer.payload[peer.length] = '\0';
	pid = (pid_t)atoi((char *)peer.payload);
	agent_peer_collect(&peer, &r);
	EXPECT_EXIT(AGENT_EXIT_TIMEOUT, SIGTERM);
	wait_until_gone(pid);
	agent_peer_close(&peer);
}

static void the_end_of_the_connection_leaves_nothing_alive(void **s)
{
	char request[256];
	pid_t child, command;

	(void)s;
	snprintf(request, sizeof(request), DAEMON, "");
	agent_peer_request(&peer, &guest, request);
	command = (pid_t)agent_peer_number(&peer, "pid");
	child = printed_pid();
	agent_peer_close(&peer);
	wait_until_gone(command);
	wait_until_gone(child);
}

static void half_close_counts_as_the_end(void **s)
{
	pid_t command;

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"]}");
	command = (pid_t)agent_peer_number(&peer, "pid");
	shutdown(peer.fd, SHUT_WR);
	wait_until_gone(command);
	agent_peer_close(&peer);
}

static void what_it_leaves_in_the_background_lives_on(void **s)
{
	pid_t pid;

	(void)s;
	sh("sleep 1000 >/dev/null 2>&1 & echo $!");
	EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
	pid = (pid_t)atoi(r.out);
	assert_true(pid > 1);
	assert_false(is_gone(pid));
	kill(pid, SIGKILL);
}

static void held_streams_do_not_hold_the_operation(void **s)
{
	pid_t pid;

	(void)s;
	sh("sleep 1000 & echo $!"); /* holds stdout and stderr */
	EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
	assert_true(r.out_ended && r.err_ended);
	pid = (pid_t)atoi(r.out);
	assert_false(is_gone(pid));
	kill(pid, SIGKILL);
}

static void the_death_of_the_handler_is_reported_and_cleaned_up(void **s)
{
	pid_t command, handler;
	char path[64], line[512], *p;
	FILE *f;

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"echo $$; exec sleep 1000\"]}");
	command = printed_pid(); /* with the first output the answer is over and done with */
	snprintf(path, sizeof(path), "/proc/%d/stat", command);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	p = strrchr(line, ')');
	handler = (pid_t)atoi(p + 4);
	assert_int_not_equal(handler, guest.pid);
	kill(handler, SIGKILL);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EIO);
	assert_non_null(strstr(r.error, "killed by signal 9"));
	wait_until_gone(command);
	agent_peer_close(&peer);
}

static void defaults_from_configure_reach_later_commands(void **s)
{
	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"configure\",\"env\":[\"A=1\",\"B=2\"]}");
	assert_string_equal(peer.line, "{\"ok\":true}");
	agent_peer_close(&peer);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"echo $A$B\"],\"env\":[\"B=3\"]}", &r);
	assert_string_equal(r.out, "13\n");
	agent_peer_request(&peer, &guest, "{\"op\":\"configure\",\"env\":[]}");
	agent_peer_close(&peer);
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"echo .$A$B\"]}", &r);
	assert_string_equal(r.out, ".\n");
}

static void many_in_a_row_leave_nothing_behind(void **s)
{
	char command[128];

	(void)s;
	for (int i = 0; i < 200; i++) {
		agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"true\"]}", &r);
		EXPECT_EXIT(AGENT_EXIT_STATUS, 0);
	}
	/* standard descriptors, epoll, wake, signals, listen, and nothing per connection but the last one's, which may not be reaped yet */
	snprintf(command, sizeof(command), "test $(ls /proc/%d/fd | wc -l) -le 11", guest.pid);
	for (int tries = 0; system(command) != 0 && tries < 1000; tries++)
		usleep(1000);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_statuses_arrive),
		cmocka_unit_test(signals_that_end_it_arrive),
		cmocka_unit_test(streams_are_separate),
		cmocka_unit_test(without_stdin_it_reads_nothing),
		cmocka_unit_test(no_descriptor_leaks_into_it),
		cmocka_unit_test(it_leads_its_session_with_default_signals),
		cmocka_unit_test(a_program_that_is_not_there_is_no_error_line),
		cmocka_unit_test(the_program_is_found_by_the_commands_own_path),
		cmocka_unit_test(environment_and_directory_are_what_was_asked_for),
		cmocka_unit_test(arguments_need_not_be_utf8),
		cmocka_unit_test(what_prevents_it_is_an_error_line),
		cmocka_unit_test(it_runs_as_the_user_asked_for),
		cmocka_unit_test(time_out_ends_it_with_sigterm),
		cmocka_unit_test(time_out_ends_with_sigkill_what_ignores_sigterm),
		cmocka_unit_test(time_out_reaches_what_is_stopped),
		cmocka_unit_test(a_command_that_ends_in_time_is_not_timed_out),
		cmocka_unit_test(signals_reach_the_whole_group),
		cmocka_unit_test(sigkill_reaches_what_left_the_group),
		cmocka_unit_test(time_out_leaves_nothing_alive),
		cmocka_unit_test(the_end_of_the_connection_leaves_nothing_alive),
		cmocka_unit_test(half_close_counts_as_the_end),
		cmocka_unit_test(what_it_leaves_in_the_background_lives_on),
		cmocka_unit_test(held_streams_do_not_hold_the_operation),
		cmocka_unit_test(the_death_of_the_handler_is_reported_and_cleaned_up),
		cmocka_unit_test(defaults_from_configure_reach_later_commands),
		cmocka_unit_test(many_in_a_row_leave_nothing_behind),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
