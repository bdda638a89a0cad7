/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-balloon (virtio 1.2, 5.5): pages given back, free pages reported, targets, statistics, hostile lists. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "devices/virtio_balloon.h"
#include "lib/le.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { MIB_RAM = 64, RAM = MIB_RAM << 20, PAGE = 4096 };
enum { INFLATE = 0, DEFLATE = 1, STATS = 2, REPORTING = 3 };
#define F_STATS (1ull << 1)
#define F_OOM (1ull << 2)
#define F_POISON (1ull << 4)
#define F_REPORTING (1ull << 5)
/* Pages the tests play with */
#define ARENA (16ull << 20)

struct fixture {
	struct machine m;
	struct device *dev;
	struct driver d;
	uint64_t list; /* where page lists are put */
};

static void begin(struct fixture *f, const char *options, uint64_t features)
{
	machine_init(&f->m, RAM);
	f->dev = machine_add(&f->m, "balloon", options);
	driver_init(&f->d, &f->m, f->dev);
	driver_start(&f->d, features, 0);
	machine_irqs(f->dev);
	f->list = driver_alloc(&f->d, 1 << 20, 16);
}

static int setup(void **ctx)
{
	static struct fixture f;

	begin(&f, NULL, F_STATS | F_OOM | F_REPORTING | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

static void request(struct fixture *f, uint32_t q, const struct driver_buf *b, uint16_t n)
{
	driver_add(&f->d, q, b, n);
	driver_kick(&f->d, q);
	assert_true(driver_used(&f->d, q, NULL, NULL));
	assert_false(driver_needs_reset(&f->d));
}

static void put_pfns(struct fixture *f, const uint32_t *pfn, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t b[4];

		le32_store(b, pfn[i]);
		machine_poke(&f->m, f->list + 4 * i, b, 4);
	}
}

static void pages(struct fixture *f, uint32_t q, const uint32_t *pfn, size_t n)
{
	const struct driver_buf b = { f->list, (uint32_t)(4 * n), false };

	put_pfns(f, pfn, n);
	request(f, q, &b, 1);
}

static void fill(struct fixture *f, uint64_t gpa, uint8_t v)
{
	uint8_t page[PAGE];

	memset(page, v, sizeof(page));
	machine_poke(&f->m, gpa, page, sizeof(page));
}

static bool page_is(struct fixture *f, uint64_t gpa, uint8_t v)
{
	uint8_t page[PAGE];

	machine_peek(&f->m, gpa, page, sizeof(page));
	for (size_t i = 0; i < sizeof(page); i++)
		if (page[i] != v)
			return false;
	return true;
}

static void it_is_a_balloon_without_poisoning(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_ID), 5);
	assert_true((driver_offered(&f->d) & 0xffffff) == (F_STATS | F_OOM | F_REPORTING));
	assert_false(driver_negotiate(&f->d, F_POISON));
}

static void inflated_pages_are_given_back_and_read_as_zeros(void **ctx)
{
	struct fixture *f = *ctx;
	/* Up, down, alone, and twice: every way runs are put together. */
	static const uint32_t order[] = { 0, 1, 2, 9, 8, 7, 5, 12, 12, 11 };
	uint32_t pfn[ARRAY_SIZE(order)];

	for (uint64_t i = 0; i < 14; i++)
		fill(f, ARENA + i * PAGE, 0x77);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		pfn[i] = (uint32_t)(ARENA >> 12) + order[i];
	pages(f, INFLATE, pfn, ARRAY_SIZE(pfn));
	for (uint32_t i = 0; i < 14; i++) {
		bool in = false;

		for (size_t j = 0; j < ARRAY_SIZE(order); j++)
			in |= order[j] == i;
		if (!page_is(f, ARENA + (uint64_t)i * PAGE, in ? 0 : 0x77))
			fail_msg("page %u", i);
	}
	assert_true(machine_irqs(f->dev) >= 1);
}

static void deflated_pages_hold_what_the_guest_writes(void **ctx)
{
	struct fixture *f = *ctx;
	const uint32_t pfn = (uint32_t)(ARENA >> 12);

	fill(f, ARENA, 0x11);
	pages(f, INFLATE, &pfn, 1);
	pages(f, DEFLATE, &pfn, 1);
	assert_true(page_is(f, ARENA, 0));
	fill(f, ARENA, 0x22);
	pages(f, DEFLATE, &pfn, 1);
	assert_true(page_is(f, ARENA, 0x22));
}

static void a_list_may_be_scattered_over_buffers_of_any_length(void **ctx)
{
	struct fixture *f = *ctx;
	const uint32_t pfn[] = { (uint32_t)(ARENA >> 12), (uint32_t)(ARENA >> 12) + 3, 0 };
	/* Page numbers split between buffers, and three bytes left over. */
	const struct driver_buf b[] = { { f->list, 3, false }, { f->list + 3, 2, false }, { f->list + 5, 6, false } };

	fill(f, 0, 0x33);
	fill(f, ARENA, 0x33);
	fill(f, ARENA + 3 * PAGE, 0x33);
	put_pfns(f, pfn, 3);
	request(f, INFLATE, b, 3);
	assert_true(page_is(f, ARENA, 0));
	assert_true(page_is(f, ARENA + 3 * PAGE, 0));
	assert_true(page_is(f, 0, 0x33)); /* the number that was not there in full */
}

static void page_numbers_outside_memory_are_ignored(void **ctx)
{
	struct fixture *f = *ctx;
	const uint32_t pfn[] = {
		RAM >> 12, (RAM >> 12) + 1, 0xD0000, 0xC0000, 0xFFFFF, 0x100000, UINT32_MAX, UINT32_MAX - 1, 0x80000000,
		(RAM >> 12) - 1, /* the last page is inside */
	};

	fill(f, RAM - PAGE, 0x44);
	pages(f, INFLATE, pfn, ARRAY_SIZE(pfn));
	assert_true(page_is(f, RAM - PAGE, 0));
	pages(f, DEFLATE, pfn, ARRAY_SIZE(pfn));
}

static void an_endless_list_is_cut(void **ctx)
{
	struct fixture *f = *ctx;
	enum { LIMIT = 16384 };
	/* All memory from here on taken for a list of page numbers: all 0, but for two around the limit. */
	const struct driver_buf b = { f->list, RAM - (uint32_t)f->list, false };
	const uint32_t pfn[] = { (uint32_t)(ARENA >> 12), (uint32_t)(ARENA >> 12) + 1 };
	uint64_t list = f->list;

	f->list += 4 * (LIMIT - 1);
	put_pfns(f, pfn, 2);
	f->list = list;
	fill(f, ARENA, 0x33);
	fill(f, ARENA + PAGE, 0x33);
	request(f, INFLATE, &b, 1);
	assert_true(page_is(f, ARENA, 0));
	assert_true(page_is(f, ARENA + PAGE, 0x33));
}

static void lists_without_a_number_are_completed(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf none = { f->list, 0, false }, part = { f->list, 3, false }, wrong = { f->list, 64, true };

	request(f, INFLATE, &none, 1);
	request(f, INFLATE, &part, 1);
	request(f, INFLATE, &wrong, 1);
	request(f, DEFLATE, &wrong, 1);
}

static void reported_pages_are_given_back_and_read_as_zeros(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { ARENA, 2 * PAGE, true }, { ARENA + 4 * PAGE, PAGE, true } };

	for (uint64_t i = 0; i < 6; i++)
		fill(f, ARENA + i * PAGE, 0x55);
	request(f, REPORTING, b, 2);
	for (uint64_t i = 0; i < 6; i++)
		assert_true(page_is(f, ARENA + i * PAGE, i == 0 || i == 1 || i == 4 ? 0 : 0x55));
}

static void reported_parts_of_pages_are_kept(void **ctx)
{
	struct fixture *f = *ctx;
	/* Part of page 0, all of page 1, part of page 2; then less than a page. */
	const struct driver_buf b[] = { { ARENA + 1, 3 * PAGE - 2, true }, { ARENA + 4 * PAGE + 8, PAGE - 8, true } };

	for (uint64_t i = 0; i < 6; i++)
		fill(f, ARENA + i * PAGE, 0x66);
	request(f, REPORTING, b, 2);
	for (uint64_t i = 0; i < 6; i++)
		assert_true(page_is(f, ARENA + i * PAGE, i == 1 ? 0 : 0x66));
}

static void a_report_outside_memory_needs_a_reset(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { RAM, PAGE, true };

	driver_add(&f->d, REPORTING, &b, 1);
	driver_kick(&f->d, REPORTING);
	assert_true(driver_needs_reset(&f->d));
}

static void the_reporting_queue_moves_up_without_statistics(void **ctx)
{
	struct fixture f;
	const struct driver_buf b = { ARENA, PAGE, true };

	(void)ctx;
	begin(&f, NULL, F_REPORTING);
	fill(&f, ARENA, 0x77);
	request(&f, STATS, &b, 1);
	assert_true(page_is(&f, ARENA, 0));
	/* And its old place is nobody's. */
	driver_add(&f.d, REPORTING, &b, 1);
	driver_kick(&f.d, REPORTING);
	assert_false(driver_used(&f.d, REPORTING, NULL, NULL));
	machine_finish(&f.m);
}

static void reporting_and_deflation_on_oom_can_be_switched_off(void **ctx)
{
	struct fixture f;

	(void)ctx;
	begin(&f, "no-reporting,keep-on-oom", 0);
	assert_true((driver_offered(&f.d) & 0xffffff) == F_STATS);
	driver_set_reg(&f.d, MMIO_QUEUE_SEL, REPORTING);
	assert_int_equal(driver_reg(&f.d, MMIO_QUEUE_NUM_MAX), 0);
	machine_finish(&f.m);
}

static void a_target_reaches_the_guest_in_steps_up_to_all_memory_and_back(void **ctx)
{
	struct fixture *f = *ctx;
	static const uint32_t step[] = { 1, 16, 32, 63, 64, 8, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(step); i++) {
		assert_int_equal(balloon_set_target(f->dev, step[i], NULL), 0);
		assert_int_equal(machine_irqs(f->dev), 1);
		assert_int_equal(driver_reg(&f->d, MMIO_INTERRUPT_STATUS) & 2, 2);
		assert_int_equal(driver_config(&f->d, 0, 4), step[i] * 256);
		assert_int_equal(balloon_target(f->dev), step[i]);
		/* The guest does as it is told. */
		machine_write(&f->m, f->dev, MMIO_CONFIG + 4, step[i] * 256, 4);
		assert_int_equal(balloon_actual(f->dev), step[i]);
	}
	assert_int_equal(balloon_set_target(f->dev, 0, NULL), 0);
	assert_int_equal(machine_irqs(f->dev), 0); /* no change, no interrupt */
}

static void more_than_the_guest_has_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;

	assert_int_equal(balloon_set_target(f->dev, 4, NULL), 0);
	assert_int_equal(balloon_set_target(f->dev, MIB_RAM + 1, &err), -EINVAL);
	assert_string_equal(err.text, "a balloon of 65 MiB: the VM has 64 MiB");
	assert_int_equal(balloon_set_target(f->dev, UINT64_MAX, NULL), -EINVAL);
	assert_int_equal(balloon_set_target(f->dev, 1ull << 44, NULL), -EINVAL);
	assert_int_equal(balloon_target(f->dev), 4);
}

static void a_target_from_the_start_survives_the_drivers_reset(void **ctx)
{
	struct fixture f;
	struct device *d;
	struct err err = ERR_INIT;

	(void)ctx;
	begin(&f, "target=7", 0);
	assert_int_equal(driver_config(&f.d, 0, 4), 7 * 256);
	assert_int_equal(balloon_set_target(f.dev, 9, NULL), 0);
	machine_write(&f.m, f.dev, MMIO_CONFIG + 4, 100, 4);
	driver_set_reg(&f.d, MMIO_STATUS, 0);
	assert_int_equal(driver_config(&f.d, 0, 4), 9 * 256);
	assert_int_equal(driver_config(&f.d, 4, 4), 0);
	assert_int_equal(machine_try_add(&f.m, device_find("balloon"), "target=65", &d, &err), -EINVAL);
	assert_non_null(strstr(err.text, "the VM has 64 MiB"));
	machine_finish(&f.m);
}

static void what_the_guest_claims_is_bounded(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->dev, MMIO_CONFIG + 4, UINT32_MAX, 4);
	assert_int_equal(balloon_actual(f->dev), MIB_RAM);
	machine_write(&f->m, f->dev, MMIO_CONFIG, UINT32_MAX, 4);
	assert_int_equal(balloon_target(f->dev), 0);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 4, 0x300, 2); /* half a word, low part */
	assert_int_equal(driver_config(&f->d, 4, 4), 0xffff0300);
}

static void send_stats(struct fixture *f, uint16_t tag, uint64_t value)
{
	const struct driver_buf b = { f->list, 20, false };
	uint8_t s[20];

	le16_store(s, tag);
	le64_store(s + 2, value);
	le16_store(s + 10, 999); /* a tag from the future */
	le64_store(s + 12, 1);
	machine_poke(&f->m, f->list, s, sizeof(s));
	driver_add(&f->d, STATS, &b, 1);
	driver_kick(&f->d, STATS);
}

static void statistics_come_with_the_buffer_and_again_on_request(void **ctx)
{
	struct fixture *f = *ctx;
	struct balloon_stats s;

	send_stats(f, 4, 12345);
	assert_false(driver_used(&f->d, STATS, NULL, NULL)); /* the buffer is held */
	machine_irqs(f->dev);
	balloon_stats(f->dev, &s);
	assert_int_equal(s.valid, 1 << 4);
	assert_int_equal(s.value[4], 12345);
	assert_true(driver_used(&f->d, STATS, NULL, NULL)); /* given back: a request for more */
	assert_int_equal(machine_irqs(f->dev), 1);
	balloon_stats(f->dev, &s); /* nothing is held: nothing happens */
	assert_int_equal(machine_irqs(f->dev), 0);
	send_stats(f, 5, 777);
	balloon_stats(f->dev, &s);
	assert_int_equal(s.valid, 1 << 5);
	assert_int_equal(s.value[5], 777);
}

static void a_second_statistics_buffer_pushes_the_first_out(void **ctx)
{
	struct fixture *f = *ctx;

	send_stats(f, 1, 1);
	send_stats(f, 1, 2);
	assert_true(driver_used(&f->d, STATS, NULL, NULL));
	assert_false(driver_used(&f->d, STATS, NULL, NULL));
}

static void a_held_buffer_is_forgotten_at_reset(void **ctx)
{
	struct fixture *f = *ctx;
	struct balloon_stats s;
	uint64_t used = f->d.q[STATS].used;

	send_stats(f, 1, 1);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	balloon_stats(f->dev, &s);
	assert_int_equal(machine_peek16(&f->m, used + 2), 0);
	assert_int_equal(s.valid, 0);
}

static void impossible_states_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t blob[16 << 10], bad[16 << 10];
	size_t n, at;

	send_stats(f, 1, 1);
	device_quiesce(f->dev);
	n = (size_t)device_save(f->dev, blob, sizeof(blob));
	/* At the end: ids 1 and 2 as u32, 3 as u8, 4 as u16, each with an 8-byte header. */
	at = n - (8 + 2) - (8 + 1) - (8 + 4) - (8 + 4);
	memcpy(bad, blob, n);
	le32_store(bad + at + 8, RAM / PAGE + 1); /* target */
	assert_int_equal(device_load(f->dev, bad, n, NULL), -EINVAL);
	memcpy(bad, blob, n);
	bad[at + 24 + 8] = 2; /* held */
	assert_int_equal(device_load(f->dev, bad, n, NULL), -EINVAL);
	memcpy(bad, blob, n);
	le16_store(bad + at + 24 + 9 + 8, 128); /* head: the queue's size */
	assert_int_equal(device_load(f->dev, bad, n, NULL), -EINVAL);
	assert_int_equal(device_load(f->dev, blob, n, NULL), 0);
	device_resume(f->dev);
	struct balloon_stats s;

	balloon_stats(f->dev, &s); /* the held buffer was carried over */
	assert_true(driver_used(&f->d, STATS, NULL, NULL));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_a_balloon_without_poisoning),
		T(inflated_pages_are_given_back_and_read_as_zeros),
		T(deflated_pages_hold_what_the_guest_writes),
		T(a_list_may_be_scattered_over_buffers_of_any_length),
		T(page_numbers_outside_memory_are_ignored),
		T(an_endless_list_is_cut),
		T(lists_without_a_number_are_completed),
		T(reported_pages_are_given_back_and_read_as_zeros),
		T(reported_parts_of_pages_are_kept),
		T(a_report_outside_memory_needs_a_reset),
		cmocka_unit_test(the_reporting_queue_moves_up_without_statistics),
		cmocka_unit_test(reporting_and_deflation_on_oom_can_be_switched_off),
		T(a_target_reaches_the_guest_in_steps_up_to_all_memory_and_back),
		T(more_than_the_guest_has_is_refused),
		cmocka_unit_test(a_target_from_the_start_survives_the_drivers_reset),
		T(what_the_guest_claims_is_bounded),
		T(statistics_come_with_the_buffer_and_again_on_request),
		T(a_second_statistics_buffer_pushes_the_first_out),
		T(a_held_buffer_is_forgotten_at_reset),
		T(impossible_states_are_refused),
	};

	return cmocka_run_group_tests_name("virtio_balloon", tests, NULL, NULL);
}
