/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the indexes of many layers into one, entry by entry or, for a disk that is started, all at the same time.
 *
 * How it works: all layers are walked at the same time, a narrow range of the disk after the other. In each range the
 * layers' entries go in lowest first, so that the upper ones replace what lies below; entries that reach out of the range
 * are cut, and what is cut off is the next one's. So everything happens at the end of the index, in the few pages that
 * were touched last, wherever the layers have their entries. Layer by layer, each entry of the upper ones would have to be looked
 * for in all that is there.
 *
 * The range reaches as far as no layer has more than LOOK entries in it.
 *
 * Trust: entries are checked when they are read (lsmt_read.c).
 */
#include "devices/backend/lsmt_index.h"

#include "lib/util.h"

enum { LOOK = 32 };
_Static_assert((int)LOOK < (int)LSMT_LOAD_ROOM_MIN, "the walks' room");

static uint64_t offset_at(const struct lsmt_walk *w, uint32_t i)
{
	return le64_load(w->buf + (size_t)i * LSMT_ENTRY_BYTES) & LSMT_OFFSET_MAX;
}

/* What w has before `bound` goes into the index. */
static int load_range(struct lsmt_index *x, struct lsmt_walk *w, uint8_t tag, uint64_t bound, struct err *err)
{
	for (; w->at < w->n; w->at++) {
		uint8_t *p = w->buf + (size_t)w->at * LSMT_ENTRY_BYTES;
		struct lsmt_seg s, rest;
		int r;

		lsmt_entry_decode(p, &s);
		if (s.offset >= bound)
			return 0;
		s.tag = tag;
		rest = s;
		s.length = (uint32_t)MIN((uint64_t)s.length, bound - s.offset);
		r = lsmt_index_insert(x, &s);
		if (r < 0)
			return err_errno(err, r, "%s: room for its index", w->name);
		if (s.length == rest.length)
			continue;
		rest.offset += s.length;
		rest.moffset += s.length;
		rest.length -= s.length;
		lsmt_entry_encode(&rest, p);
		return 0;
	}
	return 0;
}

int lsmt_index_insert_tagged(void *tagged, const struct lsmt_seg *s)
{
	const struct lsmt_tagged *t = tagged;
	struct lsmt_seg e = *s;

	e.tag = t->tag;
	return lsmt_index_insert(t->index, &e);
}

int lsmt_index_load(struct lsmt_index *x, struct lsmt_walk *walks, unsigned n, struct err *err)
{
	uint64_t total = 0;

	for (unsigned k = 0; k < n; k++)
		total += walks[k].layer->head.index_entries;
	lsmt_index_expect(x, total);
	for (;;) {
		uint64_t bound = UINT64_MAX;
		bool any = false;

		for (unsigned k = 0; k < n; k++) {
			struct lsmt_walk *w = &walks[k];
			int r = lsmt_walk_fill(w, LOOK + 1, err);

			if (r < 0)
				return r;
			if (w->n - w->at > LOOK)
				bound = MIN(bound, offset_at(w, w->at + LOOK));
			any |= w->at < w->n;
		}
		if (!any)
			return 0;
		for (unsigned k = 0; k < n; k++) {
			int r = load_range(x, &walks[k], (uint8_t)k, bound, err);

			if (r < 0)
				return r;
		}
	}
}
