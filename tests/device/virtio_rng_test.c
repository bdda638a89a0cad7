/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-rng (virtio 1.2, 5.4). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/harness/driver.h"

enum { RAM = 4 << 20, BUFFERS = 1 << 20 };

struct fixture {
	struct machine m;
	struct device *dev;
	struct driver d;
};

static void start(struct fixture *f, const char *options)
{
	machine_init(&f->m, RAM);
	f->dev = machine_add(&f->m, "rng", options);
	driver_init(&f->d, &f->m, f->dev);
	driver_start(&f->d, VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC, 0);
}

static int setup(void **ctx)
{
	static struct fixture f;

	start(&f, NULL);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

static uint32_t ask(struct fixture *f, const struct driver_buf *b, uint16_t n)
{
	uint32_t len = UINT32_MAX;

	driver_add(&f->d, 0, b, n);
	driver_kick(&f->d, 0);
	assert_true(driver_used(&f->d, 0, NULL, &len));
	return len;
}

static void it_is_an_entropy_device(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_ID), 4);
	assert_int_equal(driver_config(&f->d, 0, 4), 0xffffffff); /* no config space */
}

static void a_buffer_is_filled_with_different_bytes_each_time(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 64, true };
	uint8_t one[64], two[64], after[64], zero[64] = { 0 };

	assert_int_equal(ask(f, &b, 1), 64);
	machine_peek(&f->m, BUFFERS, one, 64);
	machine_peek(&f->m, BUFFERS + 64, after, 64);
	assert_memory_not_equal(one, zero, 64);
	assert_memory_equal(after, zero, 64);
	assert_int_equal(ask(f, &b, 1), 64);
	machine_peek(&f->m, BUFFERS, two, 64);
	assert_memory_not_equal(one, two, 64);
	assert_true(machine_irqs(f->dev) >= 1);
}

static void all_of_a_chain_is_filled(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 10, false }, { BUFFERS + 4096, 300, true }, { BUFFERS + 8192, 7, true } };
	uint8_t out[7], zero[7] = { 0 };

	assert_int_equal(ask(f, b, 3), 307);
	machine_peek(&f->m, BUFFERS + 8192, out, 7);
	assert_memory_not_equal(out, zero, 7);
	machine_peek(&f->m, BUFFERS, out, 7);
	assert_memory_equal(out, zero, 7);
}

static void a_request_is_bounded(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 1 << 20, true };

	assert_int_equal(ask(f, &b, 1), 64 << 10);
}

static void a_request_without_room_completes_with_0(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf readable = { BUFFERS, 64, false }, empty = { BUFFERS, 0, true };

	assert_int_equal(ask(f, &readable, 1), 0);
	assert_int_equal(ask(f, &empty, 1), 0);
}

static void more_requests_than_one_burst_are_all_served(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 8, true };
	uint32_t total = 0;

	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 64; i++)
			driver_add(&f->d, 0, &b, 1);
		driver_kick(&f->d, 0);
		while (driver_used(&f->d, 0, NULL, NULL))
			total++;
	}
	assert_int_equal(total, 8 * 64);
}

static void a_malformed_request_needs_a_reset(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf bad = { RAM, 64, true }, good = { BUFFERS, 64, true };

	driver_add(&f->d, 0, &bad, 1);
	driver_kick(&f->d, 0);
	assert_true(driver_needs_reset(&f->d));
	driver_start(&f->d, 0, 0);
	assert_int_equal(ask(f, &good, 1), 64);
}

static void a_source_of_ones_own_is_used(void **ctx)
{
	char path[] = "/tmp/coffer-rng-test-XXXXXX";
	int fd = mkstemp(path);
	struct fixture f;
	const struct driver_buf b = { BUFFERS, 64, true };
	char options[64], out[10];

	(void)ctx;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "0123456789", 10), 10);
	close(fd);
	snprintf(options, sizeof(options), "source=%s", path);
	start(&f, options);
	unlink(path);
	assert_int_equal(ask(&f, &b, 1), 10);
	machine_peek(&f.m, BUFFERS, out, 10);
	assert_memory_equal(out, "0123456789", 10);
	assert_int_equal(ask(&f, &b, 1), 0); /* it has no more: nothing is made up */
	machine_finish(&f.m);
}

static void a_source_that_cannot_be_opened_is_named(void **ctx)
{
	struct machine m;
	struct device *d;
	struct err err = ERR_INIT;

	(void)ctx;
	machine_init(&m, RAM);
	assert_int_equal(machine_try_add(&m, device_find("rng"), "source=/nowhere/at/all", &d, &err), -ENOENT);
	assert_string_equal(err.text, "rng0: open '/nowhere/at/all': No such file or directory");
	machine_finish(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_an_entropy_device),
		T(a_buffer_is_filled_with_different_bytes_each_time),
		T(all_of_a_chain_is_filled),
		T(a_request_is_bounded),
		T(a_request_without_room_completes_with_0),
		T(more_requests_than_one_burst_are_all_served),
		T(a_malformed_request_needs_a_reset),
		cmocka_unit_test(a_source_of_ones_own_is_used),
		cmocka_unit_test(a_source_that_cannot_be_opened_is_named),
	};

	return cmocka_run_group_tests_name("virtio_rng", tests, NULL, NULL);
}
