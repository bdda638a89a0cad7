/* SPDX-License-Identifier: Apache-2.0 */
/* The MMIO transport (virtio 1.2, 4.2) and the rules all virtio devices share, with a device made for tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/le.h"
#include "lib/util.h"
#include "tests/harness/driver.h"
#include "tests/harness/testdev.h"

enum { RAM = 4 << 20, BUFFERS = 1 << 20 };
enum { ALL_OK = VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER | VIRTIO_S_FEATURES_OK | VIRTIO_S_DRIVER_OK };

struct fixture {
	struct machine m;
	struct device *dev;
	struct testdev *t;
	struct driver d;
};

static int setup(void **ctx)
{
	static struct fixture f;

	machine_init(&f.m, RAM);
	assert_int_equal(machine_try_add(&f.m, &testdev_device, NULL, &f.dev, NULL), 0);
	f.t = testdev_from(f.dev);
	driver_init(&f.d, &f.m, f.dev);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

static void request(struct fixture *f, uint32_t q)
{
	const struct driver_buf b = { BUFFERS, 16, true };

	driver_add(&f->d, q, &b, 1);
	driver_kick(&f->d, q);
}

static void the_device_identifies_itself(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(driver_reg(&f->d, MMIO_MAGIC), 0x74726976);
	assert_int_equal(driver_reg(&f->d, MMIO_VERSION), 2);
	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_ID), TESTDEV_ID);
	assert_int_not_equal(driver_reg(&f->d, MMIO_VENDOR_ID), 0);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), 0);
}

static void registers_read_as_0_in_another_width_or_between_them(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(machine_read(&f->m, f->dev, MMIO_MAGIC, 1), 0);
	assert_int_equal(machine_read(&f->m, f->dev, MMIO_MAGIC, 2), 0);
	assert_true(machine_read(&f->m, f->dev, MMIO_MAGIC, 8) == 0);
	assert_int_equal(machine_read(&f->m, f->dev, MMIO_MAGIC + 2, 4), 0);
	assert_int_equal(driver_reg(&f->d, 0x018), 0);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_NOTIFY), 0);
}

static void register_writes_in_another_width_are_ignored(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->dev, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE, 1);
	machine_write(&f->m, f->dev, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE, 2);
	machine_write(&f->m, f->dev, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE, 8);
	machine_write(&f->m, f->dev, MMIO_STATUS - 2, 0x10000, 4);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), 0);
}

static void read_only_registers_cannot_be_written(void **ctx)
{
	struct fixture *f = *ctx;
	static const uint32_t ro[] = { MMIO_MAGIC, MMIO_VERSION, MMIO_DEVICE_ID, MMIO_VENDOR_ID, MMIO_DEVICE_FEATURES,
				       MMIO_QUEUE_NUM_MAX, MMIO_INTERRUPT_STATUS, MMIO_CONFIG_GENERATION };

	for (size_t i = 0; i < ARRAY_SIZE(ro); i++) {
		uint32_t before = driver_reg(&f->d, ro[i]);

		driver_set_reg(&f->d, ro[i], ~before);
		assert_int_equal(driver_reg(&f->d, ro[i]), before);
	}
}

static void config_space_is_accessible_in_all_widths(void **ctx)
{
	struct fixture *f = *ctx;
	static const uint32_t width[] = { 1, 2, 4, 8 };

	for (size_t i = 0; i < ARRAY_SIZE(width); i++) {
		uint64_t v = 0x1122334455667788ull >> (64 - 8 * width[i]);

		machine_write(&f->m, f->dev, MMIO_CONFIG + 8, v, width[i]);
		assert_int_equal(f->t->config_len, width[i]);
		assert_true(machine_read(&f->m, f->dev, MMIO_CONFIG + 8, width[i]) == v);
	}
	assert_int_equal(driver_config(&f->d, 9, 1), 0x77);
}

static void config_space_ends_where_the_device_says(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(driver_config(&f->d, TESTDEV_CONFIG - 1, 1), 0);
	assert_int_equal(driver_config(&f->d, TESTDEV_CONFIG, 1), 0xff);
	assert_int_equal(driver_config(&f->d, TESTDEV_CONFIG - 2, 4), 0xffffffff);
	assert_true(driver_config(&f->d, 0xf8, 8) == UINT64_MAX);
	f->t->config_len = 0;
	machine_write(&f->m, f->dev, MMIO_CONFIG + TESTDEV_CONFIG - 1, 0x1234, 2);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 0xff, 0x12, 1);
	assert_int_equal(f->t->config_len, 0);
}

static void the_feature_windows_show_64_bits(void **ctx)
{
	struct fixture *f = *ctx;

	assert_true(driver_offered(&f->d) == (TESTDEV_F_ONE | TESTDEV_F_HIGH | VIRTIO_F_VERSION_1 |
					      VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX));
	driver_set_reg(&f->d, MMIO_DEVICE_FEATURES_SEL, 2);
	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_FEATURES), 0);
	driver_set_reg(&f->d, MMIO_DEVICE_FEATURES_SEL, UINT32_MAX);
	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_FEATURES), 0);
}

static void there_are_no_shared_memory_regions(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_SHM_SEL, 0);
	for (uint32_t i = 0; i < 16; i += 4)
		assert_int_equal(driver_reg(&f->d, MMIO_SHM_LEN + i), 0xffffffff);
}

static void a_queue_that_does_not_exist_has_size_0_and_ignores_writes(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 1);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_NUM_MAX), TESTDEV_QUEUE_SIZE);
	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 2);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_NUM_MAX), 0);
	driver_place_queue(&f->d, 2, 8);
	assert_false(driver_enable_queue(&f->d, 2));
	driver_set_reg(&f->d, MMIO_QUEUE_SEL, UINT32_MAX);
	driver_set_reg(&f->d, MMIO_QUEUE_READY, 1);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_READY), 0);
	assert_false(driver_needs_reset(&f->d));
}

static void a_good_queue_becomes_ready(void **ctx)
{
	struct fixture *f = *ctx;

	driver_negotiate(&f->d, 0);
	driver_place_queue(&f->d, 0, 8);
	assert_true(driver_enable_queue(&f->d, 0));
}

/* Enable queue 0 with this size and these addresses; it must be refused. */
static void assert_queue_refused(struct fixture *f, struct driver_queue q)
{
	driver_negotiate(&f->d, 0);
	f->d.q[0] = q;
	assert_false(driver_enable_queue(&f->d, 0));
	assert_true(driver_needs_reset(&f->d));
	/* And it stays off. */
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	assert_false(driver_reg(&f->d, MMIO_STATUS) & VIRTIO_S_DRIVER_OK);
	driver_kick(&f->d, 0);
	assert_int_equal(f->t->ready[0], 0);
}

static void queues_with_a_bad_size_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	static const uint16_t size[] = { 0, 3, 12, TESTDEV_QUEUE_SIZE * 2, 32768, 65535 };

	driver_place_queue(&f->d, 0, 8);
	struct driver_queue good = f->d.q[0];

	for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
		struct driver_queue q = good;

		q.size = size[i];
		assert_queue_refused(f, q);
	}
}

static void a_size_of_more_than_16_bits_is_not_cut_to_a_good_one(void **ctx)
{
	struct fixture *f = *ctx;

	driver_negotiate(&f->d, 0);
	driver_place_queue(&f->d, 0, 8);
	assert_true(driver_enable_queue(&f->d, 0));
	driver_negotiate(&f->d, 0);
	driver_place_queue(&f->d, 0, 8);
	f->d.q[0].size = 0;
	driver_enable_queue(&f->d, 0); /* sets the addresses; refused for its size */
	driver_negotiate(&f->d, 0);
	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 0);
	driver_set_reg(&f->d, MMIO_QUEUE_NUM, 0x10008);
	driver_set_reg(&f->d, MMIO_QUEUE_READY, 1);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_READY), 0);
}

static void queues_outside_memory_or_unaligned_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	driver_place_queue(&f->d, 0, 8);
	struct driver_queue good = f->d.q[0], bad[9];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		bad[i] = good;
	bad[0].desc = RAM;
	bad[1].avail = UINT64_MAX - 1;
	bad[2].used = MEM_HOLE_START;
	bad[3].desc = RAM - 16;
	bad[4].avail = RAM - 2;
	bad[5].used = RAM - 4;
	bad[6].desc += 1;
	bad[7].avail += 1;
	bad[8].used += 1;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_queue_refused(f, bad[i]);
}

static void a_ring_may_end_at_the_last_byte_of_memory(void **ctx)
{
	struct fixture *f = *ctx;

	driver_place_queue(&f->d, 0, 8);
	struct driver_queue q = f->d.q[0];

	driver_negotiate(&f->d, 0);
	q.desc = RAM - 16 * 8;
	f->d.q[0] = q;
	assert_true(driver_enable_queue(&f->d, 0));
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	request(f, 0);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
}

static void a_ready_queue_cannot_be_changed(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 8);
	struct virtio_queue_state before = f->t->vd.common.queues[0];

	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 0);
	driver_set_reg(&f->d, MMIO_QUEUE_NUM, 4);
	for (uint32_t reg = MMIO_QUEUE_DESC; reg <= MMIO_QUEUE_DEVICE + 4; reg += 4)
		driver_set_reg(&f->d, reg, 0xfff0);
	driver_set_reg(&f->d, MMIO_QUEUE_READY, 1);
	assert_memory_equal(&f->t->vd.common.queues[0], &before, sizeof(before));
}

static void features_that_were_never_offered_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	assert_true(driver_negotiate(&f->d, TESTDEV_F_HIGH));
	assert_false(driver_negotiate(&f->d, 1ull << 5));
	assert_false(driver_negotiate(&f->d, 1ull << 63));
	assert_false(driver_negotiate(&f->d, UINT64_MAX));
	assert_true(driver_negotiate(&f->d, 0));
}

static void a_driver_without_version_1_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	driver_set_reg(&f->d, MMIO_STATUS, 3);
	driver_set_reg(&f->d, MMIO_STATUS, 3 | VIRTIO_S_FEATURES_OK);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), 3);
}

static void features_are_frozen_by_features_ok(void **ctx)
{
	struct fixture *f = *ctx;

	assert_true(driver_negotiate(&f->d, TESTDEV_F_ONE));
	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES_SEL, 0);
	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES, UINT32_MAX);
	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES_SEL, 1);
	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES, UINT32_MAX);
	assert_true(f->t->vd.common.driver_features == (TESTDEV_F_ONE | VIRTIO_F_VERSION_1));
	assert_true(driver_reg(&f->d, MMIO_STATUS) & VIRTIO_S_FEATURES_OK);
}

static void features_beyond_64_bits_are_ignored(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES_SEL, 2);
	driver_set_reg(&f->d, MMIO_DRIVER_FEATURES, UINT32_MAX);
	assert_true(f->t->vd.common.driver_features == 0);
}

static void driver_ok_needs_features_ok(void **ctx)
{
	struct fixture *f = *ctx;

	driver_set_reg(&f->d, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER | VIRTIO_S_DRIVER_OK);
	assert_false(driver_reg(&f->d, MMIO_STATUS) & VIRTIO_S_DRIVER_OK);
	/* Also in one write with features that are refused. */
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER);
	assert_int_equal(f->t->activated, 0);
}

static void driver_ok_twice_activates_once(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	driver_set_reg(&f->d, MMIO_STATUS, VIRTIO_S_DRIVER_OK);
	assert_int_equal(f->t->activated, 1);
}

static void status_bits_go_away_only_by_reset(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	driver_set_reg(&f->d, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), ALL_OK);
	driver_set_reg(&f->d, MMIO_STATUS, 0xffffff00 | VIRTIO_S_NEEDS_RESET);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), ALL_OK);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	assert_int_equal(driver_reg(&f->d, MMIO_STATUS), 0);
}

static void reset_clears_everything(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, TESTDEV_F_ONE, 0);
	request(f, 0);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 1);
	int resets = f->t->resets;

	driver_set_reg(&f->d, MMIO_STATUS, 0);
	assert_int_equal(f->t->deactivated, 1);
	assert_int_equal(f->t->resets, resets + 1);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 0);
	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 0);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_READY), 0);
	assert_true(f->t->vd.common.driver_features == 0);
	/* And it can start again. */
	driver_start(&f->d, 0, 0);
	request(f, 0);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
}

static void reset_in_mid_request_leaves_memory_alone(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	request(f, 1);
	assert_int_equal(f->t->state.held, 1);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	testdev_complete(f->dev);
	assert_int_equal(machine_peek16(&f->m, f->d.q[1].used + 2), 0);
	assert_int_equal(machine_irqs(f->dev), 0);
}

static void a_request_is_served_and_interrupts(void **ctx)
{
	struct fixture *f = *ctx;
	uint32_t len;

	driver_start(&f->d, 0, 0);
	request(f, 0);
	assert_true(driver_used(&f->d, 0, NULL, &len));
	assert_int_equal(len, 16);
	assert_int_equal(machine_irqs(f->dev), 1);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 1);
	driver_set_reg(&f->d, MMIO_INTERRUPT_ACK, 2);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 1);
	driver_set_reg(&f->d, MMIO_INTERRUPT_ACK, 1);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 0);
}

static void a_driver_that_wants_no_interrupt_gets_none(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	machine_poke16(&f->m, f->d.q[0].avail, 1);
	request(f, 0);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
	assert_int_equal(machine_irqs(f->dev), 0);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 0);
}

static void requests_made_before_driver_ok_are_served_at_driver_ok(void **ctx)
{
	struct fixture *f = *ctx;

	driver_negotiate(&f->d, 0);
	driver_place_queue(&f->d, 0, 8);
	driver_enable_queue(&f->d, 0);
	request(f, 0);
	assert_int_equal(f->t->ready[0], 0);
	assert_false(driver_used(&f->d, 0, NULL, NULL));
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
}

static void notifications_for_queues_that_do_not_exist_are_ignored(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	int before = f->t->ready[0] + f->t->ready[1];

	driver_kick(&f->d, 2);
	driver_kick(&f->d, VIRTIO_MAX_QUEUES);
	driver_kick(&f->d, 0x10000);
	driver_kick(&f->d, UINT32_MAX);
	assert_int_equal(f->t->ready[0] + f->t->ready[1], before);
}

static void a_queue_left_off_is_never_served(void **ctx)
{
	struct fixture *f = *ctx;

	driver_negotiate(&f->d, 0);
	driver_set_reg(&f->d, MMIO_STATUS, ALL_OK);
	driver_kick(&f->d, 0);
	assert_int_equal(f->t->ready[0], 0);
	/* Queues are final at DRIVER_OK. */
	driver_place_queue(&f->d, 0, 8);
	assert_false(driver_enable_queue(&f->d, 0));
}

static void a_queue_taken_away_is_drained_first(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	request(f, 1);
	driver_set_reg(&f->d, MMIO_QUEUE_SEL, 1);
	driver_set_reg(&f->d, MMIO_QUEUE_READY, 0);
	assert_int_equal(driver_reg(&f->d, MMIO_QUEUE_READY), 0);
	assert_int_equal(f->t->stopped, 1);
	testdev_complete(f->dev);
	assert_int_equal(machine_peek16(&f->m, f->d.q[1].used + 2), 0);
	int before = f->t->ready[1];

	driver_kick(&f->d, 1);
	assert_int_equal(f->t->ready[1], before);
	request(f, 0); /* the other goes on */
	assert_true(driver_used(&f->d, 0, NULL, NULL));
}

static void a_malformed_request_fails_this_device_alone(void **ctx)
{
	struct fixture *f = *ctx;
	struct device *other;
	struct driver d2;
	const struct driver_buf b = { BUFFERS, 16, true };

	assert_int_equal(machine_try_add(&f->m, &testdev_device, NULL, &other, NULL), 0);
	driver_init(&d2, &f->m, other);
	d2.heap = 512 << 10;
	driver_start(&f->d, 0, 0);
	driver_start(&d2, 0, 0);
	driver_publish(&f->d, 0, 999);
	driver_kick(&f->d, 0);
	assert_true(driver_needs_reset(&f->d));
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 2);
	assert_int_equal(machine_irqs(f->dev), 1);
	int before = f->t->ready[0];

	request(f, 0);
	request(f, 1);
	assert_int_equal(f->t->ready[0], before);
	assert_int_equal(f->t->state.held, 0);
	driver_add(&d2, 0, &b, 1);
	driver_kick(&d2, 0);
	assert_true(driver_used(&d2, 0, NULL, NULL));
	driver_start(&f->d, 0, 0); /* begins with a reset */
	assert_false(driver_needs_reset(&f->d));
	request(f, 0);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
}

static void a_config_change_bumps_the_generation_and_interrupts(void **ctx)
{
	struct fixture *f = *ctx;
	uint32_t before = driver_reg(&f->d, MMIO_CONFIG_GENERATION);

	virtio_signal_config(&f->t->vd); /* before DRIVER_OK: no interrupt */
	assert_int_equal(machine_irqs(f->dev), 0);
	assert_int_not_equal(driver_reg(&f->d, MMIO_CONFIG_GENERATION), before);
	driver_start(&f->d, 0, 0);
	before = driver_reg(&f->d, MMIO_CONFIG_GENERATION);
	virtio_signal_config(&f->t->vd);
	assert_int_not_equal(driver_reg(&f->d, MMIO_CONFIG_GENERATION), before);
	assert_int_equal(machine_irqs(f->dev), 1);
	assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS), 2);
}

static void a_quiesced_device_takes_nothing_and_resume_serves_it(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	assert_int_equal(device_quiesce(f->dev), 0);
	assert_int_equal(device_quiesce(f->dev), 0); /* again: no effect */
	request(f, 0);
	assert_false(driver_used(&f->d, 0, NULL, NULL));
	device_resume(f->dev);
	device_resume(f->dev);
	assert_true(driver_used(&f->d, 0, NULL, NULL));
	assert_int_equal(machine_irqs(f->dev), 1);
	assert_int_equal(f->t->quiesced, 1);
	assert_int_equal(f->t->resumed, 1);
}

static void a_pending_interrupt_is_raised_again_on_resume(void **ctx)
{
	struct fixture *f = *ctx;

	driver_start(&f->d, 0, 0);
	request(f, 0);
	machine_irqs(f->dev);
	device_quiesce(f->dev);
	device_resume(f->dev);
	assert_true(machine_irqs(f->dev) >= 1);
	driver_set_reg(&f->d, MMIO_INTERRUPT_ACK, 1);
	device_quiesce(f->dev);
	device_resume(f->dev);
	assert_int_equal(machine_irqs(f->dev), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_device_identifies_itself),
		T(registers_read_as_0_in_another_width_or_between_them),
		T(register_writes_in_another_width_are_ignored),
		T(read_only_registers_cannot_be_written),
		T(config_space_is_accessible_in_all_widths),
		T(config_space_ends_where_the_device_says),
		T(the_feature_windows_show_64_bits),
		T(there_are_no_shared_memory_regions),
		T(a_queue_that_does_not_exist_has_size_0_and_ignores_writes),
		T(a_good_queue_becomes_ready),
		T(queues_with_a_bad_size_are_refused),
		T(a_size_of_more_than_16_bits_is_not_cut_to_a_good_one),
		T(queues_outside_memory_or_unaligned_are_refused),
		T(a_ring_may_end_at_the_last_byte_of_memory),
		T(a_ready_queue_cannot_be_changed),
		T(features_that_were_never_offered_are_refused),
		T(a_driver_without_version_1_is_refused),
		T(features_are_frozen_by_features_ok),
		T(features_beyond_64_bits_are_ignored),
		T(driver_ok_needs_features_ok),
		T(driver_ok_twice_activates_once),
		T(status_bits_go_away_only_by_reset),
		T(reset_clears_everything),
		T(reset_in_mid_request_leaves_memory_alone),
		T(a_request_is_served_and_interrupts),
		T(a_driver_that_wants_no_interrupt_gets_none),
		T(requests_made_before_driver_ok_are_served_at_driver_ok),
		T(notifications_for_queues_that_do_not_exist_are_ignored),
		T(a_queue_left_off_is_never_served),
		T(a_queue_taken_away_is_drained_first),
		T(a_malformed_request_fails_this_device_alone),
		T(a_config_change_bumps_the_generation_and_interrupts),
		T(a_quiesced_device_takes_nothing_and_resume_serves_it),
		T(a_pending_interrupt_is_raised_again_on_resume),
	};

	return cmocka_run_group_tests_name("virtio_mmio", tests, NULL, NULL);
}
