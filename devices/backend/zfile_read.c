/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading ZFiles: see zfile.h.
 *
 * Opening. The trailer says where the index is and how blocks are made, unless the header says that it was written
 * again once that was known. The index is read whole, into 4 bytes a block; where a block starts is the sum of those before
 * it, kept for every ZFILE_GROUP blocks. All of it is checked here: that the index fits the source and has as many
 * blocks as the content needs, that no block is longer than one can be, that together they fill the space up to the
 * index. So a lookup needs no checks.
 *
 * Reading. Neighbouring blocks are read from the source together, as many as fit the context's buffer. A block that is wanted
 * whole is decompressed in place; of one that is wanted in part the context keeps the content, since the next read
 * often wants the rest.
 *
 * Trust: all that is read is hostile. A block must decompress to exactly its size, by functions that take both buffers'
 * bounds, and its stored bytes must be one zstd frame, so that other formats that the library knows are never tried. Where a
 * file has no block checksums, damage that decompresses to the right size cannot be told; Coffer writes none of those.
 */
/* syscalls(all): getrandom */
#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <string.h>
#include <sys/random.h>
#include <zstd.h>

#include "devices/backend/zfile_format.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { CTX_STORED = 128 << 10, INDEX_READ = 1 << 20 };
_Static_assert((int)CTX_STORED >= (int)ZFILE_STORED_MAX, "the largest block fits");
#define ZSTD_MAGIC 0xfd2fb528u

struct zfile {
	struct zfile_info info;
	struct zfile_source src;
	uint64_t id;      /* random: which file a context's block is of */
	uint32_t *stored; /* bytes in the source, of each block */
	uint64_t *start;  /* in the source (as read_at has it), of every ZFILE_GROUPth block */
};

struct zfile_ctx {
	ZSTD_DCtx *zstd;
	uint64_t id, block; /* what is in `content`; id 0: nothing */
	uint8_t content[ZFILE_BLOCK_MAX];
	uint8_t stored[CTX_STORED];
};

/* All of n bytes at `off` of the file. */
static int read_exact(const struct zfile_source *src, void *buf, size_t n, uint64_t off)
{
	ssize_t got = src->read_at(src->ctx, buf, n, src->start + off);

	if (got < 0)
		return (int)got;
	return (size_t)got == n ? 0 : -EIO;
}

static int read_head(const struct zfile_source *src, uint64_t off, const char *name, const char *what,
		     struct zfile_head *ret, struct err *err)
{
	uint8_t p[ZFILE_SPACE];
	int r = read_exact(src, p, sizeof(p), off);

	return r < 0 ? err_errno(err, r, "%s: read its %s", name, what) : zfile_head_decode(p, name, what, ret, err);
}

/* Header or trailer: the one that counts. */
static int read_heads(const struct zfile_source *src, const char *name, struct zfile_head *ret, struct err *err)
{
	struct zfile_head h = { 0 };
	int r;

	if (src->size < 2 * ZFILE_SPACE)
		return err_set(err, -EINVAL, "%s: %" PRIu64 " bytes are too short for a ZFile", name, src->size);
	r = read_head(src, 0, name, "header", &h, err);
	if (r < 0)
		return r;
	if (!(h.flags & ZFILE_FLAG_HEADER) || !(h.flags & ZFILE_FLAG_DATA))
		return err_set(err, -EINVAL, "%s: flags %#" PRIx64 " in its header: not a ZFile with data", name,
			       h.flags);
	if (!(h.flags & ZFILE_FLAG_OVERWRITTEN)) {
		r = read_head(src, src->size - ZFILE_SPACE, name, "trailer", &h, err);
		if (r < 0)
			return r;
		if (h.flags & ZFILE_FLAG_HEADER || !(h.flags & ZFILE_FLAG_DATA) || !(h.flags & ZFILE_FLAG_SEALED))
			return err_set(err, -EINVAL, "%s: flags %#" PRIx64 " in its trailer: not a complete ZFile", name,
				       h.flags);
	}
	*ret = h;
	return 0;
}

static int check_head(const struct zfile_head *h, uint64_t file_size, const char *name, struct err *err)
{
	if (h->algo != ZFILE_LZ4 && h->algo != ZFILE_ZSTD)
		return err_set(err, -EOPNOTSUPP, "%s: compression %u is not known: LZ4 (1) and zstd (2) are", name, h->algo);
	if (h->use_dict || h->dict_size)
		return err_set(err, -EOPNOTSUPP, "%s: compressed with a dictionary: compress it without one", name);
	if (h->flags & ZFILE_FLAG_INDEX_COMPRESSED)
		return err_set(err, -EOPNOTSUPP, "%s: its index is compressed: only plain ones can be read", name);
	if (h->verify > 1)
		return err_set(err, -EINVAL, "%s: its flag for checksums is %u: 0 or 1 can be", name, h->verify);
	if (!IS_POWER_OF_2(h->block_size) || h->block_size < ZFILE_BLOCK_MIN || h->block_size > ZFILE_BLOCK_MAX)
		return err_set(err, -EINVAL, "%s: blocks of %u bytes: a power of two from %d to %d can be", name,
			       h->block_size, ZFILE_BLOCK_MIN, ZFILE_BLOCK_MAX);
	if (h->blocks == 0 || h->blocks > ZFILE_BLOCKS_MAX)
		return err_set(err, -EINVAL, "%s: an index of %" PRIu64 " blocks: 1 to %d can be", name, h->blocks,
			       ZFILE_BLOCKS_MAX);
	if (h->size == 0 || (h->size - 1) / h->block_size != h->blocks - 1)
		return err_set(err, -EINVAL,
			       "%s: %" PRIu64 " blocks of %u bytes cannot hold exactly %" PRIu64 " bytes of content", name,
			       h->blocks, h->block_size, h->size);
	if (h->index_offset < ZFILE_SPACE || h->index_offset > file_size - ZFILE_SPACE ||
	    h->blocks * 4 > file_size - ZFILE_SPACE - h->index_offset)
		return err_set(err, -EINVAL,
			       "%s: its index (%" PRIu64 " bytes at %" PRIu64 ") does not fit its %" PRIu64 " bytes", name,
			       h->blocks * 4, h->index_offset, file_size);
	return 0;
}

/* In pieces: the source need not give a whole index at a time. */
static int read_index(struct zfile *z, const struct zfile_head *h, const char *name, struct err *err)
{
	uint64_t bytes = h->blocks * 4, done = 0;
	uint32_t crc = 0;

	while (done < bytes) {
		size_t n = MIN(bytes - done, (uint64_t)INDEX_READ);
		int r = read_exact(&z->src, (uint8_t *)z->stored + done, n, h->index_offset + done);

		if (r < 0)
			return err_errno(err, r, "%s: read its index at %" PRIu64, name, h->index_offset + done);
		crc = zfile_crc(crc, (uint8_t *)z->stored + done, n);
		done += n;
	}
	if (h->flags & ZFILE_FLAG_DIGEST && crc != h->index_crc)
		return err_set(err, -EBADMSG, "%s: its index is damaged: the checksum is wrong", name);
	return 0;
}

/* Bound each entry, and sum them up. */
static int check_index(struct zfile *z, const struct zfile_head *h, const char *name, struct err *err)
{
	uint32_t least = h->verify ? ZFILE_CRC_BYTES + 1 : 1, most = zfile_stored_limit(h->block_size);
	uint64_t at = ZFILE_SPACE;

	for (uint64_t i = 0; i < h->blocks; i++) {
		uint32_t n = le32_load(&z->stored[i]);

		if (i % ZFILE_GROUP == 0)
			z->start[i / ZFILE_GROUP] = z->src.start + at;
		if (n < least || n > most)
			return err_set(err, -EINVAL, "%s: block %" PRIu64 " is said to take %u bytes: %u to %u can be", name, i,
				       n, least, most);
		z->info.stored_max = MAX(z->info.stored_max, n);
		z->stored[i] = n;
		at += n;
	}
	if (at != h->index_offset)
		return err_set(err, -EINVAL, "%s: its blocks end at %" PRIu64 ", but its index begins at %" PRIu64, name, at,
			       h->index_offset);
	return 0;
}

int zfile_open(const struct zfile_source *src, const char *name, struct zfile **ret, struct err *err)
{
	struct zfile_head h = { 0 };
	struct zfile *z;
	uint64_t groups;
	int r;

	if (src->start + src->size < src->start || src->start + src->size > INT64_MAX)
		return err_set(err, -EINVAL, "%s: %" PRIu64 " bytes at %" PRIu64 " cannot be", name, src->size, src->start);
	r = read_heads(src, name, &h, err);
	if (r == 0)
		r = check_head(&h, src->size, name, err);
	if (r < 0)
		return r;
	if (h.blocks == 0)
		return err_set(err, -EINVAL, "%s: a ZFile without a block", name);
	groups = (h.blocks + ZFILE_GROUP - 1) / ZFILE_GROUP;
	z = calloc(1, sizeof(*z));
	if (!z)
		return err_errno(err, -ENOMEM, "%s", name);
	z->src = *src;
	z->stored = malloc(h.blocks * sizeof(*z->stored));
	z->start = malloc(groups * sizeof(*z->start));
	if (!z->stored || !z->start)
		r = err_errno(err, -ENOMEM, "%s: an index of %" PRIu64 " blocks", name, h.blocks);
	while (r == 0 && z->id == 0)
		if (getrandom(&z->id, sizeof(z->id), 0) != (ssize_t)sizeof(z->id))
			r = err_errno(err, -errno, "%s: getrandom", name);
	if (r == 0)
		r = read_index(z, &h, name, err);
	if (r == 0)
		r = check_index(z, &h, name, err);
	if (r < 0) {
		zfile_close(z);
		return r;
	}
	z->info.algo = (enum zfile_algo)h.algo;
	z->info.checked = h.verify;
	z->info.block_size = h.block_size;
	z->info.size = h.size;
	z->info.blocks = h.blocks;
	z->info.memory = sizeof(*z) + h.blocks * sizeof(*z->stored) + groups * sizeof(*z->start);
	*ret = z;
	return 0;
}

void zfile_close(struct zfile *z)
{
	if (!z)
		return;
	free(z->stored);
	free(z->start);
	free(z);
}

const struct zfile_info *zfile_info(const struct zfile *z)
{
	return &z->info;
}

struct zfile_ctx *zfile_ctx_create(void)
{
	struct zfile_ctx *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	c->id = 0;
	c->zstd = ZSTD_createDCtx();
	if (!c->zstd) {
		free(c);
		return NULL;
	}
	return c;
}

void zfile_ctx_destroy(struct zfile_ctx *c)
{
	if (!c)
		return;
	ZSTD_freeDCtx(c->zstd);
	free(c);
}

static uint32_t content_size(const struct zfile *z, uint64_t block)
{
	return (uint32_t)MIN((uint64_t)z->info.block_size, z->info.size - block * z->info.block_size);
}

static uint64_t block_start(const struct zfile *z, uint64_t block)
{
	uint64_t at = z->start[block / ZFILE_GROUP];

	for (uint64_t i = ALIGN_DOWN(block, (uint64_t)ZFILE_GROUP); i < block; i++)
		at += z->stored[i];
	return at;
}

int zfile_locate(const struct zfile *z, uint64_t off, uint64_t n, struct zfile_range *ret)
{
	uint64_t last;

	if (n == 0 || off >= z->info.size || n > z->info.size - off)
		return -EINVAL;
	last = (off + n - 1) / z->info.block_size;
	ret->off = block_start(z, off / z->info.block_size);
	ret->len = block_start(z, last) + z->stored[last] - ret->off;
	return 0;
}

ssize_t zfile_decode(const struct zfile *z, struct zfile_ctx *c, uint64_t block, const void *stored, size_t n, void *out)
{
	uint32_t size;

	if (block >= z->info.blocks || n != z->stored[block])
		return -EINVAL;
	size = content_size(z, block);
	if (z->info.checked) {
		n -= ZFILE_CRC_BYTES;
		if (zfile_crc(ZFILE_CRC_SEED_BLOCK, stored, n) != le32_load((const uint8_t *)stored + n))
			return -EBADMSG;
	}
	if (z->info.algo == ZFILE_LZ4)
		return LZ4_decompress_safe(stored, out, (int)n, (int)size) == (int)size ? (ssize_t)size : -EBADMSG;
	if (n < 4 || le32_load(stored) != ZSTD_MAGIC || ZSTD_findFrameCompressedSize(stored, n) != n)
		return -EBADMSG;
	return ZSTD_decompressDCtx(c->zstd, out, size, stored, n) == size ? (ssize_t)size : -EBADMSG;
}

/* What of [pos, end) block b has goes to out. */
static int take_block(const struct zfile *z, struct zfile_ctx *c, uint64_t b, const uint8_t *stored, uint64_t pos,
		      uint64_t end, uint8_t *out)
{
	uint64_t first = b * z->info.block_size, size = content_size(z, b), from = pos - first;
	bool whole = from == 0 && end - first >= size;
	ssize_t r;

	if (whole) {
		r = zfile_decode(z, c, b, stored, z->stored[b], out);
		return r < 0 ? (int)r : 0;
	}
	c->id = 0;
	r = zfile_decode(z, c, b, stored, z->stored[b], c->content);
	if (r < 0)
		return (int)r;
	c->id = z->id;
	c->block = b;
	memcpy(out, c->content + from, MIN(end - first, size) - from);
	return 0;
}

ssize_t zfile_pread(const struct zfile *z, struct zfile_ctx *c, void *buf, size_t n, uint64_t off)
{
	uint32_t bs = z->info.block_size;
	uint64_t pos = off, end;
	uint8_t *out = buf;

	if (off >= z->info.size || n == 0)
		return 0;
	end = off + MIN((uint64_t)n, z->info.size - off);
	while (pos < end) {
		uint64_t b = pos / bs, last = (end - 1) / bs, at;
		size_t have = 0, used = 0;
		uint64_t count = 0;
		ssize_t got;

		if (c->id == z->id && c->block == b) {
			uint64_t part = MIN(end, b * bs + content_size(z, b)) - pos;

			memcpy(out, c->content + (pos - b * bs), part);
			out += part;
			pos += part;
			continue;
		}
		while (b + count <= last && have + z->stored[b + count] <= sizeof(c->stored))
			have += z->stored[b + count++];
		at = block_start(z, b);
		got = z->src.read_at(z->src.ctx, c->stored, have, at);
		if (got != (ssize_t)have)
			return got < 0 ? got : -EIO;
		for (uint64_t i = b; i < b + count; i++) {
			uint64_t stop = MIN(end, i * bs + content_size(z, i));
			int r = take_block(z, c, i, c->stored + used, pos, end, out);

			if (r < 0)
				return r;
			used += z->stored[i];
			out += stop - pos;
			pos = stop;
		}
	}
	return (ssize_t)(end - off);
}
