/* SPDX-License-Identifier: Apache-2.0 */
/* The merged index of a stack of layers: see lsmt_index.h. */
/* syscalls(main): madvise */
#include "devices/backend/lsmt_index.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/util.h"

_Static_assert(sizeof(struct lsmt_chunk) == 4096, "a chunk is a page");

enum {
	SPARE_CHUNKS = 8,
	HUGE_CHUNKS = 1024,                  /* 4 MiB: a large page or more */
	INSERT_CHUNKS = 2,                   /* one insertion needs at most */
	GIVE_BELOW = LSMT_CHUNK_SEGS * 7 / 8, /* a neighbour with less takes some */
	JOIN_BELOW = LSMT_CHUNK_SEGS * 3 / 4, /* two with less together become one */
	LINE_SEGS = 4,                        /* in a line of the processor's cache */
	GUESS_NEAR = 8,
};

static uint64_t offset_of(const struct lsmt_cell *c)
{
	return c->low & LSMT_OFFSET_MAX;
}

static uint64_t length_of(const struct lsmt_cell *c)
{
	return c->low >> 50;
}

static uint64_t end_of(const struct lsmt_cell *c)
{
	return offset_of(c) + length_of(c);
}

static bool is_zeroed(const struct lsmt_cell *c)
{
	return c->high >> 55 & 1;
}

static uint8_t tag_of(const struct lsmt_cell *c)
{
	return (uint8_t)(c->high >> 56);
}

static struct lsmt_cell cell_make(const struct lsmt_seg *s)
{
	/* The place of a zeroed one means nothing; as 0, two of them always continue each other. */
	return (struct lsmt_cell){
		.low = s->offset | (uint64_t)s->length << 50,
		.high = (s->zeroed ? 0 : s->moffset) | (uint64_t)s->zeroed << 55 | (uint64_t)s->tag << 56,
	};
}

static void cell_read(const struct lsmt_cell *c, struct lsmt_seg *ret)
{
	*ret = (struct lsmt_seg){
		.offset = offset_of(c),
		.length = (uint32_t)length_of(c),
		.moffset = c->high & LSMT_MOFFSET_MAX,
		.zeroed = is_zeroed(c),
		.tag = tag_of(c),
	};
}

static void cut_front(struct lsmt_cell *c, uint64_t n)
{
	c->low = (offset_of(c) + n) | (length_of(c) - n) << 50;
	if (!is_zeroed(c))
		c->high += n;
}

static void set_end(struct lsmt_cell *c, uint64_t end)
{
	c->low = offset_of(c) | (end - offset_of(c)) << 50;
}

/* Does b continue a, as one segment? */
static bool continues(const struct lsmt_cell *a, const struct lsmt_cell *b)
{
	return end_of(a) == offset_of(b) && length_of(a) + length_of(b) <= LSMT_LENGTH_MAX &&
	       (is_zeroed(a) ? a->high : a->high + length_of(a)) == b->high;
}

int lsmt_index_init(struct lsmt_index *x, uint64_t max_segs, struct err *err)
{
	uint64_t chunks = MIN(max_segs, (uint64_t)LSMT_ENTRIES_MAX) * 3 / 2 / LSMT_CHUNK_SEGS + SPARE_CHUNKS;
	size_t dir = ALIGN_UP(chunks * sizeof(*x->dir), sizeof(struct lsmt_chunk));
	void *p;

	*x = (struct lsmt_index){ .max = (uint32_t)chunks };
	x->bytes = dir + chunks * sizeof(struct lsmt_chunk);
	p = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		*x = (struct lsmt_index){ 0 };
		return err_errno(err, -errno, "room for an index of %" PRIu64 " segments", max_segs);
	}
	x->dir = p;
	x->arena = (struct lsmt_chunk *)((char *)p + dir);
	return 0;
}

void lsmt_index_expect(struct lsmt_index *x, uint64_t n)
{
	uint64_t chunks = MIN((n + n / 4) / LSMT_CHUNK_SEGS, (uint64_t)(x->max - x->fresh)); /* not all will be full */

	/* Large pages where they will be full; most of the time goes into making pages otherwise. */
	if (chunks >= HUGE_CHUNKS)
		madvise(&x->arena[x->fresh], chunks * sizeof(struct lsmt_chunk), MADV_HUGEPAGE);
}

void lsmt_index_clear(struct lsmt_index *x)
{
	if (x->dir && x->fresh)
		madvise(x->dir, x->bytes, MADV_DONTNEED);
	x->free = NULL;
	x->fresh = x->ndir = x->nfree = 0;
	x->count = 0;
	memset(x->of_tag, 0, sizeof(x->of_tag));
}

void lsmt_index_finish(struct lsmt_index *x)
{
	if (x->dir)
		munmap(x->dir, x->bytes);
	*x = (struct lsmt_index){ 0 };
}

/* A new, empty chunk at place d of the directory. There is one: insert has looked. */
static struct lsmt_chunk *chunk_add(struct lsmt_index *x, uint32_t d)
{
	struct lsmt_chunk *c = x->free;

	if (c) {
		x->free = c->next_free;
		x->nfree--;
	} else {
		c = &x->arena[x->fresh++];
	}
	c->n = 0;
	memmove(&x->dir[d + 1], &x->dir[d], (x->ndir - d) * sizeof(*x->dir));
	x->ndir++;
	x->dir[d].chunk = c;
	return c;
}

static void chunk_remove(struct lsmt_index *x, uint32_t d)
{
	struct lsmt_chunk *c = x->dir[d].chunk;

	c->next_free = x->free;
	x->free = c;
	x->nfree++;
	x->ndir--;
	memmove(&x->dir[d], &x->dir[d + 1], (x->ndir - d) * sizeof(*x->dir));
}

static void set_first(struct lsmt_index *x, uint32_t d)
{
	x->dir[d].first = offset_of(&x->dir[d].chunk->seg[0]);
}

/* Spread the segments of nold (1, 2) chunks from d on evenly over nnew (1..3). */
static void respread(struct lsmt_index *x, uint32_t d, uint32_t nold, uint32_t nnew)
{
	struct lsmt_cell all[2 * LSMT_CHUNK_SEGS];
	uint32_t n = 0, at = 0;

	for (uint32_t k = 0; k < nold; k++) {
		const struct lsmt_chunk *c = x->dir[d + k].chunk;

		memcpy(&all[n], c->seg, c->n * sizeof(*all));
		n += c->n;
	}
	for (uint32_t k = nold; k < nnew; k++)
		chunk_add(x, d + k);
	for (uint32_t k = nnew; k < nold; k++)
		chunk_remove(x, d + nnew);
	for (uint32_t k = 0; k < nnew; k++) {
		struct lsmt_chunk *c = x->dir[d + k].chunk;
		uint32_t share = (n - at) / (nnew - k);

		memcpy(c->seg, &all[at], share * sizeof(*all));
		c->n = share;
		at += share;
		set_first(x, d + k);
	}
}

/* How many chunks begin at or before `offset`. */
static uint32_t chunks_before(const struct lsmt_index *x, uint64_t offset)
{
	const struct lsmt_dir *base = x->dir;
	uint32_t n = x->ndir;

	if (n == 0 || base->first > offset)
		return 0;
	while (n > 1) {
		uint32_t half = n / 2;

		base = base[half].first <= offset ? base + half : base; /* no jump: which way it goes cannot be foretold */
		n -= half;
	}
	return (uint32_t)(base - x->dir) + 1;
}

/* Where in chunk d `offset` would be, were the segments of even size. Of the chunk itself only its head is read. */
static uint32_t guess(const struct lsmt_index *x, uint32_t d, uint64_t offset)
{
	const struct lsmt_chunk *c = x->dir[d].chunk;
	uint64_t first = x->dir[d].first, end = d + 1 < x->ndir ? x->dir[d + 1].first : end_of(&c->seg[c->n - 1]);

	return offset < end ? (uint32_t)((offset - first) * c->n / (end - first)) : c->n;
}

void lsmt_index_approach(const struct lsmt_index *x, struct lsmt_approach *a, uint64_t offset)
{
	if (a->chunk < x->ndir && x->dir[a->chunk].first <= a->offset) { /* the index may have changed: no harm */
		const struct lsmt_chunk *c = x->dir[a->chunk].chunk;
		uint32_t i = guess(x, a->chunk, a->offset);

		for (uint32_t k = i > GUESS_NEAR ? i - GUESS_NEAR : 0;
		     k < MIN(i + GUESS_NEAR, (uint32_t)LSMT_CHUNK_SEGS); k += LINE_SEGS)
			__builtin_prefetch(&c->seg[k]);
	}
	a->offset = offset;
	a->chunk = chunks_before(x, offset) - 1;
	if (a->chunk != UINT32_MAX)
		__builtin_prefetch(x->dir[a->chunk].chunk);
}

/* The first segment that ends behind `offset`: chunk *d, place *i. d == ndir: there is none. */
static void find(const struct lsmt_index *x, uint64_t offset, uint32_t *ret_d, uint32_t *ret_i)
{
	uint32_t d = chunks_before(x, offset), lo, hi;
	const struct lsmt_chunk *c;

	if (d == 0) {
		*ret_d = *ret_i = 0;
		return;
	}
	c = x->dir[--d].chunk;
	/* It is in [lo, hi]: looked for from the guess on outwards, so that few of the chunk's lines are touched. */
	lo = hi = MIN(guess(x, d, offset), c->n - 1);
	if (end_of(&c->seg[lo]) <= offset) {
		uint32_t step = LINE_SEGS;

		lo++;
		for (hi = lo; hi < c->n && end_of(&c->seg[hi]) <= offset; step *= 2) {
			lo = hi + 1;
			hi = MIN(hi + step, c->n);
		}
	} else {
		uint32_t step = LINE_SEGS;

		for (lo = hi; lo > 0 && end_of(&c->seg[lo - 1]) > offset; step *= 2) {
			hi = lo - 1;
			lo = lo > step ? lo - step : 0;
		}
	}
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (end_of(&c->seg[mid]) <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_d = lo == c->n ? d + 1 : d;
	*ret_i = lo == c->n ? 0 : lo;
}

/* Put one segment before place i of chunk d (i may be n; d may be ndir with i 0). *d and *i: where it is then. */
static void put(struct lsmt_index *x, uint32_t *pd, uint32_t *pi, const struct lsmt_cell *cell)
{
	uint32_t d = *pd, i = *pi, first;
	struct lsmt_chunk *c;

	/* Between two chunks, the end of the earlier is as good a place as the start of the later. */
	if (i == 0 && d > 0 && (d == x->ndir || x->dir[d - 1].chunk->n < LSMT_CHUNK_SEGS)) {
		d--;
		i = x->dir[d].chunk->n;
		if (i == LSMT_CHUNK_SEGS) { /* growing at the end: chunks stay full */
			d++;
			i = 0;
			chunk_add(x, d);
		}
	} else if (x->ndir == 0) {
		chunk_add(x, 0);
	}
	c = x->dir[d].chunk;
	if (c->n == LSMT_CHUNK_SEGS) {
		bool left = d > 0, right = d + 1 < x->ndir;

		first = d;
		if (left && x->dir[d - 1].chunk->n < GIVE_BELOW) {
			i += x->dir[--first].chunk->n;
			respread(x, first, 2, 2);
		} else if (right && x->dir[d + 1].chunk->n < GIVE_BELOW) {
			respread(x, first, 2, 2);
		} else if (right) {
			respread(x, first, 2, 3);
		} else if (left) {
			i += x->dir[--first].chunk->n;
			respread(x, first, 2, 3);
		} else {
			respread(x, first, 1, 2);
		}
		for (d = first; i > x->dir[d].chunk->n; d++)
			i -= x->dir[d].chunk->n;
		c = x->dir[d].chunk;
	}
	memmove(&c->seg[i + 1], &c->seg[i], (c->n - i) * sizeof(*cell));
	c->seg[i] = *cell;
	c->n++;
	x->count++;
	x->of_tag[tag_of(cell)]++;
	if (i == 0)
		set_first(x, d);
	*pd = d;
	*pi = i;
}

/* Take n segments out from place i of chunk d. Afterwards d, i name what followed them. */
static void take(struct lsmt_index *x, uint32_t *d, uint32_t *i, uint32_t n)
{
	struct lsmt_chunk *c = x->dir[*d].chunk;

	for (uint32_t k = 0; k < n; k++)
		x->of_tag[tag_of(&c->seg[*i + k])]--;
	memmove(&c->seg[*i], &c->seg[*i + n], (c->n - *i - n) * sizeof(c->seg[0]));
	c->n -= n;
	x->count -= n;
	if (c->n == 0) {
		chunk_remove(x, *d);
		*i = 0;
		return;
	}
	if (*i == 0)
		set_first(x, *d);
	if (*i == c->n) {
		++*d;
		*i = 0;
	}
}

/* Make [offset, end) free; *d, *i: the place between what is before and behind it. */
static void clear_range(struct lsmt_index *x, uint64_t offset, uint64_t end, uint32_t *d, uint32_t *i)
{
	struct lsmt_cell *c;

	find(x, offset, d, i);
	if (*d == x->ndir)
		return;
	c = &x->dir[*d].chunk->seg[*i];
	if (offset_of(c) < offset) {
		if (end_of(c) > end) {
			struct lsmt_cell rest = *c;

			cut_front(&rest, end - offset_of(c));
			set_end(c, offset);
			++*i;
			put(x, d, i, &rest);
			return;
		}
		set_end(c, offset);
		if (++*i == x->dir[*d].chunk->n) {
			++*d;
			*i = 0;
		}
	}
	while (*d < x->ndir) {
		struct lsmt_chunk *k = x->dir[*d].chunk;
		uint32_t n = 0;

		while (*i + n < k->n && end_of(&k->seg[*i + n]) <= end)
			n++;
		if (*i + n < k->n && offset_of(&k->seg[*i + n]) < end) {
			cut_front(&k->seg[*i + n], end - offset_of(&k->seg[*i + n]));
			if (n == 0 && *i == 0)
				set_first(x, *d);
		}
		if (n == 0)
			return;
		take(x, d, i, n);
	}
}

/* Of a place that is not the first. */
static struct lsmt_cell *before(const struct lsmt_index *x, uint32_t d, uint32_t i)
{
	if (i > 0)
		return &x->dir[d].chunk->seg[i - 1];
	return &x->dir[d - 1].chunk->seg[x->dir[d - 1].chunk->n - 1];
}

static void join_chunks(struct lsmt_index *x, uint32_t d)
{
	if (d + 1 < x->ndir && x->dir[d].chunk->n + x->dir[d + 1].chunk->n < JOIN_BELOW)
		respread(x, d, 2, 1);
}

bool lsmt_index_full(const struct lsmt_index *x)
{
	return x->max - x->fresh + x->nfree < INSERT_CHUNKS || x->count >= LSMT_ENTRIES_MAX;
}

/* Behind all there is, as a sorted layer is read. */
static bool append(struct lsmt_index *x, const struct lsmt_cell *cell)
{
	struct lsmt_chunk *c;
	struct lsmt_cell *last;

	if (x->ndir == 0)
		return false;
	c = x->dir[x->ndir - 1].chunk;
	last = &c->seg[c->n - 1];
	if (offset_of(cell) < end_of(last) || c->n == LSMT_CHUNK_SEGS)
		return false;
	if (continues(last, cell)) {
		set_end(last, end_of(cell));
		return true;
	}
	c->seg[c->n++] = *cell;
	x->count++;
	x->of_tag[tag_of(cell)]++;
	return true;
}

int lsmt_index_insert(struct lsmt_index *x, const struct lsmt_seg *s)
{
	struct lsmt_cell cell = cell_make(s), *p = NULL;
	uint32_t d, i;

	if (lsmt_index_full(x))
		return -ENOMEM;
	if (append(x, &cell))
		return 0;
	clear_range(x, s->offset, s->offset + s->length, &d, &i);
	if ((d > 0 || i > 0) && continues(p = before(x, d, i), &cell)) {
		set_end(p, end_of(&cell));
		/* It may close the gap to the next one. */
		if (d < x->ndir && continues(p, &x->dir[d].chunk->seg[i])) {
			set_end(p, end_of(&x->dir[d].chunk->seg[i]));
			take(x, &d, &i, 1);
		}
	} else if (d < x->ndir && continues(&cell, &x->dir[d].chunk->seg[i])) {
		set_end(&cell, end_of(&x->dir[d].chunk->seg[i]));
		x->dir[d].chunk->seg[i] = cell;
		if (i == 0)
			set_first(x, d);
	} else {
		put(x, &d, &i, &cell);
	}
	if (d > 0)
		join_chunks(x, d - 1);
	join_chunks(x, d);
	return 0;
}

bool lsmt_index_lookup(const struct lsmt_index *x, uint64_t offset, uint64_t max, struct lsmt_seg *ret)
{
	const struct lsmt_cell *c;
	struct lsmt_cell piece;
	uint32_t d, i;

	find(x, offset, &d, &i);
	if (d == x->ndir) {
		*ret = (struct lsmt_seg){ .offset = offset, .length = (uint32_t)MIN(max, (uint64_t)UINT32_MAX) };
		return false;
	}
	c = &x->dir[d].chunk->seg[i];
	if (offset_of(c) > offset) {
		max = MIN(max, offset_of(c) - offset);
		*ret = (struct lsmt_seg){ .offset = offset, .length = (uint32_t)MIN(max, (uint64_t)UINT32_MAX) };
		return false;
	}
	piece = *c;
	cut_front(&piece, offset - offset_of(c));
	cell_read(&piece, ret);
	ret->length = (uint32_t)MIN(max, (uint64_t)ret->length);
	return true;
}

static void cell_write(const struct lsmt_cell *c, uint8_t *ret)
{
	le64_store(ret, c->low);
	le64_store(ret + 8, c->high & ((1ull << 56) - 1));
}

uint64_t lsmt_index_extract(const struct lsmt_index *x, uint8_t tag, uint8_t *ret, uint64_t max)
{
	uint64_t n = 0;

	for (uint32_t d = 0; d < x->ndir; d++) {
		const struct lsmt_chunk *c = x->dir[d].chunk;

		for (uint32_t i = 0; i < c->n; i++) {
			if (tag_of(&c->seg[i]) != tag)
				continue;
			if (ret) {
				if (n == max)
					return n;
				cell_write(&c->seg[i], ret + n * LSMT_ENTRY_BYTES);
			}
			n++;
		}
	}
	return n;
}

uint32_t lsmt_index_slice(const struct lsmt_index *x, uint8_t tag, uint64_t *offset, uint8_t *ret, uint32_t max)
{
	uint32_t d, i, n = 0;

	find(x, *offset, &d, &i);
	for (uint32_t looked = 0; d < x->ndir; d++, i = 0) {
		const struct lsmt_chunk *c = x->dir[d].chunk;

		for (; i < c->n; i++, looked++) {
			if (n == max || looked == LSMT_SLICE_LOOK)
				return n;
			*offset = end_of(&c->seg[i]);
			if (tag_of(&c->seg[i]) == tag)
				cell_write(&c->seg[i], ret + n++ * LSMT_ENTRY_BYTES);
		}
	}
	*offset = LSMT_OFFSET_MAX;
	return n;
}

bool lsmt_index_next(const struct lsmt_index *x, struct lsmt_cursor *c, struct lsmt_seg *ret)
{
	while (c->dir < x->ndir && c->i == x->dir[c->dir].chunk->n) {
		c->dir++;
		c->i = 0;
	}
	if (c->dir >= x->ndir)
		return false;
	cell_read(&x->dir[c->dir].chunk->seg[c->i++], ret);
	return true;
}
