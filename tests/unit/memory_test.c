/* SPDX-License-Identifier: Apache-2.0 */
/* Guest memory without KVM: layout around the hole, bounds of every access, dirty marking, discard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"
#include "vmm/memory.h"

static void init(struct mem *m, uint64_t size)
{
	struct err err = ERR_INIT;

	if (mem_init(m, -1, size, &err) < 0)
		fail_msg("%s", err.text);
}

static void check_layout(uint64_t mib, uint64_t low, uint64_t high)
{
	struct mem m;
	uint8_t b = 0xa5, got = 0;

	init(&m, MIB(mib));
	assert_int_equal(m.size, MIB(mib));
	assert_int_equal(m.nregions, high ? 2 : 1);
	assert_int_equal(m.region[0].gpa, 0);
	assert_int_equal(m.region[0].size, low);
	/* The last byte is there, the next is not. */
	assert_int_equal(mem_write(&m, GPA(low - 1), &b, 1), 0);
	assert_int_equal(mem_read(&m, GPA(low - 1), &got, 1), 0);
	assert_int_equal(got, b);
	assert_int_equal(mem_read(&m, GPA(low), &got, 1), -EFAULT);
	assert_int_equal(mem_read(&m, GPA(MEM_HOLE_START), &got, 1), -EFAULT);
	assert_int_equal(mem_read(&m, GPA(MEM_HOLE_END - 1), &got, 1), -EFAULT);
	if (high) {
		assert_int_equal(m.region[1].gpa, MEM_HOLE_END);
		assert_int_equal(m.region[1].size, high);
		assert_int_equal(mem_write(&m, GPA(MEM_HOLE_END + high - 1), &b, 1), 0);
	}
	assert_int_equal(mem_read(&m, GPA(MEM_HOLE_END + high), &got, 1), -EFAULT);
	mem_finish(&m);
}

static void one_mib_below_the_hole(void **state)
{
	(void)state;
	check_layout(3071, MIB(3071), 0);
}

static void exactly_up_to_the_hole(void **state)
{
	(void)state;
	check_layout(3072, MIB(3072), 0);
}

static void one_mib_beyond_the_hole(void **state)
{
	(void)state;
	check_layout(3073, MIB(3072), MIB(1));
}

static void four_gib(void **state)
{
	(void)state;
	check_layout(4096, MIB(3072), MIB(1024));
}

static void eight_gib(void **state)
{
	(void)state;
	check_layout(8192, MIB(3072), MIB(5120));
}

static void sizes_out_of_range_are_refused_by_name(void **state)
{
	static const uint64_t sizes[] = { 0, 1, MIB(1) - 1, MIB(1) + 1, MEM_MAX + 1, UINT64_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct err err = ERR_INIT;
		struct mem m;

		assert_int_equal(mem_init(&m, -1, sizes[i], &err), -EINVAL);
		assert_non_null(strstr(err.text, "memory: "));
		assert_int_equal(m.nregions, 0);
		mem_finish(&m);
	}
}

static void more_than_the_host_has_is_named(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(mem_check_host(MIB(1), &err), 0);
	assert_int_equal(mem_check_host(MEM_MAX, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "4194304 MiB asked"));
}

/* Every kind of access at every edge of a two-region map. */
static void accesses_at_the_edges_are_whole_or_refused(void **state)
{
	static const uint64_t high_end = MEM_HOLE_END + MIB(1);
	static const struct {
		uint64_t gpa, len;
		bool ok;
	} c[] = {
		{ 0, 1, true },
		{ 0, 0, true },
		{ MEM_HOLE_START - 4096, 4096, true },
		{ MEM_HOLE_START - 4095, 4096, false },
		{ MEM_HOLE_START - 1, 2, false },
		{ MEM_HOLE_START, 0, false },
		{ MEM_HOLE_START, 1, false },
		{ MEM_HOLE_END - 1, 2, false },
		{ MEM_HOLE_END, 4096, true },
		{ MEM_HOLE_START - 8, 4096, false },
		{ high_end - 1, 1, true },
		{ high_end - 1, 2, false },
		{ high_end, 1, false },
		{ UINT64_MAX, 1, false },
		{ UINT64_MAX, 2, false },
		{ UINT64_MAX - 7, 8, false },
		{ UINT64_MAX - 7, 4096, false },
	};
	static uint8_t buf[4096];
	struct mem m;

	(void)state;
	init(&m, MIB(3073));
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		int want = c[i].ok ? 0 : -EFAULT;
		struct iovec iov;

		assert_int_equal(mem_read(&m, GPA(c[i].gpa), buf, c[i].len), want);
		assert_int_equal(mem_write(&m, GPA(c[i].gpa), buf, c[i].len), want);
		assert_int_equal(mem_zero(&m, GPA(c[i].gpa), c[i].len), want);
		assert_int_equal(mem_iov(&m, GPA(c[i].gpa), (uint32_t)c[i].len, true, &iov), want);
		assert_int_equal(mem_contains(&m, GPA(c[i].gpa), c[i].len), c[i].ok);
		mem_mark_dirty(&m, GPA(c[i].gpa), c[i].len);
	}
	assert_false(mem_contains(&m, GPA(0), UINT64_MAX));
	assert_false(mem_contains(&m, GPA(1), UINT64_MAX));
	mem_finish(&m);
}

static void a_refused_write_changes_nothing(void **state)
{
	uint8_t ones[8], got[4] = { 1, 1, 1, 1 };
	struct mem m;

	(void)state;
	memset(ones, 0xff, sizeof(ones));
	init(&m, MIB(1));
	assert_int_equal(mem_write(&m, GPA(MIB(1) - 4), ones, 8), -EFAULT);
	assert_int_equal(mem_read(&m, GPA(MIB(1) - 4), got, 4), 0);
	assert_memory_equal(got, "\0\0\0\0", 4);
	mem_finish(&m);
}

static void ring_fields_are_aligned_and_little_endian(void **state)
{
	uint8_t raw[2];
	uint16_t v = 0;
	struct mem m;

	(void)state;
	init(&m, MIB(1));
	assert_int_equal(mem_store_le16_release(&m, GPA(0x1000), 0x1234), 0);
	assert_int_equal(mem_read(&m, GPA(0x1000), raw, 2), 0);
	assert_int_equal(raw[0], 0x34);
	assert_int_equal(raw[1], 0x12);
	assert_int_equal(mem_load_le16_acquire(&m, GPA(0x1000), &v), 0);
	assert_int_equal(v, 0x1234);
	assert_int_equal(mem_load_le16_acquire(&m, GPA(0x1001), &v), -EFAULT);
	assert_int_equal(mem_store_le16_release(&m, GPA(0x1001), 1), -EFAULT);
	assert_int_equal(mem_store_le16_release(&m, GPA(MIB(1) - 2), 1), 0);
	assert_int_equal(mem_load_le16_acquire(&m, GPA(MIB(1)), &v), -EFAULT);
	assert_int_equal(mem_store_le16_release(&m, GPA(MIB(1) - 1), 1), -EFAULT);
	mem_finish(&m);
}

static void an_iovec_is_the_memory_itself_and_bounded(void **state)
{
	struct iovec iov = { 0 };
	char got[5] = "";
	struct mem m;

	(void)state;
	init(&m, GIB(2));
	assert_int_equal(mem_iov(&m, GPA(0x2000), 5, true, &iov), 0);
	assert_int_equal(iov.iov_len, 5);
	memcpy(iov.iov_base, "hello", 5);
	assert_int_equal(mem_read(&m, GPA(0x2000), got, 5), 0);
	assert_memory_equal(got, "hello", 5);
	assert_int_equal(mem_iov(&m, GPA(0), MEM_IOV_MAX, false, &iov), 0);
	assert_int_equal(mem_iov(&m, GPA(0), MEM_IOV_MAX + 1, false, &iov), -EFAULT);
	mem_finish(&m);
}

/* 1 MiB's. */
static void take_dirty(struct mem *m, uint64_t bits[4])
{
	memset(bits, 0, 4 * sizeof(*bits));
	assert_int_equal(mem_dirty_collect(m, bits, NULL), 0);
}

static void writes_are_marked_reads_are_not(void **state)
{
	uint64_t bits[4] = { 0 }; /* 1 MiB is 256 pages */
	struct iovec iov;
	uint8_t buf[2] = { 1, 2 };
	uint16_t v;
	struct mem m;

	(void)state;
	init(&m, MIB(1));
	assert_int_equal(mem_write(&m, GPA(0), buf, 1), 0); /* before tracking */
	assert_int_equal(mem_dirty_start(&m, NULL), 0);
	assert_int_equal(mem_read(&m, GPA(0x3000), buf, 2), 0);
	assert_int_equal(mem_load_le16_acquire(&m, GPA(0x3000), &v), 0);
	assert_int_equal(mem_iov(&m, GPA(0x3000), 1, false, &iov), 0);
	take_dirty(&m, bits);
	for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
		assert_int_equal(bits[i], 0);

	assert_int_equal(mem_write(&m, GPA(0x1fff), buf, 2), 0);          /* pages 1 and 2 */
	assert_int_equal(mem_zero(&m, GPA(0x40000), 1), 0);               /* page 64: next word */
	assert_int_equal(mem_store_le16_release(&m, GPA(0x5000), 1), 0);  /* page 5 */
	assert_int_equal(mem_iov(&m, GPA(0x6000), 0x1000, true, &iov), 0); /* page 6 only */
	mem_mark_dirty(&m, GPA(0xff000), 0x1000);                         /* the last page */
	mem_mark_dirty(&m, GPA(0xff000), 0x1001);                         /* outside: ignored */
	assert_int_equal(mem_write(&m, GPA(0x8000), buf, 0), 0);          /* nothing written */
	take_dirty(&m, bits);
	assert_int_equal(bits[0], 1u << 1 | 1u << 2 | 1u << 5 | 1u << 6);
	assert_int_equal(bits[1], 1);
	assert_int_equal(bits[2], 0);
	assert_true(bits[3] == 1ull << 63);

	take_dirty(&m, bits); /* taken is taken */
	assert_int_equal(bits[0] | bits[1] | bits[3], 0);
	mem_dirty_stop(&m);
	assert_int_equal(mem_write(&m, GPA(0), buf, 1), 0);
	take_dirty(&m, bits);
	assert_int_equal(bits[0], 0);
	mem_finish(&m);
}

static void starting_again_forgets_old_marks(void **state)
{
	uint64_t bits[4] = { 0 };
	struct mem m;

	(void)state;
	init(&m, MIB(1));
	assert_int_equal(mem_dirty_start(&m, NULL), 0);
	assert_int_equal(mem_zero(&m, GPA(0x1000), 1), 0);
	mem_dirty_stop(&m);
	assert_int_equal(mem_dirty_start(&m, NULL), 0);
	take_dirty(&m, bits);
	assert_int_equal(bits[0], 0);
	mem_finish(&m);
}

static void the_high_region_has_its_own_bits(void **state)
{
	const size_t high = MIB(3072) / MEM_PAGE_SIZE / 64;
	uint64_t *bits;
	struct mem m;

	(void)state;
	init(&m, MIB(3073));
	bits = calloc(high + 4, sizeof(*bits));
	assert_non_null(bits);
	assert_int_equal(mem_dirty_start(&m, NULL), 0);
	assert_int_equal(mem_zero(&m, GPA(MEM_HOLE_END + 0x2000), 1), 0);
	assert_int_equal(mem_dirty_collect(&m, bits, NULL), 0);
	assert_int_equal(bits[high], 4);
	bits[high] = 0;
	for (size_t i = 0; i <= high; i++)
		assert_int_equal(bits[i], 0);
	free(bits);
	mem_finish(&m);
}

static void discarded_pages_read_zeros_and_are_dirty(void **state)
{
	uint8_t buf[4096], zero[4096] = { 0 };
	uint64_t bits[4] = { 0 };
	struct mem m;

	(void)state;
	memset(buf, 0x5a, sizeof(buf));
	init(&m, MIB(1));
	for (uint64_t p = 0; p < 4; p++)
		assert_int_equal(mem_write(&m, GPA(p * 4096), buf, sizeof(buf)), 0);
	assert_int_equal(mem_dirty_start(&m, NULL), 0);
	assert_int_equal(mem_discard(&m, GPA(4096), 8192), 0);
	for (uint64_t p = 0; p < 4; p++) {
		assert_int_equal(mem_read(&m, GPA(p * 4096), buf, sizeof(buf)), 0);
		if (p == 1 || p == 2)
			assert_memory_equal(buf, zero, sizeof(buf));
		else
			assert_int_equal(buf[0], 0x5a);
	}
	take_dirty(&m, bits);
	assert_int_equal(bits[0], 6);
	mem_finish(&m);
}

static void discard_of_parts_of_pages_or_outside_is_refused(void **state)
{
	struct mem m;

	(void)state;
	init(&m, MIB(1));
	assert_int_equal(mem_discard(&m, GPA(1), 4096), -EINVAL);
	assert_int_equal(mem_discard(&m, GPA(0), 4095), -EINVAL);
	assert_int_equal(mem_discard(&m, GPA(MIB(1) - 4096), 8192), -EFAULT);
	assert_int_equal(mem_discard(&m, GPA(MIB(1)), 4096), -EFAULT);
	assert_int_equal(mem_discard(&m, GPA(0), UINT64_MAX - 4095), -EFAULT);
	assert_int_equal(mem_discard(&m, GPA(0), 0), 0);
	mem_finish(&m);
}

static void finish_accepts_zeroed_and_finished(void **state)
{
	struct mem m = { 0 };

	(void)state;
	mem_finish(&m);
	init(&m, MIB(1));
	mem_finish(&m);
	mem_finish(&m);
	assert_false(mem_contains(&m, GPA(0), 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_mib_below_the_hole),
		cmocka_unit_test(exactly_up_to_the_hole),
		cmocka_unit_test(one_mib_beyond_the_hole),
		cmocka_unit_test(four_gib),
		cmocka_unit_test(eight_gib),
		cmocka_unit_test(sizes_out_of_range_are_refused_by_name),
		cmocka_unit_test(more_than_the_host_has_is_named),
		cmocka_unit_test(accesses_at_the_edges_are_whole_or_refused),
		cmocka_unit_test(a_refused_write_changes_nothing),
		cmocka_unit_test(ring_fields_are_aligned_and_little_endian),
		cmocka_unit_test(an_iovec_is_the_memory_itself_and_bounded),
		cmocka_unit_test(writes_are_marked_reads_are_not),
		cmocka_unit_test(starting_again_forgets_old_marks),
		cmocka_unit_test(the_high_region_has_its_own_bits),
		cmocka_unit_test(discarded_pages_read_zeros_and_are_dirty),
		cmocka_unit_test(discard_of_parts_of_pages_or_outside_is_refused),
		cmocka_unit_test(finish_accepts_zeroed_and_finished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
