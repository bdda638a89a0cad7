/* SPDX-License-Identifier: Apache-2.0 */
/* stdin, stdout and stderr of a command: byte-exact, separate, bounded, and each with an end of its own. */
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
#include <poll.h>

#include <cmocka.h>
#include <nettle/sha2.h>

#include "lib/util.h"
#include "tests/harness/agent_guest.h"

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;

static void start(const char *script, const char *more)
{
	char request[1024];

	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"%s\"]%s}", script, more);
	agent_peer_request(&peer, &guest, request);
	if (strncmp(peer.line, "{\"ok\"", 5) != 0)
		fail_msg("%s", peer.line);
}

/* Byte i of a sequence of 32-bit counters from `first` on: nothing lost, doubled or moved goes unseen. */
static unsigned char pattern(size_t i, uint32_t first)
{
	return (unsigned char)((first + (uint32_t)(i / 4)) >> 8 * (i % 4));
}

static void ten_mib_on_both_streams_are_exact(void **s)
{
	static const char script[] = "import os,threading,array\\n"
				     "def w(fd,first):\\n"
				     " b=array.array('I',range(first,first+(10<<18))).tobytes()\\n"
				     " o=0\\n"
				     " while o<len(b): o+=os.write(fd,b[o:o+100001])\\n"
				     "t=threading.Thread(target=w,args=(2,1<<30)); t.start(); w(1,7); t.join()";
	char request[1024];
	size_t n[2] = { 0, 0 };
	bool ended[2] = { false, false };

	(void)s;
	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"python3\",\"-c\",\"%s\"]}", script);
	agent_peer_request(&peer, &guest, request);
	while (agent_peer_frame(&peer) && peer.type != AGENT_EXIT) {
		int which = peer.type == AGENT_STDERR;

		assert_true(peer.type == AGENT_STDOUT || peer.type == AGENT_STDERR);
		assert_false(ended[which]);
		ended[which] = peer.length == 0;
		for (size_t i = 0; i < peer.length; i++, n[which]++)
			if (peer.payload[i] != pattern(n[which], which ? 1u << 30 : 7))
				fail_msg("stream %d differs at byte %zu", which + 1, n[which]);
	}
	assert_true(ended[0] && ended[1]);
	assert_int_equal(n[0], 10 << 20);
	assert_int_equal(n[1], 10 << 20);
	assert_int_equal(peer.type, AGENT_EXIT);
	assert_int_equal(le32_load(peer.payload + 4), 0);
	agent_peer_close(&peer);
}

/* Feed n bytes of stdin as the window allows and hash what comes back on stdout. */
static void through_cat(size_t n, size_t piece, uint8_t sum_in[32], uint8_t sum_out[32])
{
	size_t sent = 0, got = 0, window = (size_t)agent_peer_number(&peer, "stdin_window");
	unsigned char *data = malloc(piece);
	struct sha256_ctx in, out;
	bool end_sent = false, ended = false;

	sha256_init(&in);
	sha256_init(&out);
	while (!ended) {
		struct pollfd p = { .fd = peer.fd, .events = POLLIN };
		size_t take = MIN(MIN(piece, n - sent), window);

		if (take > 0) {
			for (size_t i = 0; i < take; i++)
				data[i] = pattern(sent + i, 3);
			agent_peer_put(&peer, AGENT_STDIN, data, take);
			sha256_update(&in, take, data);
			sent += take;
			window -= take;
		} else if (sent == n && !end_sent) {
			agent_peer_put(&peer, AGENT_STDIN, NULL, 0);
			end_sent = true;
		}
		if ((sent < n && window > 0) && poll(&p, 1, 0) <= 0)
			continue;
		assert_true(agent_peer_frame(&peer));
		if (peer.type == AGENT_CREDIT) {
			window += le32_load(peer.payload);
		} else if (peer.type == AGENT_STDOUT) {
			sha256_update(&out, peer.length, peer.payload);
			got += peer.length;
			ended = peer.length == 0;
		}
	}
	assert_int_equal(got, n);
	sha256_digest(&in, 32, sum_in);
	sha256_digest(&out, 32, sum_out);
	free(data);
}

static void ten_mib_of_stdin_pass_through_cat(void **s)
{
	uint8_t a[32], b[32];

	(void)s;
	start("cat", ",\"stdin\":true");
	through_cat(10 << 20, AGENT_FRAME_MAX, a, b);
	assert_memory_equal(a, b, 32);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.value, 0);
	agent_peer_close(&peer);
}

static void small_pieces_of_stdin_pass_as_well(void **s)
{
	uint8_t a[32], b[32];

	(void)s;
	start("cat", ",\"stdin\":true");
	through_cat(300000, 37, a, b);
	assert_memory_equal(a, b, 32);
	agent_peer_collect(&peer, &r);
	agent_peer_close(&peer);
}

static void the_end_of_stdin_arrives_after_its_data(void **s)
{
	(void)s;
	start("cat; echo end", ",\"stdin\":true");
	agent_peer_put(&peer, AGENT_STDIN, "abc", 3);
	agent_peer_put(&peer, AGENT_STDIN, NULL, 0);
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "abcend\n");
	agent_peer_close(&peer);
}

static void frames_may_come_with_the_request(void **s)
{
	static const char request[] = "{\"op\":\"exec\",\"argv\":[\"cat\"],\"stdin\":true}\n";
	struct agent_frame data = { .length = le32_make(2), .type = AGENT_STDIN }, end = { .type = AGENT_STDIN };
	char all[256];
	size_t n = sizeof(request) - 1;

	(void)s;
	memcpy(all, request, n);
	memcpy(all + n, &data, sizeof(data));
	memcpy(all + n + 8, "hi", 2);
	memcpy(all + n + 10, &end, sizeof(end));
	agent_peer_connect(&peer, &guest);
	agent_peer_send(&peer, all, n + 18);
	assert_true(agent_peer_line(&peer));
	agent_peer_collect(&peer, &r);
	assert_string_equal(r.out, "hi");
	assert_int_equal(r.final, AGENT_EXIT);
	agent_peer_close(&peer);
}

enum { PIPE_SIZE = 65536 }; /* what a pipe holds unless told otherwise: pipe(7) */

static void stdin_beyond_the_window_is_refused(void **s)
{
	unsigned char data[AGENT_FRAME_MAX] = { 0 };

	(void)s;
	start("sleep 1000", ",\"stdin\":true");
	/* No command reads any: the pipe takes some, which is credited, then the window is full. */
	for (size_t i = 0; i < (PIPE_SIZE + AGENT_STDIN_WINDOW) / AGENT_FRAME_MAX + 1; i++)
		agent_peer_put(&peer, AGENT_STDIN, data, sizeof(data));
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EPROTO);
	assert_non_null(strstr(r.error, "window"));
	agent_peer_close(&peer);
}

static void a_full_window_does_not_stop_signals(void **s)
{
	unsigned char data[AGENT_FRAME_MAX] = { 0 };
	le32 sig = le32_make(SIGTERM);

	(void)s;
	start("exec sleep 1000", ",\"stdin\":true");
	for (size_t i = 0; i < AGENT_STDIN_WINDOW / AGENT_FRAME_MAX; i++)
		agent_peer_put(&peer, AGENT_STDIN, data, sizeof(data));
	agent_peer_put(&peer, AGENT_SIGNAL, &sig, sizeof(sig));
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.kind, AGENT_EXIT_SIGNAL);
	assert_int_equal(r.value, SIGTERM);
	agent_peer_close(&peer);
}

static void stdin_that_the_command_has_closed_is_dropped_and_credited(void **s)
{
	unsigned char data[AGENT_FRAME_MAX] = { 0 };
	size_t window, sent = 0, total = 1 << 20;

	(void)s;
	start("exec <&-; echo closed; exec sleep 1000", ",\"stdin\":true");
	window = (size_t)agent_peer_number(&peer, "stdin_window");
	assert_true(agent_peer_frame(&peer));
	assert_memory_equal(peer.payload, "closed\n", 7);
	while (sent < total) {
		if (window < sizeof(data)) {
			assert_true(agent_peer_frame(&peer));
			assert_int_equal(peer.type, AGENT_CREDIT);
			window += le32_load(peer.payload);
			continue;
		}
		agent_peer_put(&peer, AGENT_STDIN, data, sizeof(data));
		sent += sizeof(data);
		window -= sizeof(data);
	}
	agent_peer_close(&peer);
}

static void stdin_that_was_not_asked_for_is_refused(void **s)
{
	(void)s;
	start("sleep 1000", "");
	agent_peer_put(&peer, AGENT_STDIN, "x", 1);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EPROTO);
	agent_peer_close(&peer);
}

static void a_slow_host_gets_everything(void **s)
{
	size_t n = 0;

	(void)s;
	start("head -c 3000000 /dev/zero; echo done >&2", "");
	/* the command fills the ring and waits; only then is anything read */
	usleep(50000);
	while (agent_peer_frame(&peer) && peer.type != AGENT_EXIT)
		n += peer.type == AGENT_STDOUT ? peer.length : 0;
	assert_int_equal(n, 3000000);
	assert_int_equal(peer.type, AGENT_EXIT);
	agent_peer_close(&peer);
}

static void a_reader_that_went_away_is_a_broken_pipe(void **s)
{
	size_t n = 0;

	(void)s;
	start("trap '' PIPE; yes 2>/dev/null; echo status $? >&2", "");
	while (n < 100000) {
		assert_true(agent_peer_frame(&peer));
		n += peer.length;
	}
	agent_peer_put(&peer, AGENT_STDOUT, NULL, 0);
	agent_peer_put(&peer, AGENT_STDOUT, NULL, 0); /* twice is no error */
	memset(&r, 0, sizeof(r));
	while (agent_peer_frame(&peer)) {
		if (peer.type == AGENT_STDERR) {
			memcpy(r.err + r.nerr, peer.payload, peer.length);
			r.nerr += peer.length;
		}
		if (peer.type == AGENT_EXIT)
			r.final = peer.type;
	}
	assert_string_equal(r.err, "status 1\n");
	assert_int_equal(r.final, AGENT_EXIT);
	agent_peer_close(&peer);
}

static void output_after_the_last_moment_is_delivered(void **s)
{
	(void)s;
	/* more than a pipe holds is still in it when the command ends */
	start("head -c 60000 /dev/zero | tr '\\\\0' x; exit 3", "");
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.nout, 60000);
	assert_int_equal(r.value, 3);
	agent_peer_close(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_mib_on_both_streams_are_exact),
		cmocka_unit_test(ten_mib_of_stdin_pass_through_cat),
		cmocka_unit_test(small_pieces_of_stdin_pass_as_well),
		cmocka_unit_test(the_end_of_stdin_arrives_after_its_data),
		cmocka_unit_test(frames_may_come_with_the_request),
		cmocka_unit_test(stdin_beyond_the_window_is_refused),
		cmocka_unit_test(a_full_window_does_not_stop_signals),
		cmocka_unit_test(stdin_that_the_command_has_closed_is_dropped_and_credited),
		cmocka_unit_test(stdin_that_was_not_asked_for_is_refused),
		cmocka_unit_test(a_slow_host_gets_everything),
		cmocka_unit_test(a_reader_that_went_away_is_a_broken_pipe),
		cmocka_unit_test(output_after_the_last_moment_is_delivered),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
