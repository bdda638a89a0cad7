/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's layers as one: see pack_layer.h. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "host/pack_layer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "devices/backend/lsmt_index.h"
#include "devices/backend/zfile_format.h"
#include "host/progress.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SECTOR = 512, OUT_BUFFER = 1 << 20, SUPER_AT = 1024 };

/* ---- the superblock ---- */

enum {
	SB_MAGIC = 0x38, SB_STATE = 0x3a, SB_INCOMPAT = 0x60, SB_RO_COMPAT = 0x64, SB_CHECKSUM = 0x3fc,
	MAGIC = 0xef53, STATE_CLEAN = 1, STATE_ERRORS = 2, INCOMPAT_RECOVER = 4, RO_COMPAT_CHECKSUMS = 0x400,
};

/* As ext4 has it: started with all ones, not inverted. */
static uint32_t super_checksum(const uint8_t *super)
{
	return zfile_crc(~0u, super, SB_CHECKSUM);
}

int pack_super_clean(uint8_t super[PACK_SUPER_BYTES], struct err *err)
{
	bool sums = le32_load(super + SB_RO_COMPAT) & RO_COMPAT_CHECKSUMS;
	uint16_t state = le16_load(super + SB_STATE);

	if (le16_load(super + SB_MAGIC) != MAGIC)
		return err_set(err, -EINVAL, "there is no ext4 file system on the disk any more");
	if (sums && le32_load(super + SB_CHECKSUM) != super_checksum(super))
		return err_set(err, -EINVAL, "the superblock of the disk's file system is damaged: its checksum is wrong");
	if (state & STATE_ERRORS)
		return err_set(err, -EUCLEAN,
			       "the guest's kernel has found errors in the root file system ('dmesg' in the VM says which): it cannot be packed");
	if (le32_load(super + SB_INCOMPAT) & INCOMPAT_RECOVER)
		return err_set(err, -EUCLEAN, "the file system was not frozen: its journal has to be replayed");
	le16_store(super + SB_STATE, state | STATE_CLEAN);
	if (sums)
		le32_store(super + SB_CHECKSUM, super_checksum(super));
	return 0;
}

/* ---- reading ---- */

struct writer {
	const int *fd;
	const char *const *name;
	pack_sink *sink;
	void *ctx;
	struct progress *progress;
	struct lsmt_index from, to;
	struct lsmt_head head;
	uint64_t at;     /* bytes given to the sink or in the buffer */
	size_t used;     /* of the buffer */
	uint8_t *buf;
	uint64_t total;  /* bytes of data */
	uint8_t super[PACK_SUPER_BYTES];
	bool has_super;
};

static int load(struct writer *w, size_t n, struct err *err)
{
	_cleanup_free_ struct lsmt_sealed *l = calloc(n, sizeof(*l));
	_cleanup_free_ uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	uint64_t entries = 0;
	int r = 0;

	if (!l || !buf)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < n && r == 0; i++) {
		r = lsmt_sealed_open(w->fd[i], w->name[i], &l[i], err);
		if (r == 0) {
			entries += l[i].head.index_entries;
			w->head.virtual_size = MAX(w->head.virtual_size, l[i].head.virtual_size);
		}
	}
	if (r == 0)
		r = lsmt_index_init(&w->from, 2 * entries + 1, err); /* an entry splits one at most */
	if (r == 0)
		r = lsmt_index_init(&w->to, 2 * entries + 1, err);
	for (size_t i = 0; i < n && r == 0; i++) {
		struct lsmt_tagged t = { &w->from, (uint8_t)i };
		int64_t count = lsmt_sealed_walk(w->fd[i], w->name[i], &l[i], buf, lsmt_index_insert_tagged, &t, err);

		r = count < 0 ? (int)count : 0;
	}
	return r;
}

/* ---- writing ---- */

static int flush(struct writer *w, struct err *err)
{
	int r = w->used ? w->sink(w->ctx, w->buf, w->used) : 0;

	w->used = 0;
	if (r < 0)
		return err_errno(err, r, "write the layer");
	return progress_bytes(w->progress, w->at, w->total, err);
}

static int put(struct writer *w, const void *p, size_t n, struct err *err)
{
	const uint8_t *from = p;
	int r = 0;

	while (n > 0 && r == 0) {
		size_t part = MIN(n, OUT_BUFFER - w->used);

		if (from)
			memcpy(w->buf + w->used, from, part);
		else
			memset(w->buf + w->used, 0, part);
		from = from ? from + part : NULL;
		w->used += part;
		w->at += part;
		n -= part;
		if (w->used == OUT_BUFFER)
			r = flush(w, err);
	}
	return r;
}

/* The superblock as it was read and changed, where [offset, offset + n) of the disk, which is at p, has it. */
static void patch(const struct writer *w, uint8_t *p, uint64_t offset, size_t n)
{
	uint64_t from = MAX(offset, (uint64_t)SUPER_AT), to = MIN(offset + n, (uint64_t)SUPER_AT + PACK_SUPER_BYTES);

	if (w->has_super && from < to)
		memcpy(p + (from - offset), w->super + (from - SUPER_AT), to - from);
}

static int put_data(struct writer *w, const struct lsmt_seg *s, struct err *err)
{
	uint64_t left = (uint64_t)s->length * SECTOR, from = s->moffset * SECTOR, offset = s->offset * SECTOR;
	int r = 0;

	while (left > 0 && r == 0) {
		size_t part = (size_t)MIN(left, (uint64_t)(OUT_BUFFER - w->used));
		uint8_t *p = w->buf + w->used;
		ssize_t got = fd_pread_full(w->fd[s->tag], p, part, (off_t)from);

		if (got != (ssize_t)part)
			return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read %zu bytes at %" PRIu64, w->name[s->tag],
					 part, from);
		patch(w, p, offset, part);
		w->used += part;
		w->at += part;
		from += part;
		offset += part;
		left -= part;
		if (w->used == OUT_BUFFER)
			r = flush(w, err);
	}
	return r;
}

/* Both of its sectors are there when a guest has mounted the file system. */
static int read_super(struct writer *w, struct err *err)
{
	for (size_t done = 0; done < PACK_SUPER_BYTES;) {
		struct lsmt_seg s;

		if (!lsmt_index_lookup(&w->from, (SUPER_AT + done) / SECTOR, (PACK_SUPER_BYTES - done) / SECTOR, &s) || s.zeroed)
			return err_set(err, -EINVAL, "the superblock of the disk's file system is not in what the VM has written");
		size_t n = (size_t)s.length * SECTOR;
		ssize_t got = fd_pread_full(w->fd[s.tag], w->super + done, n, (off_t)(s.moffset * SECTOR));

		if (got != (ssize_t)n)
			return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read the superblock", w->name[s.tag]);
		done += n;
	}
	w->has_super = true;
	return pack_super_clean(w->super, err);
}

/* Where everything will be. */
static int plan(struct writer *w, struct err *err)
{
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg s;
	uint64_t at = LSMT_HEADER_SECTORS;
	int r = 0;

	while (r == 0 && lsmt_index_next(&w->from, &c, &s)) {
		struct lsmt_seg e = { .offset = s.offset, .length = s.length, .zeroed = s.zeroed, .moffset = s.zeroed ? 0 : at };

		r = lsmt_index_insert(&w->to, &e);
		at += s.zeroed ? 0 : s.length;
	}
	w->total = at * SECTOR;
	return r < 0 ? err_errno(err, r, "an index of %" PRIu64 " entries", w->from.count) : 0;
}

static int put_head(struct writer *w, uint32_t flags, struct err *err)
{
	uint8_t block[LSMT_BLOCK];

	w->head.flags = flags | LSMT_FLAG_DATA | LSMT_FLAG_SEALED;
	lsmt_head_encode(&w->head, block);
	return put(w, block, sizeof(block), err);
}

static int put_all(struct writer *w, struct err *err)
{
	_cleanup_free_ uint8_t *entries = malloc(w->to.count * LSMT_ENTRY_BYTES + 1);
	uint64_t bytes = w->to.count * LSMT_ENTRY_BYTES, padded = MAX(ALIGN_UP(bytes, (uint64_t)LSMT_BLOCK), (uint64_t)LSMT_BLOCK);
	uint8_t padding[LSMT_ENTRY_BYTES];
	struct lsmt_cursor c = { 0 };
	struct lsmt_seg s;
	int r;

	if (!entries)
		return err_set(err, -ENOMEM, "out of memory");
	lsmt_index_extract(&w->to, 0, entries, w->to.count);
	r = put_head(w, LSMT_FLAG_HEADER, err);
	while (r == 0 && lsmt_index_next(&w->from, &c, &s))
		if (!s.zeroed)
			r = put_data(w, &s, err);
	if (r == 0)
		r = put(w, NULL, (size_t)(ALIGN_UP(w->at, (uint64_t)LSMT_BLOCK) - w->at), err);
	w->head.index_offset = w->at;
	w->head.index_entries = padded / LSMT_ENTRY_BYTES;
	if (r == 0)
		r = put(w, entries, bytes, err);
	lsmt_entry_encode(&(struct lsmt_seg){ .offset = LSMT_OFFSET_MAX }, padding);
	for (uint64_t i = bytes; i < padded && r == 0; i += LSMT_ENTRY_BYTES)
		r = put(w, padding, sizeof(padding), err);
	if (r == 0)
		r = put_head(w, 0, err);
	return r < 0 ? r : flush(w, err);
}

int pack_layer_write(const int *fd, const char *const *name, size_t n, pack_sink *sink, void *ctx, struct progress *progress,
		     struct pack_layer_facts *ret, struct err *err)
{
	struct writer w = { .fd = fd, .name = name, .sink = sink, .ctx = ctx, .progress = progress };
	int r;

	if (n == 0 || n > LSMT_LAYERS_MAX)
		return err_set(err, -EINVAL, "%zu layers cannot be made one", n);
	w.buf = malloc(OUT_BUFFER);
	r = w.buf ? load(&w, n, err) : err_set(err, -ENOMEM, "out of memory");
	if (r == 0)
		r = read_super(&w, err);
	if (r == 0)
		r = plan(&w, err);
	if (r == 0)
		r = lsmt_head_set_uuid(&w.head, NULL, err);
	if (r == 0)
		r = put_all(&w, err);
	if (r == 0 && ret)
		*ret = (struct pack_layer_facts){ .size = w.head.virtual_size, .data = w.total - LSMT_BLOCK, .entries = w.to.count };
	lsmt_index_finish(&w.from);
	lsmt_index_finish(&w.to);
	free(w.buf);
	return r;
}

/* ---- into a file ---- */

struct measured_file {
	int fd;
	uint64_t bytes;
	struct sha256_ctx sha;
	XXH3_state_t xxh;
};

static int to_file(void *ctx, const void *buf, size_t n)
{
	struct measured_file *f = ctx;

	f->bytes += n;
	sha256_update(&f->sha, n, buf);
	XXH3_128bits_update(&f->xxh, buf, n);
	return fd_write_full(f->fd, buf, n);
}

static int to_zfile(void *ctx, const void *buf, size_t n)
{
	return zfile_writer_write(ctx, buf, n, NULL);
}

int pack_layer_file(const int *fd, const char *const *name, size_t n, const struct zfile_options *zfile, int out,
		    struct progress *progress, struct pack_layer_facts *ret, struct image_layer *ret_layer, struct err *err)
{
	struct measured_file f = { .fd = out };
	struct image_layer l = { 0 };
	struct zfile_writer *z = NULL;
	struct lsmt_info info;
	int r = 0;

	sha256_init(&f.sha);
	XXH3_128bits_reset(&f.xxh);
	if (zfile)
		r = zfile_writer_open(zfile, to_file, &f, &z, err);
	if (r == 0)
		r = pack_layer_write(fd, name, n, z ? to_zfile : to_file, z ? (void *)z : &f, progress, ret, err);
	if (r == 0 && z)
		r = zfile_writer_finish(z, NULL, err);
	zfile_writer_free(z);
	if (r == 0)
		r = lsmt_inspect(out, "the new layer", &info, err);
	if (r < 0)
		return r;
	XXH128_hash_t h = XXH3_128bits_digest(&f.xxh);

	sha256_end_hex(&f.sha, l.sha256);
	snprintf(l.xxh, sizeof(l.xxh), "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
	l.bytes = f.bytes;
	l.index_hash = info.index_hash;
	l.created = time(NULL);
	*ret_layer = l;
	return 0;
}
