/* SPDX-License-Identifier: Apache-2.0 */
/* Output that never blocks: full pipes, readers that went away, full disks, bounded capture. */
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
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/stream.h"
#include "lib/fd.h"

enum { BIG = 1 << 20 };

static char data[BIG];

/* Write until it would block; the bytes taken. */
static size_t fill(struct stream *s)
{
	size_t total = 0, n;

	while (total < 8 * sizeof(data) && (n = stream_write(s, data, sizeof(data))) > 0)
		total += n;
	return total;
}

static void a_full_pipe_takes_nothing_and_does_not_block(void **state)
{
	struct stream s;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	stream_open_fd(&s, p[1]);
	assert_in_range(fill(&s), 4096, 2 * BIG);
	assert_int_equal(stream_write(&s, data, 1), 0);
	assert_false(s.closed);
	stream_close(&s);
	close(p[0]);
	close(p[1]);
}

static void the_descriptor_itself_stays_blocking(void **state)
{
	struct stream s;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	stream_open_fd(&s, p[1]);
	assert_int_equal(fcntl(p[1], F_GETFL) & O_NONBLOCK, 0);
	stream_close(&s);
	assert_int_equal(write(p[1], "x", 1), 1);
	close(p[0]);
	close(p[1]);
}

static void a_full_socket_takes_nothing_and_does_not_block(void **state)
{
	struct stream s;
	int p[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	stream_open_fd(&s, p[1]);
	assert_in_range(fill(&s), 4096, 8 * BIG - 1);
	assert_int_equal(stream_write(&s, data, 1), 0);
	stream_close(&s);
	close(p[0]);
	close(p[1]);
}

static void a_reader_that_went_away_closes_the_stream_without_an_error(void **state)
{
	struct stream s;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	close(p[0]);
	stream_open_fd(&s, p[1]);
	assert_int_equal(stream_write(&s, data, 10), 10);
	assert_true(s.closed);
	assert_int_equal(s.error, 0);
	assert_int_equal(stream_write(&s, data, sizeof(data)), sizeof(data));
	stream_close(&s);
	close(p[1]);
}

static void a_full_disk_is_an_error(void **state)
{
	struct stream s;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	(void)state;
	stream_open_fd(&s, fd);
	assert_int_equal(stream_write(&s, data, 10), 10);
	assert_true(s.closed);
	assert_int_equal(s.error, -ENOSPC);
	stream_close(&s);
	close(fd);
}

static void a_descriptor_that_cannot_be_written_is_an_error(void **state)
{
	struct stream s;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	stream_open_fd(&s, fd);
	assert_int_equal(stream_write(&s, data, 10), 10);
	assert_int_equal(s.error, -EBADF);
	stream_close(&s);
	close(fd);
}

static void capture_ends_at_its_limit(void **state)
{
	struct stream s;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 31);
	assert_int_equal(stream_open_capture(&s, 10000), 0);
	for (size_t at = 0; at < 9999; at += 1111)
		assert_int_equal(stream_write(&s, data + at, 1111), 1111);
	assert_int_equal(s.captured, 9999);
	assert_false(s.truncated);
	assert_int_equal(stream_write(&s, data + 9999, 2), 2);
	assert_int_equal(s.captured, 10000);
	assert_true(s.truncated);
	assert_int_equal(stream_write(&s, data, sizeof(data)), sizeof(data));
	assert_memory_equal(s.capture, data, 10000);
	stream_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_pipe_takes_nothing_and_does_not_block),
		cmocka_unit_test(the_descriptor_itself_stays_blocking),
		cmocka_unit_test(a_full_socket_takes_nothing_and_does_not_block),
		cmocka_unit_test(a_reader_that_went_away_closes_the_stream_without_an_error),
		cmocka_unit_test(a_full_disk_is_an_error),
		cmocka_unit_test(a_descriptor_that_cannot_be_written_is_an_error),
		cmocka_unit_test(capture_ends_at_its_limit),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
