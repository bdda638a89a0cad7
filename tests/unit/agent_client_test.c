/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of the agent protocol against an agent that says anything. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/agent_client.h"
#include "host/control_client.h"
#include "lib/fd.h"

static struct agent_conn *conn;
static int agent; /* the other end */

static int set_up(void **s)
{
	int pair[2];

	(void)s;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	agent = pair[1];
	return agent_conn_new(pair[0], &conn, NULL);
}

static int tear_down(void **s)
{
	(void)s;
	agent_close(conn);
	agent = fd_close(agent);
	return 0;
}

static void say(const void *data, size_t n)
{
	assert_int_equal(fd_write_full(agent, data, n), 0);
}

static void say_text(const char *text)
{
	say(text, strlen(text));
}

static void say_frame(uint8_t type, const void *data, uint32_t n)
{
	struct agent_frame h = { .length = le32_make(n), .type = type };

	say(&h, sizeof(h));
	say(data, n);
}

static uint64_t soon(void)
{
	return control_deadline(20000);
}

static int request(const char *reply, struct err *err)
{
	struct agent_line line;
	static const char text[] = "{\"op\":\"ping\"}";

	say_text(reply);
	return agent_request(conn, text, sizeof(text) - 1, soon(), &line, err);
}

static void a_good_answer_is_taken_with_its_members(void **s)
{
	struct agent_line line;
	char text[8];
	int64_t i = 0;
	bool b = false;

	(void)s;
	say_text("{\"ok\":true,\"id\":7,\"type\":\"directory\",\"nested\":{\"id\":9},\"big\":1e3}\n");
	assert_int_equal(agent_request(conn, "{}", 2, soon(), &line, NULL), 0);
	assert_int_equal(agent_line_int(&line, "id", &i), 0);
	assert_int_equal(i, 7);
	assert_int_equal(agent_line_bool(&line, "ok", &b), 0);
	assert_true(b);
	assert_int_equal(agent_line_string(&line, "type", text, sizeof(text)), 0);
	assert_string_equal(text, "directo");
	assert_int_equal(agent_line_int(&line, "type", &i), -ENOENT);
	assert_int_equal(agent_line_int(&line, "big", &i), -ENOENT);
	assert_int_equal(agent_line_int(&line, "none", &i), -ENOENT);
	assert_int_equal(i, 7);
}

static void an_error_answer_fails_with_its_errno_and_a_printable_text(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(request("{\"error\":\"no\\u001b[2Jway\",\"errno\":13,\"code\":\"denied\"}\n", &err), -EACCES);
	assert_string_equal(err.text, "no\\x1b[2Jway");
}

static void an_errno_that_is_none_becomes_eio(void **s)
{
	(void)s;
	assert_int_equal(request("{\"error\":\"x\",\"errno\":-13}\n", NULL), -EIO);
	assert_int_equal(request("{\"error\":\"x\",\"errno\":99999}\n", NULL), -EIO);
	assert_int_equal(request("{\"error\":\"x\"}\n", NULL), -EIO);
}

static void an_answer_that_is_no_answer_is_a_protocol_error(void **s)
{
	static const char *const bad[] = { "\n", "ok\n", "{\"ok\":1}\n", "{\"ok\":false}\n", "[]\n", "{\"ok\":true\n", "\"ok\"\n" };

	(void)s;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(request(bad[i], NULL), -EPROTO);
}

static void a_line_without_end_is_refused_at_its_limit(void **s)
{
	char text[AGENT_REPLY_MAX];
	struct agent_line line;

	(void)s;
	memset(text, ' ', sizeof(text));
	say(text, sizeof(text));
	assert_int_equal(agent_read_line(conn, soon(), &line, NULL), -EPROTO);
}

static void the_longest_line_is_taken(void **s)
{
	char text[AGENT_REPLY_MAX];
	struct agent_line line;

	(void)s;
	memset(text, ' ', sizeof(text));
	text[sizeof(text) - 1] = '\n';
	say(text, sizeof(text));
	assert_int_equal(agent_read_line(conn, soon(), &line, NULL), 0);
	assert_int_equal(line.len, AGENT_REPLY_MAX - 1);
}

static void what_follows_the_line_is_kept_for_the_frames(void **s)
{
	struct agent_received f;
	struct agent_line line;

	(void)s;
	say_text("{\"ok\":true}\n");
	say_frame(AGENT_STDOUT, "hello", 5);
	assert_int_equal(agent_read_line(conn, soon(), &line, NULL), 0);
	assert_int_equal(agent_frame_wait(conn, soon(), &f, NULL), 0);
	assert_int_equal(f.type, AGENT_STDOUT);
	assert_int_equal(f.length, 5);
	assert_memory_equal(f.payload, "hello", 5);
}

static void a_connection_that_ends_is_an_error(void **s)
{
	struct agent_received f;
	struct agent_line line;

	(void)s;
	say_text("{\"ok\"");
	shutdown(agent, SHUT_WR);
	assert_int_equal(agent_read_line(conn, soon(), &line, NULL), -ECONNRESET);
	assert_int_equal(agent_frame_wait(conn, soon(), &f, NULL), -ECONNRESET);
}

static void silence_ends_at_the_deadline(void **s)
{
	struct agent_line line;

	(void)s;
	assert_int_equal(agent_read_line(conn, control_deadline(1), &line, NULL), -ETIMEDOUT);
}

static int bad_header(uint8_t type, uint32_t length, uint8_t zero)
{
	struct agent_frame h = { .length = le32_make(length), .type = type, .zero = { 0, zero, 0 } };
	struct agent_received f;

	say(&h, sizeof(h));
	return agent_frame_wait(conn, soon(), &f, NULL);
}

#define BAD_HEADER(name, type, length, zero)                                    	static void name(void **s)                                              	{                                                                       		(void)s;                                                        		assert_int_equal(bad_header(type, length, zero), -EPROTO);      	}

BAD_HEADER(a_payload_beyond_the_limit_is_refused_before_it_comes, AGENT_STDOUT, AGENT_FRAME_MAX + 1, 0)
BAD_HEADER(a_length_of_all_ones_is_refused, AGENT_DATA, 0xffffffff, 0)
BAD_HEADER(a_frame_type_of_the_host_is_refused, AGENT_STDIN, 0, 0)
BAD_HEADER(an_unknown_frame_type_is_refused, 200, 0, 0)
BAD_HEADER(frame_type_zero_is_refused, 0, 0, 0)
BAD_HEADER(reserved_bytes_must_be_zero, AGENT_STDOUT, 1, 1)
BAD_HEADER(a_short_exit_is_refused, AGENT_EXIT, 4, 0)
BAD_HEADER(a_long_exit_is_refused, AGENT_EXIT, 9, 0)
BAD_HEADER(an_error_without_errno_is_refused, AGENT_ERROR, 3, 0)
BAD_HEADER(an_error_with_too_long_a_text_is_refused, AGENT_ERROR, 4 + AGENT_ERROR_TEXT_MAX + 1, 0)
BAD_HEADER(a_credit_of_five_bytes_is_refused, AGENT_CREDIT, 5, 0)

static void the_largest_frame_passes_in_any_pieces(void **s)
{
	static uint8_t payload[AGENT_FRAME_MAX];
	struct agent_frame h = { .length = le32_make(AGENT_FRAME_MAX), .type = AGENT_STDOUT };
	struct agent_received f;
	size_t sent = 0;
	int r;

	(void)s;
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7);
	for (int i = 0; i < 8; i++) {
		say((uint8_t *)&h + i, 1);
		assert_int_equal(agent_fill(conn, NULL), 1);
		assert_int_equal(agent_frame_next(conn, &f, NULL), 0);
	}
	while ((r = agent_frame_next(conn, &f, NULL)) == 0) {
		size_t n = sizeof(payload) - sent < 1000 ? sizeof(payload) - sent : 1000;

		say(payload + sent, n);
		sent += n;
		assert_true(agent_fill(conn, NULL) > 0);
	}
	assert_int_equal(r, 1);
	assert_int_equal(f.length, AGENT_FRAME_MAX);
	assert_memory_equal(f.payload, payload, sizeof(payload));
}

static void an_error_frame_s_text_is_escaped(void **s)
{
	struct agent_received f;
	struct err err = ERR_INIT;
	struct {
		le32 code;
		char text[8];
	} payload = { le32_make(ENOSPC), { 'f', 'u', 'l', 'l', '\n', 7, 'x', 'y' } };

	(void)s;
	say_frame(AGENT_ERROR, &payload, sizeof(payload));
	assert_int_equal(agent_frame_wait(conn, soon(), &f, NULL), 0);
	assert_int_equal(agent_frame_error(&f, &err), -ENOSPC);
	assert_string_equal(err.text, "full\\x0a\\x07xy");
}

static void only_one_frame_is_kept_for_sending(void **s)
{
	char got[16];

	(void)s;
	assert_int_equal(agent_frame_put(conn, AGENT_STDIN, "ab", 2), 0);
	assert_int_equal(agent_frame_put(conn, AGENT_STDIN, "cd", 2), -EAGAIN);
	assert_null(agent_frame_room(conn));
	assert_int_equal(agent_flush(conn), 1);
	assert_int_equal(fd_read_full(agent, got, 10), 10);
	assert_memory_equal(got, "\2\0\0\0\1\0\0\0ab", 10);
	assert_non_null(agent_frame_room(conn));
}

static void a_request_may_be_refused_while_it_is_sent(void **s)
{
	static char text[AGENT_REQUEST_MAX - 1];
	struct agent_line line;
	struct err err = ERR_INIT;

	(void)s;
	memset(text, ' ', sizeof(text));
	say_text("{\"error\":\"too many connections\",\"errno\":11,\"code\":\"limit\"}\n");
	assert_int_equal(agent_request(conn, text, sizeof(text), soon(), &line, &err), -EAGAIN);
	assert_string_equal(err.text, "too many connections");
}

static void a_request_beyond_the_limit_is_not_sent(void **s)
{
	static char text[AGENT_REQUEST_MAX];
	struct agent_line line;

	(void)s;
	assert_int_equal(agent_request(conn, text, sizeof(text), soon(), &line, NULL), -E2BIG);
}

static void strings_are_escaped_and_other_bytes_kept(void **s)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	(void)s;
	agent_put_string(f, "a\"b\\c\n\001\377\303\244");
	fclose(f);
	assert_string_equal(text, "\"a\\\"b\\\\c\\u000a\\u0001\377\303\244\"");
	free(text);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_good_answer_is_taken_with_its_members),
		T(an_error_answer_fails_with_its_errno_and_a_printable_text),
		T(an_errno_that_is_none_becomes_eio),
		T(an_answer_that_is_no_answer_is_a_protocol_error),
		T(a_line_without_end_is_refused_at_its_limit),
		T(the_longest_line_is_taken),
		T(what_follows_the_line_is_kept_for_the_frames),
		T(a_connection_that_ends_is_an_error),
		T(silence_ends_at_the_deadline),
		T(a_payload_beyond_the_limit_is_refused_before_it_comes),
		T(a_length_of_all_ones_is_refused),
		T(a_frame_type_of_the_host_is_refused),
		T(an_unknown_frame_type_is_refused),
		T(frame_type_zero_is_refused),
		T(reserved_bytes_must_be_zero),
		T(a_short_exit_is_refused),
		T(a_long_exit_is_refused),
		T(an_error_without_errno_is_refused),
		T(an_error_with_too_long_a_text_is_refused),
		T(a_credit_of_five_bytes_is_refused),
		T(the_largest_frame_passes_in_any_pieces),
		T(an_error_frame_s_text_is_escaped),
		T(only_one_frame_is_kept_for_sending),
		T(a_request_may_be_refused_while_it_is_sent),
		T(a_request_beyond_the_limit_is_not_sent),
		T(strings_are_escaped_and_other_bytes_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
