/* SPDX-License-Identifier: Apache-2.0 */
/* Many layers' indexes loaded together against the same entries inserted layer by layer. */
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

enum { SECTORS = 200000, LAYERS = 9, ENTRIES = 3000, DATA_END = 1 << 22 };

/* An index in memory, as a file would have it. */
struct layer {
	uint8_t index[ENTRIES * LSMT_ENTRY_BYTES];
	uint64_t n;
	struct lsmt_sealed sealed;
	struct lsmt_bytes bytes;
	uint8_t buf[LSMT_LOAD_ROOM_MIN * LSMT_ENTRY_BYTES];
};

static ssize_t read_index(void *ctx, void *buf, size_t n, uint64_t off)
{
	memcpy(buf, ((const struct layer *)ctx)->index + off, n);
	return (ssize_t)n;
}

static void add(struct layer *l, uint64_t offset, uint32_t length, uint64_t moffset, bool zeroed)
{
	const struct lsmt_seg s = { .offset = offset, .length = length, .moffset = moffset, .zeroed = zeroed };

	assert_true(l->n < ENTRIES);
	lsmt_entry_encode(&s, l->index + l->n++ * LSMT_ENTRY_BYTES);
}

static void pad(struct layer *l)
{
	add(l, LSMT_OFFSET_MAX, 0, 0, false);
}

static int load(struct layer *l, unsigned n, struct lsmt_index *x, struct err *err)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h", "i" };
	struct lsmt_walk w[LAYERS];

	for (unsigned k = 0; k < n; k++) {
		l[k].sealed = (struct lsmt_sealed){ .data_end = DATA_END };
		l[k].sealed.head.virtual_size = SECTORS * 512ull;
		l[k].sealed.head.index_entries = l[k].n;
		l[k].bytes = (struct lsmt_bytes){ .read_at = read_index, .ctx = &l[k] };
		w[k] = (struct lsmt_walk){ .bytes = &l[k].bytes, .name = names[k], .layer = &l[k].sealed, .buf = l[k].buf,
					   .room = LSMT_LOAD_ROOM_MIN };
	}
	return lsmt_index_load(x, w, n, err);
}

static void insert_all(const struct layer *l, unsigned n, struct lsmt_index *x)
{
	for (unsigned k = 0; k < n; k++)
		for (uint64_t i = 0; i < l[k].n; i++) {
			struct lsmt_seg s;

			lsmt_entry_decode(l[k].index + i * LSMT_ENTRY_BYTES, &s);
			s.tag = (uint8_t)k;
			if (s.length)
				assert_int_equal(lsmt_index_insert(x, &s), 0);
		}
}

/* What is said of each sector; how it is cut into segments may differ. */
static void same(const struct lsmt_index *a, const struct lsmt_index *b)
{
	for (uint64_t at = 0; at < SECTORS;) {
		struct lsmt_seg s = { 0 }, t = { 0 };
		bool in_a = lsmt_index_lookup(a, at, SECTORS - at, &s), in_b = lsmt_index_lookup(b, at, SECTORS - at, &t);

		if (in_a != in_b || (in_a && (s.zeroed != t.zeroed || s.tag != t.tag || (!s.zeroed && s.moffset != t.moffset))))
			fail_msg("sector %u", (unsigned)at);
		at += MIN(s.length, t.length);
	}
}

static void check(struct layer *l, unsigned n)
{
	struct lsmt_index together, apart;
	struct err err = ERR_INIT;

	assert_int_equal(lsmt_index_init(&together, SECTORS, NULL), 0);
	assert_int_equal(lsmt_index_init(&apart, SECTORS, NULL), 0);
	if (load(l, n, &together, &err) < 0)
		fail_msg("%s", err.text);
	insert_all(l, n, &apart);
	same(&together, &apart);
	lsmt_index_finish(&together);
	lsmt_index_finish(&apart);
}

static int setup(void **state)
{
	*state = calloc(LAYERS, sizeof(struct layer));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* Segments and gaps up to `longest` and `gap`, from `at` on, until the layer is full or the disk ends. */
static void fill(struct layer *l, struct rnd *rnd, uint64_t at, uint32_t longest, uint32_t gap)
{
	for (;;) {
		uint32_t length = 1 + rnd_below(rnd, longest);

		at += rnd_below(rnd, gap);
		if (at + length > SECTORS || l->n + 2 > ENTRIES)
			return;
		add(l, at, length, 8 + rnd_below(rnd, DATA_END - longest - 8), rnd_below(rnd, 5) == 0);
		if (rnd_below(rnd, 50) == 0)
			pad(l);
		at += length;
	}
}

static void random_layers_load_as_if_one_by_one(void **state)
{
	static const uint32_t longest[] = { 8, 1, 300, 16000, 40 }, gap[] = { 100, 9, 3, 20000, 4000 };
	struct layer *l = *state;
	struct rnd rnd = { 5 };

	for (int round = 0; round < 40; round++) {
		unsigned n = 1 + rnd_below(&rnd, LAYERS);

		for (unsigned k = 0; k < n; k++) {
			l[k].n = 0;
			fill(&l[k], &rnd, rnd_below(&rnd, SECTORS), longest[rnd_below(&rnd, 5)], gap[rnd_below(&rnd, 5)]);
		}
		check(l, n);
	}
}

/* The upper one's only entry reaches over all of the lower one's, which are read much later. */
static void one_long_entry_hides_all_that_begins_behind_it(void **state)
{
	struct layer *l = *state;

	for (uint32_t i = 0; i < 2500; i++)
		add(&l[0], 10 + 4ull * i, 2, 8 + 7ull * i, false);
	add(&l[1], 0, LSMT_LENGTH_MAX, 100000, false);
	check(l, 2);
	l[1].n = 0;
	add(&l[1], 0, LSMT_LENGTH_MAX, 0, true);
	check(l, 2);
}

static void a_piece_that_was_cut_is_one_again(void **state)
{
	struct layer *l = *state;
	struct lsmt_index x;
	struct err err = ERR_INIT;

	for (uint32_t i = 0; i < 1000; i++)
		add(&l[0], 4ull * i, 2, 8 + 7ull * i, false);
	add(&l[1], 0, 10000, 8, false);
	assert_int_equal(lsmt_index_init(&x, SECTORS, NULL), 0);
	assert_int_equal(load(l, 2, &x, &err), 0);
	assert_int_equal(x.of_tag[0], 0);
	assert_int_equal(x.of_tag[1], 1);
	lsmt_index_finish(&x);
}

static void padding_alone_is_nothing(void **state)
{
	struct layer *l = *state;
	struct lsmt_index x;

	for (int i = 0; i < 2000; i++)
		pad(&l[0]);
	add(&l[1], 5, 5, 8, false);
	assert_int_equal(lsmt_index_init(&x, SECTORS, NULL), 0);
	assert_int_equal(load(l, 2, &x, NULL), 0);
	assert_int_equal(x.count, 1);
	lsmt_index_finish(&x);
}

static void what_is_out_of_order_is_refused_by_name_and_place(void **state)
{
	struct layer *l = *state;
	struct lsmt_index x;
	struct err err = ERR_INIT;

	for (uint32_t i = 0; i < 1000; i++)
		add(&l[1], 4ull * i, 2, 8, false);
	add(&l[1], 3990, 20, 8, false);
	add(&l[0], 100, 1, 8, false);
	assert_int_equal(lsmt_index_init(&x, SECTORS, NULL), 0);
	assert_int_equal(load(l, 2, &x, &err), -EINVAL);
	assert_non_null(strstr(err.text, "b: index entry 1000 "));
	lsmt_index_finish(&x);
}

static void an_index_without_room_fails(void **state)
{
	struct layer *l = *state;
	struct lsmt_index x;
	struct err err = ERR_INIT;

	for (unsigned k = 0; k < 3; k++)
		for (uint32_t i = 0; i < ENTRIES; i++)
			add(&l[k], 6ull * i + 2 * k, 1, 8 + 3ull * i, false);
	assert_int_equal(lsmt_index_init(&x, 10, NULL), 0);
	assert_int_equal(load(l, 3, &x, &err), -ENOMEM);
	lsmt_index_finish(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(random_layers_load_as_if_one_by_one, setup, teardown),
		cmocka_unit_test_setup_teardown(one_long_entry_hides_all_that_begins_behind_it, setup, teardown),
		cmocka_unit_test_setup_teardown(a_piece_that_was_cut_is_one_again, setup, teardown),
		cmocka_unit_test_setup_teardown(padding_alone_is_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_out_of_order_is_refused_by_name_and_place, setup, teardown),
		cmocka_unit_test_setup_teardown(an_index_without_room_fails, setup, teardown),
	};

	return cmocka_run_group_tests_name("lsmt_load", tests, NULL, NULL);
}
