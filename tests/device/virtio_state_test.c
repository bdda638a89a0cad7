/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading a virtio device: what comes back, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/util.h"
#include "tests/harness/driver.h"
#include "tests/harness/testdev.h"

enum { RAM = 4 << 20, BUFFERS = 1 << 20, BLOB = 16 << 10 };

struct fixture {
	struct machine m;
	struct device *a, *b; /* saved from, loaded into */
	struct driver d;      /* of a */
	uint8_t blob[BLOB];
	size_t len;
};

static int setup(void **ctx)
{
	static struct fixture f;

	machine_init(&f.m, RAM);
	assert_int_equal(machine_try_add(&f.m, &testdev_device, NULL, &f.a, NULL), 0);
	assert_int_equal(machine_try_add(&f.m, &testdev_device, NULL, &f.b, NULL), 0);
	driver_init(&f.d, &f.m, f.a);
	driver_start(&f.d, TESTDEV_F_ONE | VIRTIO_F_EVENT_IDX, 8);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

static void save(struct fixture *f)
{
	long n;

	assert_int_equal(device_quiesce(f->a), 0);
	n = device_save(f->a, f->blob, sizeof(f->blob));
	assert_int_equal(n, device_saved_size(f->a));
	f->len = (size_t)n;
}

/* Continue with device b where a was: same memory, other registers. */
static struct driver continue_on_b(struct fixture *f)
{
	struct driver d = f->d;

	d.dev = f->b;
	return d;
}

static void a_loaded_device_goes_on_where_the_saved_one_was(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, true };
	uint32_t head, used_head;

	driver_add(&f->d, 0, &b, 1);
	driver_kick(&f->d, 0);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, NULL), 0);
	struct driver d = continue_on_b(f);

	assert_int_equal(driver_reg(&d, MMIO_STATUS), driver_reg(&f->d, MMIO_STATUS));
	assert_int_equal(testdev_from(f->b)->activated, 1);
	head = driver_add(&d, 0, &b, 1);
	assert_false(driver_used(&d, 0, NULL, NULL)); /* not before resume */
	device_resume(f->b);
	assert_true(driver_used(&d, 0, &used_head, NULL));
	assert_int_equal(used_head, head);
	assert_true(machine_irqs(f->b) >= 1);
}

static void requests_in_flight_survive_in_the_devices_state(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, true };
	uint32_t head, used_head;

	head = driver_add(&f->d, 1, &b, 1);
	driver_kick(&f->d, 1);
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, NULL), 0);
	device_resume(f->b);
	struct driver d = continue_on_b(f);

	testdev_complete(f->b);
	assert_true(driver_used(&d, 1, &used_head, NULL));
	assert_int_equal(used_head, head);
}

static void a_device_that_was_never_started_can_be_saved_and_loaded(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, NULL), 0);
	device_resume(f->b);
	assert_int_equal(testdev_from(f->b)->activated, 0);
	struct driver d = continue_on_b(f);

	driver_start(&d, 0, 0);
	assert_int_equal(testdev_from(f->b)->activated, 1);
}

static void every_truncation_is_refused_and_leaves_the_device_reset(void **ctx)
{
	struct fixture *f = *ctx;

	save(f);
	for (size_t n = 0; n < f->len; n++) {
		struct err err = ERR_INIT;

		if (device_load(f->b, f->blob, n, &err) >= 0 || strncmp(err.text, "testdev1: ", 10) != 0)
			fail_msg("%zu of %zu bytes: '%s'", n, f->len, err.text);
		assert_int_equal(testdev_from(f->b)->vd.common.status, 0);
		assert_int_equal(testdev_from(f->b)->activated, 0);
	}
}

static void trailing_bytes_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len + 1, NULL), -EINVAL);
}

typedef void change_fn(struct virtio_common_state *c);

static void unoffered_feature(struct virtio_common_state *c) { c->driver_features |= 1ull << 50; }
static void no_version_1(struct virtio_common_state *c) { c->driver_features = 0; }
static void unknown_status(struct virtio_common_state *c) { c->status |= 0x100; }
static void no_features_ok(struct virtio_common_state *c) { c->status &= ~(uint32_t)VIRTIO_S_FEATURES_OK; }
static void unknown_interrupt(struct virtio_common_state *c) { c->interrupt_status = 4; }
static void size_not_a_power_of_2(struct virtio_common_state *c) { c->queues[0].size = 7; }
static void size_zero(struct virtio_common_state *c) { c->queues[0].size = 0; }
static void size_too_large(struct virtio_common_state *c) { c->queues[0].size = 1024; }
static void desc_outside(struct virtio_common_state *c) { c->queues[0].desc = RAM; }
static void avail_wraps(struct virtio_common_state *c) { c->queues[1].avail = UINT64_MAX - 1; }
static void used_unaligned(struct virtio_common_state *c) { c->queues[1].used++; }
static void ready_is_2(struct virtio_common_state *c) { c->queues[0].ready = 2; }
static void signalled_is_2(struct virtio_common_state *c) { c->queues[0].signalled_valid = 2; }
static void third_queue(struct virtio_common_state *c) { c->queues[2] = c->queues[0]; }
static void last_queue(struct virtio_common_state *c) { c->queues[VIRTIO_MAX_QUEUES - 1].size = 8; }

static void impossible_common_states_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	static change_fn *const change[] = {
		unoffered_feature, no_version_1,   unknown_status, no_features_ok, unknown_interrupt,
		size_not_a_power_of_2, size_zero,  size_too_large, desc_outside,   avail_wraps,
		used_unaligned,	   ready_is_2,	   signalled_is_2, third_queue,	   last_queue,
	};
	struct virtio_common_state *c = &testdev_from(f->a)->vd.common;
	struct virtio_common_state good = *c;

	for (size_t i = 0; i < ARRAY_SIZE(change); i++) {
		struct err err = ERR_INIT;

		change[i](c);
		save(f);
		if (device_load(f->b, f->blob, f->len, &err) != -EINVAL || err.text[0] == '\0')
			fail_msg("change %zu was accepted", i);
		assert_int_equal(testdev_from(f->b)->activated, 0);
		*c = good;
	}
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, NULL), 0);
}

static void the_devices_own_check_is_asked(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;

	testdev_from(f->a)->state.held = 2;
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, &err), -EINVAL);
	assert_string_equal(err.text, "testdev1: held is 2");
}

static void any_ring_position_is_survived(void **ctx)
{
	struct fixture *f = *ctx;
	struct virtio_queue_state *st = &testdev_from(f->a)->vd.common.queues[0];

	st->next_avail = 0x8000;
	st->next_used = 0xffff;
	st->signalled_used = 0x1234;
	st->signalled_valid = 1;
	save(f);
	assert_int_equal(device_load(f->b, f->blob, f->len, NULL), 0);
	device_resume(f->b);
	/* The driver's index is more than a queue away: a violation like any other. */
	assert_true(testdev_from(f->b)->vd.common.status & VIRTIO_S_NEEDS_RESET);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_loaded_device_goes_on_where_the_saved_one_was),
		T(requests_in_flight_survive_in_the_devices_state),
		T(a_device_that_was_never_started_can_be_saved_and_loaded),
		T(every_truncation_is_refused_and_leaves_the_device_reset),
		T(trailing_bytes_are_refused),
		T(impossible_common_states_are_refused),
		T(the_devices_own_check_is_asked),
		T(any_ring_position_is_survived),
	};

	return cmocka_run_group_tests_name("virtio_state", tests, NULL, NULL);
}
