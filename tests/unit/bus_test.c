/* SPDX-License-Identifier: Apache-2.0 */
/* The bus: order, overlaps, who answers, and what nobody answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "lib/util.h"
#include "vmm/bus.h"

struct probe {
	uint64_t offset;
	uint32_t len;
	uint64_t value;
	int reads, writes;
};

static void probe_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	struct probe *p = opaque;

	p->offset = offset;
	p->len = len;
	p->reads++;
	memset(data, 0x11, len);
}

static void probe_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct probe *p = opaque;

	p->offset = offset;
	p->len = len;
	p->value = 0;
	p->writes++;
	memcpy(&p->value, data, len);
}

static void silent_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	(void)opaque;
	(void)offset;
	(void)data;
	(void)len;
}

static const struct bus_ops probe_ops = { probe_read, probe_write };
static const struct bus_ops silent_ops = { silent_read, probe_write };

static int add(struct bus *b, enum bus_space space, uint64_t base, uint64_t size, void *opaque, const char *name,
	       struct err *err)
{
	return bus_add(b, space, base, size, &probe_ops, opaque, name, err);
}

static void ranges_are_sorted_whatever_the_order(void **state)
{
	static const uint64_t bases[] = { 0x5000, 0x1000, 0x9000, 0x3000, 0x7000, 0x0 };
	struct bus b = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++)
		assert_int_equal(add(&b, BUS_MMIO, bases[i], 0x1000, NULL, "x", NULL), 0);
	assert_int_equal(b.n[BUS_MMIO], ARRAY_SIZE(bases));
	for (int i = 1; i < b.n[BUS_MMIO]; i++)
		assert_true(b.range[BUS_MMIO][i - 1].base < b.range[BUS_MMIO][i].base);
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		const struct bus_range *r = bus_find(&b, BUS_MMIO, bases[i] + 0xfff);

		assert_non_null(r);
		assert_int_equal(r->base, bases[i]);
	}
	assert_null(bus_find(&b, BUS_MMIO, 0x2000));
	assert_null(bus_find(&b, BUS_MMIO, 0xa000));
}

static void an_overlap_names_both(void **state)
{
	static const struct {
		uint64_t base, size;
	} bad[] = {
		{ 0x1000, 0x1000 }, /* the same */
		{ 0x0800, 0x0801 }, /* into its first byte */
		{ 0x1fff, 0x0001 }, /* its last byte */
		{ 0x1400, 0x0010 }, /* inside */
		{ 0x0000, 0x8000 }, /* around */
		{ 0x1000, 0x0001 },
	};
	struct bus b = { 0 };

	(void)state;
	assert_int_equal(add(&b, BUS_MMIO, 0x1000, 0x1000, NULL, "old-one", NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(add(&b, BUS_MMIO, bad[i].base, bad[i].size, NULL, "new-one", &err), -EEXIST);
		assert_non_null(strstr(err.text, "old-one"));
		assert_non_null(strstr(err.text, "new-one"));
		assert_int_equal(b.n[BUS_MMIO], 1);
	}
	/* Touching is not overlapping, and the other space is another world. */
	assert_int_equal(add(&b, BUS_MMIO, 0x0fff, 1, NULL, "below", NULL), 0);
	assert_int_equal(add(&b, BUS_MMIO, 0x2000, 1, NULL, "above", NULL), 0);
	assert_int_equal(add(&b, BUS_PIO, 0x1000, 0x1000, NULL, "port", NULL), 0);
}

static void impossible_ranges_are_refused(void **state)
{
	struct bus b = { 0 };

	(void)state;
	assert_int_equal(add(&b, BUS_MMIO, 0x1000, 0, NULL, "x", NULL), -EINVAL);
	assert_int_equal(add(&b, BUS_MMIO, UINT64_MAX, 2, NULL, "x", NULL), -EINVAL);
	assert_int_equal(add(&b, BUS_MMIO, 2, UINT64_MAX, NULL, "x", NULL), -EINVAL);
	assert_int_equal(add(&b, BUS_PIO, 0xffff, 2, NULL, "x", NULL), -EINVAL);
	assert_int_equal(add(&b, BUS_PIO, 0x10000, 1, NULL, "x", NULL), -EINVAL);
	assert_int_equal(add(&b, BUS_PIO, 0xffff, 1, NULL, "x", NULL), 0);
	assert_int_equal(add(&b, BUS_MMIO, UINT64_MAX, 1, NULL, "x", NULL), 0);
}

static void a_frozen_or_full_bus_takes_no_more(void **state)
{
	struct bus b = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	for (uint64_t i = 0; i < BUS_MAX_RANGES; i++)
		assert_int_equal(add(&b, BUS_PIO, i * 8, 8, NULL, "x", NULL), 0);
	assert_int_equal(add(&b, BUS_PIO, 0x8000, 8, NULL, "last", &err), -ENOSPC);
	assert_non_null(strstr(err.text, "last"));
	bus_freeze(&b);
	assert_int_equal(add(&b, BUS_MMIO, 0, 8, NULL, "late", &err), -EBUSY);
	assert_non_null(strstr(err.text, "late"));
}

static void handlers_get_offsets_and_lengths(void **state)
{
	struct probe p = { 0 };
	struct bus b = { 0 };
	uint32_t v = 0xdeadbeef;

	(void)state;
	assert_int_equal(add(&b, BUS_MMIO, 0xd0000000, 0x200, &p, "dev", NULL), 0);
	bus_freeze(&b);
	assert_true(bus_write(&b, BUS_MMIO, 0xd0000070, &v, 4));
	assert_int_equal(p.offset, 0x70);
	assert_int_equal(p.len, 4);
	assert_int_equal(p.value, 0xdeadbeef);
	assert_true(bus_read(&b, BUS_MMIO, 0xd00001ff, &v, 1));
	assert_int_equal(p.offset, 0x1ff);
	assert_int_equal(v, 0xdeadbe11);
}

static void unclaimed_reads_are_all_ones_and_writes_go_nowhere(void **state)
{
	struct probe p = { 0 };
	struct bus b = { 0 };
	uint64_t v = 0;

	(void)state;
	assert_int_equal(add(&b, BUS_PIO, 0x60, 1, &p, "dev", NULL), 0);
	assert_false(bus_read(&b, BUS_PIO, 0x61, &v, 4));
	assert_true(v == 0xffffffff);
	assert_false(bus_read(&b, BUS_MMIO, 0x60, &v, 8));
	assert_true(v == UINT64_MAX);
	assert_false(bus_write(&b, BUS_PIO, 0x5f, &v, 1));
	assert_int_equal(p.reads + p.writes, 0);
}

static void an_access_across_the_end_is_unclaimed(void **state)
{
	struct probe p = { 0 };
	struct bus b = { 0 };
	uint64_t v = 0;

	(void)state;
	assert_int_equal(add(&b, BUS_MMIO, 0x1000, 0x10, &p, "dev", NULL), 0);
	assert_int_equal(add(&b, BUS_MMIO, 0x1010, 0x10, &p, "next", NULL), 0);
	assert_int_equal(add(&b, BUS_MMIO, UINT64_MAX - 1, 2, &p, "top", NULL), 0);
	assert_false(bus_read(&b, BUS_MMIO, 0x100d, &v, 4));
	assert_true(v == 0xffffffff);
	assert_false(bus_write(&b, BUS_MMIO, 0x100f, &v, 2));
	assert_false(bus_read(&b, BUS_MMIO, UINT64_MAX, &v, 2));
	assert_int_equal(p.reads + p.writes, 0);
	assert_true(bus_read(&b, BUS_MMIO, 0x100c, &v, 4));
}

static void odd_lengths_are_unclaimed(void **state)
{
	struct probe p = { 0 };
	struct bus b = { 0 };
	uint8_t v[8] = { 0 };

	(void)state;
	assert_int_equal(add(&b, BUS_MMIO, 0, 0x100, &p, "mmio", NULL), 0);
	assert_int_equal(add(&b, BUS_PIO, 0, 0x100, &p, "pio", NULL), 0);
	for (uint32_t len = 3; len < 8; len++) {
		if (len == 4)
			continue;
		memset(v, 0, sizeof(v));
		assert_false(bus_read(&b, BUS_MMIO, 0, v, len));
		assert_int_equal(v[len - 1], 0xff);
		assert_false(bus_write(&b, BUS_MMIO, 0, v, len));
	}
	assert_false(bus_read(&b, BUS_PIO, 0, v, 8));
	assert_int_equal(p.reads + p.writes, 0);
	assert_true(bus_read(&b, BUS_MMIO, 0, v, 8));
}

static void a_handler_with_nothing_to_say_reads_as_ones(void **state)
{
	struct bus b = { 0 };
	uint16_t v = 0;

	(void)state;
	assert_int_equal(bus_add(&b, BUS_PIO, 0x10, 4, &silent_ops, NULL, "dev", NULL), 0);
	assert_true(bus_read(&b, BUS_PIO, 0x10, &v, 2));
	assert_int_equal(v, 0xffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_sorted_whatever_the_order),
		cmocka_unit_test(an_overlap_names_both),
		cmocka_unit_test(impossible_ranges_are_refused),
		cmocka_unit_test(a_frozen_or_full_bus_takes_no_more),
		cmocka_unit_test(handlers_get_offsets_and_lengths),
		cmocka_unit_test(unclaimed_reads_are_all_ones_and_writes_go_nowhere),
		cmocka_unit_test(an_access_across_the_end_is_unclaimed),
		cmocka_unit_test(odd_lengths_are_unclaimed),
		cmocka_unit_test(a_handler_with_nothing_to_say_reads_as_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
