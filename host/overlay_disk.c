/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private writable disk of a VM: see overlay_disk.h.
 *
 * Making a file system takes a program and tens of milliseconds, and it is always the same one. So mke2fs runs once
 * for a size, and what it wrote, the blocks that are not zero (0.3 MiB for 16 GiB), is kept packed in the cache
 * ($XDG_CACHE_HOME/coffer/overlay). A new disk is a sparse file with those blocks written to their places: no
 * reflinks needed, and the cache may be on any file system.
 *
 * No journal: the disk ends with its VM, nobody mounts it after a crash.
 *
 * Packed format, little-endian: "COFFOVL1", le64 size, then le64 offset, le64 length, bytes ...; the last has length 0.
 * Trust: the cache is the user's; a damaged file (bounds are checked) is made anew.
 */
#include "host/overlay_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"

enum { BLOCK = 4096, PACKED_MAX = 256 << 20, CACHE_VERSION = 1 };

static const char magic[8] = { 'C', 'O', 'F', 'F', 'O', 'V', 'L', '1' };

/* ---- packing ---- */

static int put_le64(FILE *f, uint64_t v)
{
	le64 x = le64_make(v);

	return fwrite(&x, sizeof(x), 1, f) == 1 ? 0 : -EIO;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static int pack_range(int image, off_t from, off_t to, FILE *f)
{
	uint8_t block[BLOCK];

	for (off_t at = ALIGN_DOWN(from, BLOCK); at < to; at += BLOCK) {
		ssize_t n = fd_pread_full(image, block, BLOCK, at);

		if (n <= 0)
			return n < 0 ? (int)n : 0;
		if (is_zero(block, (size_t)n))
			continue;
		if (put_le64(f, (uint64_t)at) < 0 || put_le64(f, (uint64_t)n) < 0 || fwrite(block, (size_t)n, 1, f) != 1)
			return -EIO;
	}
	return 0;
}

static int pack(int image, uint64_t size, FILE *f)
{
	off_t at = 0;
	int r = 0;

	if (fwrite(magic, sizeof(magic), 1, f) != 1 || put_le64(f, size) < 0)
		return -EIO;
	while (r == 0) {
		off_t data = lseek(image, at, SEEK_DATA);

		if (data < 0)
			break;
		off_t hole = lseek(image, data, SEEK_HOLE);

		if (hole < 0)
			return -errno;
		r = pack_range(image, data, hole, f);
		at = hole;
	}
	if (r == 0 && (put_le64(f, size) < 0 || put_le64(f, 0) < 0))
		r = -EIO;
	return r;
}

/* ---- the template ---- */

static int make_file_system(const char *path, struct err *err)
{
	const char *const argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0",
				     "-O", "^has_journal,^resize_inode,^metadata_csum_seed",
				     "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "-L", "coffer-overlay", path, NULL };
	const struct spawn mke2fs = { .argv = argv, .in = -1, .out = -1, .package = "e2fsprogs" };

	return spawn_run(&mke2fs, err);
}

/* In a temporary file beside the cache's; *ret_packed is to be freed. */
static int make_template(const char *dir, uint64_t size, char **ret_packed, size_t *ret_len, struct err *err)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/.new-XXXXXX", dir) >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", dir);
	_cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "make '%s'", path);
	int r = ftruncate(fd, (off_t)size) < 0 ? err_errno(err, -errno, "make a disk of %llu bytes in '%s'",
							    (unsigned long long)size, dir) : make_file_system(path, err);
	char *packed = NULL;
	FILE *f = r == 0 ? open_memstream(&packed, ret_len) : NULL;

	if (f) {
		r = pack(fd, size, f);
		if (fclose(f) != 0)
			r = -ENOMEM;
		if (r < 0)
			err_errno(err, r, "pack '%s'", path);
	}
	unlink(path);
	if (r < 0) {
		free(packed);
		return r;
	}
	*ret_packed = packed;
	return 0;
}

/* ---- the disk ---- */

/* -EBADMSG when the packed bytes are no template of this size. */
static int unpack(const uint8_t *p, size_t n, uint64_t size, int fd)
{
	if (!p || n < 16 || memcmp(p, magic, sizeof(magic)) != 0 || le64_load(p + 8) != size)
		return -EBADMSG;
	p += 16;
	n -= 16;
	for (;;) {
		if (n < 16)
			return -EBADMSG;
		uint64_t at = le64_load(p), len = le64_load(p + 8);

		p += 16;
		n -= 16;
		if (len == 0)
			return 0;
		if (len > n || at > size || len > size - at)
			return -EBADMSG;
		int r = fd_pwrite_full(fd, p, len, (off_t)at);

		if (r < 0)
			return r;
		p += len;
		n -= len;
	}
}

/* The template's packed bytes, from the cache or made anew; *ret is to be freed. `damaged`: what the cache has is no use. */
static int get_template(uint64_t size, bool damaged, uint8_t **ret, size_t *ret_len, struct err *err)
{
	char dir[PATH_MAX], path[PATH_MAX + 64];
	char *made = NULL;
	int r = file_cache_dir("overlay", dir, sizeof(dir), err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/ext4-v%d-%llu", dir, CACHE_VERSION, (unsigned long long)size);
	if (!damaged && file_read(path, PACKED_MAX, ret, ret_len, NULL) == 0)
		return 0;
	r = make_template(dir, size, &made, ret_len, err);
	if (r < 0)
		return r;
	file_write_atomic(path, made, *ret_len, 0600, false, NULL); /* without it the next VM is slower */
	*ret = (uint8_t *)made;
	return 0;
}

int overlay_disk_prepare(uint64_t size, struct err *err)
{
	_cleanup_free_ uint8_t *packed = NULL;
	size_t len;

	return get_template(size, false, &packed, &len, err);
}

static int fill_disk(int fd, uint64_t size, struct err *err)
{
	int r = -EBADMSG;

	for (int tries = 0; tries < 2 && r == -EBADMSG; tries++) {
		_cleanup_free_ uint8_t *packed = NULL;
		size_t len = 0;

		r = get_template(size, tries > 0, &packed, &len, err);
		if (r < 0)
			return r;
		/* A damaged template may have written something before it was found out. */
		if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)size) < 0)
			return err_errno(err, -errno, "a disk of %llu MiB", (unsigned long long)(size >> 20));
		r = unpack(packed, len, size, fd);
	}
	return r < 0 ? err_errno(err, r, "write") : 0;
}

int overlay_disk_create(int dirfd, const char *name, uint64_t size, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, -errno, "make '%s'", name);
	int r = fill_disk(fd, size, err);

	if (r < 0)
		unlinkat(dirfd, name, 0);
	return r;
}
