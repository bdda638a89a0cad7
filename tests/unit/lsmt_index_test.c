/* SPDX-License-Identifier: Apache-2.0 */
/* The merged index of layers against a plain array of sectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "devices/backend/lsmt_index.h"
#include "lib/util.h"
#include "tests/harness/machine.h"

enum { SECTORS = 20000 };

struct model {
	struct lsmt_index x;
	uint64_t at[SECTORS]; /* 0: hole; else bit 63 set, tag << 56 (without bit 63), zeroed: 1, or moffset + 2 */
	struct rnd rnd;
};

static uint64_t code(uint8_t tag, bool zeroed, uint64_t moffset)
{
	return 1ull << 63 | (uint64_t)(tag & 0x7f) << 56 | (zeroed ? 1 : moffset + 2);
}

static void put(struct model *m, uint64_t offset, uint32_t n, uint64_t moffset, bool zeroed, uint8_t tag)
{
	struct lsmt_seg s = { .offset = offset, .length = n, .moffset = moffset, .zeroed = zeroed, .tag = tag };

	assert_int_equal(lsmt_index_insert(&m->x, &s), 0);
	for (uint32_t i = 0; i < n; i++)
		m->at[offset + i] = code(tag, zeroed, moffset + i);
}

static void compare(struct model *m)
{
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg s;
	uint64_t pos = 0, count = 0, end = 0;

	while (pos < SECTORS) {
		bool mapped = lsmt_index_lookup(&m->x, pos, SECTORS - pos, &s);

		assert_int_equal(s.offset, pos);
		assert_true(s.length > 0 && s.length <= SECTORS - pos);
		for (uint32_t i = 0; i < s.length; i++)
			if (m->at[pos + i] != (mapped ? code(s.tag, s.zeroed, s.moffset + i) : 0))
				fail_msg("sector %u of a piece at %u", i, (unsigned)pos);
		pos += s.length;
	}
	while (lsmt_index_next(&m->x, &c, &s)) {
		assert_true(s.length > 0 && s.length <= LSMT_LENGTH_MAX);
		assert_true(s.offset >= end);
		end = s.offset + s.length;
		count++;
	}
	assert_int_equal(count, m->x.count);
	for (uint32_t tag = 0, sum = 0; tag < 256; tag++) {
		sum += m->x.of_tag[tag];
		assert_true(tag < 255 || sum == count);
	}
	for (uint32_t d = 0; d < m->x.ndir; d++) {
		assert_true(m->x.dir[d].chunk->n > 0 && m->x.dir[d].chunk->n <= LSMT_CHUNK_SEGS);
		assert_int_equal(m->x.dir[d].first, m->x.dir[d].chunk->seg[0].low & LSMT_OFFSET_MAX);
	}
}

static int setup(void **state)
{
	struct model *m = calloc(1, sizeof(*m));

	m->rnd = (struct rnd){ 7 };
	assert_int_equal(lsmt_index_init(&m->x, SECTORS, NULL), 0);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	lsmt_index_finish(&((struct model *)*state)->x);
	free(*state);
	return 0;
}

static void an_empty_index_is_one_hole(void **state)
{
	struct model *m = *state;
	struct lsmt_seg s;

	compare(m);
	assert_false(lsmt_index_lookup(&m->x, 5, 1ull << 40, &s));
	assert_int_equal(s.length, UINT32_MAX);
}

static void random_segments_match_the_model(void **state)
{
	struct model *m = *state;
	static const uint32_t longest[] = { 2, 8, 8, 64, 3000 };

	for (int i = 0; i < 60000; i++) {
		uint32_t n = 1 + rnd_below(&m->rnd, longest[rnd_below(&m->rnd, ARRAY_SIZE(longest) - (i % 7 != 0))]);
		uint32_t offset = rnd_below(&m->rnd, SECTORS - n);

		put(m, offset, n, 8 + rnd_below(&m->rnd, 1 << 20), rnd_below(&m->rnd, 4) == 0,
		    (uint8_t)rnd_below(&m->rnd, 3));
		if (i % 997 == 0)
			compare(m);
	}
	compare(m);
}

static void every_sector_apart_then_one_over_all(void **state)
{
	struct model *m = *state;

	for (uint32_t i = 0; i < SECTORS; i++) { /* a permutation: 7919 is prime to SECTORS */
		uint32_t at = (uint32_t)((uint64_t)i * 7919 % SECTORS);

		put(m, at, 1, 8 + 2 * (uint64_t)at, false, 1);
	}
	assert_int_equal(m->x.count, SECTORS);
	compare(m);
	put(m, 1, 16000, 100000, false, 2);
	compare(m);
	assert_int_equal(m->x.count, SECTORS - 16000 + 1);
	put(m, 0, 16383, 0, true, 3);
	put(m, 16383, SECTORS - 16383, 0, true, 3);
	compare(m);
	assert_int_equal(m->x.count, 2);
	assert_true(m->x.ndir <= 2);
}

static void what_continues_is_joined_up_to_the_longest_entry(void **state)
{
	struct model *m = *state;

	for (uint32_t i = 0; i < 17000; i += 8)
		put(m, i, 8, 8 + i, false, 0);
	compare(m);
	assert_int_equal(m->x.count, 2);
	put(m, 18000, 8, 50008, false, 0); /* both sides of a gap, then the gap */
	put(m, 18016, 8, 50024, false, 0);
	assert_int_equal(m->x.count, 4);
	put(m, 18008, 8, 50016, false, 0);
	assert_int_equal(m->x.count, 3);
	put(m, 18024, 8, 50032, false, 1); /* another layer's */
	put(m, 18032, 8, 50048, false, 1); /* not the next place */
	assert_int_equal(m->x.count, 5);
	compare(m);
}

static void one_layer_is_extracted_in_order_and_without_its_tag(void **state)
{
	struct model *m = *state;
	uint8_t out[4 * LSMT_ENTRY_BYTES];
	struct lsmt_seg s;

	put(m, 100, 50, 1000, false, 4);
	put(m, 120, 5, 2000, false, 5);
	put(m, 10, 2, 0, true, 4);
	assert_int_equal(lsmt_index_extract(&m->x, 4, NULL, 0), 3);
	assert_int_equal(lsmt_index_extract(&m->x, 4, out, 4), 3);
	lsmt_entry_decode(out, &s);
	assert_true(s.zeroed && s.offset == 10 && s.length == 2 && s.tag == 0);
	lsmt_entry_decode(out + LSMT_ENTRY_BYTES, &s);
	assert_true(!s.zeroed && s.offset == 100 && s.length == 20 && s.moffset == 1000);
	lsmt_entry_decode(out + 2 * LSMT_ENTRY_BYTES, &s);
	assert_true(s.offset == 125 && s.length == 25 && s.moffset == 1025);
	assert_int_equal(lsmt_index_extract(&m->x, 6, out, 4), 0);
}

/* In pieces the same comes out as at once, wherever they are cut. */
static void slices_make_up_what_is_extracted(void **state)
{
	struct model *m = *state;
	uint8_t *all = malloc(SECTORS * LSMT_ENTRY_BYTES), *pieces = malloc(SECTORS * LSMT_ENTRY_BYTES);

	for (int i = 0; i < 4000; i++)
		put(m, rnd_below(&m->rnd, SECTORS - 5), 1 + rnd_below(&m->rnd, 5), 8 + 7ull * (uint32_t)i, i % 9 == 0,
		    (uint8_t)(i % 2));
	for (uint32_t max = 1; max < 3000; max = max * 3 + 1) {
		uint64_t offset = 0, n = lsmt_index_extract(&m->x, 1, all, SECTORS), got = 0;

		assert_int_equal(n, m->x.of_tag[1]);
		while (offset != LSMT_OFFSET_MAX) {
			uint32_t k = lsmt_index_slice(&m->x, 1, &offset, pieces + got * LSMT_ENTRY_BYTES, max);

			assert_true(k <= max);
			got += k;
		}
		assert_int_equal(got, n);
		assert_memory_equal(all, pieces, n * LSMT_ENTRY_BYTES);
	}
	free(all);
	free(pieces);
}

static void a_full_index_refuses_and_stays_as_it_is(void **state)
{
	struct model *m = *state;
	struct lsmt_index x;
	uint64_t n = 0;
	struct lsmt_seg s = { .length = 1 }, got;

	(void)m;
	assert_int_equal(lsmt_index_init(&x, 1000, NULL), 0);
	for (int r = 0; r == 0; n += r == 0) {
		s.offset = n * 2;
		s.moffset = 8 + n * 3;
		r = lsmt_index_insert(&x, &s);
		if (r)
			assert_int_equal(r, -ENOMEM);
	}
	assert_true(n >= 1000 && n < 10000);
	assert_int_equal(x.count, n);
	for (uint64_t i = 0; i < n; i++) {
		assert_true(lsmt_index_lookup(&x, i * 2, 1, &got));
		assert_int_equal(got.moffset, 8 + i * 3);
	}
	lsmt_index_clear(&x);
	assert_int_equal(x.count, 0);
	assert_int_equal(lsmt_index_insert(&x, &s), 0);
	lsmt_index_finish(&x);
}

static void scattered_blocks_take_24_bytes_each_at_most(void **state)
{
	struct model *m = *state;
	struct lsmt_index x;
	uint64_t blocks = 1 << 20;

	assert_int_equal(lsmt_index_init(&x, blocks, NULL), 0);
	for (int i = 0; i < 300000; i++) {
		struct lsmt_seg s = {
		    .offset = rnd_below(&m->rnd, (uint32_t)blocks) * 8ull, .length = 8, .moffset = 8 + (uint64_t)i * 8};

		assert_int_equal(lsmt_index_insert(&x, &s), 0);
	}
	if (lsmt_index_memory(&x) > x.count * 24)
		fail_msg("%u bytes for %u segments", (unsigned)lsmt_index_memory(&x), (unsigned)x.count);
	lsmt_index_finish(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_empty_index_is_one_hole, setup, teardown),
		cmocka_unit_test_setup_teardown(random_segments_match_the_model, setup, teardown),
		cmocka_unit_test_setup_teardown(every_sector_apart_then_one_over_all, setup, teardown),
		cmocka_unit_test_setup_teardown(what_continues_is_joined_up_to_the_longest_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(one_layer_is_extracted_in_order_and_without_its_tag, setup, teardown),
		cmocka_unit_test_setup_teardown(slices_make_up_what_is_extracted, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_index_refuses_and_stays_as_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(scattered_blocks_take_24_bytes_each_at_most, setup, teardown),
	};

	return cmocka_run_group_tests_name("lsmt_index", tests, NULL, NULL);
}
