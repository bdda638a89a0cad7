/* SPDX-License-Identifier: Apache-2.0 */
/* Commands with a terminal of their own. */
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

static void start(const char *script, const char *more)
{
	char request[1024];

	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"%s\"],\"tty\":true%s}", script, more);
	agent_peer_request(&peer, &guest, request);
	if (strncmp(peer.line, "{\"ok\"", 5) != 0)
		fail_msg("%s", peer.line);
}

/* Collect output until it contains `text`. */
static void wait_for(const char *text)
{
	memset(&r, 0, sizeof(r));
	while (!strstr(r.out, text)) {
		assert_true(agent_peer_frame(&peer));
		if (peer.type != AGENT_STDOUT)
			fail_msg("frame of type %u before '%s', after '%s'", peer.type, text, r.out);
		assert_true(r.nout + peer.length < sizeof(r.out));
		memcpy(r.out + r.nout, peer.payload, peer.length);
		r.nout += peer.length;
	}
}

static void finish(uint32_t kind, uint32_t value)
{
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_EXIT);
	assert_int_equal(r.kind, kind);
	assert_int_equal(r.value, value);
	agent_peer_close(&peer);
}

static void all_three_streams_are_one_terminal(void **s)
{
	(void)s;
	start("test -t 0 && test -t 1 && test -t 2 && echo err >&2 && echo $TERM && tty", "");
	agent_peer_collect(&peer, &r);
	assert_memory_equal(r.out, "err\r\nxterm\r\n/dev/pts/", 21);
	assert_int_equal(r.nerr, 0);
	assert_true(r.out_ended);
	assert_int_equal(r.value, 0);
	agent_peer_close(&peer);
}

static void it_is_the_controlling_terminal(void **s)
{
	(void)s;
	start("echo yes >/dev/tty; exit 4", "");
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "yes\r\n");
	assert_int_equal(r.value, 4);
	agent_peer_close(&peer);
}

static void it_has_the_size_asked_for(void **s)
{
	(void)s;
	start("stty size", ",\"rows\":33,\"cols\":101");
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "33 101\r\n");
	agent_peer_close(&peer);
}

static void a_new_size_brings_sigwinch(void **s)
{
	le16 size[4] = { le16_make(50), le16_make(120), le16_make(0), le16_make(0) };

	(void)s;
	start("trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done", "");
	wait_for("ready\r\n");
	agent_peer_put(&peer, AGENT_WINSIZE, size, sizeof(size));
	wait_for("50 120\r\n");
	finish(AGENT_EXIT_STATUS, 0);
}

static void what_is_typed_is_echoed_and_read(void **s)
{
	(void)s;
	start("read x; echo got $x", ",\"stdin\":true");
	agent_peer_put(&peer, AGENT_STDIN, "hello\n", 6);
	wait_for("got hello\r\n");
	assert_string_equal(r.out, "hello\r\ngot hello\r\n");
	finish(AGENT_EXIT_STATUS, 0);
}

static void control_c_interrupts_the_foreground(void **s)
{
	(void)s;
	start("echo ready; exec sleep 1000", ",\"stdin\":true");
	wait_for("ready\r\n");
	agent_peer_put(&peer, AGENT_STDIN, "\003", 1);
	finish(AGENT_EXIT_SIGNAL, SIGINT);
}

static void raw_bytes_pass_both_ways(void **s)
{
	unsigned char all[256];

	(void)s;
	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	start("stty raw -echo; printf R; head -c 256", ",\"stdin\":true");
	wait_for("R");
	agent_peer_put(&peer, AGENT_STDIN, all, sizeof(all));
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.nout, 256);
	assert_memory_equal(r.out, all, 256);
	assert_int_equal(r.value, 0);
	agent_peer_close(&peer);
}

static void the_end_of_stdin_is_typed(void **s)
{
	(void)s;
	start("cat; echo end", ",\"stdin\":true");
	agent_peer_put(&peer, AGENT_STDIN, "line\n", 5);
	agent_peer_put(&peer, AGENT_STDIN, NULL, 0);
	agent_peer_collect(&peer, &r);
	assert_non_null(strstr(r.out, "line\r\nend\r\n"));
	agent_peer_close(&peer);
}

static void an_unfinished_line_ends_too(void **s)
{
	(void)s;
	start("cat; echo end", ",\"stdin\":true");
	agent_peer_put(&peer, AGENT_STDIN, "part", 4);
	agent_peer_put(&peer, AGENT_STDIN, NULL, 0);
	agent_peer_collect(&peer, &r);
	assert_non_null(strstr(r.out, "partend\r\n"));
	agent_peer_close(&peer);
}

static void a_lot_of_output_arrives_whole(void **s)
{
	size_t n = 0;

	(void)s;
	start("stty raw; head -c 1000000 /dev/zero", "");
	while (agent_peer_frame(&peer) && peer.type != AGENT_EXIT)
		n += peer.type == AGENT_STDOUT ? peer.length : 0;
	assert_int_equal(n, 1000000);
	assert_int_equal(peer.type, AGENT_EXIT);
	agent_peer_close(&peer);
}

static void a_reader_that_went_away_hangs_up(void **s)
{
	(void)s;
	start("echo ready; while :; do sleep 0.01; done", ",\"stdin\":true");
	wait_for("ready\r\n");
	agent_peer_put(&peer, AGENT_STDOUT, NULL, 0);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.kind, AGENT_EXIT_SIGNAL);
	assert_int_equal(r.value, SIGHUP);
	agent_peer_close(&peer);
}

static void the_terminal_belongs_to_the_user(void **s)
{
	(void)s;
	if (geteuid() != 0) {
		print_message("changing users needs root\n");
		skip();
	}
	start("stat -c %u $(tty); echo x > $(tty)", ",\"user\":\"daemon\"");
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "1\r\nx\r\n");
	agent_peer_close(&peer);
}

static void background_jobs_do_not_hold_it(void **s)
{
	(void)s;
	start("trap '' HUP; sleep 1000 & echo $!", "");
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_EXIT);
	assert_int_equal(r.value, 0);
	kill(atoi(r.out), SIGKILL);
	agent_peer_close(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_three_streams_are_one_terminal),
		cmocka_unit_test(it_is_the_controlling_terminal),
		cmocka_unit_test(it_has_the_size_asked_for),
		cmocka_unit_test(a_new_size_brings_sigwinch),
		cmocka_unit_test(what_is_typed_is_echoed_and_read),
		cmocka_unit_test(control_c_interrupts_the_foreground),
		cmocka_unit_test(raw_bytes_pass_both_ways),
		cmocka_unit_test(the_end_of_stdin_is_typed),
		cmocka_unit_test(an_unfinished_line_ends_too),
		cmocka_unit_test(a_lot_of_output_arrives_whole),
		cmocka_unit_test(a_reader_that_went_away_hangs_up),
		cmocka_unit_test(the_terminal_belongs_to_the_user),
		cmocka_unit_test(background_jobs_do_not_hold_it),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
