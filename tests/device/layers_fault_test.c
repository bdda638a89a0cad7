/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend when its files cannot be written: nothing of it is mistaken for success. */
#include "tests/device/layers_fake.h"

static void a_failed_sync_fails_every_flush_after_it(void **state)
{
	struct crash *c = crash_start(5);
	uint8_t sector[512] = { 3 };
	struct waited w;

	(void)state;
	for (int i = 0; i < 2; i++) {
		waited_submit(c->b, &w, BLOCK_WRITE, 0, sector, 512, 0);
		block_drain(c->b);
		assert_int_equal(w.result, 0);
		waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
		block_kick(c->b);
		if (i == 0) {
			assert_int_equal(c->f->nwaiting, 1);
			c->f->nwaiting = 0;
			c->f->io.inflight = 0;
			c->f->waiting[0]->done(c->f->waiting[0], -EIO);
		}
		block_drain(c->b);
		assert_true(w.done);
		assert_int_equal(w.result, -EIO);
	}
	assert_int_equal(file_size(c->index[0]), LSMT_BLOCK);
	crash_end(c);
}

static void a_durable_append_that_failed_fails_every_flush_after_it(void **state)
{
	struct crash *c = crash_start(8);
	uint8_t sector[512] = { 3 };
	struct waited w;

	(void)state;
	for (int i = 0; i < 2; i++) {
		waited_submit(c->b, &w, BLOCK_WRITE, 0, sector, 512, 0);
		block_drain(c->b);
		assert_int_equal(w.result, 0);
		waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
		block_kick(c->b);
		if (i == 0) {
			fake_step(c->f); /* the data */
			assert_int_equal(c->f->nwaiting, 1);
			assert_int_equal(c->f->waiting[0]->op, BLOCK_WRITE);
			assert_true(c->f->waiting[0]->flags & BLOCK_F_DURABLE);
			c->f->nwaiting = 0;
			c->f->io.inflight = 0;
			c->f->waiting[0]->done(c->f->waiting[0], -EIO);
		}
		block_drain(c->b);
		assert_true(w.done);
		assert_int_equal(w.result, -EIO);
	}
	crash_end(c);
}

/* Three writes that went to the file as one, which found no room: two of them have some. */
static void writes_that_fail_together_are_tried_apart(void **state)
{
	enum { N = 3 };
	struct crash *c = crash_start(9);
	static uint8_t block[N][4096], back[N * 4096];
	struct waited w[N], r;

	(void)state;
	for (int i = 0; i < N; i++) {
		memset(block[i], i + 1, 4096);
		waited_submit(c->b, &w[i], BLOCK_WRITE, (uint64_t)(N - 1 - i) * 4096, block[i], 4096, 0);
	}
	block_kick(c->b);
	for (int i = 0; i < N + 1; i++) {
		struct block_request *q = c->f->waiting[0];

		assert_int_equal(c->f->nwaiting, 1);
		assert_int_equal(q->len, i ? 4096 : N * 4096);
		if (i == 1 || i == 3) {
			fake_step(c->f);
			continue;
		}
		c->f->nwaiting = 0;
		c->f->io.inflight = 0;
		q->done(q, -ENOSPC);
	}
	for (int i = 0; i < N; i++) {
		assert_true(w[i].done);
		assert_int_equal(w[i].result, i == 1 ? -ENOSPC : 0);
	}
	waited_submit(c->b, &r, BLOCK_READ, 0, back, N * 4096, 0);
	block_drain(c->b);
	assert_int_equal(r.result, 0);
	assert_memory_equal(back + (size_t)2 * 4096, block[0], 4096);
	assert_int_equal(back[4096], 0);
	assert_memory_equal(back, block[2], 4096);
	crash_end(c);
}

static void a_full_file_system_fails_writes_and_the_rest_goes_on(void **state)
{
	struct crash *c = crash_start(6);
	uint8_t sector[512] = { 3 }, back[512];
	struct waited w;

	(void)state;
	waited_submit(c->b, &w, BLOCK_WRITE, 512, sector, 512, 0);
	block_kick(c->b);
	c->f->nwaiting = 0;
	c->f->io.inflight = 0;
	c->f->waiting[0]->done(c->f->waiting[0], -ENOSPC);
	assert_true(w.done);
	assert_int_equal(w.result, -ENOSPC);
	assert_int_equal(layers_of(c->b)->cursor, LSMT_HEADER_SECTORS); /* its place is used again */
	waited_submit(c->b, &w, BLOCK_WRITE, 1024, sector, 512, 0);
	block_drain(c->b);
	assert_int_equal(w.result, 0);
	/* The same for the index file: the flush fails, the next one has it all. */
	waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
	block_kick(c->b);
	fake_step(c->f); /* the data */
	assert_int_equal(c->f->nwaiting, 1);
	assert_int_equal(c->f->waiting[0]->op, BLOCK_WRITE);
	c->f->nwaiting = 0;
	c->f->io.inflight = 0;
	c->f->waiting[0]->done(c->f->waiting[0], -ENOSPC);
	assert_true(w.done);
	assert_int_equal(w.result, -ENOSPC);
	waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
	block_drain(c->b);
	assert_int_equal(w.result, 0);
	assert_int_equal(file_size(c->index[0]), LSMT_BLOCK + LSMT_ENTRY_BYTES);
	waited_submit(c->b, &w, BLOCK_READ, 512, back, 512, 0);
	block_drain(c->b);
	assert_int_equal(back[0], 0);
	crash_end(c);
}

/* Fill the ring while its file cannot be written: writes fail instead of waiting for ever. */
static void a_log_that_cannot_be_written_makes_writes_fail(void **state)
{
	struct crash *c = crash_start(7);
	struct waited w = { .done = false };
	int failed = 0;

	(void)state;
	for (int i = 0; i < 2 * LAYERS_LOG_ENTRIES; i++) {
		struct waited one;
		uint8_t sector[512] = { 1 };

		/* Zeroes need no data; one mapped sector keeps them from being holes. */
		waited_submit(c->b, &one, i ? BLOCK_WRITE_ZEROES : BLOCK_WRITE, 0, i ? NULL : sector, 512, 0);
		block_kick(c->b);
		while (c->f->nwaiting) {
			struct block_request *r = c->f->waiting[--c->f->nwaiting];

			c->f->io.inflight--;
			r->done(r, r->op == BLOCK_WRITE && r->file >= LAYERS_FILE_INDEX0 ? -ENOSPC : 0);
			block_kick(c->b);
		}
		assert_true(one.done);
		assert_true(one.result == 0 || one.result == -ENOSPC);
		failed += one.result != 0;
	}
	assert_true(failed > 0);
	waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
	block_drain(c->b); /* it can be written again */
	assert_int_equal(w.result, 0);
	assert_int_equal(file_size(c->index[0]), LSMT_BLOCK + (uint64_t)LAYERS_LOG_ENTRIES * LSMT_ENTRY_BYTES);
	crash_end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_sync_fails_every_flush_after_it),
		cmocka_unit_test(a_durable_append_that_failed_fails_every_flush_after_it),
		cmocka_unit_test(writes_that_fail_together_are_tried_apart),
		cmocka_unit_test(a_full_file_system_fails_writes_and_the_rest_goes_on),
		cmocka_unit_test(a_log_that_cannot_be_written_makes_writes_fail),
	};

	return cmocka_run_group_tests_name("layers_fault", tests, NULL, NULL);
}
