/* SPDX-License-Identifier: Apache-2.0 */
/* host/spawn: how programs that Coffer runs end, and what is said about it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/signals.h"
#include "host/spawn.h"
#include "lib/fd.h"

static int run_shell(const char *script, struct err *err)
{
	const char *argv[] = { "sh", "-c", script, NULL };

	*err = ERR_INIT;
	return spawn_run(&(struct spawn){ .argv = argv, .in = -1, .out = -1 }, err);
}

static void success_is_zero(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("echo noise >&2", &err), 0);
	assert_int_equal(err.code, 0);
}

static void failure_has_the_status_and_the_last_line(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("echo first >&2; echo the reason >&2; echo >&2; exit 3", &err), -EIO);
	assert_string_equal(err.text, "sh failed with status 3: the reason");
	assert_int_equal(run_shell("exit 1", &err), -EIO);
	assert_non_null(strstr(err.text, "no reason"));
}

static void marked_errors_come_before_later_lines(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("echo 'E: the mirror is gone' >&2; echo 'I: cleaning up' >&2; exit 1", &err), -EIO);
	assert_non_null(strstr(err.text, "the mirror is gone"));
}

static void the_cause_is_kept_and_not_what_follows_from_it(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("echo 'W: it is late' >&2; echo \"E: no suite 'x'\" >&2; echo 'E: apt-get update failed' >&2; "
				   "echo 'I: removing' >&2; echo 'E: mmdebstrap failed to run' >&2; exit 25", &err), -EIO);
	assert_string_equal(err.text, "sh failed with status 25: W: it is late; E: no suite 'x'");
	assert_int_equal(run_shell("echo 'E: it failed to run' >&2; exit 1", &err), -EIO);
	assert_string_equal(err.text, "sh failed with status 1: E: it failed to run");
}

static void long_and_binary_lines_are_cut(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\033[31m' >&2; exit 1", &err), -EIO);
	assert_true(strlen(err.text) < ERR_MAX);
	for (const char *p = err.text; *p != '\0'; p++)
		assert_true((unsigned char)*p >= ' ');
}

static void signal_is_named(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("kill -9 $$", &err), -EIO);
	assert_non_null(strstr(err.text, "signal 9"));
}

static void missing_program_names_the_package(void **state)
{
	const char *argv[] = { "coffer-no-such-program", NULL };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(spawn_run(&(struct spawn){ .argv = argv, .in = -1, .out = -1, .package = "some-package" }, &err), -ENOENT);
	assert_string_equal(err.text, "coffer-no-such-program is not installed: apt-get install some-package");
}

static void stdin_and_stdout_are_what_was_given(void **state)
{
	const char *argv[] = { "tr", "a-z", "A-Z", NULL };
	int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
	struct err err = ERR_INIT;
	char text[16] = "";

	(void)state;
	assert_int_equal(fd_write_full(in, "text", 4), 0);
	assert_int_equal(lseek(in, 0, SEEK_SET), 0);
	assert_int_equal(spawn_run(&(struct spawn){ .argv = argv, .in = in, .out = out }, &err), 0);
	assert_int_equal(fd_pread_full(out, text, sizeof(text) - 1, 0), 4);
	assert_string_equal(text, "TEXT");
	close(in);
	close(out);
}

static void stdin_is_empty_when_none_is_given(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(run_shell("test -z \"$(cat)\"", &err), 0);
}

static void signals_are_not_blocked_in_it(void **state)
{
	struct err err = ERR_INIT;
	sigset_t old;
	int fd = signals_open(&old, &err);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(run_shell("grep -q '^SigBlk:.0*$' /proc/self/status", &err), 0);
	signals_close(fd, &old);
}

static void end_is_passed_on(void **state)
{
	const char *argv[] = { "sleep", "1000", NULL };
	struct err err = ERR_INIT;
	struct progress p;
	sigset_t old;
	int fd = signals_open(&old, &err);

	(void)state;
	assert_true(fd >= 0);
	progress_init(&p, -1, fd);
	assert_int_equal(raise(SIGTERM), 0); /* pending, since it is blocked */
	assert_int_equal(spawn_run(&(struct spawn){ .argv = argv, .in = -1, .out = -1, .progress = &p }, &err), -EINTR);
	signals_close(fd, &old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(success_is_zero),
		cmocka_unit_test(failure_has_the_status_and_the_last_line),
		cmocka_unit_test(marked_errors_come_before_later_lines),
		cmocka_unit_test(the_cause_is_kept_and_not_what_follows_from_it),
		cmocka_unit_test(long_and_binary_lines_are_cut),
		cmocka_unit_test(signal_is_named),
		cmocka_unit_test(missing_program_names_the_package),
		cmocka_unit_test(stdin_and_stdout_are_what_was_given),
		cmocka_unit_test(stdin_is_empty_when_none_is_given),
		cmocka_unit_test(signals_are_not_blocked_in_it),
		cmocka_unit_test(end_is_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
