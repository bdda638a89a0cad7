/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading LSMT layers: sealed ones, and pairs as they were left.
 *
 * A pair's index file is a log. While it was written, no entry went to it before its data were on stable storage
 * (block_layers_log.c), so what a cut of power leaves is some prefix of it, then perhaps pieces of the batch that was
 * under way. The log ends at the first entry that cannot be one; the file is cut there, or pieces behind it would
 * come back to life once new entries fill the gap. New data go behind everything the data file holds. A log that was
 * written anew stands at the other of two places in the file; what the place that is not the log's holds is removed.
 *
 * Trust: every byte is hostile. Sizes are checked against the file before anything is read by them.
 */
/* syscalls(main): pread64 ftruncate fdatasync fallocate */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>


#include "devices/backend/lsmt_format.h"
#include "lib/fd.h"
#include "lib/util.h"

static ssize_t read_fd(void *ctx, void *buf, size_t n, uint64_t off)
{
	return fd_pread_full((int)(intptr_t)ctx, buf, n, (off_t)off);
}

static struct lsmt_bytes bytes_of(int fd, uint64_t size)
{
	return (struct lsmt_bytes){ .read_at = read_fd, .ctx = (void *)(intptr_t)fd, .size = size };
}

static int read_head(const struct lsmt_bytes *b, uint64_t off, const char *name, const char *what, struct lsmt_head *ret,
		     struct err *err)
{
	uint8_t block[LSMT_BLOCK];
	ssize_t n = b->read_at(b->ctx, block, sizeof(block), off);

	if (n != (ssize_t)sizeof(block))
		return err_errno(err, n < 0 ? (int)n : -EIO, "%s: read its %s", name, what);
	return lsmt_head_decode(block, name, what, ret, err);
}

int lsmt_sealed_open(int fd, const char *name, struct lsmt_sealed *ret, struct err *err)
{
	struct lsmt_bytes b = bytes_of(fd, 0);
	int r = lsmt_check_fd(fd, false, name, &b.size, err);

	return r < 0 ? r : lsmt_sealed_open_bytes(&b, name, ret, err);
}

static bool is_padding(const struct lsmt_seg *s)
{
	return s->length == 0 && s->offset == LSMT_OFFSET_MAX;
}

/* Between index and trailer there is nothing but padding: what is more has been an entry before the trailer was damaged. */
static int check_tail(const struct lsmt_bytes *b, const char *name, const struct lsmt_head *t, uint64_t end, struct err *err)
{
	uint64_t at = t->index_offset + t->index_entries * LSMT_ENTRY_BYTES, n = end - at;
	uint8_t tail[LSMT_BLOCK];
	ssize_t got;

	if (t->index_offset % 512 != 0 || n > sizeof(tail))
		return err_set(err, -EINVAL, "%s: its trailer is damaged: the index would end at %" PRIu64 ", %" PRIu64 " bytes before it", name, at,
			       n);
	got = n == 0 ? 0 : b->read_at(b->ctx, tail, n, at);
	if (got < 0 || (uint64_t)got != n)
		return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read behind its index", name);
	for (uint64_t i = 0; i + LSMT_ENTRY_BYTES <= n; i += LSMT_ENTRY_BYTES) {
		static const uint8_t none[LSMT_ENTRY_BYTES];
		struct lsmt_seg s;

		lsmt_entry_decode(tail + i, &s);
		if (!is_padding(&s) && memcmp(tail + i, none, sizeof(none)) != 0)
			return err_set(err, -EINVAL, "%s: its trailer is damaged: there are more than the %" PRIu64 " index entries that it says", name,
				       t->index_entries);
	}
	return 0;
}

int lsmt_sealed_open_bytes(const struct lsmt_bytes *b, const char *name, struct lsmt_sealed *ret, struct err *err)
{
	struct lsmt_head h = { 0 }, t = { 0 };
	uint64_t size = b->size, bytes;
	int r;

	if (size < 2 * LSMT_BLOCK)
		return err_set(err, -EINVAL, "%s: %" PRIu64 " bytes are too short for a sealed layer", name, size);
	r = read_head(b, 0, name, "header", &h, err);
	if (r < 0)
		return r;
	if (!(h.flags & LSMT_FLAG_HEADER) || !(h.flags & LSMT_FLAG_DATA))
		return err_set(err, -EINVAL, "%s: flags %#x: not a layer's data file", name, h.flags);
	if (!(h.flags & LSMT_FLAG_SEALED))
		return err_set(err, -EINVAL, "%s: the layer is not sealed", name);
	r = read_head(b, size - LSMT_BLOCK, name, "trailer", &t, err);
	if (r < 0)
		return r;
	if ((t.flags & LSMT_FLAG_HEADER) || !(t.flags & LSMT_FLAG_DATA) || !(t.flags & LSMT_FLAG_SEALED))
		return err_set(err, -EINVAL, "%s: flags %#x in its trailer: not a sealed layer's", name, t.flags);
	if (t.virtual_size != h.virtual_size)
		return err_set(err, -EINVAL,
			       "%s: a disk of %" PRIu64 " bytes in its header, of %" PRIu64 " in its trailer", name,
			       h.virtual_size, t.virtual_size);
	if (t.index_entries > LSMT_ENTRIES_MAX)
		return err_set(err, -EINVAL, "%s: an index of %" PRIu64 " entries: %d at most", name, t.index_entries,
			       LSMT_ENTRIES_MAX);
	bytes = t.index_entries * LSMT_ENTRY_BYTES;
	if (t.index_offset < LSMT_BLOCK || t.index_offset > size - LSMT_BLOCK ||
	    bytes > size - LSMT_BLOCK - t.index_offset)
		return err_set(err, -EINVAL,
			       "%s: its index (%" PRIu64 " bytes at %" PRIu64 ") does not fit its %" PRIu64 " bytes",
			       name, bytes, t.index_offset, size);
	r = check_tail(b, name, &t, size - LSMT_BLOCK, err);
	if (r < 0)
		return r;
	*ret = (struct lsmt_sealed){ .head = t, .file_size = size, .data_end = t.index_offset / 512 };
	return 0;
}

/* Read n entries; short files give -EIO. */
static int read_entries(const struct lsmt_bytes *b, uint64_t off, uint64_t n, const char *name, uint8_t *buf,
			struct err *err)
{
	ssize_t got = b->read_at(b->ctx, buf, n * LSMT_ENTRY_BYTES, off);

	if (got < 0)
		return err_errno(err, (int)got, "%s: read its index at %" PRIu64, name, off);
	if ((uint64_t)got != n * LSMT_ENTRY_BYTES)
		return err_set(err, -EIO, "%s: its index ends early, at %" PRIu64, name, off + (uint64_t)got);
	return 0;
}

int64_t lsmt_sealed_walk(int fd, const char *name, const struct lsmt_sealed *l, uint8_t *buf, lsmt_each *each,
			 void *arg, struct err *err)
{
	struct lsmt_bytes b = bytes_of(fd, l->file_size);

	return lsmt_sealed_walk_bytes(&b, name, l, buf, each, arg, err);
}

/* n entries behind those that are there. */
static int take_entries(struct lsmt_walk *w, uint32_t n, struct err *err)
{
	uint64_t sectors = w->layer->head.virtual_size / 512;

	for (uint8_t *p = w->buf + (size_t)w->n * LSMT_ENTRY_BYTES, *end = p + (size_t)n * LSMT_ENTRY_BYTES; p < end;
	     p += LSMT_ENTRY_BYTES, w->done++) {
		const char *fault;
		struct lsmt_seg s;

		lsmt_entry_decode(p, &s);
		if (is_padding(&s))
			continue;
		fault = s.offset < w->next ? "overlaps or comes before its predecessor"
					   : lsmt_seg_fault(&s, sectors, w->layer->data_end);
		if (fault)
			return err_set(err, -EINVAL, "%s: index entry %" PRIu64 " (sectors %" PRIu64 "+%u) %s", w->name,
				       w->done, s.offset, s.length, fault);
		w->next = s.offset + s.length;
		memcpy(w->buf + (size_t)w->n++ * LSMT_ENTRY_BYTES, p, LSMT_ENTRY_BYTES);
	}
	return 0;
}

int lsmt_walk_fill(struct lsmt_walk *w, uint32_t want, struct err *err)
{
	uint64_t total = w->layer->head.index_entries;

	if (w->n - w->at >= want)
		return 0;
	memmove(w->buf, w->buf + (size_t)w->at * LSMT_ENTRY_BYTES, (size_t)(w->n - w->at) * LSMT_ENTRY_BYTES);
	w->n -= w->at;
	w->at = 0;
	while (w->n < want && w->done < total) {
		uint32_t n = (uint32_t)MIN(total - w->done, (uint64_t)(w->room - w->n));
		int r = read_entries(w->bytes, w->layer->head.index_offset + w->done * LSMT_ENTRY_BYTES, n, w->name,
				     w->buf + (size_t)w->n * LSMT_ENTRY_BYTES, err);

		if (r == 0)
			r = take_entries(w, n, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int64_t lsmt_sealed_walk_bytes(const struct lsmt_bytes *b, const char *name, const struct lsmt_sealed *l, uint8_t *buf,
			       lsmt_each *each, void *arg, struct err *err)
{
	struct lsmt_walk w = { .bytes = b, .name = name, .layer = l, .buf = buf, .room = LSMT_READ_ENTRIES };
	int64_t count = 0;

	for (;;) {
		int r = lsmt_walk_fill(&w, 1, err);

		if (r < 0)
			return r;
		if (w.n == 0)
			return count;
		for (; each && w.at < w.n; w.at++) {
			struct lsmt_seg s;

			lsmt_entry_decode(buf + (size_t)w.at * LSMT_ENTRY_BYTES, &s);
			s.tag = 0;
			r = each(arg, &s);
			if (r < 0)
				return err_errno(err, r, "%s: index entry of sectors %" PRIu64 "+%u", name, s.offset, s.length);
		}
		count += w.n;
		w.at = w.n;
	}
}

/* The two headers, and whether they are of one pair. */
static int pair_heads(int data_fd, int index_fd, const char *name, struct lsmt_pair *ret, uint64_t *index_size,
		      struct err *err)
{
	struct lsmt_head d = { 0 }, x = { 0 };
	uint64_t size = 0;
	int r = lsmt_check_fd(data_fd, true, name, &size, err);

	if (r == 0)
		r = lsmt_check_fd(index_fd, true, name, index_size, err);
	if (r == 0)
		r = lsmt_head_read(data_fd, 0, name, "data file's header", &d, err);
	if (r == 0)
		r = lsmt_head_read(index_fd, 0, name, "index file's header", &x, err);
	if (r < 0)
		return r;
	if (!(d.flags & LSMT_FLAG_HEADER) || !(d.flags & LSMT_FLAG_DATA))
		return err_set(err, -EINVAL, "%s: flags %#x: not a layer's data file", name, d.flags);
	if (!(x.flags & LSMT_FLAG_HEADER) || (x.flags & LSMT_FLAG_DATA))
		return err_set(err, -EINVAL, "%s: flags %#x: not a layer's index file", name, x.flags);
	if (d.flags & LSMT_FLAG_SEALED)
		return err_set(err, -EINVAL, "%s: the layer is sealed: it cannot be written", name);
	if (d.virtual_size != x.virtual_size || strcmp(d.uuid, x.uuid) != 0)
		return err_set(err, -EINVAL,
			       "%s: data and index file do not belong together (%s of %" PRIu64 " bytes, %s of %" PRIu64
			       ")",
			       name, d.uuid, d.virtual_size, x.uuid, x.virtual_size);
	*ret = (struct lsmt_pair){
		.head = d,
		.data_end = ALIGN_UP(size, (uint64_t)LSMT_BLOCK) / 512,
		.second = x.flags & LSMT_FLAG_LOG_SECOND,
	};
	ret->index_end = lsmt_log_start(ret->second);
	if (*index_size < ret->index_end)
		return err_set(err, -EINVAL,
			       "%s: its index file has %" PRIu64 " bytes, its entries should begin at %" PRIu64, name,
			       *index_size, ret->index_end);
	/* What can be written there must be expressible in an entry. */
	if (size > LSMT_VIRTUAL_MAX)
		return err_set(err, -EINVAL, "%s: a data file of %" PRIu64 " bytes is too long", name, size);
	return 0;
}

int lsmt_pair_check_empty(int data_fd, int index_fd, const char *name, uint64_t virtual_size, struct lsmt_pair *ret,
			  struct err *err)
{
	uint64_t index_size = 0;
	int r = pair_heads(data_fd, index_fd, name, ret, &index_size, err);

	if (r < 0)
		return r;
	if (ret->head.virtual_size != virtual_size)
		return err_set(err, -EINVAL, "%s: a disk of %" PRIu64 " bytes, this one has %" PRIu64, name,
			       ret->head.virtual_size, virtual_size);
	if (ret->data_end != LSMT_HEADER_SECTORS || index_size != LSMT_BLOCK || ret->second)
		return err_set(err, -EINVAL, "%s: not empty", name);
	return 0;
}

/* Remove all that is in the index file besides header and log. */
static int cut_log(int fd, const char *name, uint64_t size, struct lsmt_pair *p, struct err *err)
{
	if (p->index_end == size && !p->second)
		return 0;
	if (p->second)
		p->one_log = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, LSMT_BLOCK,
				       (off_t)(LSMT_LOG_SECOND - LSMT_BLOCK)) < 0;
	if ((p->index_end != size && ftruncate(fd, (off_t)p->index_end) < 0) || fdatasync(fd) < 0)
		return err_errno(err, -errno, "%s: cut its index to %" PRIu64 " bytes", name, p->index_end);
	return 0;
}

int lsmt_pair_open(int data_fd, int index_fd, const char *name, uint8_t *buf, lsmt_each *each, void *arg,
		   struct lsmt_pair *ret, struct err *err)
{
	uint64_t index_size = 0, data_size = 0, data_end, sectors, limit;
	struct lsmt_pair p = { 0 };
	struct lsmt_bytes log = bytes_of(index_fd, 0);
	bool whole = true, blank = false;
	int r = pair_heads(data_fd, index_fd, name, &p, &index_size, err);

	if (r < 0)
		return r;
	r = lsmt_check_fd(data_fd, true, name, &data_size, err);
	if (r < 0)
		return r;
	data_end = data_size / 512;
	sectors = p.head.virtual_size / 512;
	limit = MIN(index_size, lsmt_log_limit(p.second));
	while (whole && limit - p.index_end >= LSMT_ENTRY_BYTES) {
		uint64_t n = MIN((limit - p.index_end) / LSMT_ENTRY_BYTES, (uint64_t)LSMT_READ_ENTRIES);

		r = read_entries(&log, p.index_end, n, name, buf, err);
		if (r < 0)
			return r;
		for (uint64_t i = 0; i < n; i++) {
			struct lsmt_seg s;

			lsmt_entry_decode(buf + i * LSMT_ENTRY_BYTES, &s);
			if (!is_padding(&s)) {
				if (lsmt_seg_fault(&s, sectors, data_end)) {
					whole = false;
					blank = s.length == 0 && s.offset == 0;
					break;
				}
				p.entries++;
				s.tag = 0;
				r = each(arg, &s);
				if (r < 0)
					return err_errno(err, r, "%s: index entry %" PRIu64, name, p.entries - 1);
			}
			p.index_end += LSMT_ENTRY_BYTES;
		}
	}
	/* Where there were two logs, the file may be longer than the one that is left: then only an entry tells. */
	p.torn = p.index_end != index_size && (index_size <= LSMT_LOG_SECOND || (!whole && !blank));
	r = cut_log(index_fd, name, index_size, &p, err);
	if (r < 0)
		return r;
	*ret = p;
	return 0;
}
