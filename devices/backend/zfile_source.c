/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a ZFile's bytes come from: descriptors, and layers that a registry has wrapped in a tar.
 *
 * Trust: a tar header is hostile; lib/tar reads it, and what it says must fit the source.
 * Limits: the entry's data begin within the first UNWRAP_MAX bytes (512, or 1536 behind an extended header, in practice).
 */
/* syscalls(main, worker): pread64 */
/* syscalls(main): fstat newfstatat */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "devices/backend/zfile_format.h"
#include "lib/fd.h"
#include "lib/tar.h"

enum { UNWRAP_MAX = 32 << 10, USTAR_MAGIC_AT = 257 };

ssize_t zfile_read_fd(void *ctx, void *buf, size_t n, uint64_t off)
{
	return fd_pread_full((int)(intptr_t)ctx, buf, n, (off_t)off);
}

int zfile_write_fd(void *ctx, const void *buf, size_t n)
{
	return fd_write_full((int)(intptr_t)ctx, buf, n);
}

int zfile_probe(const struct zfile_source *src)
{
	uint8_t p[ZFILE_SPACE];
	ssize_t got;

	if (src->size < 2 * ZFILE_SPACE)
		return 0;
	got = src->read_at(src->ctx, p, sizeof(p), src->start);
	if (got < 0)
		return (int)got;
	return got == (ssize_t)sizeof(p) ? zfile_is_head(p) : -EIO;
}

struct entry {
	bool found;
	uint64_t size;
};

static int take_entry(void *arg, const struct tar_entry *e, struct err *err)
{
	struct entry *found = arg;

	if (e->type != TAR_FILE)
		return err_set(err, -EINVAL, "its first entry '%.64s' is no file", e->name);
	*found = (struct entry){ .found = true, .size = e->size };
	return 0;
}

static int take_data(void *arg, const void *data, size_t n, struct err *err)
{
	(void)arg;
	(void)data;
	(void)n;
	(void)err;
	return 0;
}

static int take_end(void *arg, struct err *err)
{
	(void)arg;
	(void)err;
	return 0;
}

int zfile_unwrap(struct zfile_source *src, const char *name, struct err *err)
{
	static const struct tar_sink sink = { .entry = take_entry, .data = take_data, .end = take_end };
	_cleanup_free_ struct tar_reader *tar = NULL;
	struct entry found = { 0 };
	uint64_t at = 0;

	while (!found.found) {
		uint8_t p[TAR_BLOCK];
		ssize_t got;
		int r;

		if (at && (at == UNWRAP_MAX || src->size - at < TAR_BLOCK))
			return err_set(err, -EINVAL, "%s: a tar without a file at its beginning", name);
		if (src->size < TAR_BLOCK)
			return 0;
		got = src->read_at(src->ctx, p, sizeof(p), src->start + at);
		if (got != (ssize_t)sizeof(p))
			return err_errno(err, got < 0 ? (int)got : -EIO, "%s: read its beginning", name);
		if (!tar) {
			if (zfile_is_head(p) || memcmp(p + USTAR_MAGIC_AT, "ustar", 5) != 0)
				return 0;
			tar = malloc(sizeof(*tar));
			if (!tar)
				return err_errno(err, -ENOMEM, "%s", name);
			tar_reader_init(tar);
		}
		r = tar_reader_feed(tar, p, sizeof(p), &sink, &found, err);
		if (r < 0) {
			err_prefix(err, "%s: read it as a tar: ", name);
			return r;
		}
		at += sizeof(p);
	}
	if (found.size > src->size - at)
		return err_set(err, -EINVAL,
			       "%s: a tar whose entry has %" PRIu64 " bytes, of which %" PRIu64 " are there", name,
			       found.size, src->size - at);
	src->start += at;
	src->size = found.size;
	return 0;
}

int zfile_open_fd(int fd, const char *name, struct zfile **ret, struct err *err)
{
	struct zfile_source src = { .read_at = zfile_read_fd, .ctx = (void *)(intptr_t)fd };
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s: descriptor %d", name, fd);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s: descriptor %d is no regular file", name, fd);
	src.size = (uint64_t)st.st_size;
	r = zfile_unwrap(&src, name, err);
	return r < 0 ? r : zfile_open(&src, name, ret, err);
}
