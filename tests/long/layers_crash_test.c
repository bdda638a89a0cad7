/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend when the power goes.
 *
 * An engine of our own carries out one request at a time, in a random order, and notes which writes a sync has
 * made safe. At any moment the files can be copied as a cut might leave them: with what was synced, and of the rest any
 * pieces of 512 bytes, in flight or complete; holes punched are there or not in the same way. The copy is opened; each sector must hold what it held when the
 * last flush that was answered began, or something newer; the index must be good to go on with.
 */
#include "tests/device/layers_fake.h"

/* It ends at once, and the next one opens what it finds in the page cache: what was synced counts as synced, no more. */
static void crash_kill(struct crash *c)
{
	struct block_layers *l = layers_of(c->b);

	for (int i = 0; i < c->nops; i++)
		if (!c->op[i].w.done)
			c->op[i].lost = c->op[i].w.done = true;
	memcpy(c->latest, c->floor, sizeof(c->latest));
	c->f->nwaiting = 0;
	l->attached = false; /* closing writes nothing */
	l->io = c->f->real;
	c->b->ops->close(c->b); /* and waits for nothing */
	crash_open(c);
	/* Opening has emptied the place that is not the log's, and synced that. */
	l = layers_of(c->b);
	note_hole(c->f, c->index[0], lsmt_log_start(!l->log[0].second), 1 << 16);
	c->f->event[c->f->nevents - 1].safe = true;
	c->f->holes--;
}

/* A cut copy of one file. The descriptors of the disk and of the test are of the same file, not the same numbers. */
static int cut_copy(struct crash *c, int fd)
{
	ino_t ino = inode(fd);
	uint8_t header[LSMT_BLOCK];
	struct memory_image copy[2] = { 0 }; /* the second: of an index file, from its second log on */
	int copy_fd;

	assert_int_equal(fd_pread_full(fd, header, sizeof(header), 0), sizeof(header));
	header[29] &= (uint8_t)~(LSMT_FLAG_LOG_SECOND >> 8); /* as it was made; what was written there later is in the events */
	image_write(&copy[0], header, sizeof(header), 0);
	for (int i = 0; i < c->f->nevents; i++) {
		const struct event *e = &c->f->event[i];
		uint32_t mood = rnd_below(&c->rnd, 4); /* lost, there, in pieces */

		if (e->ino != ino)
			continue;
		for (uint64_t at = 0; at < e->len;) {
			uint64_t n = MIN(e->len - at, 512 - (e->off + at) % 512);

			if (!e->safe && mood != 1 && (mood == 0 || rnd_below(&c->rnd, 2)))
				;
			else if (e->hole)
				image_punch(&copy[(e->off + at) / LSMT_LOG_SECOND], (e->off + at) % LSMT_LOG_SECOND, n);
			else
				image_write(&copy[(e->off + at) / LSMT_LOG_SECOND], e->bytes + at, n,
					    (e->off + at) % LSMT_LOG_SECOND);
			at += n;
		}
	}
	/* Of writes in flight, too. */
	for (int i = 0; i < c->f->nwaiting; i++) {
		const struct block_request *r = c->f->waiting[i];

		if (r->op != BLOCK_WRITE || inode(c->f->file[r->file]) != ino || rnd_below(&c->rnd, 2))
			continue;
		image_write(&copy[r->offset / LSMT_LOG_SECOND], r->iov[0].iov_base, MIN(r->iov[0].iov_len, (size_t)512),
			    r->offset % LSMT_LOG_SECOND);
	}
	copy_fd = image_to_file(&copy[0]);
	if (copy[1].size)
		assert_int_equal(fd_pwrite_full(copy_fd, copy[1].bytes, copy[1].size, (off_t)LSMT_LOG_SECOND), 0);
	free(copy[1].bytes);
	return copy_fd;
}

/* Sector s may hold this: what `floor` says, or something newer that covers it. */
static bool may_hold(const struct crash *c, int s, const uint8_t *got)
{
	static const uint8_t zeros[512];
	bool zero = memcmp(got, zeros, 512) == 0;

	if (c->floor[s] == 0 && zero)
		return true;
	for (int i = 0; i < c->nops; i++) {
		const struct block_request *r = &c->op[i].w.req;
		uint64_t at = (uint64_t)s * 512;

		if (r->op == BLOCK_FLUSH || at < r->offset || at >= r->offset + r->len)
			continue;
		if (c->op[i].rank && c->op[i].rank < c->floor[s])
			continue;
		if (r->op == BLOCK_WRITE ? memcmp(got, c->op[i].buf + (at - r->offset), 512) == 0 : zero)
			return true;
	}
	return false;
}

/* An engine of ours has no event. */
static int plain_do(struct block *b, enum block_op op, uint64_t off, void *p, uint64_t len, uint32_t flags)
{
	struct waited w;

	waited_submit(b, &w, op, off, p, len, flags);
	block_drain(b);
	assert_true(w.done);
	return w.result;
}

static void check_disk(struct crash *c, struct block *b)
{
	uint8_t *got = malloc(SIZE);

	assert_int_equal(plain_do(b, BLOCK_READ, 0, got, SIZE, 0), 0);
	for (int s = 0; s < SECTORS; s++)
		if (!may_hold(c, s, got + s * 512))
			fail_msg("sector %d, op %d: floor %d latest %d", s, c->nops, c->floor[s], c->latest[s]);
	free(got);
}

/* Cut here; what the next start makes of it. Lower pairs are sealed first. */
static void cut_and_check(struct crash *c)
{
	int fds[FILES_MAX];
	struct block_stack s = { .base_fd = -1, .layer_fd = fds };
	struct err err = ERR_INIT;
	uint8_t sector[512] = { 1 };
	struct block *b;

	for (int i = 0; i + 1 < c->npairs; i++) {
		int index = cut_copy(c, c->index[i]);

		fds[s.nlayers++] = cut_copy(c, c->data[i]);
		if (lsmt_seal_pair(fds[i], index, "pair", &err) < 0)
			fail_msg("%s", err.text);
		close(index);
	}
	s.top_data_fd = cut_copy(c, c->data[c->npairs - 1]);
	s.top_index_fd = cut_copy(c, c->index[c->npairs - 1]);
	int data = dup(s.top_data_fd), index = dup(s.top_index_fd);

	b = plain_open(&s);
	check_disk(c, b);
	/* It goes on, and nothing comes back to life: one entry more, and the same again. */
	assert_int_equal(plain_do(b, BLOCK_WRITE, 0, sector, 512, BLOCK_F_DURABLE), 0);
	uint8_t *before = malloc(SIZE), *after = malloc(SIZE);

	assert_int_equal(plain_do(b, BLOCK_READ, 0, before, SIZE, 0), 0);
	for (int i = 0; i < s.nlayers; i++)
		fds[i] = dup(fds[i]);
	block_close(b);
	s.top_data_fd = data;
	s.top_index_fd = index;
	b = plain_open(&s);
	assert_string_equal(b->note, "");
	assert_int_equal(plain_do(b, BLOCK_READ, 0, after, SIZE, 0), 0);
	assert_memory_equal(after, before, SIZE);
	assert_memory_equal(after, sector, 512);
	block_close(b);
	free(before);
	free(after);
}

static void submit_random(struct crash *c)
{
	struct op *o = &c->op[c->nops];
	uint32_t kind = rnd_below(&c->rnd, 10), n = 1 + rnd_below(&c->rnd, 24), s = rnd_below(&c->rnd, SECTORS - n);
	uint32_t flags = rnd_below(&c->rnd, 8) == 0 ? BLOCK_F_DURABLE : 0;

	/* No overlap with what is in flight: then completion gives the order. */
	for (int i = 0; i < c->nops && kind; i++) {
		const struct block_request *r = &c->op[i].w.req;

		if (!c->op[i].w.done && r->op != BLOCK_FLUSH && s * 512ull < r->offset + r->len &&
		    r->offset < (s + n) * 512ull)
			kind = 0;
	}
	c->nops++;
	if (kind == 0) {
		waited_submit(c->b, &o->w, BLOCK_FLUSH, 0, NULL, 0, 0);
	} else if (kind == 1) {
		waited_submit(c->b, &o->w, BLOCK_WRITE_ZEROES, s * 512ull, NULL, n * 512ull, flags);
	} else {
		o->buf = malloc(n * 512);
		fill_random(&c->rnd, o->buf, n * 512);
		waited_submit(c->b, &o->w, BLOCK_WRITE, s * 512ull, o->buf, n * 512ull, flags);
	}
}

/* What a flush promises: everything that was complete when it was submitted. */
struct promise {
	int op;
	int at[SECTORS];
};

/* Take note of completions since the last look. */
static void look(struct crash *c, struct promise *p, int *np)
{
	for (int i = 0; i < c->nops; i++) {
		const struct block_request *r = &c->op[i].w.req;

		if (!c->op[i].w.done || c->op[i].rank || c->op[i].lost)
			continue;
		assert_int_equal(c->op[i].w.result, 0);
		c->op[i].rank = ++c->nranks;
		for (uint64_t s = r->offset / 512; r->op != BLOCK_FLUSH && s < (r->offset + r->len) / 512; s++) {
			c->latest[s] = c->op[i].rank;
			if (r->flags & BLOCK_F_DURABLE)
				c->floor[s] = c->op[i].rank;
		}
	}
	for (int k = 0; k < *np;) {
		if (!c->op[p[k].op].w.done) {
			k++;
			continue;
		}
		for (int s = 0; s < SECTORS; s++)
			c->floor[s] = MAX(c->floor[s], p[k].at[s]);
		p[k] = p[--*np];
	}
}

static int unfinished(const struct crash *c)
{
	int n = 0;

	for (int i = 0; i < c->nops; i++)
		n += !c->op[i].w.done;
	return n;
}

/* What block_sealing_finish does first; the rest of it has a test of its own. */
static void punch_as_sealing(struct crash *c)
{
	struct layers_extent e[SECTORS];
	uint64_t n = layers_space_free(&layers_of(c->b)->space, NULL);

	assert_true(n <= SECTORS);
	layers_space_free(&layers_of(c->b)->space, e);
	for (uint64_t i = 0; i < n; i++)
		note_hole(c->f, c->data[c->npairs - 1], e[i].block * LSMT_BLOCK, e[i].n * LSMT_BLOCK);
}

/* How often the log was written anew. */
static int run_and_cut(uint64_t seed, bool seals, bool kills)
{
	struct crash *c = crash_start(seed);
	struct promise *p = calloc(OPS, sizeof(*p));
	struct block_sealing *sealing[FILES_MAX];
	int np = 0, switches;

	while (c->nops < OPS) {
		if (unfinished(c) < INFLIGHT && rnd_below(&c->rnd, 3)) {
			submit_random(c);
			if (c->op[c->nops - 1].w.req.op == BLOCK_FLUSH) {
				p[np].op = c->nops - 1;
				memcpy(p[np++].at, c->latest, sizeof(c->latest));
			}
		} else if (c->f->nwaiting) {
			fake_step(c->f);
		}
		block_kick(c->b);
		look(c, p, &np);
		if (rnd_below(&c->rnd, 4) == 0)
			cut_and_check(c);
		if (kills && rnd_below(&c->rnd, 50) == 0) {
			crash_kill(c);
			np = 0;
		}
		if (seals && c->npairs < 5 && c->nops % 40 == 39) {
			struct err err = ERR_INIT;

			block_drain(c->b);
			look(c, p, &np);
			punch_as_sealing(c);
			pair_add(c);
			if (block_layers_seal(c->b, dup(c->data[c->npairs - 1]), dup(c->index[c->npairs - 1]),
					      &sealing[c->npairs - 2], &err) < 0)
				fail_msg("%s", err.text);
			submit_random(c);
			if (c->op[c->nops - 1].w.req.op == BLOCK_FLUSH) {
				p[np].op = c->nops - 1;
				memcpy(p[np++].at, c->latest, sizeof(c->latest));
			}
			cut_and_check(c);
		}
	}
	block_drain(c->b);
	look(c, p, &np);
	assert_int_equal(np, 0);
	check_disk(c, c->b);
	assert_true(c->f->holes > 0);
	switches = c->f->switches;
	for (int i = 0; i + 1 < c->npairs; i++)
		block_sealing_free(sealing[i]);
	crash_end(c);
	free(p);
	return switches;
}

static void what_was_flushed_survives_any_cut(void **state)
{
	int switches = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= ROUNDS; seed++)
		switches += run_and_cut(seed, false, false);
	assert_true(switches >= 4);
}

static void it_survives_across_tops_that_are_not_sealed_yet(void **state)
{
	int switches = 0;

	(void)state;
	for (uint64_t seed = 101; seed <= 100 + ROUNDS; seed++)
		switches += run_and_cut(seed, true, false);
	assert_true(switches >= 4);
}

static void it_survives_when_monitors_end_before_it(void **state)
{
	int switches = 0;

	(void)state;
	for (uint64_t seed = 201; seed <= 200 + ROUNDS; seed++)
		switches += run_and_cut(seed, false, true);
	assert_true(switches >= 4);
}

/* A read that found a block before it was overwritten gets what was there, however long it takes. */
static void a_read_under_way_keeps_what_it_found(void **state)
{
	struct crash *c = crash_start(9); /* nothing is kept for later: all is punched */
	uint8_t old[4096], new[4096], got[4096];
	struct waited r, w;

	(void)state;
	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	for (int punched = 0; punched < 2; punched++) {
		layers_of(c->b)->space.pool.max = punched ? 0 : 100;
		waited_submit(c->b, &w, BLOCK_WRITE, 8192, old, 4096, 0);
		block_drain(c->b);
		waited_submit(c->b, &r, BLOCK_READ, 8192, got, 4096, 0);
		block_kick(c->b);
		for (int i = 0; i < 20; i++) {
			waited_submit(c->b, &w, BLOCK_WRITE, 8192, new, 4096, BLOCK_F_DURABLE);
			block_kick(c->b);
			while (c->f->nwaiting > 1) {
				fake_do(c->f, c->f->waiting[0]->op == BLOCK_READ);
				block_kick(c->b);
			}
			assert_true(w.done && !r.done);
		}
		block_drain(c->b);
		assert_true(r.done && r.result == 0);
		assert_memory_equal(got, old, 4096);
		for (int i = 0; i < 3; i++) { /* then all of it is free */
			waited_submit(c->b, &w, BLOCK_FLUSH, 0, NULL, 0, 0);
			block_kick(c->b);
			while (c->f->nwaiting) {
				fake_do(c->f, 0);
				block_kick(c->b);
			}
		}
		assert_int_equal(layers_of(c->b)->space.head, layers_of(c->b)->space.tail);
	}
	assert_true(c->f->holes > 0);
	crash_end(c);
}

/* Every state that sealing in place can be cut in. */
static void a_cut_while_sealing_leaves_the_pair_or_the_layer(void **state)
{
	int data, index, fds[1];
	struct block_stack s = { .base_fd = -1, .layer_fd = fds, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 };
	struct rnd rnd = { 77 };
	struct err err = ERR_INIT;
	uint8_t *want = malloc(SIZE), *full;
	uint64_t before, after;
	struct block *b;
	int sealed;

	(void)state;
	pair_new(&data, &index, SIZE);
	b = disk_open(&(struct block_stack){ .base_fd = -1, .top_data_fd = dup(data), .top_index_fd = dup(index) },
		      "threads", NULL);
	for (int i = 0; i < 400; i++) {
		uint8_t buf[512];

		fill_random(&rnd, buf, sizeof(buf));
		assert_int_equal(disk_do(b, BLOCK_WRITE, rnd_below(&rnd, SECTORS) * 512ull, buf, 512, 0), 0);
	}
	assert_int_equal(disk_do(b, BLOCK_READ, 0, want, SIZE, 0), 0);
	block_close(b);
	before = file_size(data);
	sealed = file_copy(data);
	assert_int_equal(lsmt_seal_pair(sealed, index, "pair", &err), 0);
	after = file_size(sealed);
	full = malloc(after);
	assert_int_equal(fd_pread_full(sealed, full, after, 0), after);
	for (int i = 0; i < 300; i++) {
		int cut = file_copy(data), log = file_copy(index);
		bool header = i >= 250;

		/* What was appended, in pieces, as far as the file got; the header only behind all of it. */
		for (uint64_t at = before; at < after; at += 512)
			if (header || rnd_below(&rnd, 2))
				assert_int_equal(
				    fd_pwrite_full(cut, full + at, MIN(after - at, (uint64_t)512), (off_t)at), 0);
		if (header)
			assert_int_equal(fd_pwrite_full(cut, full, LSMT_BLOCK, 0), 0);
		if (lsmt_seal_pair(cut, log, "pair", &err) < 0)
			fail_msg("%s", err.text);
		if (header)
			assert_int_equal(file_size(cut), after);
		fds[0] = cut;
		b = disk_open(&s, "threads", NULL);
		disk_holds(b, want);
		block_close(b);
		close(log);
	}
	close(data);
	close(index);
	close(sealed);
	free(full);
	free(want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_flushed_survives_any_cut),
		cmocka_unit_test(it_survives_across_tops_that_are_not_sealed_yet),
		cmocka_unit_test(it_survives_when_monitors_end_before_it),
		cmocka_unit_test(a_read_under_way_keeps_what_it_found),
		cmocka_unit_test(a_cut_while_sealing_leaves_the_pair_or_the_layer),
	};

	return cmocka_run_group_tests_name("layers_crash", tests, NULL, NULL);
}
