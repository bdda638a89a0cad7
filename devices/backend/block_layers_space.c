/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: the space of the top's data file.
 *
 * Space is handed out in blocks of 4096 bytes, and a block holds data of one write only. So its sectors are neighbours
 * on the disk as they are in the file, and a few looks into the index tell whether any of them is still in use:
 * no table of blocks is needed.
 *
 * The way of a block whose last sector is overwritten, zeroed or discarded:
 *
 *   ring       it is garbage to the disk in memory, but the log on storage may still name it
 *   durable    a log round has written the entry that displaced it and synced it: no log that survives names it
 *   released   the reads that were under way then, and may have found it before it was displaced, are through
 *   pool       free to be written again as it is, up to 16 MiB; the rest is punched out of the file
 *   holes      punched, free to be written again
 *
 * So what is written into a block again, or punched, was never needed by a log that could survive: the entry that
 * displaced it is in all of them. Writes that failed, and data that found no room in the index, go the same way.
 *
 * Bound (docs/layers.md): a round starts by itself when 64 MiB of garbage are not durable, and writes wait while there are 128 MiB.
 * The ring has a place for each block that a write in flight could displace, at most one for a sector of it, so nothing is
 * forgotten. Both pools have places for 4096 extents; a small one makes way for a larger one: in `pool` it is punched, in
 * `holes` the file grows in length for it, not in size.
 *
 * What was in the file when it was opened was perhaps written by others, with several writes in a block. Blocks there
 * that nothing uses are punched (layers_space_scan); those that fall free later are when the pair is opened again.
 *
 * Reads: each counts in one of two epochs. To release, the epochs change, and the older one runs empty.
 */
/* syscalls(main): fallocate */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "devices/backend/block_layers.h"
#include "lib/util.h"

enum {
	GARBAGE_LOG = 64 << 8,        /* blocks not durable that start a round */
	GARBAGE_MAX = 2 * GARBAGE_LOG, /* in the ring, that make writes wait */
	POOL_BLOCKS = 16 << 8,
	SCAN_EXTENTS = 4096,
};
#define SCAN_BLOCKS_MAX (1ull << 26) /* 256 GiB: 64 MiB of memory while it is opened */

int layers_space_init(struct layers_space *s)
{
	s->ring = calloc(LAYERS_RING, sizeof(*s->ring));
	s->pool.e = calloc(LAYERS_POOL, sizeof(*s->pool.e));
	s->holes.e = calloc(LAYERS_POOL, sizeof(*s->holes.e));
	s->pool.max = POOL_BLOCKS;
	s->holes.max = UINT64_MAX;
	return s->ring && s->pool.e && s->holes.e ? 0 : -ENOMEM;
}

void layers_space_finish(struct layers_space *s)
{
	free(s->ring);
	free(s->pool.e);
	free(s->holes.e);
}

void layers_space_reset(struct layers_space *s, uint64_t start)
{
	s->start = start;
	s->head = s->released = s->durable = s->mark = s->tail = s->target = 0;
	s->blocks = s->young = s->fresh = 0;
	s->pool.n = s->holes.n = s->pool.hand = s->holes.hand = 0;
	s->pool.blocks = s->holes.blocks = 0;
	s->grace = false;
}

bool layers_space_probe(struct layers_space *s, int fd, uint64_t end)
{
	/* Behind the end: nothing changes. */
	s->can_punch = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)end, LSMT_BLOCK) == 0 ||
		       (errno != EOPNOTSUPP && errno != ENOSYS && errno != ENODEV);
	return s->can_punch;
}

/* ---- pools: sorted, neighbours joined ---- */

static void pool_remove(struct layers_pool *p, uint32_t i)
{
	p->blocks -= p->e[i].n;
	p->n--;
	memmove(&p->e[i], &p->e[i + 1], (p->n - i) * sizeof(*p->e));
}

static bool pool_add(struct layers_pool *p, struct layers_extent e)
{
	uint32_t lo = 0, hi = p->n;
	bool left, right;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (p->e[mid].block < e.block)
			lo = mid + 1;
		else
			hi = mid;
	}
	left = lo > 0 && p->e[lo - 1].block + p->e[lo - 1].n == e.block;
	right = lo < p->n && e.block + e.n == p->e[lo].block;
	if (e.n > p->max || p->blocks > p->max - e.n || (!left && !right && p->n == LAYERS_POOL))
		return false;
	p->blocks += e.n;
	if (left && right) {
		p->e[lo - 1].n += e.n + p->e[lo].n;
		p->n--;
		memmove(&p->e[lo], &p->e[lo + 1], (p->n - lo) * sizeof(*p->e));
	} else if (left) {
		p->e[lo - 1].n += e.n;
	} else if (right) {
		p->e[lo] = (struct layers_extent){ e.block, e.n + p->e[lo].n };
	} else {
		memmove(&p->e[lo + 1], &p->e[lo], (p->n - lo) * sizeof(*p->e));
		p->e[lo] = e;
		p->n++;
	}
	return true;
}

/* From where the last one was found on, so that writes in a row lie in a row. 0: none is long enough. */
static uint64_t pool_take(struct layers_pool *p, uint64_t n)
{
	if (p->blocks < n)
		return 0;
	for (uint32_t k = 0; k < p->n; k++) {
		uint32_t i = (p->hand + k) % p->n;
		uint64_t block = p->e[i].block;

		if (p->e[i].n < n)
			continue;
		p->hand = i;
		p->e[i].block += n;
		p->e[i].n -= n;
		p->blocks -= n;
		if (p->e[i].n == 0)
			pool_remove(p, i);
		return block;
	}
	return 0;
}

/* One that is smaller than n blocks and may go for them. */
static bool pool_evict(struct layers_pool *p, uint64_t n, struct layers_extent *ret)
{
	uint32_t i;

	if (p->n == 0 || n > p->max)
		return false;
	i = p->hand % p->n;
	p->hand = i + 1;
	if (p->e[i].n >= n)
		return false;
	*ret = p->e[i];
	pool_remove(p, i);
	return true;
}

static void holes_add(struct layers_space *s, struct layers_extent e)
{
	struct layers_extent gone;

	if (!pool_add(&s->holes, e) && pool_evict(&s->holes, e.n, &gone))
		pool_add(&s->holes, e);
}

/* ---- handing out ---- */

static uint64_t blocks_of(uint64_t sectors)
{
	return (sectors + LAYERS_BLOCK - 1) / LAYERS_BLOCK;
}

static uint32_t displaced_max(uint64_t sectors)
{
	return (uint32_t)MIN(sectors, (uint64_t)LAYERS_RING);
}

bool layers_space_has_room(const struct layers_space *s, uint64_t sectors, bool write)
{
	if (write && s->blocks > GARBAGE_MAX)
		return false;
	return s->tail - s->head + s->reserved + displaced_max(sectors) <= LAYERS_RING;
}

uint64_t layers_space_take(struct block_layers *l, uint64_t sectors)
{
	struct layers_space *s = &l->space;
	uint64_t n = blocks_of(sectors), block = pool_take(&s->pool, n);

	s->reserved += displaced_max(sectors);
	if (!block)
		block = pool_take(&s->holes, n);
	if (!block) {
		block = l->cursor / LAYERS_BLOCK;
		l->cursor += n * LAYERS_BLOCK;
	}
	return block * LAYERS_BLOCK;
}

void layers_space_written(struct layers_space *s, uint64_t sectors)
{
	s->reserved -= displaced_max(sectors);
}

/* ---- falling free ---- */

static void ring_add(struct layers_space *s, uint64_t block, uint64_t n)
{
	struct layers_extent *last = &s->ring[(s->tail - 1) % LAYERS_RING];

	if (s->tail > s->mark && last->block + last->n == block)
		last->n += n;
	else
		s->ring[s->tail++ % LAYERS_RING] = (struct layers_extent){ block, n };
	s->blocks += n;
	s->young += n;
	s->fresh += n;
}

void layers_space_put(struct block_layers *l, uint64_t moffset, uint64_t sectors)
{
	uint64_t block = blocks_of(moffset), end = blocks_of(moffset + sectors);

	if (end <= block)
		return;
	if (l->cursor == end * LAYERS_BLOCK)
		l->cursor = block * LAYERS_BLOCK; /* nobody came behind it */
	else
		ring_add(&l->space, block, end - block);
}

/* Is a sector of [from, to) in the file, `delta` further on than on the disk? */
static bool in_use(const struct block_layers *l, uint64_t from, uint64_t to, uint64_t delta)
{
	while (from < to) {
		struct lsmt_seg s;

		if (lsmt_index_lookup(&l->index, from, to - from, &s) && !s.zeroed && s.tag == l->top &&
		    s.moffset - s.offset == delta)
			return true;
		from += s.length;
	}
	return false;
}

/* g goes, as do all between `from` and it. Of a block that it shares with others, the last one tells. */
static void displace_seg(struct block_layers *l, const struct lsmt_seg *g, uint64_t from)
{
	uint64_t delta = g->moffset - g->offset, end = g->moffset + g->length, block = g->moffset / LAYERS_BLOCK;
	uint64_t before = MIN(g->moffset % LAYERS_BLOCK, g->offset), behind = -end % LAYERS_BLOCK;
	uint64_t block_end = blocks_of(end);

	if (in_use(l, g->offset - before, MIN(g->offset, from), delta))
		block++;
	if (in_use(l, g->offset + g->length, g->offset + g->length + behind, delta))
		block_end--;
	block = MAX(block, l->space.start);
	if (block < block_end)
		ring_add(&l->space, block, block_end - block);
}

bool layers_space_displace(struct block_layers *l, uint64_t sector, uint32_t n)
{
	struct layers_space *s = &l->space;
	uint64_t count = 0, end = sector + n;
	struct lsmt_seg g;

	for (uint64_t at = sector; at < end; at += g.length)
		if (lsmt_index_lookup(&l->index, at, end - at, &g) && !g.zeroed && g.tag == l->top)
			count++;
	if (count > LAYERS_RING - (s->tail - s->head))
		return false;
	for (uint64_t at = sector; count && at < end; at += g.length)
		if (lsmt_index_lookup(&l->index, at, end - at, &g) && !g.zeroed && g.tag == l->top)
			displace_seg(l, &g, sector);
	return true;
}

/* ---- giving back ---- */

bool layers_space_wants_round(const struct layers_space *s, bool full)
{
	return s->young > GARBAGE_LOG || (full && s->young);
}

void layers_space_mark(struct layers_space *s)
{
	s->mark = s->tail;
	s->fresh = 0;
}

void layers_space_logged(struct layers_space *s)
{
	s->durable = s->mark;
	s->young = s->fresh;
}

static void on_punch(struct block_request *r, int result)
{
	struct layers_punch *p = container_of(r, struct layers_punch, req);
	const struct layers_extent e = { r->offset / LSMT_BLOCK, r->len / LSMT_BLOCK };

	(void)result; /* not punched, it is free all the same */
	p->busy = false;
	if (e.block >= p->l->space.start)
		holes_add(&p->l->space, e);
}

static void punch(struct block_layers *l, struct layers_punch *p, struct layers_extent e)
{
	p->l = l;
	p->busy = true;
	p->req = (struct block_request){
		.op = BLOCK_DISCARD,
		.offset = e.block * LSMT_BLOCK,
		.len = e.n * LSMT_BLOCK,
		.file = (uint16_t)(LAYERS_FILE_TAG0 + l->top),
		.done = on_punch,
	};
	l->io->ops->submit(l->io, &p->req);
}

static struct layers_punch *idle_punch(struct layers_space *s)
{
	for (int i = 0; i < LAYERS_PUNCHES; i++)
		if (!s->punch[i].busy)
			return &s->punch[i];
	return NULL;
}

/* The first of the ring finds its place: 1 when a punch was started, 0, or -EAGAIN: not now. */
static int give(struct block_layers *l)
{
	struct layers_space *s = &l->space;
	struct layers_extent e = s->ring[s->head % LAYERS_RING], gone;
	bool foreign = e.block < s->start; /* what falls free there again cannot be told */
	struct layers_punch *p;
	int started = 0;

	if (foreign || !pool_add(&s->pool, e)) {
		p = idle_punch(s);
		if (!s->can_punch && !foreign) {
			holes_add(s, e);
		} else if (s->can_punch) {
			if (!p || (l->draining && !l->full))
				return -EAGAIN;
			started = 1;
			if (!foreign && pool_evict(&s->pool, e.n, &gone)) {
				punch(l, p, gone);
				return 1; /* again, there may be room now */
			}
			punch(l, p, e);
		}
	}
	s->head++;
	s->blocks -= e.n;
	l->again |= l->full;
	return started;
}

bool layers_space_poke(struct block_layers *l)
{
	struct layers_space *s = &l->space;
	bool started = false;
	int r = 0;

	for (;;) {
		if (s->grace) {
			if (s->reads[!s->epoch])
				break;
			s->released = s->target;
			s->grace = false;
		}
		if (s->durable == s->released)
			break;
		s->epoch = !s->epoch;
		s->target = s->durable;
		s->grace = true;
	}
	while (r >= 0 && s->head != s->released) {
		r = give(l);
		started |= r > 0;
	}
	return started;
}

uint64_t layers_space_free(const struct layers_space *s, struct layers_extent *ret)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->pool.n; i++, n++)
		if (ret)
			ret[n] = s->pool.e[i];
	for (uint64_t i = s->head; i < s->durable; i++, n++)
		if (ret)
			ret[n] = s->ring[i % LAYERS_RING];
	return n;
}

void layers_space_punch(int fd, const struct layers_extent *e, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(e[i].block * LSMT_BLOCK),
			      (off_t)(e[i].n * LSMT_BLOCK)) < 0)
			return; /* a matter of space alone */
}

void layers_space_scan(struct block_layers *l)
{
	struct layers_space *s = &l->space;
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg g;
	uint8_t *used;

	if (!s->can_punch || s->start <= 1 || s->start > SCAN_BLOCKS_MAX)
		return;
	used = calloc(s->start, 1);
	if (!used)
		return;
	while (lsmt_index_next(&l->index, &c, &g))
		if (g.tag == l->top && !g.zeroed)
			memset(used + g.moffset / LAYERS_BLOCK, 1,
			       blocks_of(g.moffset + g.length) - g.moffset / LAYERS_BLOCK);
	for (uint64_t b = 1, to; b < s->start && s->tail < SCAN_EXTENTS; b = to + 1) {
		for (to = b; to < s->start && !used[to]; to++)
			;
		if (to > b)
			ring_add(s, b, to - b);
	}
	free(used);
	/* The last entries may be in the page cache only: they are synced before anything is punched. */
	l->log[l->current].data_dirty = l->log[l->current].index_dirty = true;
}
