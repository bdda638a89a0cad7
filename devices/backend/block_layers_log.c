/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: how the top's index reaches its file.
 *
 * Completed writes have put their entries into the index in memory and into the log's ring. A round writes the ring out:
 *
 *   sync the data file - append the entries that were there when the round began - sync the index file
 *
 * The last two are one request, a durable write, where nothing else of the index file waits for a sync: each request that a round
 * waits for costs it a thread's waking up, which is much of its time. So no entry is in the file before its data are on stable storage, and what a flush has waited for survives anything.
 * All flushes, and all durable writes, that come while a round is under way share the next one. Steps with nothing to do
 * are left out. A ring half full starts a round by itself; a full one makes writes wait.
 *
 * After sealing, the old top may have entries that no flush has asked for yet. They must be on storage before anything
 * the new top says is: a round does the old log (`carry`) first.
 *
 * When a sync fails, the kernel may have dropped the data it could not write; a later success would mean nothing. From
 * then on every flush fails. A failed append is tried again at the same place by the next round.
 *
 * Between rounds the log is written anew when it has grown long (block_layers_compact.c); while that goes on, rounds write
 * their entries to both places, and one of them ends with the header that names the new one.
 *
 * A round that is through makes what its entries displaced free to be used again (block_layers_space.c), and too much of that
 * starts one.
 *
 * cache=unsafe: no syncs; a flush still puts the entries into the file, so that the pair outlives the monitor.
 */
#include <errno.h>

#include "devices/backend/block_layers.h"
#include "lib/util.h"

static uint32_t used(const struct layers_log *g)
{
	return (uint32_t)(g->tail - g->head);
}

bool layers_log_has_room(const struct block_layers *l, uint32_t n)
{
	return (uint64_t)used(&l->log[l->current]) + l->reserved + n <= LAYERS_LOG_ENTRIES;
}

void layers_log_add(struct block_layers *l, const struct lsmt_seg *s)
{
	struct layers_log *g = &l->log[l->current];
	struct lsmt_seg e = *s;

	e.tag = 0;
	lsmt_entry_encode(&e, g->ring + g->tail++ % LAYERS_LOG_ENTRIES * LSMT_ENTRY_BYTES);
}

void layers_log_flush(struct block_layers *l, struct block_request *r)
{
	layers_append(&l->flushes, r);
}

static void end_round(struct block_layers *l, int result)
{
	struct block_request *r = l->batch, *next;

	l->batch = NULL;
	l->step = LAYERS_IDLE;
	l->log_error = result;
	l->full = false;
	l->again = true;
	for (; r; r = next) {
		next = r->next;
		r->done(r, result);
	}
}

/* Then what this round writes is all that a sync would be for. */
static bool writes_durably(const struct block_layers *l, const struct layers_log *g)
{
	return !l->unsafe && !g->index_dirty && !(l->step_log == l->current && layers_compact_doubles(l));
}

static void on_step(struct block_request *r, int result);

static void submit_step(struct block_layers *l, enum layers_step step, enum block_op op, uint16_t place)
{
	l->step = step;
	l->step_req = (struct block_request){ .op = op, .file = place, .done = on_step };
	if (step == LAYERS_WRITE_HEADER) {
		layers_compact_header(l);
	} else if (op == BLOCK_WRITE) {
		struct layers_log *g = &l->log[l->step_log];
		uint32_t at = (uint32_t)(g->head % LAYERS_LOG_ENTRIES);
		uint32_t first = MIN(l->step_entries, LAYERS_LOG_ENTRIES - at);

		l->step_iov[0] =
		    (struct iovec){ g->ring + (size_t)at * LSMT_ENTRY_BYTES, (size_t)first * LSMT_ENTRY_BYTES };
		l->step_iov[1] = (struct iovec){ g->ring, (size_t)(l->step_entries - first) * LSMT_ENTRY_BYTES };
		l->step_req.offset = step == LAYERS_WRITE_COPY ? l->compact.end : g->file_end;
		l->step_req.len = (uint64_t)l->step_entries * LSMT_ENTRY_BYTES;
		l->step_req.iov = l->step_iov;
		l->step_req.niov = first < l->step_entries ? 2 : 1;
		if (step == LAYERS_WRITE_INDEX && writes_durably(l, g))
			l->step_req.flags = BLOCK_F_DURABLE;
	}
	l->io->ops->submit(l->io, &l->step_req);
}

/* The step after `done`, or the end of the round. */
static void next_step(struct block_layers *l, enum layers_step done)
{
	for (;;) {
		struct layers_log *g = &l->log[l->step_log];
		uint16_t index_place = (uint16_t)(LAYERS_FILE_INDEX0 + l->step_log);

		switch (done) {
		case LAYERS_IDLE:
			l->step_entries = used(g);
			l->compact.switching = false;
			if (l->step_log == l->current) {
				layers_space_mark(&l->space);
				l->compact.switching = l->compact.state == LAYERS_COMPACT_SWITCH;
			}
			if (g->data_dirty && !l->unsafe) {
				g->data_dirty = false; /* writes that complete from here on set it again */
				submit_step(l, LAYERS_SYNC_DATA, BLOCK_FLUSH, g->data_place);
				return;
			}
			__attribute__((fallthrough));
		case LAYERS_SYNC_DATA:
			if ((uint64_t)l->step_entries * LSMT_ENTRY_BYTES > lsmt_log_limit(g->second) - g->file_end) {
				end_round(l, -EFBIG);
				return;
			}
			if (l->step_entries) {
				submit_step(l, LAYERS_WRITE_INDEX, BLOCK_WRITE, index_place);
				return;
			}
			__attribute__((fallthrough));
		case LAYERS_WRITE_INDEX:
			if (l->step_entries && l->step_log == l->current && layers_compact_doubles(l)) {
				submit_step(l, LAYERS_WRITE_COPY, BLOCK_WRITE, index_place);
				return;
			}
			__attribute__((fallthrough));
		case LAYERS_WRITE_COPY:
			if (g->index_dirty && !l->unsafe) {
				submit_step(l, LAYERS_SYNC_INDEX, BLOCK_FLUSH, index_place);
				return;
			}
			__attribute__((fallthrough));
		case LAYERS_SYNC_INDEX:
			if (!l->compact.switching)
				break;
			submit_step(l, LAYERS_WRITE_HEADER, BLOCK_WRITE, index_place);
			return;
		case LAYERS_WRITE_HEADER:
			if (!l->compact.switching)
				break;
			if (!l->unsafe) {
				submit_step(l, LAYERS_SYNC_HEADER, BLOCK_FLUSH, index_place);
				return;
			}
			__attribute__((fallthrough));
		case LAYERS_SYNC_HEADER:
			layers_compact_switched(l);
			break;
		case LAYERS_BETWEEN:
			break;
		}
		if (l->step_log == l->current) {
			layers_space_logged(&l->space);
			end_round(l, 0);
			return;
		}
		l->carry = false;
		l->step_log = l->current;
		done = LAYERS_IDLE;
	}
}

/* The entries of this round are in the file, or in both logs. */
static void took_entries(struct block_layers *l, struct layers_log *g, bool both)
{
	uint64_t bytes = (uint64_t)l->step_entries * LSMT_ENTRY_BYTES;

	g->head += l->step_entries;
	g->file_end += bytes;
	g->index_dirty |= !(l->step_req.flags & BLOCK_F_DURABLE);
	if (both)
		l->compact.end += bytes;
	l->step_entries = 0;
}

static void on_step(struct block_request *r, int result)
{
	struct block_layers *l = container_of(r, struct block_layers, step_req);
	struct layers_log *g = &l->log[l->step_log];

	if (l->step == LAYERS_BETWEEN) {
		l->step = LAYERS_IDLE;
		layers_compact_stepped(l, result);
		layers_log_poke(l);
		return;
	}
	if (l->step == LAYERS_WRITE_COPY && result < 0 && layers_compact_give_up(l)) {
		took_entries(l, g, false);
		result = 0;
	} else if (l->step == LAYERS_WRITE_HEADER && result < 0) {
		/* What the round was asked for is done. */
		layers_compact_in_doubt(l);
		result = 0;
	}
	if (result < 0) {
		/* A durable append that found no room is written again as a whole, with whatever the kernel has dropped of it. */
		l->broken |= l->step_req.op == BLOCK_FLUSH || (result == -EIO && (l->step_req.flags & BLOCK_F_DURABLE));
		end_round(l, result);
		layers_log_poke(l);
		return;
	}
	if (l->step == LAYERS_WRITE_INDEX && !(l->step_log == l->current && layers_compact_doubles(l)))
		took_entries(l, g, false);
	else if (l->step == LAYERS_WRITE_COPY && l->step_entries)
		took_entries(l, g, true);
	else if (l->step == LAYERS_SYNC_INDEX)
		g->index_dirty = false;
	next_step(l, l->step);
	layers_log_poke(l);
}

static void begin_round(struct block_layers *l)
{
	l->batch = l->flushes.head;
	l->flushes = (struct layers_list){ 0 };
	l->step_log = l->carry ? !l->current : l->current;
	if (l->broken)
		end_round(l, -EIO);
	else
		next_step(l, LAYERS_IDLE);
}

/* Must entries be written without being asked? Not after a failure: a request tries again. */
static bool wants_room(const struct block_layers *l)
{
	uint32_t n = used(&l->log[l->current]);

	if (!l->has_top || l->log_error || l->broken)
		return false;
	return (n && (l->full || n >= LAYERS_LOG_WRITE)) || layers_space_wants_round(&l->space, l->full) ||
	       layers_compact_wants_round(l);
}

/* A step of the log's rewriting, and no round that has waited for the last one. */
static bool step_between(struct block_layers *l, bool round)
{
	if ((round && !l->compact.turn) || !layers_compact_ready(l))
		return false;
	l->compact.turn = false;
	l->step_req = (struct block_request){ .file = (uint16_t)(LAYERS_FILE_INDEX0 + l->current), .done = on_step };
	if (!layers_compact_step(l))
		return false;
	l->step = LAYERS_BETWEEN;
	l->io->ops->submit(l->io, &l->step_req);
	return true;
}

void layers_log_poke(struct block_layers *l)
{
	while (l->step == LAYERS_IDLE) {
		bool round = l->flushes.head || wants_room(l);

		if (step_between(l, round))
			return;
		if (!round && !l->flushes.head && !wants_room(l))
			return;
		begin_round(l);
		l->compact.turn = true;
	}
}

static void nothing(struct block_request *r, int result)
{
	(void)r;
	(void)result;
}

int layers_log_finish(struct block_layers *l)
{
	struct block_request flush = { .op = BLOCK_FLUSH, .done = nothing };

	if (!l->has_top)
		return 0;
	l->draining = true;
	do { /* a round may be under way, begun before what came last */
		l->io->ops->drain(l->io);
	} while (l->step != LAYERS_IDLE);
	layers_log_flush(l, &flush);
	layers_log_poke(l);
	l->io->ops->drain(l->io);
	l->draining = false;
	return l->log_error;
}
