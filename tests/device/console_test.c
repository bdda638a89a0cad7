/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console backend through a serial port: log files and their bound, standard input and output. For stdio the test
 * puts pipes or sockets in place of descriptors 0 and 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/console.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/machine.h"

enum { RAM = 1 << 20, DATA = 0, FCR = 2, LSR = 5, LIMIT = 64 << 10 };

struct fixture {
	struct machine m;
	struct device *d;
	char dir[64], log[96], old[96], options[160];
	int saved_in, saved_out;
	int guest_in, guest_out; /* our ends */
};

static int setup(void **ctx)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	snprintf(f.dir, sizeof(f.dir), "/tmp/console_test.XXXXXX");
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.log, sizeof(f.log), "%s/log", f.dir);
	snprintf(f.old, sizeof(f.old), "%s/log.1", f.dir);
	snprintf(f.options, sizeof(f.options), "log=%s,limit=64K", f.log);
	machine_init(&f.m, RAM);
	f.saved_in = f.saved_out = f.guest_in = f.guest_out = -1;
	signal(SIGPIPE, SIG_IGN);
	*ctx = &f;
	return 0;
}

static void restore_stdio(struct fixture *f)
{
	if (f->saved_in >= 0) {
		dup2(f->saved_in, 0);
		dup2(f->saved_out, 1);
		f->saved_in = fd_close(f->saved_in);
		f->saved_out = fd_close(f->saved_out);
	}
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	restore_stdio(f);
	fd_close(f->guest_in);
	fd_close(f->guest_out);
	unlink(f->log);
	unlink(f->old);
	rmdir(f->dir);
	return 0;
}

static void put(struct fixture *f, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t b = (uint8_t)s[i];

		bus_write(&f->m.vm.bus, BUS_PIO, f->d->base + DATA, &b, 1);
	}
}

static void put_lines(struct fixture *f, size_t bytes)
{
	char line[32];

	for (size_t n = 0; n < bytes; n += 16) {
		snprintf(line, sizeof(line), "line %010zu\n", n / 16);
		put(f, line, 16);
		machine_settle(&f->m);
	}
}

static size_t read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	n = fd_read_full(fd, buf, len);
	fd_close(fd);
	assert_true(n >= 0);
	return (size_t)n;
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

static void test_log_gets_the_output(void **ctx)
{
	struct fixture *f = *ctx;
	char buf[64];

	f->d = machine_add(&f->m, "serial", f->options);
	put(f, "hello\n", 6);
	machine_settle(&f->m);
	assert_int_equal(read_file(f->log, buf, sizeof(buf)), 6);
	assert_memory_equal(buf, "hello\n", 6);
}

static void test_log_continues_an_existing_one(void **ctx)
{
	struct fixture *f = *ctx;
	int fd = open(f->log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char buf[64];

	assert_int_equal(fd_write_full(fd, "before\n", 7), 0);
	fd_close(fd);
	f->d = machine_add(&f->m, "serial", f->options);
	put(f, "after\n", 6);
	machine_settle(&f->m);
	assert_int_equal(read_file(f->log, buf, sizeof(buf)), 13);
	assert_memory_equal(buf, "before\nafter\n", 13);
}

static void test_output_before_the_end_is_in_the_log_after_close(void **ctx)
{
	struct fixture *f = *ctx;
	char buf[64];

	f->d = machine_add(&f->m, "serial", f->options);
	put(f, "last words", 10); /* the loop does not run any more */
	device_destroy(f->d);
	f->m.ndev = 0;
	assert_int_equal(read_file(f->log, buf, sizeof(buf)), 10);
}

static void test_log_is_bounded_and_keeps_the_newest(void **ctx)
{
	struct fixture *f = *ctx;
	static char buf[2 * LIMIT];
	size_t old, now;

	f->d = machine_add(&f->m, "serial", f->options);
	put_lines(f, 5 * LIMIT);
	assert_in_range(size_of(f->log), 1, LIMIT);
	assert_in_range(size_of(f->old), 1, LIMIT);
	/* Together the two end with the last line, without a gap between them. */
	old = read_file(f->old, buf, LIMIT);
	now = read_file(f->log, buf + old, LIMIT);
	for (size_t at = 16; at + 16 <= old + now; at += 16)
		assert_int_equal(strtoul(buf + at + 5, NULL, 10), strtoul(buf + at - 11, NULL, 10) + 1);
	assert_int_equal(strtoul(buf + old + now - 11, NULL, 10), 5 * LIMIT / 16 - 1);
}

static void test_log_must_be_a_file(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;
	char options[128];

	snprintf(options, sizeof(options), "log=%s", f->dir);
	assert_true(machine_try_add(&f->m, device_find("serial"), options, &f->d, &err) < 0);
	assert_true(strstr(err.text, f->dir));
	assert_int_equal(machine_try_add(&f->m, device_find("serial"), "log=/dev/null", &f->d, &err), -EINVAL);
	assert_true(strstr(err.text, "not a regular file"));
}

static void test_log_and_stdio_exclude_each_other(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;
	char options[200];

	snprintf(options, sizeof(options), "%s,stdio", f->options);
	assert_int_equal(machine_try_add(&f->m, device_find("serial"), options, &f->d, &err), -EINVAL);
	assert_true(strstr(err.text, "exclude"));
}

/* Descriptors 0 and 1 become `in` and `out`, which are closed. */
static void replace_stdio(struct fixture *f, int in, int out)
{
	fflush(stdout);
	f->saved_in = fcntl(0, F_DUPFD_CLOEXEC, 10);
	f->saved_out = fcntl(1, F_DUPFD_CLOEXEC, 10);
	assert_true(f->saved_in >= 0 && f->saved_out >= 0);
	dup2(in, 0);
	dup2(out, 1);
	fd_close(in);
	if (out != in)
		fd_close(out);
}

static void use_pipes(struct fixture *f)
{
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	replace_stdio(f, in[0], out[1]);
	f->guest_in = in[1];
	f->guest_out = out[0];
	fd_set_nonblock(f->guest_in, 1);
	fd_set_nonblock(f->guest_out, 1);
	f->d = machine_add(&f->m, "serial", "stdio");
}

static void use_socket(struct fixture *f)
{
	int s[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	replace_stdio(f, s[0], s[0]);
	f->guest_in = s[1];
	f->guest_out = fcntl(s[1], F_DUPFD_CLOEXEC, 0);
	fd_set_nonblock(s[1], 1);
	f->d = machine_add(&f->m, "serial", "stdio");
}

static uint8_t in(struct fixture *f, uint32_t reg)
{
	return (uint8_t)machine_read(&f->m, f->d, reg, 1);
}

/* Is there a byte to read, now or once the monitor's loop has taken more from its input? */
static bool has_input(struct fixture *f)
{
	if (!(in(f, LSR) & 1))
		machine_settle(&f->m);
	return in(f, LSR) & 1;
}

static void speak_both_ways(struct fixture *f)
{
	char buf[16];
	ssize_t n;

	put(f, "hello", 5);
	machine_settle(&f->m);
	n = read(f->guest_out, buf, sizeof(buf));
	assert_int_equal(write(f->guest_in, "xyz", 3), 3);
	machine_settle(&f->m);
	uint8_t lsr = in(f, LSR), a = in(f, DATA), b = in(f, DATA), c = in(f, DATA), end = in(f, LSR);

	restore_stdio(f);
	assert_int_equal(n, 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(lsr & 1, 1);
	assert_int_equal(a, 'x');
	assert_int_equal(b, 'y');
	assert_int_equal(c, 'z');
	assert_int_equal(end & 1, 0);
}

static void test_stdio_over_pipes(void **ctx)
{
	use_pipes(*ctx);
	speak_both_ways(*ctx);
}

static void test_stdio_over_a_socket(void **ctx)
{
	use_socket(*ctx);
	speak_both_ways(*ctx);
}

/* 8 MiB into a pipe that nobody reads: returns at once, and what is read later says how much is missing. */
static void test_reader_that_never_reads_stalls_nobody(void **ctx)
{
	struct fixture *f = *ctx;
	static char buf[512 << 10];
	size_t total = 0;
	ssize_t n;

	use_pipes(f);
	int nonblocking = fcntl(1, F_GETFL) & O_NONBLOCK;

	put_lines(f, 8 << 20);
	while ((n = read(f->guest_out, buf + total, sizeof(buf) - 1 - total)) > 0) {
		total += (size_t)n;
		machine_settle(&f->m);
	}
	restore_stdio(f);
	assert_int_equal(nonblocking, 0); /* the caller's own description is left alone */
	assert_true(total < (300 << 10));
	buf[total] = 0;
	assert_true(strstr(buf, "bytes of console output lost]"));
	assert_memory_equal(buf + total - 16, "line 0000524287\n", 16);
}

static void test_writer_that_floods_finds_its_pipe_full(void **ctx)
{
	struct fixture *f = *ctx;
	static char chunk[4096];
	size_t sent = 0, received = 0;
	bool right = true;

	use_pipes(f);
	for (size_t i = 0; i < sizeof(chunk); i++)
		chunk[i] = (char)(i % 251);
	for (int i = 0; i < 100; i++) {
		ssize_t n = write(f->guest_in, chunk, sizeof(chunk));

		sent += n > 0 ? (size_t)n : 0;
		machine_settle(&f->m);
	}
	size_t bound = (64 << 10) + 3 * CONSOLE_INPUT + 16; /* the pipe, our buffer */

	while (has_input(f)) {
		right = right && in(f, DATA) == (uint8_t)(received % 4096 % 251);
		received++;
	}
	restore_stdio(f);
	assert_true(sent <= bound);
	assert_int_equal(received, sent);
	assert_true(right);
}

static void test_input_from_a_file_arrives_whole(void **ctx)
{
	struct fixture *f = *ctx;
	int file = open(f->log, O_RDWR | O_CREAT | O_CLOEXEC, 0600), out[2];
	size_t received = 0;
	static char text[10000];

	memset(text, 'a', sizeof(text));
	assert_int_equal(fd_write_full(file, text, sizeof(text)), 0);
	lseek(file, 0, SEEK_SET);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	replace_stdio(f, file, out[1]);
	f->guest_out = out[0];
	f->d = machine_add(&f->m, "serial", "stdio");
	machine_settle(&f->m);
	while (has_input(f) && in(f, DATA) == 'a')
		received++;
	restore_stdio(f);
	assert_int_equal(received, sizeof(text));
}

static void test_closed_reader_and_ended_input_are_no_error(void **ctx)
{
	struct fixture *f = *ctx;

	use_pipes(f);
	f->guest_out = fd_close(f->guest_out);
	f->guest_in = fd_close(f->guest_in);
	machine_settle(&f->m);
	put(f, "into the void", 13);
	machine_settle(&f->m);
	put(f, "again", 5);
	machine_settle(&f->m);
	uint8_t lsr = in(f, LSR);

	restore_stdio(f);
	assert_int_equal(lsr, 0x60);
}

static void test_receive_fifo_fills_from_input(void **ctx)
{
	struct fixture *f = *ctx;
	char got[33] = { 0 };

	use_pipes(f);
	machine_write(&f->m, f->d, FCR, 1, 1);
	assert_int_equal(write(f->guest_in, "0123456789abcdef0123456789ABCDEF", 32), 32);
	machine_settle(&f->m);
	for (int i = 0; i < 32; i++)
		got[i] = (char)in(f, DATA);
	restore_stdio(f);
	assert_string_equal(got, "0123456789abcdef0123456789ABCDEF");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_log_gets_the_output),
		T(test_log_continues_an_existing_one),
		T(test_output_before_the_end_is_in_the_log_after_close),
		T(test_log_is_bounded_and_keeps_the_newest),
		T(test_log_must_be_a_file),
		T(test_log_and_stdio_exclude_each_other),
		T(test_stdio_over_pipes),
		T(test_stdio_over_a_socket),
		T(test_reader_that_never_reads_stalls_nobody),
		T(test_writer_that_floods_finds_its_pipe_full),
		T(test_input_from_a_file_arrives_whole),
		T(test_closed_reader_and_ended_input_are_no_error),
		T(test_receive_fifo_fills_from_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
