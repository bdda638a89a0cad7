/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend: the top's log is written anew when it is long, and what a top takes stays bounded. */
#include "tests/device/layers_fixture.h"

enum { SIZE = 16 << 20, BLOCKS = SIZE / 4096, MB = 1 << 20, BATCH = 250 };

struct fixture {
	struct block *b;
	int data, index;
	uint32_t version[BLOCKS]; /* what was written last */
	uint8_t *buf;             /* BATCH blocks */
	struct waited *w;
	struct rnd rnd;
};

static void open_top(struct fixture *f, const char *aio)
{
	struct block_stack s = { .base_fd = -1, .top_data_fd = dup(f->data), .top_index_fd = dup(f->index) };

	f->b = disk_open(&s, aio, NULL);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->rnd = (struct rnd){ 17 };
	f->buf = calloc(BATCH, 4096);
	f->w = calloc(BATCH, sizeof(*f->w));
	pair_new(&f->data, &f->index, SIZE);
	open_top(f, *state);
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
	free(f->w);
	free(f);
	return 0;
}

static uint64_t taken(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void finish(struct fixture *f, int n)
{
	block_kick(f->b);
	for (int i = 0; i < n;) {
		struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };

		if (f->w[i].done) {
			assert_int_equal(f->w[i++].result, 0);
			continue;
		}
		assert_int_equal(poll(&p, 1, 60000), 1);
		block_complete(f->b);
	}
}

/* BATCH blocks at random, all in flight at once, and a flush behind them. No block twice: what wins would be open. */
static void overwrite(struct fixture *f)
{
	uint32_t at = rnd_below(&f->rnd, BLOCKS), step = 2 * rnd_below(&f->rnd, BLOCKS / 2) + 1;

	for (int i = 0; i < BATCH; i++) {
		uint32_t block = at = (at + step) % BLOCKS; /* an odd step meets each block once */
		uint8_t *p = f->buf + i * 4096;

		f->version[block]++;
		memcpy(p, &block, 4);
		memcpy(p + 4, &f->version[block], 4);
		waited_submit(f->b, &f->w[i], BLOCK_WRITE, block * 4096ull, p, 4096, 0);
	}
	finish(f, BATCH);
	waited_submit(f->b, &f->w[0], BLOCK_FLUSH, 0, NULL, 0, 0);
	finish(f, 1);
}

static void holds_the_newest(struct fixture *f)
{
	uint8_t *got = malloc(MB);

	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *p = got + i * 4096ull % MB;
		uint32_t is[2];

		if (p == got)
			assert_int_equal(disk_do(f->b, BLOCK_READ, i * 4096ull, got, MB, 0), 0);
		memcpy(is, p, 8);
		if (f->version[i] != is[1] || (is[1] && is[0] != i))
			fail_msg("block %u: version %u of block %u, not %u", i, is[1], is[0], f->version[i]);
	}
	free(got);
}

/* As a monitor's end would leave it: opened from a copy, while the disk goes on. */
static void a_copy_holds_the_newest(struct fixture *f)
{
	struct fixture copy = *f;

	copy.data = file_copy(f->data);
	copy.index = file_copy(f->index);
	open_top(&copy, "threads");
	assert_string_equal(copy.b->note, "");
	holds_the_newest(&copy);
	block_close(copy.b);
	close(copy.data);
	close(copy.index);
}

static void a_million_overwrites_take_no_more_than_some(void **state)
{
	struct fixture *f = *state;
	uint64_t data = 0, index = 0, switches = 0;
	bool second = false;

	for (int i = 0; i < 1000000 / BATCH; i++) {
		overwrite(f);
		data = MAX(data, taken(f->data));
		index = MAX(index, taken(f->index));
		if (layers_of(f->b)->log[0].second != second) {
			second = !second;
			switches++;
		}
	}
	assert_true(switches >= 8);
	/* The disk, the pool, what is in flight and not in the log. */
	assert_true(data <= SIZE + 16 * MB + 8 * MB);
	/* Two for each of the top's, the floor, what came while that was copied; and the copy. */
	assert_true(index <= (2 * BLOCKS + LAYERS_LOG_FLOOR + 4096) * 16 + (2 * BLOCKS + 4096) * 16);
	holds_the_newest(f);
	a_copy_holds_the_newest(f);
}

static void it_opens_from_either_place(void **state)
{
	struct fixture *f = *state;
	int seen[2] = { 0, 0 };

	for (int i = 0; i < 200; i++) {
		struct block_layers *l = layers_of(f->b);

		l->compact.floor = 500;
		l->compact.slice_max = 100;
		l->compact.times = 0;
		overwrite(f);
		seen[l->log[0].second]++;
		if (i % 20)
			continue;
		a_copy_holds_the_newest(f);
		if (i % 40 == 0) {
			block_close(f->b);
			open_top(f, "threads");
			assert_string_equal(f->b->note, "");
			holds_the_newest(f);
		}
	}
	assert_true(seen[0] > 10 && seen[1] > 10);
}

static void a_pair_sealed_while_it_is_copied_is_whole(void **state)
{
	struct fixture *f = *state;
	int tested = 0;

	for (int i = 0; i < 300 && tested < 3; i++) {
		struct block_layers *l = layers_of(f->b);
		int data, index, layer[1];
		struct block_sealing *sealing = NULL;
		struct err err = ERR_INIT;

		l->compact.floor = 500;
		l->compact.slice_max = 20;
		overwrite(f);
		if (l->compact.state != LAYERS_COMPACT_COPY)
			continue;
		tested++;
		block_drain(f->b);
		pair_new(&data, &index, SIZE);
		if (block_layers_seal(f->b, dup(data), dup(index), &sealing, &err) < 0)
			fail_msg("%s", err.text);
		block_sealing_free(sealing); /* the monitor ends before that is done */
		overwrite(f);
		block_close(f->b);
		if (lsmt_seal_pair(f->data, f->index, "pair", &err) < 0)
			fail_msg("%s", err.text);
		layer[0] = f->data;
		close(f->index);
		f->data = data;
		f->index = index;
		struct block_stack s = { .base_fd = -1, .layer_fd = layer, .nlayers = 1, .top_data_fd = dup(data),
					 .top_index_fd = dup(index) };
		f->b = disk_open(&s, "threads", NULL);
		holds_the_newest(f);
		if (tested < 3) { /* on with a pair that has all of it */
			memset(f->version, 0, sizeof(f->version));
			block_close(f->b);
			close(data);
			close(index);
			pair_new(&f->data, &f->index, SIZE);
			open_top(f, "threads");
		}
	}
	assert_int_equal(tested, 3);
}

#define ENGINE_TEST(fn, aio) { #fn " (" aio ")", fn, setup, teardown, (void *)(aio) }

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(a_million_overwrites_take_no_more_than_some, "io_uring"),
		ENGINE_TEST(it_opens_from_either_place, "io_uring"),
		ENGINE_TEST(it_opens_from_either_place, "threads"),
		ENGINE_TEST(a_pair_sealed_while_it_is_copied_is_whole, "threads"),
	};

	return cmocka_run_group_tests_name("layers_compact", tests, NULL, NULL);
}
