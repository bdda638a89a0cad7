/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed layer in a local file: see layer_file.h; and what all of them are asked first (lsmt_inspect). */
#include "devices/backend/layer_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "devices/backend/lsmt.h"
#include "lib/fd.h"
#include "lib/util.h"

static ssize_t read_plain(void *ctx, void *buf, size_t n, uint64_t off)
{
	const struct layer_file *f = ctx;

	if (off >= f->source.size)
		return 0;
	n = (size_t)MIN((uint64_t)n, f->source.size - off);
	return f->source.read_at(f->source.ctx, buf, n, f->source.start + off);
}

static ssize_t read_compressed(void *ctx, void *buf, size_t n, uint64_t off)
{
	const struct layer_file *f = ctx;

	return zfile_pread(f->z, f->ctx, buf, n, off);
}

static int open_content(struct layer_file *f, const char *name, struct err *err)
{
	int r = zfile_unwrap(&f->source, name, err);

	if (r < 0)
		return r;
	r = zfile_probe(&f->source);
	if (r < 0)
		return err_errno(err, r, "%s: read", name);
	if (r == 0) {
		f->bytes = (struct lsmt_bytes){ .read_at = read_plain, .ctx = f, .size = f->source.size };
		return 0;
	}
	r = zfile_open(&f->source, name, &f->z, err);
	if (r < 0)
		return r;
	f->ctx = zfile_ctx_create();
	if (!f->ctx)
		return err_set(err, -ENOMEM, "%s: no memory to decompress it", name);
	f->bytes = (struct lsmt_bytes){ .read_at = read_compressed, .ctx = f, .size = zfile_info(f->z)->size };
	return 0;
}

int layer_file_open(int fd, const char *name, struct layer_file **ret, struct err *err)
{
	struct layer_file *f;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s: a layer is a regular file", name);
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(err, -ENOMEM, "%s: no memory to read it", name);
	f->source = (struct zfile_source){ .read_at = zfile_read_fd, .ctx = (void *)(intptr_t)fd, .size = (uint64_t)st.st_size };
	int r = open_content(f, name, err);

	if (r < 0) {
		layer_file_close(f);
		return r;
	}
	*ret = f;
	return 0;
}

void layer_file_close(struct layer_file *f)
{
	if (!f)
		return;
	zfile_ctx_destroy(f->ctx);
	zfile_close(f->z);
	free(f);
}

/* ---- inspecting ---- */

static int hash_range(struct layer_file *f, XXH3_state_t *x, uint64_t off, uint64_t n, uint8_t *buf, size_t room,
		      const char *name, struct err *err)
{
	while (n) {
		size_t part = (size_t)MIN(n, (uint64_t)room);
		ssize_t got = layer_file_read(f, buf, part, off);

		if (got != (ssize_t)part)
			return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read %zu bytes at %" PRIu64, name, part, off);
		XXH3_64bits_update(x, buf, part);
		off += part;
		n -= part;
	}
	return 0;
}

/* Header block, index and trailer block, of the layer itself however it is wrapped. */
static int hash_index(struct layer_file *f, const struct lsmt_sealed *l, uint8_t *buf, size_t room, const char *name,
		      uint64_t *ret, struct err *err)
{
	const struct {
		uint64_t off, n;
	} ranges[] = {
		{ 0, LSMT_BLOCK },
		{ l->head.index_offset, l->head.index_entries * LSMT_ENTRY_BYTES },
		{ l->file_size - LSMT_BLOCK, LSMT_BLOCK },
	};
	XXH3_state_t x;
	int r = 0;

	XXH3_64bits_reset(&x);
	for (size_t i = 0; i < ARRAY_SIZE(ranges) && r == 0; i++)
		r = hash_range(f, &x, ranges[i].off, ranges[i].n, buf, room, name, err);
	*ret = XXH3_64bits_digest(&x);
	return r;
}

static int inspect(struct layer_file *f, const char *name, struct lsmt_info *ret, struct err *err)
{
	const size_t room = (size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES;
	_cleanup_free_ uint8_t *buf = malloc(room);
	struct lsmt_sealed l = { 0 };
	uint64_t hash = 0;
	int r = lsmt_sealed_open_bytes(&f->bytes, name, &l, err);

	if (r < 0)
		return r;
	if (!buf)
		return err_errno(err, -ENOMEM, "%s", name);
	int64_t n = lsmt_sealed_walk_bytes(&f->bytes, name, &l, buf, NULL, NULL, err);

	if (n < 0)
		return (int)n;
	r = hash_index(f, &l, buf, room, name, &hash, err);
	if (r < 0)
		return r;
	*ret = (struct lsmt_info){ .virtual_size = l.head.virtual_size, .entries = (uint64_t)n, .compressed = f->z != NULL,
				   .index_hash = hash };
	memcpy(ret->uuid, l.head.uuid, sizeof(ret->uuid));
	memcpy(ret->parent_uuid, l.head.parent_uuid, sizeof(ret->parent_uuid));
	return 0;
}

int lsmt_inspect(int fd, const char *name, struct lsmt_info *ret, struct err *err)
{
	struct lsmt_info info = { 0 };
	struct layer_file *f = NULL;
	struct stat st;
	int r = layer_file_open(fd, name, &f, err);

	if (r < 0)
		return r;
	r = inspect(f, name, &info, err);
	layer_file_close(f);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s", name);
	info.file_size = (uint64_t)st.st_size; /* a tar goes on behind its entry */
	*ret = info;
	return 0;
}
