/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend: how much of the host's disk a top takes, and that nothing in use is ever given back. */
#include "tests/device/layers_fixture.h"

enum { MB = 1 << 20, SIZE = 32 * MB }; /* twice what is kept to be written again (POOL_BLOCKS) */

struct fixture {
	const char *aio;
	struct block *b;
	int data, index;
	uint8_t *buf;
	struct rnd rnd;
};

static void open_top(struct fixture *f)
{
	struct block_stack s = { .base_fd = -1, .top_data_fd = dup(f->data), .top_index_fd = dup(f->index) };

	f->b = disk_open(&s, f->aio, NULL);
}

static int setup(void **state)
{
	static uint8_t bytes[SIZE]; /* the same for all */
	static struct rnd after = { 3 };
	struct fixture *f = calloc(1, sizeof(*f));

	if (after.s == 3)
		fill_random(&after, bytes, SIZE);
	f->aio = *state;
	f->rnd = after;
	f->buf = malloc(SIZE);
	memcpy(f->buf, bytes, SIZE);
	pair_new(&f->data, &f->index, SIZE);
	open_top(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	block_close(f->b);
	close(f->data);
	close(f->index);
	free(f->buf);
	free(f);
	return 0;
}

static uint64_t taken(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void flush(struct fixture *f)
{
	assert_int_equal(disk_do(f->b, BLOCK_FLUSH, 0, NULL, 0, 0), 0);
}

static void write_at(struct fixture *f, uint64_t off, const uint8_t *p, uint64_t len)
{
	assert_int_equal(disk_do(f->b, BLOCK_WRITE, off, (void *)p, len, 0), 0);
}

/* Flush until all that fell free has found its place. */
static void settle(struct fixture *f)
{
	const struct layers_space *s = &layers_of(f->b)->space;

	do {
		flush(f);
		block_kick(f->b);
		for (int i = 0; i < LAYERS_PUNCHES; i++)
			while (s->punch[i].busy) {
				struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };

				assert_int_equal(poll(&p, 1, 60000), 1);
				block_complete(f->b);
			}
	} while (s->head != s->tail);
}

/* Each block of the file is in use by the index, or free in one place. */
static void account(struct fixture *f)
{
	const struct block_layers *l = layers_of(f->b);
	uint64_t n = l->cursor / LAYERS_BLOCK;
	uint8_t *owner = calloc(n + 1, 1);
	const struct layers_pool *pools[] = { &l->space.pool, &l->space.holes };
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg g;

	while (lsmt_index_next(&l->index, &c, &g))
		if (!g.zeroed && g.tag == l->top)
			for (uint64_t b = g.moffset / 8; b <= (g.moffset + g.length - 1) / 8; b++)
				owner[b] = 1;
	for (int k = 0; k < 2; k++)
		for (uint32_t i = 0; i < pools[k]->n; i++)
			for (uint64_t b = pools[k]->e[i].block; b < pools[k]->e[i].block + pools[k]->e[i].n; b++)
				if (b >= n || owner[b]++)
					fail_msg("block %u of %u is free and used", (unsigned)b, (unsigned)n);
	for (uint64_t b = 1; b < n; b++)
		if (!owner[b])
			fail_msg("block %u of %u is lost", (unsigned)b, (unsigned)n);
	free(owner);
}

static void overwriting_with_flushes_takes_no_more_space(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 200; i++) {
		write_at(f, MB, f->buf + i * 4096, MB);
		flush(f);
		assert_true(taken(f->data) <= 4 * MB);
	}
	assert_true(file_size(f->data) <= 4 * MB);
	assert_int_equal(disk_do(f->b, BLOCK_READ, MB, f->buf, MB, 0), 0);
	settle(f);
	account(f);
}

/* Nothing is asked for; what is not in the log yet is bounded all the same. */
static void overwriting_without_flushes_is_bounded(void **state)
{
	struct fixture *f = *state;
	uint64_t most = 0;

	for (int i = 0; i < 400; i++) {
		write_at(f, 0, f->buf + (i % 64) * 4096, MB);
		most = MAX(most, taken(f->data));
	}
	assert_true(most < 160ull * MB);
	settle(f);
	assert_true(taken(f->data) <= 18 * MB);
	account(f);
}

static void sectors_written_one_by_one_are_bounded_too(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 20000; i++) {
		write_at(f, 512ull * rnd_below(&f->rnd, 16), f->buf + i * 512, 512);
		if (i % 50 == 0)
			flush(f);
	}
	assert_true(taken(f->data) <= MB);
	settle(f);
	account(f);
}

static void a_block_lives_as_long_as_its_last_sector(void **state)
{
	struct fixture *f = *state;
	uint8_t got[4096];

	write_at(f, 4096, f->buf, 4096);
	for (int k = 0; k < 8; k++) {
		assert_int_equal(disk_do(f->b, BLOCK_READ, 4096, got, 4096, 0), 0);
		assert_memory_equal(got + k * 512, f->buf + k * 512, 4096 - k * 512);
		assert_int_equal(layers_of(f->b)->space.pool.blocks, 0);
		assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 4096 + k * 512, NULL, 512, 0), 0);
		settle(f);
	}
	assert_int_equal(layers_of(f->b)->space.pool.blocks, 1);
	/* One request displaces several pieces of one block: it falls free once. */
	write_at(f, 4096, f->buf, 4096);
	write_at(f, 4096 + 512, f->buf, 512);
	write_at(f, 4096 + 2048, f->buf, 512);
	assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 0, NULL, 16384, 0), 0);
	settle(f);
	assert_int_equal(layers_of(f->b)->space.pool.blocks, 3);
	account(f);
}

static void discard_gives_space_back(void **state)
{
	struct fixture *f = *state;

	for (uint64_t at = 0; at < SIZE; at += MB)
		write_at(f, at, f->buf + at, MB);
	flush(f);
	assert_true(taken(f->data) >= SIZE);
	assert_int_equal(disk_do(f->b, BLOCK_DISCARD, MB, NULL, SIZE - 2 * MB, 0), 0);
	settle(f);
	assert_true(taken(f->data) <= 20 * MB);
	memset(f->buf + MB, 0, SIZE - 2 * MB);
	disk_holds(f->b, f->buf);
	account(f);
	/* What was punched is written again: the file grows no longer. */
	fill_random(&f->rnd, f->buf, SIZE);
	for (uint64_t at = 0; at < SIZE; at += MB)
		write_at(f, at, f->buf + at, MB);
	settle(f);
	disk_holds(f->b, f->buf);
	account(f);
	assert_true(file_size(f->data) <= SIZE + 3 * MB);
}

/* Random requests of all lengths in a small part of the disk, with pools of all sizes. */
static void random_requests_lose_no_block(void **state)
{
	static const uint64_t pools[] = { 0, 5, 100, 4096 };
	struct fixture *f = *state;
	uint32_t area = 2 * MB / 512;
	uint8_t *want = calloc(1, SIZE);

	for (size_t k = 0; k < ARRAY_SIZE(pools); k++) {
		layers_of(f->b)->space.pool.max = pools[k];
		for (int i = 0; i < 1500; i++) {
			uint32_t n = 1 + rnd_below(&f->rnd, rnd_below(&f->rnd, 4) ? 20 : 300);
			uint64_t at = rnd_below(&f->rnd, area - n) * 512ull;
			const uint8_t *p = f->buf + rnd_below(&f->rnd, 100000) * 8ull;

			if (rnd_below(&f->rnd, 5) == 0) {
				assert_int_equal(disk_do(f->b, BLOCK_DISCARD, at, NULL, n * 512, 0), 0);
				memset(want + at, 0, n * 512);
			} else {
				write_at(f, at, p, n * 512);
				memcpy(want + at, p, n * 512);
			}
			if (rnd_below(&f->rnd, 20) == 0)
				flush(f);
		}
		settle(f);
		account(f);
		assert_true(layers_of(f->b)->space.pool.blocks <= MAX(pools[k], (uint64_t)4096));
		disk_holds(f->b, want);
	}
	assert_true(file_size(f->data) < 40 * MB);
	free(want);
}

/* Many in flight at once. */
static void requests_in_flight_keep_their_space(void **state)
{
	enum { BATCH = 200 };
	struct fixture *f = *state;
	struct waited *w = calloc(BATCH, sizeof(*w));

	layers_of(f->b)->space.pool.max = 64;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < BATCH; i++) {
			uint64_t slot = (uint64_t)((i * 7 + round) % BATCH); /* each once */

			memset(f->buf + slot * 8192, round * 3 + i, 8192);
			waited_submit(f->b, &w[i], BLOCK_WRITE, slot * 8192, f->buf + slot * 8192, 8192,
				      i % 16 == 0 ? BLOCK_F_DURABLE : 0);
		}
		block_kick(f->b);
		block_drain(f->b);
		for (int i = 0; i < BATCH; i++)
			assert_true(w[i].done && w[i].result == 0);
	}
	memset(f->buf + BATCH * 8192, 0, SIZE - BATCH * 8192);
	disk_holds(f->b, f->buf);
	settle(f);
	account(f);
	free(w);
}

static void opening_again_gives_back_what_nothing_uses(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 12; i++)
		write_at(f, 0, f->buf + i * 512, MB);
	block_close(f->b);
	assert_true(taken(f->data) > 12 * MB);
	open_top(f);
	settle(f);
	assert_true(taken(f->data) <= 2 * MB);
	memmove(f->buf, f->buf + 11 * 512, MB);
	memset(f->buf + MB, 0, SIZE - MB);
	disk_holds(f->b, f->buf);
	/* It is not sure that the rest is laid out as ours is: it stays until the next time. */
	write_at(f, 0, f->buf, MB);
	settle(f);
	assert_true(taken(f->data) <= 3 * MB);
	block_close(f->b);
	open_top(f);
	settle(f);
	assert_true(taken(f->data) <= 2 * MB);
	disk_holds(f->b, f->buf);
}

/* Of another writer: data of several places in one block. */
static void blocks_shared_by_others_keep_all_they_hold(void **state)
{
	struct fixture *f = *state;
	const struct lsmt_seg s[] = { { .offset = 0, .length = 4, .moffset = 8 },
				      { .offset = 100, .length = 4, .moffset = 12 } };
	uint8_t entries[2 * LSMT_ENTRY_BYTES], got[2048];

	block_close(f->b);
	for (int i = 0; i < 2; i++)
		lsmt_entry_encode(&s[i], entries + i * LSMT_ENTRY_BYTES);
	assert_int_equal(fd_pwrite_full(f->data, f->buf, 4096, LSMT_BLOCK), 0);
	assert_int_equal(fd_pwrite_full(f->index, entries, sizeof(entries), LSMT_BLOCK), 0);
	open_top(f);
	layers_of(f->b)->space.pool.max = 0;
	write_at(f, 0, f->buf + MB, 4096);
	settle(f);
	for (int i = 0; i < 50; i++)
		write_at(f, MB, f->buf, 4096);
	settle(f);
	assert_int_equal(disk_do(f->b, BLOCK_READ, 51200, got, 2048, 0), 0);
	assert_memory_equal(got, f->buf + 2048, 2048);
}

static void a_sealed_layer_is_as_small_as_what_it_holds(void **state)
{
	struct fixture *f = *state;
	int fds[1], data, index;
	struct block_stack s = { .base_fd = -1, .layer_fd = fds, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 };
	struct block_sealing *sealing = NULL;
	struct err err = ERR_INIT;
	struct block *copy;
	uint64_t before;

	for (int i = 0; i < 12; i++)
		write_at(f, 0, f->buf + i * 512, MB);
	settle(f);
	block_drain(f->b);
	pair_new(&data, &index, SIZE);
	assert_int_equal(block_layers_seal(f->b, dup(data), dup(index), &sealing, &err), 0);
	if (block_sealing_finish(sealing, &err) < 0)
		fail_msg("%s", err.text);
	block_sealing_free(sealing);
	before = taken(f->data);
	assert_true(before <= 2 * MB);
	memmove(f->buf, f->buf + 11 * 512, MB);
	memset(f->buf + MB, 0, SIZE - MB);
	disk_holds(f->b, f->buf);
	/* The layer stays as it is, whatever the new top does. */
	fds[0] = dup(f->data);
	copy = disk_open(&s, f->aio, NULL);
	assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 0, NULL, SIZE, 0), 0);
	settle(f);
	assert_int_equal(taken(f->data), before);
	disk_holds(copy, f->buf);
	block_close(copy);
	close(f->data);
	close(f->index);
	f->data = data;
	f->index = index;
}

static void without_holes_space_is_used_again_at_least(void **state)
{
	struct fixture *f = *state;

	layers_of(f->b)->space.can_punch = false;
	for (int i = 0; i < 3; i++) {
		for (uint64_t at = 0; at < SIZE; at += MB)
			write_at(f, at, f->buf + at, MB);
		assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 0, NULL, SIZE, 0), 0);
		settle(f);
		account(f);
	}
	assert_true(file_size(f->data) <= SIZE + 2 * MB);
}

#define ENGINE_TEST(fn, aio) { #fn " (" aio ")", fn, setup, teardown, (void *)(aio) }
#define BOTH(fn) ENGINE_TEST(fn, "io_uring"), ENGINE_TEST(fn, "threads")

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(overwriting_with_flushes_takes_no_more_space),
		BOTH(overwriting_without_flushes_is_bounded),
		ENGINE_TEST(sectors_written_one_by_one_are_bounded_too, "io_uring"),
		BOTH(a_block_lives_as_long_as_its_last_sector),
		BOTH(discard_gives_space_back),
		BOTH(random_requests_lose_no_block),
		BOTH(requests_in_flight_keep_their_space),
		BOTH(opening_again_gives_back_what_nothing_uses),
		BOTH(blocks_shared_by_others_keep_all_they_hold),
		BOTH(a_sealed_layer_is_as_small_as_what_it_holds),
		ENGINE_TEST(without_holes_space_is_used_again_at_least, "threads"),
	};

	return cmocka_run_group_tests_name("layers_space", tests, NULL, NULL);
}
