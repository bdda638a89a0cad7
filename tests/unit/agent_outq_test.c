/* SPDX-License-Identifier: Apache-2.0 */
/* The output ring of a command: whole frames, bounded, resumable on another connection. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/agent/outq.h"
#include "lib/fd.h"
#include "lib/util.h"

struct rig {
	struct outq q;
	int pipe[2];
	int sock[2];
};

static int setup(void **s)
{
	struct rig *r = malloc(sizeof(*r));

	outq_init(&r->q);
	assert_int_equal(pipe(r->pipe), 0);
	fd_set_nonblock(r->pipe[0], 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, r->sock), 0);
	*s = r;
	return 0;
}

static int teardown(void **s)
{
	struct rig *r = *s;

	for (int i = 0; i < 2; i++) {
		fd_close(r->pipe[i]);
		fd_close(r->sock[i]);
	}
	free(r);
	return 0;
}

static ssize_t command_writes(struct rig *r, uint8_t type, char c, size_t n)
{
	char *data = malloc(n);
	ssize_t got;

	memset(data, c, n);
	assert_int_equal(fd_write_full(r->pipe[1], data, n), 0);
	free(data);
	got = outq_read(&r->q, type, r->pipe[0], n);
	return got;
}

static void expect_frame(struct rig *r, uint8_t type, size_t n, char c)
{
	struct agent_frame h;
	char *data = malloc(n + 1);

	assert_int_equal(fd_read_full(r->sock[1], &h, sizeof(h)), sizeof(h));
	assert_int_equal(h.type, type);
	assert_int_equal(le32_get(h.length), n);
	assert_int_equal(fd_read_full(r->sock[1], data, n), n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(data[i], c);
	free(data);
}

static void frames_come_out_as_they_went_in(void **s)
{
	struct rig *r = *s;

	assert_int_equal(command_writes(r, AGENT_STDOUT, 'a', 5), 5);
	assert_int_equal(command_writes(r, AGENT_STDERR, 'b', 3), 3);
	outq_put(&r->q, AGENT_STDOUT, NULL, 0);
	assert_int_equal(outq_read(&r->q, AGENT_STDOUT, r->pipe[0], 100), -EAGAIN);
	assert_true(outq_send(&r->q, r->sock[0], false) > 0);
	assert_false(outq_pending(&r->q));
	expect_frame(r, AGENT_STDOUT, 5, 'a');
	expect_frame(r, AGENT_STDERR, 3, 'b');
	expect_frame(r, AGENT_STDOUT, 0, 0);
}

static void one_frame_can_be_sent_alone(void **s)
{
	struct rig *r = *s;

	command_writes(r, AGENT_STDOUT, 'a', 5);
	command_writes(r, AGENT_STDOUT, 'b', 5);
	assert_int_equal(outq_send(&r->q, r->sock[0], true), 13);
	assert_true(outq_pending(&r->q));
	assert_false(outq_mid_frame(&r->q));
}

static void the_ring_wraps_without_a_trace(void **s)
{
	struct rig *r = *s;

	for (int i = 0; i < 200; i++) {
		char c = (char)('a' + i % 26);

		assert_int_equal(command_writes(r, AGENT_STDOUT, c, 10007), 10007);
		assert_int_equal(outq_send(&r->q, r->sock[0], false), 10015);
		expect_frame(r, AGENT_STDOUT, 10007, c);
	}
}

static void a_full_ring_keeps_room_for_the_end(void **s)
{
	struct rig *r = *s;
	char exit[8] = { 0 };
	size_t n = 0;

	while (outq_can_read(&r->q))
		n += (size_t)command_writes(r, AGENT_STDOUT, 'x', 30000);
	assert_true(n > OUTQ_SIZE - 40000 && n < OUTQ_SIZE);
	outq_put(&r->q, AGENT_STDOUT, NULL, 0);
	outq_put(&r->q, AGENT_STDERR, NULL, 0);
	outq_put(&r->q, AGENT_EXIT, exit, sizeof(exit));
	assert_true(r->q.ring.len <= OUTQ_SIZE);
	while (outq_pending(&r->q)) { /* the last frame is EXIT: nothing was left out */
		struct agent_frame h;
		char data[AGENT_FRAME_MAX];

		assert_true(outq_send(&r->q, r->sock[0], true) > 0);
		if (outq_mid_frame(&r->q))
			continue;
		assert_int_equal(fd_read_full(r->sock[1], &h, sizeof(h)), sizeof(h));
		assert_int_equal(fd_read_full(r->sock[1], data, le32_get(h.length)), le32_get(h.length));
		if (!outq_pending(&r->q))
			assert_int_equal(h.type, AGENT_EXIT);
	}
}

static void dropping_takes_the_oldest_and_counts_it(void **s)
{
	struct rig *r = *s;

	command_writes(r, AGENT_STDOUT, 'a', 1000);
	while (outq_can_read(&r->q))
		command_writes(r, AGENT_STDOUT, 'x', 20000);
	outq_drop(&r->q);
	assert_true(outq_can_read(&r->q));
	assert_int_equal(r->q.lost, 1000 + 20000);
	command_writes(r, AGENT_STDOUT, 'z', 4096);
	assert_true(outq_send(&r->q, r->sock[0], true) > 0);
	expect_frame(r, AGENT_STDOUT, 20000, 'x');
}

static void the_end_of_a_stream_is_never_dropped(void **s)
{
	struct rig *r = *s;

	outq_put(&r->q, AGENT_STDERR, NULL, 0);
	while (outq_can_read(&r->q))
		command_writes(r, AGENT_STDOUT, 'x', 20000);
	outq_drop(&r->q);
	for (bool seen = false; !seen;) {
		struct agent_frame h;
		char data[AGENT_FRAME_MAX];

		assert_true(outq_pending(&r->q));
		assert_true(outq_send(&r->q, r->sock[0], true) > 0);
		assert_int_equal(fd_read_full(r->sock[1], &h, sizeof(h)), sizeof(h));
		assert_int_equal(fd_read_full(r->sock[1], data, le32_get(h.length)), le32_get(h.length));
		seen = h.type == AGENT_STDERR;
	}
}

static void a_torn_frame_starts_again_on_another_connection(void **s)
{
	struct rig *r = *s;
	int second[2], small = 4608;

	setsockopt(r->sock[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	command_writes(r, AGENT_STDOUT, 'q', 60000);
	assert_true(outq_send(&r->q, r->sock[0], false) < 60008);
	assert_true(outq_mid_frame(&r->q));
	outq_rewind(&r->q);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, second), 0);
	assert_int_equal(outq_send(&r->q, second[0], false), 60008);
	fd_close(r->sock[0]);
	fd_close(r->sock[1]);
	r->sock[0] = second[0];
	r->sock[1] = second[1];
	expect_frame(r, AGENT_STDOUT, 60000, 'q');
}

/* ---- with keep ---- */

static void fill(struct rig *r)
{
	while (outq_can_read(&r->q))
		command_writes(r, AGENT_STDOUT, 'x', 20000);
}

static void send_all(struct rig *r)
{
	char data[AGENT_FRAME_MAX];

	while (outq_pending(&r->q)) {
		assert_true(outq_send(&r->q, r->sock[0], false) > 0);
		while (recv(r->sock[1], data, sizeof(data), MSG_DONTWAIT) > 0)
			;
	}
}

static void what_is_kept_is_full_until_it_was_taken(void **s)
{
	struct rig *r = *s;

	r->q.keep = true;
	fill(r);
	send_all(r);
	assert_false(outq_can_read(&r->q));
	assert_int_equal(outq_take(&r->q, 20008), 0);
	assert_true(outq_can_read(&r->q));
	assert_false(outq_pending(&r->q));
}

static void what_was_not_taken_is_sent_again(void **s)
{
	struct rig *r = *s;

	r->q.keep = true;
	command_writes(r, AGENT_STDOUT, 'a', 5);
	command_writes(r, AGENT_STDERR, 'b', 6);
	send_all(r);
	command_writes(r, AGENT_STDOUT, 'c', 7);
	assert_int_equal(outq_take(&r->q, 13), 0);
	outq_rewind(&r->q);
	assert_int_equal(outq_send(&r->q, r->sock[0], false), 14 + 15);
	expect_frame(r, AGENT_STDERR, 6, 'b');
	expect_frame(r, AGENT_STDOUT, 7, 'c');
}

static void only_ends_of_frames_that_were_sent_can_be_taken(void **s)
{
	struct rig *r = *s;
	uint64_t ends = 0;

	r->q.keep = true;
	command_writes(r, AGENT_STDOUT, 'a', 5);
	command_writes(r, AGENT_STDOUT, 'b', 5);
	assert_int_equal(outq_take(&r->q, 13), -ERANGE); /* not sent yet */
	assert_int_equal(outq_send(&r->q, r->sock[0], true), 13);
	assert_int_equal(outq_take(&r->q, 26), -ERANGE);
	assert_int_equal(outq_take(&r->q, UINT64_MAX), -ERANGE);
	assert_int_equal(outq_take(&r->q, 12), -ERANGE);
	assert_int_equal(outq_take(&r->q, 13), 0);
	assert_int_equal(outq_take(&r->q, 13), 0);
	assert_int_equal(outq_take(&r->q, 0), -ERANGE); /* gone */
	assert_int_equal(outq_send(&r->q, r->sock[0], true), 13);
	for (uint64_t i = 0; i < 40; i++)
		ends += outq_take(&r->q, i) == 0;
	assert_int_equal(ends, 2); /* 13 and 26 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(frames_come_out_as_they_went_in, setup, teardown),
		cmocka_unit_test_setup_teardown(one_frame_can_be_sent_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(the_ring_wraps_without_a_trace, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_ring_keeps_room_for_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(dropping_takes_the_oldest_and_counts_it, setup, teardown),
		cmocka_unit_test_setup_teardown(the_end_of_a_stream_is_never_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(a_torn_frame_starts_again_on_another_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_kept_is_full_until_it_was_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_not_taken_is_sent_again, setup, teardown),
		cmocka_unit_test_setup_teardown(only_ends_of_frames_that_were_sent_can_be_taken, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
