/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking tar streams: see tar_extract.h.
 *
 * Everything but directories is made under a temporary name in its directory and then renamed over the final one, so
 * there is one way for all kinds, and no moment without the old file or the new one. All names go through clean_name
 * and then openat2 from `dirfd`; what is done in the directory found there uses its descriptor and a single component.
 * Nothing follows a link: modes and times are set through descriptors, or by calls that name the link itself.
 */
#include "lib/tar_extract.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"

enum { OPEN_TRIES = 32, TEMP_TRIES = 1000, MISSING_DIR_MODE = 0755 };

void tar_extract_init(struct tar_extract *x, int dirfd, const struct tar_extract_options *o)
{
	memset(x, 0, sizeof(*x));
	x->dirfd = dirfd;
	x->o = *o;
	x->chown = geteuid() == 0;
	x->parent = -1;
	x->file = -1;
	tar_reader_init(&x->reader);
}

/* Open `path` below dirfd; "" is dirfd itself. */
static int open_below(const struct tar_extract *x, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_NO_MAGICLINKS | (x->o.in_root ? RESOLVE_IN_ROOT : RESOLVE_BENEATH) |
			   (x->o.no_links ? RESOLVE_NO_SYMLINKS : 0),
	};

	for (int i = 0; i < OPEN_TRIES; i++) {
		long fd = syscall(SYS_openat2, x->dirfd, *path ? path : ".", &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR) /* EAGAIN: something was renamed meanwhile */
			return -errno;
	}
	return -EBUSY;
}

static int fail(const struct tar_extract *x, int rc, const char *what, struct err *err)
{
	const char *where = x->o.where ? x->o.where : "", *name = x->e.name[0] || *where ? x->e.name : ".";
	const char *slash = *where && *name && where[strlen(where) - 1] != '/' ? "/" : "";

	if (rc == -EXDEV)
		return err_set(err, rc, "unpack '%s%s%s': a symbolic link leads out of the directory", where, slash, name);
	if (rc == -ELOOP && x->o.no_links)
		return err_set(err, rc, "unpack '%s%s%s': there is a symbolic link in the place of a directory: remove it first", where, slash,
			       name);
	return err_errno(err, rc, "unpack '%s%s%s': %s", where, slash, name, what);
}

/* Remove "." components and doubled slashes in place; refuse what leads elsewhere. */
static int clean_name(char *name, struct err *err)
{
	char *in = name, *out = name;

	if (*name == '/')
		return err_set(err, -EINVAL, "unpack '%s': absolute names are refused", name);
	for (const char *c = name; c; c = strchr(c, '/') ? strchr(c, '/') + 1 : NULL)
		if (c[0] == '.' && c[1] == '.' && (c[2] == '/' || c[2] == '\0'))
			return err_set(err, -EINVAL, "unpack '%s': names with '..' are refused", name);
	while (*in) {
		size_t n = strcspn(in, "/");

		if (n > 0 && !(n == 1 && *in == '.')) {
			if (out > name)
				*out++ = '/';
			memmove(out, in, n);
			out += n;
		}
		in += n;
		in += *in == '/';
	}
	*out = '\0';
	return 0;
}

/* ---- directories that wait for their mode and time ---- */

static void dir_pop(struct tar_extract *x)
{
	struct tar_extract_dir *d = &x->dirs[--x->ndirs];
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = d->mtime_s, .tv_nsec = d->mtime_ns } };

	/* A file system without such modes or times is no reason to give up what has been unpacked. */
	if (fchmod(d->fd, d->mode) < 0 || futimens(d->fd, times) < 0)
		errno = 0;
	close(d->fd);
	x->path[x->ndirs ? x->dirs[x->ndirs - 1].len : 0] = '\0';
}

static bool is_below(const struct tar_extract *x, const char *name)
{
	size_t n = x->dirs[x->ndirs - 1].len;

	return strncmp(name, x->path, n) == 0 && name[n] == '/';
}

static void dir_push(struct tar_extract *x, int fd)
{
	struct tar_extract_dir *d;

	if (x->ndirs == TAR_EXTRACT_DEPTH) { /* deeper ones keep the time of their last change */
		if (fchmod(fd, x->e.mode) < 0)
			errno = 0;
		close(fd);
		return;
	}
	d = &x->dirs[x->ndirs++];
	*d = (struct tar_extract_dir){ .fd = fd,
				       .len = strlen(x->e.name),
				       .mode = x->e.mode,
				       .mtime_s = x->e.mtime_s,
				       .mtime_ns = x->e.mtime_ns };
	snprintf(x->path, sizeof(x->path), "%s", x->e.name);
}

/* ---- making things ---- */

static void get_owner(const struct tar_extract *x, uid_t *uid, gid_t *gid)
{
	*uid = x->o.keep_owner ? x->e.uid : x->o.uid;
	*gid = x->o.keep_owner ? x->e.gid : x->o.gid;
}

/* The directory of `name`, which must exist. `ret_base` points at the last component. */
static int open_parent(const struct tar_extract *x, char *name, const char **ret_base)
{
	char *slash = strrchr(name, '/');
	int fd;

	*ret_base = slash ? slash + 1 : name;
	if (!slash)
		return open_below(x, "", O_PATH | O_DIRECTORY);
	*slash = '\0';
	fd = open_below(x, name, O_PATH | O_DIRECTORY);
	*slash = '/';
	return fd;
}

/* Make directories that the stream did not mention: every prefix of `name` up to its last slash. */
static int make_parents(const struct tar_extract *x, char *name)
{
	uid_t uid;
	gid_t gid;

	get_owner(x, &uid, &gid);
	for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		const char *base;
		int up, rc = 0;

		*slash = '\0';
		up = open_parent(x, name, &base);
		if (up >= 0 && mkdirat(up, base, MISSING_DIR_MODE) < 0)
			rc = errno == EEXIST ? 0 : -errno;
		else if (up >= 0 && x->chown && fchownat(up, base, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			rc = -errno;
		*slash = '/';
		if (up < 0)
			return up;
		close(up);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int make_dir(struct tar_extract *x, struct err *err)
{
	_cleanup_close_ int fd = -1;
	bool made;
	uid_t uid;
	gid_t gid;

	made = mkdirat(x->parent, x->base, 0700) == 0;
	if (!made && errno != EEXIST)
		return fail(x, -errno, "make directory", err);
	fd = open_below(x, x->e.name, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fail(x, fd, made ? "open directory" : "a directory cannot take its place", err);
	if (!made)
		return 0;
	get_owner(x, &uid, &gid);
	if (x->chown && fchown(fd, uid, gid) < 0)
		return fail(x, -errno, "set owner", err);
	dir_push(x, TAKE_FD(fd));
	return 0;
}

/* Make the object under a new temporary name. 0, a descriptor for a file, or -errno; -EEXIST: try the next name. */
static int make_temp(struct tar_extract *x, int link_parent, const char *link_base)
{
	mode_t mask;
	int rc = 0;

	snprintf(x->temp, sizeof(x->temp), ".coffer-%x-%x", (unsigned)getpid(), x->counter++);
	switch (x->e.type) {
	case TAR_FILE:
		x->file = openat(x->parent, x->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		rc = x->file;
		break;
	case TAR_SYMLINK: rc = symlinkat(x->e.link, x->parent, x->temp); break;
	case TAR_HARDLINK: rc = linkat(link_parent, link_base, x->parent, x->temp, 0); break;
	case TAR_FIFO:
		mask = umask(0); /* the only way to an exact mode that no swapped name can redirect */
		rc = mknodat(x->parent, x->temp, S_IFIFO | x->e.mode, 0);
		umask(mask);
		break;
	case TAR_DIR: break;
	}
	if (rc < 0) {
		rc = -errno;
		x->temp[0] = '\0';
		return rc;
	}
	return 0;
}

static int on_entry(void *arg, const struct tar_entry *e, struct err *err)
{
	struct tar_extract *x = arg;
	_cleanup_close_ int link_parent = -1;
	const char *link_base = "";
	int rc;

	x->e = *e;
	rc = clean_name(x->e.name, err);
	if (rc == 0 && e->type == TAR_HARDLINK)
		rc = clean_name(x->e.link, err);
	if (rc < 0)
		return rc;
	while (x->ndirs > 0 && !is_below(x, x->e.name))
		dir_pop(x);
	if (!x->e.name[0])
		return e->type == TAR_DIR ? 0 : err_set(err, -EINVAL, "unpack: an entry other than a directory is named '.'");
	x->parent = open_parent(x, x->e.name, &x->base);
	if (x->parent == -ENOENT) {
		rc = make_parents(x, x->e.name);
		x->parent = rc < 0 ? rc : open_parent(x, x->e.name, &x->base);
	}
	if (x->parent < 0)
		return fail(x, x->parent, "open its directory", err);
	if (e->type == TAR_DIR)
		return make_dir(x, err);
	if (e->type == TAR_HARDLINK) {
		link_parent = open_parent(x, x->e.link, &link_base);
		if (link_parent < 0)
			return fail(x, link_parent, "open the directory of what it is linked to", err);
	}
	for (int i = 0; i < TEMP_TRIES; i++) {
		rc = make_temp(x, link_parent, link_base);
		if (rc != -EEXIST)
			break;
	}
	return rc < 0 ? fail(x, rc, e->type == TAR_HARDLINK ? "link" : "create", err) : 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
	struct tar_extract *x = arg;
	int rc = fd_write_full(x->file, data, n);

	if (rc < 0)
		return fail(x, rc, "write", err);
	x->bytes += n;
	return 0;
}

/* Owner, mode, time, then the final name. The owner comes first: changing it clears set-uid bits. */
static int finish_entry(struct tar_extract *x, struct err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = x->e.mtime_s, .tv_nsec = x->e.mtime_ns } };
	bool file = x->file >= 0;
	uid_t uid;
	gid_t gid;

	get_owner(x, &uid, &gid);
	if (x->e.type != TAR_HARDLINK) {
		if (x->chown && (file ? fchown(x->file, uid, gid) : fchownat(x->parent, x->temp, uid, gid, AT_SYMLINK_NOFOLLOW)) < 0)
			return fail(x, -errno, "set owner", err);
		if (file && fchmod(x->file, x->e.mode) < 0)
			return fail(x, -errno, "set mode", err);
		if ((file ? futimens(x->file, times) : utimensat(x->parent, x->temp, times, AT_SYMLINK_NOFOLLOW)) < 0)
			return fail(x, -errno, "set time", err);
	}
	if (file && close(TAKE_FD(x->file)) < 0)
		return fail(x, -errno, "write", err);
	if (renameat(x->parent, x->temp, x->parent, x->base) < 0)
		return fail(x, -errno, "put in place", err);
	if (x->e.type == TAR_HARDLINK) /* rename does nothing when both are links to one file already */
		unlinkat(x->parent, x->temp, 0);
	x->temp[0] = '\0';
	return 0;
}

static int on_end(void *arg, struct err *err)
{
	struct tar_extract *x = arg;
	int rc = 0;

	if (x->temp[0])
		rc = finish_entry(x, err);
	if (rc == 0) {
		x->parent = fd_close(x->parent);
		x->entries++;
	}
	return rc;
}

int tar_extract_feed(struct tar_extract *x, const void *data, size_t n, struct err *err)
{
	static const struct tar_sink sink = { .entry = on_entry, .data = on_data, .end = on_end };

	return tar_reader_feed(&x->reader, data, n, &sink, x, err);
}

int tar_extract_finish(struct tar_extract *x, struct err *err)
{
	int rc = tar_reader_finish(&x->reader, err);

	if (rc < 0)
		return rc;
	while (x->ndirs > 0)
		dir_pop(x);
	return 0;
}

void tar_extract_abort(struct tar_extract *x)
{
	if (x->temp[0] && x->parent >= 0)
		unlinkat(x->parent, x->temp, 0);
	x->temp[0] = '\0';
	x->file = fd_close(x->file);
	x->parent = fd_close(x->parent);
	while (x->ndirs > 0)
		dir_pop(x);
}
