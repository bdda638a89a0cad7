/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: hostile requests and frames, many at once, and an agent that is there afterwards in any case. */
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
#include <sys/wait.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/agent_guest.h"

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;

static void still_serves(void)
{
	agent_guest_run(&guest, "{\"op\":\"exec\",\"argv\":[\"true\"]}", &r);
	assert_int_equal(r.final, AGENT_EXIT);
	assert_int_equal(r.value, 0);
}

static void the_ready_line_says_what_it_is(void **s)
{
	(void)s;
	assert_memory_equal(guest.ready, "{\"ready\":true,\"version\":1,\"agent\":\"", 35);
	assert_non_null(strstr(guest.ready, "\"root\":\"service\",\"overlay\":\"none\""));
	assert_int_equal(guest.ready[strlen(guest.ready) - 1], '\n');
}

static void ping_tells_about_the_guest(void **s)
{
	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"ping\"}");
	assert_int_equal(agent_peer_number(&peer, "version"), AGENT_PROTO_VERSION);
	assert_int_equal(agent_peer_number(&peer, "pid"), guest.pid);
	assert_int_equal(agent_peer_number(&peer, "commands"), 0);
	assert_true(agent_peer_number(&peer, "total") >= agent_peer_number(&peer, "available"));
	assert_true(agent_peer_number(&peer, "clock_ns") > 1700000000000000000);
	assert_false(agent_peer_frame(&peer));
	agent_peer_close(&peer);
}

static void garbage_gets_an_error_line(void **s)
{
	static const char *const garbage[] = { "\n", "x\n", "{}\n", "{\"op\":\"exec\"\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\n", "[[[[[[[[[[[[\n" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		agent_peer_connect(&peer, &guest);
		agent_peer_send(&peer, garbage[i], strlen(garbage[i]));
		assert_true(agent_peer_line(&peer));
		assert_non_null(strstr(peer.line, "\"code\":\"bad-request\""));
		assert_int_equal(agent_peer_number(&peer, "errno"), EINVAL);
		assert_false(agent_peer_frame(&peer));
		agent_peer_close(&peer);
	}
	still_serves();
}

static void a_request_without_an_end_is_cut_off(void **s)
{
	char *text = malloc(AGENT_REQUEST_MAX);

	(void)s;
	memset(text, ' ', AGENT_REQUEST_MAX);
	agent_peer_connect(&peer, &guest);
	agent_peer_send(&peer, text, AGENT_REQUEST_MAX);
	assert_true(agent_peer_line(&peer));
	assert_non_null(strstr(peer.line, "\"code\":\"too-large\""));
	agent_peer_close(&peer);
	free(text);
	still_serves();
}

static void the_largest_request_is_served(void **s)
{
	static const char head[] = "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"echo ${#1} ${#2}\",\"x\",\"", tail[] = "\"]}\n";
	size_t filler = AGENT_REQUEST_MAX - strlen(head) - strlen(tail) - 3, half = filler / 2;
	char *text = malloc(AGENT_REQUEST_MAX), expect[64];

	(void)s;
	/* two arguments: a single one may have at most 128 KiB on Linux */
	memcpy(text, head, strlen(head));
	memset(text + strlen(head), 'a', filler + 3);
	memcpy(text + strlen(head) + half, "\",\"", 3);
	memcpy(text + strlen(head) + filler + 3, tail, strlen(tail));
	agent_peer_connect(&peer, &guest);
	agent_peer_send(&peer, text, AGENT_REQUEST_MAX);
	assert_true(agent_peer_line(&peer));
	agent_peer_collect(&peer, &r);
	snprintf(expect, sizeof(expect), "%zu %zu\n", half, filler - half);
	assert_string_equal(r.out, expect);
	agent_peer_close(&peer);
	free(text);
}

static void a_client_that_leaves_early_harms_nobody(void **s)
{
	static const char *const parts[] = { "", "{", "{\"op\":\"ping\"}", "{\"op\":\"ping\"}\n", "{\"op\":\"exec\",\"argv\":[\"yes\"]}\n",
					     "{\"op\":\"put\",\"path\":\"/tmp\"}\n\1\0\0" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		agent_peer_connect(&peer, &guest);
		agent_peer_send(&peer, parts[i], strlen(parts[i]));
		agent_peer_close(&peer);
	}
	still_serves();
}

static void violations_end_the_operation_with_an_error_frame(void **s)
{
	static const struct {
		unsigned char bytes[16];
		size_t n;
	} cases[] = {
		{ { 0, 0, 0, 0, 0, 0, 0, 0 }, 8 },                    /* no type */
		{ { 0, 0, 0, 0, AGENT_EXIT, 0, 0, 0 }, 8 },           /* not the host's */
		{ { 0, 0, 0, 0, AGENT_DATA, 0, 0, 0 }, 8 },           /* not of exec */
		{ { 1, 0, 1, 0, AGENT_STDIN, 0, 0, 0 }, 8 },          /* 64 KiB and a byte */
		{ { 255, 255, 255, 255, AGENT_STDIN, 0, 0, 0 }, 8 },
		{ { 0, 0, 0, 0, AGENT_STDIN, 0, 0, 1 }, 8 },          /* reserved bytes */
		{ { 3, 0, 0, 0, AGENT_SIGNAL, 0, 0, 0, 15, 0, 0 }, 11 },
		{ { 4, 0, 0, 0, AGENT_SIGNAL, 0, 0, 0, 0, 0, 0, 0 }, 12 },
		{ { 4, 0, 0, 0, AGENT_SIGNAL, 0, 0, 0, 65, 0, 0, 0 }, 12 },
		{ { 4, 0, 0, 0, AGENT_SIGNAL, 0, 0, 0, 255, 255, 255, 255 }, 12 },
		{ { 1, 0, 0, 0, AGENT_STDOUT, 0, 0, 0, 'x' }, 9 },
		{ { 0, 0, 0, 0, AGENT_WINSIZE, 0, 0, 0 }, 8 },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"],\"stdin\":true}");
		agent_peer_send(&peer, cases[i].bytes, cases[i].n);
		agent_peer_collect(&peer, &r);
		if (r.final != AGENT_ERROR || r.error_errno != EPROTO)
			fail_msg("case %zu: final frame %u, errno %d", i, r.final, r.error_errno);
		agent_peer_close(&peer);
	}
	still_serves();
}

static void half_a_frame_is_waited_for(void **s)
{
	static const unsigned char frame[] = { 2, 0, 0, 0, AGENT_STDIN, 0, 0, 0, 'h', 'i', 0, 0, 0, 0, AGENT_STDIN, 0, 0, 0 };

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"cat\"],\"stdin\":true}");
	for (size_t i = 0; i < sizeof(frame); i++) {
		agent_peer_send(&peer, frame + i, 1);
		usleep(200);
	}
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "hi");
	agent_peer_close(&peer);
}

static void as_many_as_there_may_be_and_one_more(void **s)
{
	static int fds[AGENT_CONNECTIONS_MAX];
	struct agent_peer *p = malloc(sizeof(*p));
	char byte;

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		agent_peer_request(p, &guest, "{\"op\":\"exec\",\"argv\":[\"cat\"],\"stdin\":true}");
		assert_memory_equal(p->line, "{\"ok\":true", 10);
		fds[i] = p->fd;
	}
	agent_peer_connect(&peer, &guest);
	assert_true(agent_peer_line(&peer));
	assert_non_null(strstr(peer.line, "\"code\":\"limit\""));
	assert_int_equal(read(peer.fd, &byte, 1), 0);
	agent_peer_close(&peer);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) { /* and each of them works */
		p->fd = fds[i];
		agent_peer_put(p, AGENT_STDIN, &fds[i], sizeof(int));
		agent_peer_put(p, AGENT_STDIN, NULL, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		p->fd = fds[i];
		agent_peer_collect(p, &r);
		assert_int_equal(r.nout, sizeof(int));
		assert_memory_equal(r.out, &fds[i], sizeof(int));
		agent_peer_close(p);
	}
	free(p);
	/* the last handlers may not have been reaped yet */
	for (;;) {
		agent_peer_request(&peer, &guest, "{\"op\":\"ping\"}");
		agent_peer_close(&peer);
		if (strstr(peer.line, "\"connections\":1,"))
			break;
	}
}

static void the_machine_is_left_alone(void **s)
{
	static const char *const requests[] = {
		"{\"op\":\"configure\",\"clock_ns\":1}",
		"{\"op\":\"configure\",\"hostname\":\"x\"}",
		"{\"op\":\"configure\",\"machine_id\":\"0123456789abcdef0123456789abcdef\"}",
		"{\"op\":\"configure\",\"entropy\":\"000102030405060708090a0b0c0d0e0f\"}",
		"{\"op\":\"freeze\"}",
		"{\"op\":\"thaw\"}",
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		agent_peer_request(&peer, &guest, requests[i]);
		assert_non_null(strstr(peer.line, "\"code\":\"unsupported\""));
		agent_peer_close(&peer);
	}
}

static void a_configure_follows_another(void **s)
{
	static const char again[] = "{\"op\":\"configure\",\"env\":[\"A=2\"]}\n", other[] = "{\"op\":\"ping\"}\n";

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"configure\",\"env\":[\"A=1\"]}");
	assert_string_equal(peer.line, "{\"ok\":true}");
	agent_peer_send(&peer, again, sizeof(again) - 1);
	assert_true(agent_peer_line(&peer));
	assert_string_equal(peer.line, "{\"ok\":true}");
	agent_peer_send(&peer, other, sizeof(other) - 1);
	assert_true(agent_peer_line(&peer));
	assert_non_null(strstr(peer.line, "only configure can follow"));
	assert_false(agent_peer_line(&peer));
	agent_peer_close(&peer);
}

static void sync_answers(void **s)
{
	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"sync\"}");
	assert_string_equal(peer.line, "{\"ok\":true}");
	agent_peer_close(&peer);
}

static void power_off_ends_commands_and_agent(void **s)
{
	struct agent_guest other;
	struct agent_peer *p = malloc(sizeof(*p));
	int status;

	(void)s;
	agent_guest_start(&other, NULL);
	agent_peer_request(&peer, &other, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done\"]}");
	assert_true(agent_peer_frame(&peer));
	agent_peer_request(p, &other, "{\"op\":\"poweroff\",\"grace_ms\":60000}");
	assert_string_equal(p->line, "{\"ok\":true}");
	agent_peer_close(p);
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "bye\n");
	assert_int_equal(r.final, AGENT_EXIT);
	assert_int_equal(r.value, 3);
	agent_peer_close(&peer);
	assert_int_equal(waitpid(other.pid, &status, 0), other.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	rmdir(other.dir);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ready_line_says_what_it_is),
		cmocka_unit_test(ping_tells_about_the_guest),
		cmocka_unit_test(garbage_gets_an_error_line),
		cmocka_unit_test(a_request_without_an_end_is_cut_off),
		cmocka_unit_test(the_largest_request_is_served),
		cmocka_unit_test(a_client_that_leaves_early_harms_nobody),
		cmocka_unit_test(violations_end_the_operation_with_an_error_frame),
		cmocka_unit_test(half_a_frame_is_waited_for),
		cmocka_unit_test(as_many_as_there_may_be_and_one_more),
		cmocka_unit_test(the_machine_is_left_alone),
		cmocka_unit_test(a_configure_follows_another),
		cmocka_unit_test(sync_answers),
		cmocka_unit_test(power_off_ends_commands_and_agent),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
