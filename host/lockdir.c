/* SPDX-License-Identifier: Apache-2.0 */
/* Directories with living owners: see lockdir.h. */
#include "host/lockdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "lib/fd.h"

static void unlockp(struct lockdir **d)
{
	if (*d)
		flock((*d)->fd, LOCK_UN);
}
#define _cleanup_unlock_ __attribute__((cleanup(unlockp)))

static struct lockdir *lock_parent(struct lockdir *d)
{
	while (flock(d->fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return NULL;
	return d;
}

int lockdir_open(struct lockdir *d, const char *path, struct err *err)
{
	struct stat st;
	int r;

	*d = LOCKDIR_NONE;
	if (strlen(path) >= sizeof(d->path))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", path);
	r = file_make_dirs(path, 0700, err);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "open '%s'", path);
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM, "'%s' belongs to user %u, not to you (%u): remove it or choose another place", path,
			       (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & 022)
		return err_set(err, -EPERM, "'%s' can be written by others (mode %03o): chmod 700 it", path,
			       (unsigned)st.st_mode & 0777);
	snprintf(d->path, sizeof(d->path), "%s", path);
	d->fd = TAKE_FD(fd);
	return 0;
}

void lockdir_close(struct lockdir *d)
{
	d->fd = fd_close(d->fd);
}

/* 1 when held by anybody, 0 when not (or when there is no lock file). Parent locked. */
static int is_held(int dirfd)
{
	_cleanup_close_ int fd = openat(dirfd, LOCKDIR_LOCK, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : 1;
	return flock(fd, LOCK_EX | LOCK_NB) < 0;
}

static int open_child(struct lockdir *d, const char *name)
{
	int fd = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int remove_child(struct lockdir *d, const char *name, struct err *err)
{
	int r = file_remove_tree(d->fd, name);

	return r < 0 ? err_errno(err, r, "remove '%s/%s'", d->path, name) : 0;
}

int lockdir_create(struct lockdir *d, const char *name, int *ret_dirfd, int *ret_lockfd, struct err *err)
{
	_cleanup_unlock_ struct lockdir *locked = lock_parent(d);
	_cleanup_close_ int dirfd = -1, lockfd = -1;
	int r;

	if (!locked)
		return err_errno(err, -errno, "lock '%s'", d->path);
	if (mkdirat(d->fd, name, 0700) < 0) {
		if (errno != EEXIST)
			return err_errno(err, -errno, "make '%s/%s'", d->path, name);
		dirfd = open_child(d, name);
		if (dirfd < 0)
			return err_errno(err, dirfd, "open '%s/%s'", d->path, name);
		if (is_held(dirfd))
			return err_set(err, -EEXIST, "'%s' is in use", name);
		dirfd = fd_close(dirfd);
		r = remove_child(d, name, err);
		if (r < 0)
			return r;
		if (mkdirat(d->fd, name, 0700) < 0)
			return err_errno(err, -errno, "make '%s/%s'", d->path, name);
	}
	dirfd = open_child(d, name);
	if (dirfd >= 0)
		lockfd = openat(dirfd, LOCKDIR_LOCK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lockfd < 0 || flock(lockfd, LOCK_EX | LOCK_NB) < 0) {
		r = err_errno(err, -errno, "make '%s/%s/" LOCKDIR_LOCK "'", d->path, name);
		file_remove_tree(d->fd, name);
		return r;
	}
	*ret_dirfd = TAKE_FD(dirfd);
	*ret_lockfd = TAKE_FD(lockfd);
	return 0;
}

int lockdir_probe(struct lockdir *d, const char *name, int *ret_dirfd, struct err *err)
{
	_cleanup_unlock_ struct lockdir *locked = lock_parent(d);
	_cleanup_close_ int dirfd = -1;

	if (!locked)
		return err_errno(err, -errno, "lock '%s'", d->path);
	dirfd = open_child(d, name);
	if (dirfd < 0)
		return err_errno(err, dirfd, "'%s/%s'", d->path, name);
	int live = is_held(dirfd);

	if (ret_dirfd)
		*ret_dirfd = TAKE_FD(dirfd);
	return live;
}

int lockdir_sweep(struct lockdir *d, lockdir_visit_fn *visit, void *arg, struct err *err)
{
	_cleanup_unlock_ struct lockdir *locked = lock_parent(d);
	int fd, r = 0;

	if (!locked)
		return err_errno(err, -errno, "lock '%s'", d->path);
	fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list) {
		r = err_errno(err, -errno, "read '%s'", d->path);
		fd_close(fd);
		return r;
	}
	for (struct dirent *e; (e = readdir(list));) {
		if (e->d_name[0] == '.')
			continue;
		_cleanup_close_ int dirfd = open_child(d, e->d_name);

		if (dirfd < 0) /* a stray file: not ours to judge */
			continue;
		int live = is_held(dirfd);

		if (visit)
			visit(e->d_name, dirfd, live, arg);
		if (!live) {
			int code = remove_child(d, e->d_name, r < 0 ? NULL : err);

			if (code < 0)
				r = code;
		}
	}
	closedir(list);
	return r;
}

int lockdir_rename(struct lockdir *d, const char *from, const char *to, struct err *err)
{
	_cleanup_unlock_ struct lockdir *locked = lock_parent(d);

	if (!locked)
		return err_errno(err, -errno, "lock '%s'", d->path);
	_cleanup_close_ int there = open_child(d, to);

	if (there >= 0 && is_held(there))
		return err_set(err, -EEXIST, "'%s' is in use", to);
	int r = there >= 0 ? remove_child(d, to, err) : 0;

	if (r == 0 && renameat(d->fd, from, d->fd, to) < 0)
		r = err_errno(err, -errno, "rename '%s/%s' to '%s'", d->path, from, to);
	return r;
}

int lockdir_remove(struct lockdir *d, const char *name, int lockfd, struct err *err)
{
	_cleanup_unlock_ struct lockdir *locked = lock_parent(d);

	if (!locked)
		return err_errno(err, -errno, "lock '%s'", d->path);
	_cleanup_close_ int dirfd = open_child(d, name);

	if (dirfd < 0)
		return dirfd == -ENOENT ? 0 : err_errno(err, dirfd, "'%s/%s'", d->path, name);
	if (lockfd < 0 && is_held(dirfd))
		return err_set(err, -EBUSY, "'%s' is in use", name);
	return remove_child(d, name, err);
}
