/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the private writable disk of a VM begins with: see overlay_disk.h.
 *
 * Making a file system takes a program and tens of milliseconds, and it is always the same one. So mke2fs runs once for
 * a size, and what it wrote is packed into a layer in the cache ($XDG_CACHE_HOME/coffer/overlay), some 0.3 MiB for 16
 * GiB. Every VM has it below a layer of its own.
 *
 * No journal: the disk ends with its VM or is sealed after a flush, nobody mounts it after a crash.
 *
 * Trust: the cache is the user's; a damaged layer (its index is checked) is made anew.
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

#include "devices/backend/lsmt.h"
#include "host/file.h"
#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { CACHE_VERSION = 2 };

static int open_temp(const char *dir, char path[PATH_MAX], struct err *err)
{
	if ((size_t)snprintf(path, PATH_MAX, "%s/.new-XXXXXX", dir) >= PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", dir);
	int fd = mkostemp(path, O_CLOEXEC);

	return fd < 0 ? err_errno(err, -errno, "make '%s'", path) : fd;
}

static int make_file_system(const char *path, struct err *err)
{
	const char *const argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0",
				     "-O", "^has_journal,^resize_inode,^metadata_csum_seed",
				     "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "-L", "coffer-overlay", path,
						NULL };
	const struct spawn mke2fs = { .argv = argv, .in = -1, .out = -1, .package = "e2fsprogs" };

	return spawn_run(&mke2fs, err);
}

/* The file system in a temporary file beside the cache's, and from that the layer. */
static int pack(const char *dir, uint64_t size, int layer, struct err *err)
{
	char path[PATH_MAX];
	_cleanup_close_ int fd = open_temp(dir, path, err);

	if (fd < 0)
		return fd;
	int r = ftruncate(fd, (off_t)size) < 0 ? err_errno(err, -errno, "make a disk of %llu bytes in '%s'",
							    (unsigned long long)size, dir) : make_file_system(path,
													      err);

	if (r == 0)
		r = lsmt_pack_raw(fd, size, layer, NULL, err);
	unlink(path);
	return r;
}

/* The layer appears when it is whole. */
static int make_template(const char *dir, uint64_t size, const char *path, struct err *err)
{
	char temp[PATH_MAX];
	_cleanup_close_ int fd = open_temp(dir, temp, err);

	if (fd < 0)
		return fd;
	int r = pack(dir, size, fd, err);

	if (r == 0 && (fchmod(fd, 0400) < 0 || rename(temp, path) < 0))
		r = err_errno(err, -errno, "write '%s'", path);
	if (r < 0)
		unlink(temp);
	return r;
}

static int open_layer(const char *path, uint64_t size, struct snapshot_layer *ret, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct lsmt_info info;

	if (fd < 0)
		return err_errno(err, -errno, "open '%s'", path);
	int r = lsmt_inspect(fd, path, &info, err);

	if (r == 0 && info.virtual_size != size)
		r = err_set(err, -EINVAL, "'%s' is for another size", path);
	if (r < 0)
		return r;
	*ret = (struct snapshot_layer){ .size = info.file_size, .index_hash = info.index_hash };
	return TAKE_FD(fd);
}

int overlay_disk_open(uint64_t size, char *path, struct snapshot_layer *ret, struct err *err)
{
	char dir[PATH_MAX - 64];
	int r = file_cache_dir("overlay", dir, sizeof(dir), err);

	if (r < 0)
		return r;
	snprintf(path, PATH_MAX, "%s/ext4-v%d-%llu.lsmt", dir, CACHE_VERSION, (unsigned long long)size);
	int fd = open_layer(path, size, ret, NULL);

	if (fd >= 0)
		return fd;
	r = make_template(dir, size, path, err);
	return r < 0 ? r : open_layer(path, size, ret, err);
}
