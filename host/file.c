/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole files and the directories that Coffer keeps things in. Removing a tree holds one descriptor per level, so its
 * depth is bounded (TREE_DEPTH_MAX) and the paths are never looked up again from the root.
 */
#include "host/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { TREE_DEPTH_MAX = 512 };

int file_read(const char *path, size_t max, uint8_t **ret_data, size_t *ret_size, struct err *err)
{
	/* O_NONBLOCK: a FIFO must not hang the open; it has no effect on a regular file. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return err_errno(err, -errno, "open '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "stat '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is not a regular file", path);
	if ((uint64_t)st.st_size > max)
		return err_set(err, -EFBIG, "'%s' has %lld bytes, at most %zu are taken", path, (long long)st.st_size, max);
	data = malloc((size_t)st.st_size + 1);
	if (data == NULL)
		return err_set(err, -ENOMEM, "'%s': no memory for %lld bytes", path, (long long)st.st_size);
	n = fd_read_full(fd, data, (size_t)st.st_size);
	if (n < 0)
		return err_errno(err, (int)n, "read '%s'", path);
	data[n] = '\0';
	*ret_size = (size_t)n;
	*ret_data = TAKE_PTR(data);
	return 0;
}

static int sync_parent(const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	_cleanup_close_ int fd = -1;
	char *slash;

	if (dir == NULL)
		return -ENOMEM;
	slash = strrchr(dir, '/');
	if (slash != NULL)
		*slash = '\0';
	fd = open(slash == NULL ? "." : *dir == '\0' ? "/" : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int file_write_atomic(const char *path, const void *data, size_t size, mode_t mode, bool durable, struct err *err)
{
	_cleanup_free_ char *tmp = NULL;
	_cleanup_close_ int fd = -1;
	int r;

	if (asprintf(&tmp, "%s.XXXXXX", path) < 0) {
		tmp = NULL;
		return err_set(err, -ENOMEM, "write '%s': no memory", path);
	}
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, -errno, "create '%s'", tmp);
	r = fd_write_full(fd, data, size);
	if (r == 0 && fchmod(fd, mode) < 0)
		r = -errno;
	if (r == 0 && durable && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(tmp);
		return err_errno(err, r, "write '%s'", path);
	}
	if (durable) {
		r = sync_parent(path);
		if (r < 0)
			return err_errno(err, r, "sync the directory of '%s'", path);
	}
	return 0;
}

int file_make_dirs(const char *path, mode_t mode, struct err *err)
{
	_cleanup_free_ char *p = strdup(path);
	struct stat st;

	if (p == NULL)
		return err_set(err, -ENOMEM, "create '%s': no memory", path);
	for (char *s = p + 1;; s++) {
		bool last = *s == '\0';

		if (*s != '/' && !last)
			continue;
		*s = '\0';
		if (mkdir(p, mode) < 0 && errno != EEXIST)
			return err_errno(err, -errno, "create the directory '%s'", p);
		if (last)
			break;
		*s = '/';
	}
	if (stat(path, &st) < 0)
		return err_errno(err, -errno, "stat '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "'%s' is not a directory", path);
	return 0;
}

static int join_dir(const char *base, const char *middle, const char *sub, char *ret, size_t len, struct err *err)
{
	int n = snprintf(ret, len, "%s%s/coffer/%s", base, middle, sub);

	if (n < 0 || (size_t)n >= len)
		return err_set(err, -ENAMETOOLONG, "the path '%s%s/coffer/%s' is too long", base, middle, sub);
	return 0;
}

/* The base directory specification has relative paths ignored. */
static const char *absolute_env(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && *v == '/' ? v : NULL;
}

int file_cache_dir(const char *sub, char *ret, size_t len, struct err *err)
{
	const char *base = absolute_env("XDG_CACHE_HOME"), *home = absolute_env("HOME");
	int r;

	if (base == NULL && home == NULL)
		return err_set(err, -ENOENT, "neither XDG_CACHE_HOME nor HOME is set to an absolute path");
	r = join_dir(base != NULL ? base : home, base != NULL ? "" : "/.cache", sub, ret, len, err);
	return r < 0 ? r : file_make_dirs(ret, 0700, err);
}

int file_data_dir(const char *sub, char *ret, size_t len, struct err *err)
{
	const char *base = absolute_env("XDG_DATA_HOME"), *home = absolute_env("HOME");

	if (base != NULL)
		return join_dir(base, "", sub, ret, len, err);
	if (geteuid() == 0)
		return join_dir("/var/lib", "", sub, ret, len, err);
	if (home == NULL)
		return err_set(err, -ENOENT, "neither XDG_DATA_HOME nor HOME is set to an absolute path");
	return join_dir(home, "/.local/share", sub, ret, len, err);
}

static int remove_at(int at, const char *name, dev_t dev, unsigned depth)
{
	_cleanup_close_ int fd = -1;
	struct dirent *e;
	struct stat st;
	DIR *dir;
	int r = 0;

	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth >= TREE_DEPTH_MAX)
		return -ELOOP;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (depth > 0 && st.st_dev != dev)
		return -EXDEV;
	dir = fdopendir(fd);
	if (dir == NULL)
		return -errno;
	TAKE_FD(fd);
	while ((errno = 0, e = readdir(dir)) != NULL) {
		int one;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		one = remove_at(dirfd(dir), e->d_name, st.st_dev, depth + 1);
		r = r < 0 ? r : one;
	}
	if (errno != 0 && r == 0)
		r = -errno;
	closedir(dir);
	if (unlinkat(at, name, AT_REMOVEDIR) < 0 && r == 0)
		r = -errno;
	return r;
}

int file_remove_tree(int at, const char *name)
{
	return remove_at(at, name, 0, 0);
}
