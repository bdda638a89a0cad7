/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory into a tree. Names are taken in sorted order, so equal directories give equal images. Mount
 * points below it appear as the empty directories they are on this file system.
 *
 * Trust: somebody may change the directory meanwhile. Nothing is followed: directories are opened with O_NOFOLLOW
 * from their parent, and contents later below the top without symbolic links (openat2); a file that has changed its
 * size or kind since is an error.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "host/fstree_source.h"
#include "lib/fd.h"
#include "lib/text.h"

enum { LINK_BUCKETS = 4096 };

struct linked { /* a file with several names, seen once */
	struct linked *next;
	dev_t dev;
	ino_t ino;
	char path[];
};

struct dir_source {
	struct fstree *tree;
	struct progress *progress;
	dev_t dev;
	uint64_t bytes;
	char path[FSTREE_PATH_MAX]; /* relative to the top; of what is being read */
	/* Here and not on the stack, which the recursion would use up. */
	char target[FSTREE_PATH_MAX], xattr_path[64 + NAME_MAX], xattr_names[4096], xattr_value[FSTREE_XATTRS_MAX];
	struct linked *linked[LINK_BUCKETS];
};

static struct linked **find_linked(struct dir_source *s, const struct stat *st)
{
	struct linked **l = &s->linked[(st->st_ino ^ st->st_ino >> 12) % LINK_BUCKETS];

	while (*l != NULL && ((*l)->ino != st->st_ino || (*l)->dev != st->st_dev))
		l = &(*l)->next;
	return l;
}

static int read_link(int dir, const char *name, char target[FSTREE_PATH_MAX])
{
	ssize_t n = readlinkat(dir, name, target, FSTREE_PATH_MAX);

	if (n < 0)
		return -errno;
	if (n == FSTREE_PATH_MAX)
		return -ENAMETOOLONG;
	target[n] = '\0';
	return 0;
}

/* File systems without attributes, and a /proc that is not there, are no reason to fail. */
static int read_xattrs(struct dir_source *s, int dir, const char *name, struct fstree_inode *inode, struct err *err)
{
	char *path = s->xattr_path, *names = s->xattr_names;
	ssize_t n;

	snprintf(path, sizeof(s->xattr_path), "/proc/self/fd/%d/%s", dir, name);
	n = llistxattr(path, names, sizeof(s->xattr_names));
	if (n < 0)
		return errno == ERANGE ? err_set(err, -E2BIG, "'%s' has too many attributes", TEXT_CUT(s->path)) : 0;
	for (const char *x = names; x < names + n; x += strlen(x) + 1) {
		ssize_t size;
		int r;

		if (!fstree_xattr_is_kept(x)) {
			fstree_leave_out(s->tree, x);
			continue;
		}
		size = lgetxattr(path, x, s->xattr_value, sizeof(s->xattr_value));
		if (size < 0)
			return err_errno(err, -errno, "attribute '%s' of '%s'", TEXT_CUT(x), TEXT_CUT(s->path));
		r = fstree_set_xattr(s->tree, inode, x, s->xattr_value, (size_t)size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_dir(struct dir_source *s, int fd, size_t path_len, unsigned depth, struct err *err);

static int read_member(struct dir_source *s, int dir, const char *name, size_t path_len, unsigned depth, struct err *err)
{
	struct fstree_inode like = { 0 }, *inode;
	struct linked **seen = NULL;
	struct stat st;
	int r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, -errno, "stat '%s'", TEXT_CUT(s->path));
	like.mode = st.st_mode;
	like.uid = st.st_uid;
	like.gid = st.st_gid;
	like.mtime_s = st.st_mtim.tv_sec;
	like.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		like.size = (uint64_t)st.st_size;
		like.file.path = s->path;
		s->bytes += like.size;
		if (st.st_nlink > 1) {
			seen = find_linked(s, &st);
			if (*seen != NULL)
				return fstree_add_link(s->tree, s->path, (*seen)->path, err);
		}
		break;
	case S_IFLNK:
		r = read_link(dir, name, s->target);
		if (r < 0)
			return err_errno(err, r, "read the link '%s'", TEXT_CUT(s->path));
		like.target = s->target;
		break;
	case S_IFCHR:
	case S_IFBLK:
		like.device.major = major(st.st_rdev);
		like.device.minor = minor(st.st_rdev);
		break;
	case S_IFSOCK:
		return 0;
	default:
		break;
	}
	r = fstree_add(s->tree, s->path, &like, &inode, err);
	if (r == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		r = read_xattrs(s, dir, name, inode, err);
	if (r == 0 && seen != NULL) {
		size_t len = strlen(s->path) + 1;
		struct linked *l = malloc(sizeof(*l) + len);

		if (l == NULL)
			return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(s->path));
		*l = (struct linked){ .dev = st.st_dev, .ino = st.st_ino };
		memcpy(l->path, s->path, len);
		*seen = l;
	}
	if (r == 0 && S_ISDIR(st.st_mode) && st.st_dev == s->dev) {
		int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return err_errno(err, -errno, "open '%s'", TEXT_CUT(s->path));
		r = read_dir(s, fd, path_len, depth + 1, err);
	}
	return r;
}

/* Takes over `fd`. s->path has path_len bytes. */
static int read_dir(struct dir_source *s, int fd, size_t path_len, unsigned depth, struct err *err)
{
	_cleanup_close_ int dir = fd;
	struct dirent **names = NULL;
	int n, r = progress_bytes(s->progress, s->bytes, 0, err);

	if (r < 0)
		return r;
	if (depth > FSTREE_SOURCE_DEPTH_MAX)
		return err_set(err, -ELOOP, "'%.200s...' is more than %d directories deep", s->path, FSTREE_SOURCE_DEPTH_MAX);
	n = scandirat(dir, ".", &names, NULL, alphasort);
	if (n < 0)
		return err_errno(err, -errno, "read the directory '%s'", TEXT_CUT(path_len > 0 ? s->path : "."));
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		size_t len = strlen(name), slash = path_len > 0;

		if (r == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			if (path_len + slash + len >= sizeof(s->path)) {
				r = err_set(err, -ENAMETOOLONG, "'%.200s...': the path is too long", s->path);
			} else {
				memcpy(s->path + path_len, "/", slash);
				memcpy(s->path + path_len + slash, name, len + 1);
				r = read_member(s, dir, name, path_len + slash + len, depth, err);
			}
			s->path[path_len] = '\0';
		}
		free(names[i]);
	}
	free(names);
	return r;
}

int fstree_read_dir(struct fstree *t, int fd, struct progress *p, struct err *err)
{
	_cleanup_free_ struct dir_source *s = calloc(1, sizeof(*s));
	struct fstree_inode like = { 0 };
	struct stat st;
	int top, r;

	if (s == NULL)
		return err_set(err, -ENOMEM, "no memory for reading the directory");
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "stat the directory");
	top = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return err_errno(err, -errno, "open the directory");
	s->tree = t;
	s->progress = p;
	s->dev = st.st_dev;
	like.mode = S_IFDIR | (st.st_mode & 07777);
	like.uid = st.st_uid;
	like.gid = st.st_gid;
	like.mtime_s = st.st_mtim.tv_sec;
	like.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	r = fstree_add(t, ".", &like, NULL, err);
	if (r == 0)
		r = read_dir(s, top, 0, 0, err);
	else
		fd_close(top);
	for (size_t i = 0; i < LINK_BUCKETS; i++) {
		struct linked *l = s->linked[i], *next;

		for (; l != NULL; l = next) {
			next = l->next;
			free(l);
		}
	}
	return r;
}

int fstree_source_open(const struct fstree_source *s, const struct fstree_inode *inode, int *ret_fd, off_t *ret_offset,
		       bool *ret_owned, struct err *err)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (inode->file.path == NULL) {
		*ret_fd = s->fd;
		*ret_offset = (off_t)inode->file.offset;
		*ret_owned = false;
		return 0;
	}
	fd = (int)syscall(SYS_openat2, s->fd, inode->file.path, &how, sizeof(how));
	if (fd < 0)
		return err_errno(err, -errno, "open '%s'", TEXT_CUT(inode->file.path));
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "stat '%s'", TEXT_CUT(inode->file.path));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != inode->size)
		return err_set(err, -ESTALE, "'%s' changed while it was being read: stop what writes there and repeat",
			       TEXT_CUT(inode->file.path));
	*ret_fd = TAKE_FD(fd);
	*ret_offset = 0;
	*ret_owned = true;
	return 0;
}
