/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-console (virtio 1.2, 5.3): output into a log file, input through a pipe in place of standard input. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "tests/harness/driver.h"

enum { RAM = 4 << 20, BUFFERS = 1 << 20, RECEIVE = 0, TRANSMIT = 1 };

struct fixture {
	struct machine m;
	struct device *dev;
	struct driver d;
	char log[64];
	int in;       /* the host's end of standard input */
	int saved[2]; /* the test's own standard input and output */
};

static void begin(struct fixture *f, const char *options)
{
	machine_init(&f->m, RAM);
	f->dev = machine_add(&f->m, "console", options);
	driver_init(&f->d, &f->m, f->dev);
	driver_start(&f->d, VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC, 0);
	machine_irqs(f->dev);
}

static int setup(void **ctx)
{
	static struct fixture f;
	char options[128];
	int fd;

	snprintf(f.log, sizeof(f.log), "/tmp/coffer-console-test-XXXXXX");
	fd = mkstemp(f.log);
	assert_true(fd >= 0);
	close(fd);
	snprintf(options, sizeof(options), "log=%s,cols=132,rows=43", f.log);
	begin(&f, options);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;
	char old[80];

	machine_finish(&f->m);
	snprintf(old, sizeof(old), "%s.1", f->log);
	unlink(f->log);
	unlink(old);
	return 0;
}

/* Standard input becomes a pipe whose other end is f->in, standard output goes nowhere. */
static int setup_stdio(void **ctx)
{
	static struct fixture f;
	int p[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	f.saved[0] = dup(STDIN_FILENO);
	f.saved[1] = dup(STDOUT_FILENO);
	fflush(stdout);
	dup2(p[0], STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(p[0]);
	close(null);
	f.in = p[1];
	begin(&f, "stdio");
	*ctx = &f;
	return 0;
}

static int teardown_stdio(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(f->saved[i], i);
		close(f->saved[i]);
	}
	fd_close(f->in);
	return 0;
}

static void assert_log(struct fixture *f, const char *expect, size_t len)
{
	uint8_t buf[4096];
	int fd = open(f->log, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd_read_full(fd, buf, sizeof(buf));

	close(fd);
	assert_int_equal(n, len);
	assert_memory_equal(buf, expect, len);
}

static void it_is_a_console_with_a_size(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_ID), 3);
	assert_true(driver_offered(&f->d) & 1);
	assert_false(driver_offered(&f->d) & 2); /* no MULTIPORT */
	assert_int_equal(driver_config(&f->d, 0, 2), 132);
	assert_int_equal(driver_config(&f->d, 2, 2), 43);
	assert_int_equal(driver_config(&f->d, 4, 4), 1);
	assert_int_equal(driver_config(&f->d, 8, 8), UINT64_MAX);
}

static void the_guest_is_told_of_its_size_at_the_start(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	driver_negotiate(&f->d, 1);
	assert_int_equal(machine_irqs(f->dev), 0);
	driver_set_reg(&f->d, MMIO_STATUS, driver_reg(&f->d, MMIO_STATUS) | VIRTIO_S_DRIVER_OK);
	assert_int_equal(machine_irqs(f->dev), 1);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 2);
}

static void output_of_three_chained_buffers_appears_whole(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 4, false }, { BUFFERS + 100, 4, false }, { BUFFERS + 200, 4, false } };
	uint32_t len;

	machine_poke(&f->m, BUFFERS, "one ", 4);
	machine_poke(&f->m, BUFFERS + 100, "two ", 4);
	machine_poke(&f->m, BUFFERS + 200, "end\n", 4);
	driver_add(&f->d, TRANSMIT, b, 3);
	driver_kick(&f->d, TRANSMIT);
	assert_true(driver_used(&f->d, TRANSMIT, NULL, &len));
	assert_int_equal(len, 0);
	driver_add_indirect(&f->d, TRANSMIT, b, 3);
	driver_kick(&f->d, TRANSMIT);
	assert_true(driver_used(&f->d, TRANSMIT, NULL, &len));
	assert_log(f, "one two end\none two end\n", 24);
	assert_true(machine_irqs(f->dev) >= 1);
}

static void empty_and_write_only_output_requests_are_completed(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf empty = { BUFFERS, 0, false }, wrong = { BUFFERS, 16, true };
	uint32_t len;

	driver_add(&f->d, TRANSMIT, &empty, 1);
	driver_add(&f->d, TRANSMIT, &wrong, 1);
	driver_kick(&f->d, TRANSMIT);
	assert_true(driver_used(&f->d, TRANSMIT, NULL, &len));
	assert_true(driver_used(&f->d, TRANSMIT, NULL, &len));
	assert_int_equal(len, 0);
	assert_log(f, "", 0);
}

static void a_flood_of_output_is_served_and_does_not_grow(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 1 << 20, false };
	struct stat st;

	for (int i = 0; i < 200; i++) {
		driver_add(&f->d, TRANSMIT, &b, 1);
		driver_kick(&f->d, TRANSMIT);
		assert_true(driver_used(&f->d, TRANSMIT, NULL, NULL));
	}
	assert_int_equal(stat(f->log, &st), 0);
	assert_true(st.st_size <= 1 << 20);
}

static void more_requests_than_one_burst_are_all_served(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 1, false };
	char expect[130];
	int served = 0;

	machine_poke(&f->m, BUFFERS, "x", 1);
	memset(expect, 'x', sizeof(expect));
	for (int i = 0; i < 130; i++) {
		driver_add(&f->d, TRANSMIT, &b, 1);
		if (i % 64 == 63 || i == 129)
			driver_kick(&f->d, TRANSMIT);
	}
	while (driver_used(&f->d, TRANSMIT, NULL, NULL))
		served++;
	assert_int_equal(served, 130);
	assert_log(f, expect, 130);
}

static void an_emergency_write_appears_before_any_driver(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 8, '!', 4);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 8, '?', 1);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 9, '-', 1);
	machine_write(&f->m, f->dev, MMIO_CONFIG, '-', 2);
	assert_log(f, "!?", 2);
	assert_int_equal(driver_config(&f->d, 0, 2), 132);
}

static void a_malformed_request_needs_a_reset(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf bad = { RAM - 1, 2, false };

	driver_add(&f->d, TRANSMIT, &bad, 1);
	driver_kick(&f->d, TRANSMIT);
	assert_true(driver_needs_reset(&f->d));
}

static void a_size_of_0_is_not_restored(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t blob[16 << 10];
	uint16_t *cols = device_state(f->dev);
	long n;

	*cols = 0;
	device_quiesce(f->dev);
	n = device_save(f->dev, blob, sizeof(blob));
	assert_int_equal(device_load(f->dev, blob, (size_t)n, NULL), -EINVAL);
}

/* Let the backend notice that there is something on standard input. */
static void type(struct fixture *f, const char *s)
{
	assert_int_equal(fd_write_full(f->in, s, strlen(s)), 0);
	machine_settle(&f->m);
}

static void input_fills_the_buffers_the_guest_supplied(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 3, true }, { BUFFERS + 100, 4, true } };
	char out[8] = "";
	uint32_t len;

	driver_add(&f->d, RECEIVE, b, 2);
	driver_kick(&f->d, RECEIVE);
	assert_false(driver_used(&f->d, RECEIVE, NULL, &len)); /* no input, no completion */
	type(f, "hello");
	assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
	assert_int_equal(len, 5);
	machine_peek(&f->m, BUFFERS, out, 3);
	machine_peek(&f->m, BUFFERS + 100, out + 3, 2);
	assert_string_equal(out, "hello");
	assert_true(machine_irqs(f->dev) >= 1);
}

static void input_without_a_buffer_waits_for_one(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 4, true };
	char out[12] = "";
	uint32_t len;

	type(f, "0123456789");
	for (int i = 0; i < 3; i++) {
		driver_add(&f->d, RECEIVE, &b, 1);
		driver_kick(&f->d, RECEIVE);
		assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
		assert_int_equal(len, i < 2 ? 4 : 2);
		machine_peek(&f->m, BUFFERS, out + 4 * i, len);
	}
	assert_string_equal(out, "0123456789");
}

static void input_before_driver_ok_waits_for_it(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 4, true };
	uint32_t len;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	type(f, "abc");
	driver_start(&f->d, 0, 0);
	driver_add(&f->d, RECEIVE, &b, 1);
	driver_kick(&f->d, RECEIVE);
	assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
	assert_int_equal(len, 3);
}

static void input_while_quiesced_waits_for_resume(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 4, true };
	uint32_t len;

	driver_add(&f->d, RECEIVE, &b, 1);
	driver_kick(&f->d, RECEIVE);
	device_quiesce(f->dev);
	type(f, "abc");
	assert_false(driver_used(&f->d, RECEIVE, NULL, &len));
	device_resume(f->dev);
	assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
	assert_int_equal(len, 3);
}

static void a_receive_buffer_without_room_is_given_back(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf none = { BUFFERS, 16, false }, b = { BUFFERS, 16, true };
	uint32_t len;

	driver_add(&f->d, RECEIVE, &none, 1);
	driver_add(&f->d, RECEIVE, &b, 1);
	driver_kick(&f->d, RECEIVE);
	assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
	assert_int_equal(len, 0);
	type(f, "x");
	assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
	assert_int_equal(len, 1);
}

static void a_writer_that_floods_is_held_back(void **ctx)
{
	struct fixture *f = *ctx;
	char block[4096];
	size_t written = 0;

	memset(block, 'x', sizeof(block));
	fd_set_nonblock(f->in, 1);
	for (;;) {
		ssize_t n = write(f->in, block, sizeof(block));

		machine_settle(&f->m);
		if (n < 0)
			break;
		written += (size_t)n;
		assert_true(written < 4 << 20);
	}
	assert_int_equal(errno, EAGAIN);
	/* And all of it arrives. */
	const struct driver_buf b = { BUFFERS, 8192, true };
	size_t got = 0;

	while (got < written) {
		uint32_t len;

		driver_add(&f->d, RECEIVE, &b, 1);
		driver_kick(&f->d, RECEIVE);
		assert_true(driver_used(&f->d, RECEIVE, NULL, &len));
		got += len;
	}
	assert_int_equal(got, written);
}

static void the_end_of_input_is_quiet(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 4, true };

	driver_add(&f->d, RECEIVE, &b, 1);
	driver_kick(&f->d, RECEIVE);
	f->in = fd_close(f->in);
	machine_settle(&f->m);
	assert_int_equal(loop_step(&f->m.vm.loop, 0), 0);
	assert_false(driver_used(&f->d, RECEIVE, NULL, NULL));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define IN(f) cmocka_unit_test_setup_teardown(f, setup_stdio, teardown_stdio)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_a_console_with_a_size),
		T(the_guest_is_told_of_its_size_at_the_start),
		T(output_of_three_chained_buffers_appears_whole),
		T(empty_and_write_only_output_requests_are_completed),
		T(a_flood_of_output_is_served_and_does_not_grow),
		T(more_requests_than_one_burst_are_all_served),
		T(an_emergency_write_appears_before_any_driver),
		T(a_malformed_request_needs_a_reset),
		T(a_size_of_0_is_not_restored),
		IN(input_fills_the_buffers_the_guest_supplied),
		IN(input_without_a_buffer_waits_for_one),
		IN(input_before_driver_ok_waits_for_it),
		IN(input_while_quiesced_waits_for_resume),
		IN(a_receive_buffer_without_room_is_given_back),
		IN(a_writer_that_floods_is_held_back),
		IN(the_end_of_input_is_quiet),
	};

	return cmocka_run_group_tests_name("virtio_console", tests, NULL, NULL);
}
