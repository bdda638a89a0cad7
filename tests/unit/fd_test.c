/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-buffer transfers and descriptor passing. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"

static void read_full_stops_at_end_of_file(void **s)
{
	(void)s;
	char buf[8];
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(fd_write_full(p[1], "abc", 3), 0);
	close(p[1]);
	assert_int_equal(fd_read_full(p[0], buf, sizeof(buf)), 3);
	assert_memory_equal(buf, "abc", 3);
	close(p[0]);
}

static void scope_closes_unless_taken(void **s)
{
	(void)s;
	int kept, closed;
	{
		_cleanup_close_ int a = dup(0);
		_cleanup_close_ int b = dup(0);

		closed = b;
		kept = TAKE_FD(a);
	}
	assert_int_not_equal(fcntl(kept, F_GETFD), -1);
	assert_int_equal(fcntl(closed, F_GETFD), -1);
	close(kept);
}

static void descriptors_pass_with_the_message(void **s)
{
	(void)s;
	int sv[2], p[2], got[2] = { -1, -1 };
	size_t n = 0;
	char buf[8], byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(fd_send(sv[0], "hi", 2, &p[1], 1), 2);
	assert_int_equal(fd_recv(sv[1], buf, sizeof(buf), got, 2, &n), 2);
	assert_int_equal(n, 1);
	assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(got[0], "z", 1), 1);
	assert_int_equal(read(p[0], &byte, 1), 1);
	assert_int_equal(byte, 'z');
	close(got[0]);
	close(p[0]);
	close(p[1]);
	close(sv[0]);
	close(sv[1]);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static void surplus_and_truncated_descriptors_are_closed(void **s)
{
	(void)s;
	int sv[2], fds[4], got[1];
	size_t n = 0;
	char buf[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	for (int i = 0; i < 4; i++)
		fds[i] = dup(0);
	int before = open_fds();

	assert_int_equal(fd_send(sv[0], "hi", 2, fds, 4), 2);
	assert_int_equal(fd_recv(sv[1], buf, sizeof(buf), got, 1, &n), 2);
	assert_int_equal(n, 1);
	assert_int_equal(open_fds(), before + 1);
	close(got[0]);
	assert_int_equal(fd_send(sv[0], "long", 4, fds, 1), 4);
	assert_int_equal(fd_recv(sv[1], buf, sizeof(buf), got, 1, &n), -EMSGSIZE);
	assert_int_equal(open_fds(), before);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	close(sv[0]);
	close(sv[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_full_stops_at_end_of_file),
		cmocka_unit_test(scope_closes_unless_taken),
		cmocka_unit_test(descriptors_pass_with_the_message),
		cmocka_unit_test(surplus_and_truncated_descriptors_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
