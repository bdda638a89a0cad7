/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed layers that lie on one another made one.
 *
 * Their indexes are merged as those of a disk's stack are (a tag for each layer), which says where each sector of the
 * result comes from; then data are copied in the order of the disk, so that what lies together on the disk lies
 * together in the file. The layers themselves are only read. Cut anywhere, the new file has no sealed header and is
 * nothing (lsmt_seal_file).
 *
 * Layers of smaller disks have nothing behind their end, as in a stack; the result is of the largest one's.
 *
 * What is zeroed stays so if something may be below the result, else it is left out: there it reads as zeros anyway.
 *
 * Trust: the layers are hostile. What their data are is not judged here: whoever has a checksum of them compares it
 * before, since the new file gets a new one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "devices/backend/lsmt_index.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { COPY_BUFFER = 1 << 20, BLOCK_SECTORS = LSMT_BLOCK / 512 };

struct merge {
	const int *fd;
	const char *const *name;
	int out;
	uint64_t at; /* of the next data, sectors */
	struct lsmt_index from, to;
	uint8_t *buf;
};

static int open_layers(const struct merge *m, size_t n, struct lsmt_sealed *layer, struct lsmt_head *head, uint64_t *entries,
		       struct err *err)
{
	*entries = 0;
	for (size_t i = 0; i < n; i++) {
		int r = lsmt_sealed_open(m->fd[i], m->name[i], &layer[i], err);

		if (r < 0)
			return r;
		*entries += layer[i].head.index_entries;
		head->virtual_size = MAX(head->virtual_size, layer[i].head.virtual_size);
	}
	memcpy(head->parent_uuid, layer[0].head.parent_uuid, sizeof(head->parent_uuid));
	return 0;
}

static int read_indexes(struct merge *m, size_t n, const struct lsmt_sealed *layer, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct lsmt_tagged t = { &m->from, (uint8_t)i };
		int64_t k = lsmt_sealed_walk(m->fd[i], m->name[i], &layer[i], m->buf, lsmt_index_insert_tagged, &t, err);

		if (k < 0)
			return (int)k;
	}
	return 0;
}

static int copy_data(struct merge *m, const struct lsmt_seg *s, struct err *err)
{
	uint64_t from = s->moffset * 512, to = m->at * 512, left = (uint64_t)s->length * 512;

	while (left > 0) {
		size_t n = MIN(left, (uint64_t)COPY_BUFFER);
		ssize_t got = fd_pread_full(m->fd[s->tag], m->buf, n, (off_t)from);

		if (got != (ssize_t)n)
			return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read its data at %" PRIu64, m->name[s->tag], from);
		int r = fd_pwrite_full(m->out, m->buf, n, (off_t)to);

		if (r < 0)
			return err_errno(err, r, "write the merged layer at %" PRIu64, to);
		from += n;
		to += n;
		left -= n;
	}
	return 0;
}

static int copy_all(struct merge *m, bool keep_zeroes, struct err *err)
{
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg s;

	while (lsmt_index_next(&m->from, &c, &s)) {
		struct lsmt_seg e = { .offset = s.offset, .length = s.length, .zeroed = s.zeroed };
		int r;

		if (s.zeroed && !keep_zeroes)
			continue;
		if (!s.zeroed) {
			/* Blocks of the disk as blocks of the file, which is how they are read. */
			if (s.offset % BLOCK_SECTORS == 0)
				m->at = ALIGN_UP(m->at, (uint64_t)BLOCK_SECTORS);
			e.moffset = m->at;
			r = copy_data(m, &s, err);
			if (r < 0)
				return r;
			m->at += s.length;
		}
		r = lsmt_index_insert(&m->to, &e);
		if (r < 0)
			return err_errno(err, r, "the merged layer's index");
	}
	return 0;
}

static int seal(struct merge *m, struct lsmt_head *head, struct err *err)
{
	_cleanup_free_ uint8_t *entries = malloc(m->to.count * LSMT_ENTRY_BYTES + 1);

	if (!entries)
		return err_errno(err, -ENOMEM, "an index of %" PRIu64 " entries", m->to.count);
	lsmt_index_extract(&m->to, 0, entries, m->to.count);
	return lsmt_seal_file(m->out, head, m->at, entries, m->to.count, err);
}

int lsmt_merge(const int *fd, const char *const *name, size_t n, bool keep_zeroes, int out_fd, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc(COPY_BUFFER);
	struct merge m = { .fd = fd, .name = name, .out = out_fd, .at = LSMT_HEADER_SECTORS, .buf = buf };
	_cleanup_free_ struct lsmt_sealed *layer = calloc(n + 1, sizeof(*layer));
	struct lsmt_head head = { 0 };
	uint64_t size, entries = 0;
	int r = lsmt_check_fd(out_fd, true, "merged layer", &size, err);

	_Static_assert(COPY_BUFFER >= LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES, "indexes are read through the same buffer");
	if (r < 0)
		return r;
	if (n < 1 || n > LSMT_LAYERS_MAX || size > 0)
		return err_set(err, -EINVAL, "merge %zu layers into a file of %" PRIu64 " bytes: 1 to %d, into an empty one", n,
			       size, LSMT_LAYERS_MAX);
	if (!buf || !layer)
		return err_errno(err, -ENOMEM, "merged layer");
	r = open_layers(&m, n, layer, &head, &entries, err);
	if (r == 0)
		r = lsmt_index_init(&m.from, 2 * entries, err); /* an entry splits one at most */
	if (r == 0)
		r = read_indexes(&m, n, layer, err);
	if (r == 0)
		r = lsmt_head_set_uuid(&head, NULL, err);
	if (r == 0)
		r = lsmt_index_init(&m.to, m.from.count, err);
	if (r == 0)
		r = copy_all(&m, keep_zeroes, err);
	if (r == 0)
		r = seal(&m, &head, err);
	lsmt_index_finish(&m.from);
	lsmt_index_finish(&m.to);
	return r;
}
