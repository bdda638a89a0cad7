/* SPDX-License-Identifier: Apache-2.0 */
/* A guest command's request and what its end means, with a scripted agent at the other end of a socket. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/exec.h"
#include "lib/fd.h"
#include "lib/util.h"

static char *make(const struct exec_spec *spec, struct err *err)
{
	char *text = NULL;
	size_t len;

	return exec_make_request(spec, 0, &text, &len, err) == 0 ? text : NULL;
}

static void the_smallest_request(void **s)
{
	struct exec_options o = { 0 };
	struct exec_spec spec = { .argv = (char *[]){ "ls", NULL }, .options = &o };
	char *text = make(&spec, NULL);

	(void)s;
	assert_string_equal(text, "{\"op\":\"exec\",\"argv\":[\"ls\"],\"env\":[]}");
	free(text);
}

static void all_options_are_in_the_request(void **s)
{
	struct exec_options o = { .env = { { "A=1", "B=x,y" }, 2 }, .cwd = "/w", .user = "u:g", .timeout = 1.5, .interactive = true };
	struct exec_spec spec = { .argv = (char *[]){ "a", "", "\"", NULL }, .options = &o, .cwd = "/image", .user = "image",
				  .base_env = (const char *[]){ "Z=0", NULL } };
	char *text = make(&spec, NULL);

	(void)s;
	assert_string_equal(text, "{\"op\":\"exec\",\"argv\":[\"a\",\"\",\"\\\"\"],\"env\":[\"Z=0\",\"A=1\",\"B=x,y\"],\"cwd\":\"/w\","
			    "\"user\":\"u:g\",\"stdin\":true,\"timeout_ms\":1500,\"grace_ms\":2000}");
	free(text);
}

static void the_image_s_user_and_directory_apply_when_none_are_given(void **s)
{
	struct exec_options o = { 0 };
	struct exec_spec spec = { .argv = (char *[]){ "a", NULL }, .options = &o, .cwd = "/image", .user = "image" };
	char *text = make(&spec, NULL);

	(void)s;
	assert_non_null(strstr(text, "\"cwd\":\"/image\",\"user\":\"image\""));
	free(text);
}

static void a_name_alone_passes_on_our_value(void **s)
{
	struct exec_options o = { .env = { { "COFFER_TEST_SET", "COFFER_TEST_UNSET" }, 2 } };
	struct exec_spec spec = { .argv = (char *[]){ "a", NULL }, .options = &o };

	(void)s;
	setenv("COFFER_TEST_SET", "v=1", 1);
	unsetenv("COFFER_TEST_UNSET");
	char *text = make(&spec, NULL);

	assert_non_null(strstr(text, "\"env\":[\"COFFER_TEST_SET=v=1\"]"));
	free(text);
}

static void an_environment_entry_without_a_name_is_refused(void **s)
{
	struct exec_options o = { .env = { { "=1" }, 1 } };
	struct exec_spec spec = { .argv = (char *[]){ "a", NULL }, .options = &o };
	struct err err = ERR_INIT;

	(void)s;
	assert_null(make(&spec, &err));
	assert_string_equal(err.text, "--env: '=1' is not NAME=VALUE");
}

static void a_request_that_is_too_long_is_refused(void **s)
{
	struct exec_options o = { 0 };
	char *big = malloc(AGENT_REQUEST_MAX + 1);
	struct exec_spec spec = { .argv = (char *[]){ "a", big, NULL }, .options = &o };
	struct err err = ERR_INIT;

	(void)s;
	memset(big, 'x', AGENT_REQUEST_MAX);
	big[AGENT_REQUEST_MAX] = 0;
	assert_null(make(&spec, &err));
	assert_int_equal(err.code, -E2BIG);
	free(big);
}

static void options_that_exclude_each_other_are_refused(void **s)
{
	struct exec_options o = { .json = true, .tty = true };

	(void)s;
	assert_int_equal(exec_check_options(&o, NULL), -EINVAL);
	o.tty = false;
	assert_int_equal(exec_check_options(&o, NULL), 0);
}

/* ---- with an agent ---- */

struct script {
	const char *data;
	size_t n;
};

#define SCRIPT(text) ((struct script){ text, sizeof(text) - 1 })

/* An agent that takes the request line, says its lines and ends; what still comes from the host is discarded. */
static void play(int fd, struct script script)
{
	char c, drop[4096];

	while (read(fd, &c, 1) == 1 && c != '\n')
		;
	fd_write_full(fd, script.data, script.n);
	shutdown(fd, SHUT_WR);
	while (read(fd, drop, sizeof(drop)) > 0)
		;
	_exit(0);
}

static void run_json(struct script script, struct exec_result *ret)
{
	struct exec_options o = { .json = true };
	struct guardian g = GUARDIAN_NONE;
	struct exec_spec spec = { .argv = (char *[]){ "a", NULL }, .options = &o, .signal_fd = -1, .guardian = &g };
	struct agent_conn *c;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid_t pid = fork();

	if (pid == 0) {
		close(pair[0]);
		play(pair[1], script);
	}
	close(pair[1]);
	assert_int_equal(agent_conn_new(pair[0], &c, NULL), 0);
	exec_run(c, &spec, ret);
	agent_close(c);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define OK "{\"ok\":true,\"id\":1,\"pid\":2,\"stdin_window\":262144}\n"
#define EXIT(kind, value) "\10\0\0\0\4\0\0\0" kind "\0\0\0" value "\0\0\0"

static int status_of(struct script script, enum exec_end expected)
{
	struct exec_result r;

	run_json(script, &r);
	assert_int_equal(r.end, expected);
	int status = exec_status(&r);

	exec_result_finish(&r);
	return status;
}

static void every_end_has_its_status(void **s)
{
	(void)s;
	assert_int_equal(status_of(SCRIPT(OK EXIT("\0", "\7")), EXEC_STATUS), 7);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\0", "\377")), EXEC_STATUS), 255);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\1", "\11")), EXEC_SIGNAL), 137);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\1", "\15")), EXEC_SIGNAL), 141);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\2", "\17")), EXEC_TIMEOUT), 124);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\3", "\2")), EXEC_NOEXEC), 127);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\3", "\15")), EXEC_NOEXEC), 126);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\4", "\11")), EXEC_OOM), 137);
}

static void an_end_that_makes_no_sense_is_our_failure(void **s)
{
	(void)s;
	assert_int_equal(status_of(SCRIPT(OK EXIT("\5", "\0")), EXEC_FAILED), 125);
	assert_int_equal(status_of(SCRIPT(OK "\10\0\0\0\4\0\0\0\0\0\0\0\0\1\0\0"), EXEC_FAILED), 125);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\1", "\0")), EXEC_FAILED), 125);
	assert_int_equal(status_of(SCRIPT(OK EXIT("\1", "\101")), EXEC_FAILED), 125);
}

static void an_empty_command_is_127_and_not_asked_for(void **s)
{
	(void)s;
	struct exec_options o = { 0 };
	struct exec_spec spec = { .argv = (char *[]){ "", NULL }, .options = &o };
	struct exec_result r;

	exec_run(NULL, &spec, &r); /* no connection: nothing is sent */
	assert_int_equal(exec_status(&r), 127);
	assert_string_equal(r.why.text, "the command is empty: name a program");
	exec_result_finish(&r);
	assert_false(exec_refuse((char *[]){ " ", NULL }, &r));
}

static void a_time_limit_of_0_is_none(void **s)
{
	struct exec_options o = { .timeout = 0 };
	struct exec_spec spec = { .argv = (char *[]){ "ls", NULL }, .options = &o };
	char *text = make(&spec, NULL);

	(void)s;
	assert_null(strstr(text, "timeout"));
	free(text);
}

static void a_connection_that_ends_without_a_word_is_lost(void **s)
{
	(void)s;
	assert_int_equal(status_of(SCRIPT(""), EXEC_LOST), 125);
	assert_int_equal(status_of(SCRIPT(OK), EXEC_LOST), 125);
	assert_int_equal(status_of(SCRIPT(OK "\5\0\0\0\2\0\0\0ab"), EXEC_LOST), 125);
}

static void a_refusal_is_our_failure_with_the_agent_s_words(void **s)
{
	struct exec_result r;

	(void)s;
	run_json(SCRIPT("{\"error\":\"cwd '/x': No such file or directory\",\"errno\":2}\n"), &r);
	assert_int_equal(r.end, EXEC_FAILED);
	assert_string_equal(r.why.text, "cwd '/x': No such file or directory");
	exec_result_finish(&r);
}

static void an_error_frame_in_the_middle_is_our_failure(void **s)
{
	struct exec_result r;

	(void)s;
	run_json(SCRIPT(OK "\1\0\0\0\2\0\0\0a" "\10\0\0\0\10\0\0\0\14\0\0\0oops"), &r);
	assert_int_equal(r.end, EXEC_FAILED);
	assert_int_equal(r.why.code, -ENOMEM);
	assert_string_equal(r.why.text, "oops");
	exec_result_finish(&r);
}

static void a_data_frame_during_exec_is_refused(void **s)
{
	(void)s;
	assert_int_equal(status_of(SCRIPT(OK "\1\0\0\0\7\0\0\0a"), EXEC_FAILED), 125);
}

static void streams_are_kept_apart(void **s)
{
	struct exec_result r;

	(void)s;
	run_json(SCRIPT(OK "\2\0\0\0\2\0\0\0ab" "\1\0\0\0\3\0\0\0x" "\2\0\0\0\2\0\0\0\0c" "\0\0\0\0\2\0\0\0" "\1\0\0\0\3\0\0\0y"
			"\0\0\0\0\3\0\0\0" EXIT("\0", "\0")), &r);
	assert_int_equal(r.end, EXEC_STATUS);
	assert_int_equal(r.out.captured, 4);
	assert_memory_equal(r.out.capture, "ab\0c", 4);
	assert_int_equal(r.err.captured, 2);
	assert_memory_equal(r.err.capture, "xy", 2);
	exec_result_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_request),
		cmocka_unit_test(all_options_are_in_the_request),
		cmocka_unit_test(the_image_s_user_and_directory_apply_when_none_are_given),
		cmocka_unit_test(a_name_alone_passes_on_our_value),
		cmocka_unit_test(an_environment_entry_without_a_name_is_refused),
		cmocka_unit_test(a_request_that_is_too_long_is_refused),
		cmocka_unit_test(options_that_exclude_each_other_are_refused),
		cmocka_unit_test(every_end_has_its_status),
		cmocka_unit_test(an_end_that_makes_no_sense_is_our_failure),
		cmocka_unit_test(an_empty_command_is_127_and_not_asked_for),
		cmocka_unit_test(a_time_limit_of_0_is_none),
		cmocka_unit_test(a_connection_that_ends_without_a_word_is_lost),
		cmocka_unit_test(a_refusal_is_our_failure_with_the_agent_s_words),
		cmocka_unit_test(an_error_frame_in_the_middle_is_our_failure),
		cmocka_unit_test(a_data_frame_during_exec_is_refused),
		cmocka_unit_test(streams_are_kept_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
