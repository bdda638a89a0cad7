/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: writing the top's log anew when it has grown long.
 *
 * The log gets an entry for each write. When it has more than LAYERS_LOG_TIMES as many as the index has of the top,
 * and LAYERS_LOG_FLOOR besides, what the index holds is written to the other of two places in the index file, which is empty:
 *
 *   COPY    slices of the index go there, in the order of the disk, one at a time, between rounds. A round that comes
 *           writes its entries to both places. A slice is what the index said at that moment; what has changed since
 *           is in a round behind it, and the later entry wins. So in the end both logs say the same.
 *   SWITCH  the next round that begins syncs the data of all that a slice may name, then both logs, then writes the header
 *           that names the new one, and syncs that
 *   CLEAN   a hole is punched where the old log was, in pieces; synced: from then on it can be used
 *
 * Cut anywhere before the header is on storage, the old log is whole; behind it, the new one is. The two headers differ in one
 * byte. What a cut leaves in the place that is not the log's is removed when the pair is opened (lsmt_read.c).
 *
 * Failures: a slice, or a round's second copy, that cannot be written ends the attempt; the old log has everything. When
 * the header cannot be written, which of them it names is in doubt: both go on getting every entry, and each round tries
 * again. A failed sync is the end of all flushes, as everywhere.
 *
 * Bound: a log has at most 2 entries for one of the index, the floor, and what comes while it is copied: a full ring for each
 * slice. Rounds and slices take turns, so a flush waits for one slice at most. Nothing goes on while the disk drains.
 */
/* syscalls(main): write
 * syscalls(vcpu): write */
#include <errno.h>
#include <sys/eventfd.h>

#include "devices/backend/block_layers.h"
#include "lib/util.h"

enum { CLEAN_BYTES = 1 << 20 };

void layers_compact_reset(struct block_layers *l, bool off)
{
	struct layers_compact *c = &l->compact;

	c->state = LAYERS_COMPACT_OFF;
	c->turn = c->switching = c->doubt = c->waiting = false;
	c->off = off;
}

static bool is_long(const struct block_layers *l)
{
	const struct layers_log *g = &l->log[l->current];
	uint64_t n = (g->file_end - lsmt_log_start(g->second)) / LSMT_ENTRY_BYTES;

	return n > (uint64_t)l->compact.times * l->index.of_tag[l->top] + l->compact.floor;
}

bool layers_compact_ready(struct block_layers *l)
{
	struct layers_compact *c = &l->compact;

	if (!l->has_top || l->broken || l->draining || c->off || c->waiting)
		return false;
	if (c->state == LAYERS_COMPACT_OFF && l->space.can_punch && !l->carry && is_long(l)) {
		c->state = LAYERS_COMPACT_COPY;
		c->at = 0;
		c->end = lsmt_log_start(!l->log[l->current].second);
	}
	return c->state != LAYERS_COMPACT_OFF && c->state != LAYERS_COMPACT_SWITCH;
}

/* The other place holds what must go. */
static void clean(struct block_layers *l)
{
	l->compact.at = lsmt_log_start(!l->log[l->current].second);
	l->compact.state = LAYERS_COMPACT_CLEAN;
	l->compact.doubt = false;
}

bool layers_compact_step(struct block_layers *l)
{
	struct layers_compact *c = &l->compact;
	struct block_request *r = &l->step_req;

	if (c->state == LAYERS_COMPACT_COPY) {
		c->entries = lsmt_index_slice(&l->index, l->top, &c->at, c->slice, c->slice_max);
		if (c->entries == 0) {
			if (c->at == LSMT_OFFSET_MAX)
				c->state = LAYERS_COMPACT_SWITCH;
			else /* a long part of the index without anything of the top */
				c->waiting = eventfd_write(l->b.event_fd, 1) == 0;
			return false;
		}
		l->step_iov[0] = (struct iovec){ c->slice, (size_t)c->entries * LSMT_ENTRY_BYTES };
		r->op = BLOCK_WRITE;
		r->offset = c->end;
		r->len = l->step_iov[0].iov_len;
		r->iov = l->step_iov;
		r->niov = 1;
	} else if (c->state == LAYERS_COMPACT_CLEAN && c->at < c->end) {
		r->op = BLOCK_WRITE_ZEROES;
		r->flags = BLOCK_F_UNMAP;
		r->offset = c->at;
		r->len = MIN(ALIGN_UP(c->end, (uint64_t)LSMT_BLOCK) - c->at, (uint64_t)CLEAN_BYTES);
	} else if (l->unsafe) {
		c->state = LAYERS_COMPACT_OFF;
		return false;
	} else {
		c->state = LAYERS_COMPACT_SYNC;
		r->op = BLOCK_FLUSH;
	}
	return true;
}

void layers_compact_stepped(struct block_layers *l, int result)
{
	struct layers_compact *c = &l->compact;

	switch (c->state) {
	case LAYERS_COMPACT_COPY:
		c->end += (uint64_t)c->entries * LSMT_ENTRY_BYTES; /* part of it may be there, when it failed */
		l->log[l->current].index_dirty = true;
		if (result < 0)
			clean(l);
		else if (c->at == LSMT_OFFSET_MAX)
			c->state = LAYERS_COMPACT_SWITCH;
		break;
	case LAYERS_COMPACT_CLEAN:
		c->at += l->step_req.len;
		c->off |= result < 0; /* what is not empty is not written to */
		break;
	case LAYERS_COMPACT_SYNC:
		c->state = LAYERS_COMPACT_OFF;
		l->broken |= result < 0;
		break;
	case LAYERS_COMPACT_OFF:
	case LAYERS_COMPACT_SWITCH:
		break;
	}
}

bool layers_compact_wants_round(const struct block_layers *l)
{
	return l->compact.state == LAYERS_COMPACT_SWITCH && !l->compact.doubt && !l->draining;
}

bool layers_compact_doubles(const struct block_layers *l)
{
	return l->compact.state == LAYERS_COMPACT_COPY || l->compact.state == LAYERS_COMPACT_SWITCH;
}

bool layers_compact_give_up(struct block_layers *l)
{
	if (l->compact.doubt)
		return false;
	l->compact.end += (uint64_t)l->step_entries * LSMT_ENTRY_BYTES;
	l->compact.switching = false;
	clean(l);
	return true;
}

void layers_compact_header(struct block_layers *l)
{
	struct lsmt_head h = l->top_head;

	h.flags = LSMT_FLAG_HEADER | (l->log[l->current].second ? 0 : LSMT_FLAG_LOG_SECOND);
	lsmt_head_encode(&h, l->compact.slice);
	l->step_iov[0] = (struct iovec){ l->compact.slice, LSMT_BLOCK };
	l->step_req.offset = 0;
	l->step_req.len = LSMT_BLOCK;
	l->step_req.iov = l->step_iov;
	l->step_req.niov = 1;
}

void layers_compact_switched(struct block_layers *l)
{
	struct layers_log *g = &l->log[l->current];
	uint64_t end = g->file_end;

	g->file_end = l->compact.end;
	clean(l); /* from where the old one begins: */
	l->compact.at = lsmt_log_start(g->second);
	l->compact.end = end;
	g->second = !g->second;
	l->compact.switching = false;
}

void layers_compact_in_doubt(struct block_layers *l)
{
	l->compact.switching = false;
	l->compact.doubt = true;
}
