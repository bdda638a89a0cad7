/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: a stack of read-only LSMT layers over an optional raw image, with one writable top
 * (docs/layers.md).
 *
 * How it works: one index in memory (lsmt_index.h) says which file supplies each sector.
 *   read   split where the index says, each piece read from its file into its part of the caller's iovecs; holes and
 *          zeroed ranges are read from an empty memfd, so that the kernel writes guest memory as everywhere else
 *   write  put where the top's data file has room, with those that came with it and lie beside it; when the data are there,
 *          index and log get the entry
 *   discard, write zeroes   a zeroed entry; nothing where nothing is mapped
 *   flush  a round of the log (block_layers_log.c); durable writes wait for one
 * Data in use are never written again, and what they displace is free only when no read under way can have found it
 * (block_layers_space.c). So a read goes on to see what it found, and of writes that overlap the one whose data arrive last
 * wins as a whole.
 *
 * Requests wait in `todo`, in order, while the pool of parts is empty or the log is full. Nothing is allocated after
 * opening: pool, rings and index are there (the index as reserved memory). An index that is full makes writes fail.
 *
 * Before layers are attached every request fails with -EIO.
 *
 * Threads: as block.h. Trust: layers are hostile, lsmt_read.c checks them; the device has checked the guest's
 * requests.
 * Snapshot: the files are; the size is the device's.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/util.h"

#define ZEROS_SIZE (1ull << 46) /* no request reads more */

void layers_append(struct layers_list *l, struct block_request *r)
{
	r->next = NULL;
	if (l->head)
		l->tail->next = r;
	else
		l->head = r;
	l->tail = r;
}

struct layers_sub *layers_sub_get(struct block_layers *l)
{
	struct layers_sub *s = l->free;

	if (s)
		l->free = s->next_free;
	return s;
}

void layers_sub_put(struct layers_sub *s)
{
	s->next_free = s->l->free;
	s->l->free = s;
	s->l->again = true;
}

void layers_part_done(struct block_request *r, int result)
{
	if (result < 0)
		r->result = result;
	if (--r->parts == 0)
		r->done(r, r->result);
}

/* The file and place of what is at r->pos, and how far it goes. */
static void resolve(const struct block_layers *l, const struct block_request *r, uint16_t *place, uint64_t *off,
		    uint64_t *len)
{
	struct lsmt_seg s;
	bool mapped = lsmt_index_lookup(&l->index, r->pos / BLOCK_SECTOR, r->left / BLOCK_SECTOR, &s);

	*len = (uint64_t)s.length * BLOCK_SECTOR;
	*place = LAYERS_FILE_ZEROS;
	*off = 0;
	if (mapped && !s.zeroed) {
		*place = (uint16_t)(LAYERS_FILE_TAG0 + s.tag);
		*off = s.moffset * BLOCK_SECTOR;
	} else if (!mapped && r->pos < l->base_size) {
		*place = LAYERS_FILE_BASE;
		*off = r->pos;
		*len = MIN(*len, l->base_size - r->pos);
	}
}

static void on_read(struct block_request *req, int result)
{
	struct layers_sub *s = container_of(req, struct layers_sub, req);
	struct block_request *parent = s->parent;

	s->l->space.reads[s->epoch]--;
	layers_sub_put(s);
	layers_part_done(parent, result);
}

/* Whole elements are used in place. */
uint64_t layers_take_iov(struct layers_sub *s, struct block_request *r, uint64_t len)
{
	uint64_t n = 0;

	while (r->niov && r->iov->iov_len == 0) {
		r->iov++;
		r->niov--;
	}
	if (r->niov == 0)
		return 0;
	if (r->iov->iov_len > len) {
		s->iov = (struct iovec){ r->iov->iov_base, len };
		s->req.iov = &s->iov;
		s->req.niov = 1;
		r->iov->iov_base = (char *)r->iov->iov_base + len;
		r->iov->iov_len -= len;
		return len;
	}
	s->req.iov = r->iov;
	s->req.niov = 0;
	while (r->niov && r->iov->iov_len <= len - n) {
		n += r->iov->iov_len;
		s->req.niov++;
		r->iov++;
		r->niov--;
	}
	return n;
}

/* Each start_ function: false when it must wait; it is called again then, with r->pos and r->left where it stopped. */
static bool start_read(struct block_layers *l, struct block_request *r)
{
	while (r->left) {
		uint64_t off, len;
		uint16_t place;

		resolve(l, r, &place, &off, &len);
		while (len && l->source[place]) {
			int64_t n = layers_source_read(l, r, l->source[place], off, len);

			if (n == 0)
				return false;
			if (n < 0) {
				r->result = (int)n;
				r->left = 0;
				return true;
			}
			r->pos += (uint64_t)n;
			r->left -= (uint64_t)n;
			off += (uint64_t)n;
			len -= (uint64_t)n;
		}
		while (len) {
			struct layers_sub *s = layers_sub_get(l);
			uint64_t n;

			if (!s)
				return false;
			s->parent = r;
			s->req =
			    (struct block_request){ .op = BLOCK_READ, .offset = off, .file = place, .done = on_read };
			n = layers_take_iov(s, r, len);
			if (n == 0) { /* iovecs shorter than the request */
				layers_sub_put(s);
				r->result = -EIO;
				r->left = 0;
				return true;
			}
			s->req.len = n;
			s->epoch = l->space.epoch;
			l->space.reads[s->epoch]++;
			r->parts++;
			r->pos += n;
			r->left -= n;
			off += n;
			len -= n;
			l->io->ops->submit(l->io, &s->req);
		}
	}
	return true;
}

/* Room in the log for n entries, and for what they displace. False: wait; or, when the log cannot be written,
 * *ret_error. */
static bool log_room(struct block_layers *l, uint32_t n, uint64_t sectors, bool write, int *ret_error)
{
	*ret_error = 0;
	if (layers_log_has_room(l, n) && layers_space_has_room(&l->space, sectors, write))
		return true;
	if (l->step == LAYERS_IDLE && (l->log_error || l->broken)) {
		*ret_error = l->log_error ? l->log_error : -EIO;
		l->log_error = 0; /* the next request has it tried again */
		return true;
	}
	l->full = true;
	return false;
}

static uint32_t entries_of(uint64_t bytes)
{
	return (uint32_t)((bytes / BLOCK_SECTOR + LSMT_LENGTH_MAX - 1) / LSMT_LENGTH_MAX);
}

/* Index and log get what the top says of [sector, sector + n), n <= LSMT_LENGTH_MAX. */
static int map_range(struct block_layers *l, uint64_t sector, uint32_t n, uint64_t moffset, bool zeroed)
{
	const struct lsmt_seg s = { .offset = sector, .length = n, .moffset = moffset, .zeroed = zeroed, .tag = l->top };

	if (lsmt_index_full(&l->index))
		return -ENOMEM;
	if (!layers_space_displace(l, sector, n))
		return -EIO;
	lsmt_index_insert(&l->index, &s);
	layers_log_add(l, &s);
	return 0;
}

static uint64_t place_sectors(const struct block_request *r)
{
	return ALIGN_UP(r->len / BLOCK_SECTOR, (uint64_t)LAYERS_BLOCK);
}

/* The data of r are in the file, at moffset; or not. */
static void written(struct block_layers *l, struct block_request *r, uint64_t moffset, int result)
{
	uint64_t sectors = r->len / BLOCK_SECTOR, done = 0;

	l->reserved -= entries_of(r->len);
	layers_space_written(&l->space, sectors);
	if (result == 0)
		l->log[l->current].data_dirty = true;
	while (result == 0 && done < sectors) {
		uint32_t n = (uint32_t)MIN(sectors - done, (uint64_t)LSMT_LENGTH_MAX);

		result = map_range(l, r->offset / BLOCK_SECTOR + done, n, moffset + done, false);
		if (result == 0)
			done += n;
	}
	if (done < sectors)
		layers_space_put(l, moffset + done, sectors - done);
	if (result == 0 && (r->flags & BLOCK_F_DURABLE)) {
		r->parts--;
		layers_log_flush(l, r);
	} else {
		layers_part_done(r, result);
	}
}

static void on_write(struct block_request *req, int result);

static void prepare_write(struct layers_sub *s)
{
	s->req = (struct block_request){
		.op = BLOCK_WRITE,
		.offset = s->moffset * BLOCK_SECTOR,
		.len = s->parent->len,
		.iov = s->parent->iov,
		.niov = s->parent->niov,
		.file = (uint16_t)(LAYERS_FILE_TAG0 + s->l->top),
		.done = on_write,
	};
}

static void on_write(struct block_request *req, int result)
{
	struct layers_sub *s = container_of(req, struct layers_sub, req);
	struct block_layers *l = s->l;
	struct block_request *r = s->parent, *last = s->apart ? r : s->last, *next;
	uint64_t moffset = s->moffset;

	if (result < 0 && r != last) { /* some may succeed alone */
		s->apart = true;
		prepare_write(s);
		l->io->ops->submit(l->io, &s->req);
		return;
	}
	if (last != s->last) {
		s->parent = last->next;
		s->moffset = moffset + place_sectors(r);
		prepare_write(s);
		l->io->ops->submit(l->io, &s->req);
	} else {
		layers_sub_put(s);
	}
	for (;; r = next) {
		uint64_t behind = moffset + place_sectors(r);
		bool end = r == last;

		next = r->next;
		written(l, r, moffset, result); /* r may be gone */
		if (end)
			break;
		moffset = behind;
	}
	layers_log_poke(l);
}

/* Does r, whose place is moffset, go on where the write that is held ends? Then it goes with that. */
static bool join(struct block_layers *l, struct block_request *r, uint64_t moffset)
{
	struct layers_sub *s = l->held;

	if (!s || s->req.offset + s->req.len != moffset * BLOCK_SECTOR || s->req.len + r->len > LAYERS_JOIN_BYTES ||
	    s->req.niov + r->niov > LAYERS_JOIN_IOVS)
		return false;
	if (s->last == s->parent) {
		memcpy(s->joined, s->req.iov, (size_t)s->req.niov * sizeof(*s->joined));
		s->req.iov = s->joined;
	}
	memcpy(s->joined + s->req.niov, r->iov, (size_t)r->niov * sizeof(*s->joined));
	s->req.niov += r->niov;
	s->req.len += r->len;
	s->last->next = r;
	s->last = r;
	return true;
}

static void submit_held(struct block_layers *l)
{
	struct layers_sub *s = l->held;

	l->held = NULL;
	if (s)
		l->io->ops->submit(l->io, &s->req);
}

/* Writes that come together mostly find places in a row: those are one request to the file. */
static bool start_write(struct block_layers *l, struct block_request *r)
{
	uint64_t sectors = r->len / BLOCK_SECTOR, moffset;
	struct layers_sub *s;
	int error;

	if (sectors > LSMT_MOFFSET_MAX / 2 - l->cursor || entries_of(r->len) > LAYERS_LOG_ENTRIES) {
		r->result = -ENOSPC;
		return true;
	}
	if (!log_room(l, entries_of(r->len), sectors, true, &error))
		return false;
	if (error) {
		r->result = error;
		return true;
	}
	s = layers_sub_get(l);
	if (!s)
		return false;
	moffset = layers_space_take(l, sectors);
	l->reserved += entries_of(r->len);
	r->left = 0;
	r->parts++;
	if (join(l, r, moffset)) {
		s->next_free = l->free; /* unused: nothing has become possible */
		l->free = s;
		return true;
	}
	submit_held(l);
	s->parent = s->last = r;
	s->moffset = moffset;
	s->apart = false;
	prepare_write(s);
	l->held = s;
	return true;
}

/* Does [sector, sector + n) read as zeros because nothing has ever said anything of it? */
static bool is_hole(const struct block_layers *l, uint64_t sector, uint64_t n)
{
	struct lsmt_seg s;

	return sector * BLOCK_SECTOR >= l->base_size && !lsmt_index_lookup(&l->index, sector, n, &s) && s.length == n;
}

static bool start_zero(struct block_layers *l, struct block_request *r)
{
	while (r->left) {
		uint64_t sector = r->pos / BLOCK_SECTOR;
		uint32_t n = (uint32_t)MIN(r->left / BLOCK_SECTOR, (uint64_t)LSMT_LENGTH_MAX);
		int error = 0;

		if (!is_hole(l, sector, n)) {
			if (!log_room(l, 1, n, false, &error))
				return false;
			if (error == 0)
				error = map_range(l, sector, n, 0, true);
		}
		if (error < 0) {
			r->result = error;
			r->left = 0;
			return true;
		}
		r->pos += (uint64_t)n * BLOCK_SECTOR;
		r->left -= (uint64_t)n * BLOCK_SECTOR;
	}
	return true;
}

static bool start(struct block_layers *l, struct block_request *r)
{
	if (!l->attached) {
		r->result = -EIO;
		return true;
	}
	if (r->op != BLOCK_READ && r->op != BLOCK_FLUSH && !l->has_top) {
		r->result = -EROFS;
		return true;
	}
	switch (r->op) {
	case BLOCK_READ:
		return start_read(l, r);
	case BLOCK_WRITE:
		return start_write(l, r);
	case BLOCK_DISCARD:
	case BLOCK_WRITE_ZEROES:
		return start_zero(l, r);
	case BLOCK_FLUSH:
		break;
	}
	return true;
}

static bool wants_flush(const struct block_layers *l, const struct block_request *r)
{
	if (r->result < 0 || !l->has_top)
		return false;
	return r->op == BLOCK_FLUSH || (r->op == BLOCK_WRITE_ZEROES && (r->flags & BLOCK_F_DURABLE));
}

/* Start what can be started. While a request is in `todo`, one of its parts is the start itself. */
static void pump(struct block_layers *l)
{
	struct block_request *r;

	while ((r = l->todo.head)) {
		if (!start(l, r))
			break;
		l->todo.head = r->next;
		if (wants_flush(l, r)) {
			r->parts--;
			layers_log_flush(l, r);
		} else {
			layers_part_done(r, 0);
		}
	}
	submit_held(l);
	layers_log_poke(l);
}

void layers_run(struct block_layers *l)
{
	do {
		l->again = false;
		pump(l);
		l->io->ops->kick(l->io);
		if (l->slow.io->inflight)
			l->slow.io->ops->kick(l->slow.io);
	} while (layers_space_poke(l) || (l->again && l->todo.head));
}

static void layers_submit(struct block *b, struct block_request *r)
{
	struct block_layers *l = layers_of(b);

	r->pos = r->offset;
	r->left = r->op == BLOCK_FLUSH ? 0 : r->len;
	r->result = 0;
	r->parts = 1;
	if (l->unsafe)
		r->flags &= ~(uint32_t)BLOCK_F_DURABLE;
	layers_append(&l->todo, r);
	l->again = true;
	if (r->op == BLOCK_READ)
		lsmt_index_approach(&l->index, &l->approach, r->pos / BLOCK_SECTOR);
}

static void layers_kick(struct block *b)
{
	layers_run(layers_of(b));
}

static void layers_complete(struct block *b)
{
	struct block_layers *l = layers_of(b);

	l->compact.waiting = false;
	l->io->ops->complete(l->io);
	l->slow.io->ops->reap(l->slow.io); /* behind the reading of the event that both share */
	layers_run(l);
}

static void layers_drain(struct block *b)
{
	struct block_layers *l = layers_of(b);

	l->draining = true;
	do {
		layers_run(l);
		l->io->ops->drain(l->io);
		l->slow.io->ops->drain(l->slow.io);
		layers_source_wait(l);
	} while (l->todo.head || l->flushes.head || l->io->inflight || l->slow.io->inflight || l->slow.parked);
	l->draining = false;
}

static int layers_start(struct block *b, struct vm *vm, struct err *err)
{
	struct block_layers *l = layers_of(b);
	int r = l->io->ops->start ? l->io->ops->start(l->io, vm, err) : 0;

	/* Layers that come later may be compressed, and no thread can be made then. */
	if (r == 0 && (!l->attached || l->slow.slot))
		r = l->slow.io->ops->start(l->slow.io, vm, err);
	return r;
}

static void layers_close(struct block *b)
{
	struct block_layers *l = layers_of(b);

	if (l->io && l->attached)
		layers_log_finish(l); /* its error was the guest's, if it ever flushed; nobody is left to tell */
	if (l->io)
		l->io->ops->close(l->io);
	if (l->slow.io)
		l->slow.io->ops->close(l->slow.io);
	layers_slow_finish(l);
	for (size_t i = 0; i < ARRAY_SIZE(l->layer_fd); i++)
		fd_close(l->layer_fd[i]);
	for (int i = 0; i < 2; i++) {
		fd_close(l->log[i].index_fd);
		free(l->log[i].ring);
	}
	fd_close(l->base_fd);
	fd_close(l->zero_fd);
	fd_close(b->event_fd);
	lsmt_index_finish(&l->index);
	layers_space_finish(&l->space);
	free(l->compact.slice);
	free(l->subs);
	free(l);
}

static const struct block_ops layers_ops = {
	.submit = layers_submit,
	.kick = layers_kick,
	.complete = layers_complete,
	.drain = layers_drain,
	.start = layers_start,
	.close = layers_close,
};

bool block_is_layers(const struct block *b)
{
	return b->ops == &layers_ops;
}

static int open_all(struct block_layers *l, const struct block_config *c, struct err *err)
{
	int files[LAYERS_FILES];
	int r;

	l->b.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->zero_fd = memfd_create("zeros", MFD_CLOEXEC);
	if (l->b.event_fd < 0 || l->zero_fd < 0 || ftruncate(l->zero_fd, (off_t)ZEROS_SIZE) < 0)
		return err_errno(err, -errno, "a disk of layers");
	l->subs = calloc(LAYERS_SUBS, sizeof(*l->subs));
	for (int i = 0; i < 2; i++)
		l->log[i].ring = calloc(LAYERS_LOG_ENTRIES, LSMT_ENTRY_BYTES);
	l->compact.slice = malloc((size_t)LAYERS_SLICE * LSMT_ENTRY_BYTES);
	l->compact.slice_max = LAYERS_SLICE;
	l->compact.floor = LAYERS_LOG_FLOOR;
	l->compact.times = LAYERS_LOG_TIMES;
	if (layers_space_init(&l->space) < 0 || !l->subs || !l->log[0].ring || !l->log[1].ring || !l->compact.slice)
		return err_errno(err, -ENOMEM, "a disk of layers");
	for (int i = LAYERS_SUBS - 1; i >= 0; i--) {
		l->subs[i].l = l;
		l->subs[i].next_free = l->free;
		l->free = &l->subs[i];
	}
	for (int i = 0; i < LAYERS_FILES; i++)
		files[i] = i == LAYERS_FILE_ZEROS ? l->zero_fd : -1;
	r = block_io_open(c, &l->b, LAYERS_SUBS + 1 + LAYERS_PUNCHES, files, LAYERS_FILES, &l->io, err);
	if (r == 0)
		r = block_threads_open(NULL, 0, l->b.event_fd, LAYERS_THREADS, &l->slow.io, err);
	if (r < 0)
		return r;
	if (c->size) {
		r = lsmt_index_init(&l->index, c->size / BLOCK_SECTOR, err);
		if (r < 0)
			return r;
	}
	return c->stack ? block_layers_attach(&l->b, c->stack, err) : 0;
}

int block_layers_open(const struct block_config *c, struct block **ret, struct err *err)
{
	struct block_layers *l;
	int r = block_io_check(c, err);

	if (r < 0)
		return r;
	if (c->cache && strcmp(c->cache, "none") == 0)
		return err_set(err, -EINVAL, "cache=none is not for layers: use writeback, writethrough or unsafe");
	if (c->size > LSMT_VIRTUAL_MAX)
		return err_set(err, -EINVAL, "a disk of layers has %" PRIu64 " bytes at most, not %" PRIu64,
			       (uint64_t)LSMT_VIRTUAL_MAX, c->size);
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_errno(err, -ENOMEM, "a disk of layers");
	l->b.ops = &layers_ops;
	l->b.ro = c->ro || (c->stack && c->stack->top_data_fd < 0);
	l->b.size = c->size;
	l->sized = c->size != 0;
	l->b.writethrough = c->cache && strcmp(c->cache, "writethrough") == 0;
	l->unsafe = c->cache && strcmp(c->cache, "unsafe") == 0;
	l->b.event_fd = l->zero_fd = l->base_fd = l->log[0].index_fd = l->log[1].index_fd = -1;
	for (size_t i = 0; i < ARRAY_SIZE(l->layer_fd); i++)
		l->layer_fd[i] = -1;
	r = open_all(l, c, err);
	if (r < 0) {
		layers_close(&l->b);
		return r;
	}
	*ret = &l->b;
	return 0;
}
