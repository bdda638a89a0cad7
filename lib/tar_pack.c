/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing trees: see tar_pack.h.
 *
 * The walk is a stack of open directories, each with the part of its listing that was read last. tar_pack_read gives out,
 * in this order: what is left in `out` (a header), the content of `file`, zeros that pad it, and then moves to the
 * next entry. Descriptors, not paths, lead from one level to the next, so a tree that changes meanwhile cannot lead
 * the walk elsewhere.
 */
#include "lib/tar_pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { WALK, END, DONE };

/* Something in the tree by the path that the user knows. */
#define NAME_FORMAT "'%.*s%s'"
#define NAME_ARGS(p, n) (int)(p)->path_len, (p)->path, (n) + (p)->root_len

static int fail(const struct tar_pack *p, int rc, const char *what, struct err *err)
{
	return err_errno(err, rc, "pack " NAME_FORMAT ": %s", NAME_ARGS(p, p->name), what);
}

static bool kernel_fs(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case DEVPTS_SUPER_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case DEBUGFS_MAGIC:
	case TRACEFS_MAGIC:
	case SECURITYFS_MAGIC:
	case BPF_FS_MAGIC:
	case PSTOREFS_MAGIC:
	case EFIVARFS_MAGIC:
	case NSFS_MAGIC: return true;
	default: return false;
	}
}

/* Put the header of the entry in `p->name` into `out`. e.type, e.size and e.link are set. */
static int emit_header(struct tar_pack *p, const struct stat *st, struct err *err)
{
	ssize_t n;

	p->e.mode = st->st_mode & 07777;
	p->e.uid = st->st_uid;
	p->e.gid = st->st_gid;
	p->e.mtime_s = st->st_mtim.tv_sec;
	p->e.mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	memcpy(p->e.name, p->name, p->name_len + 1);
	n = tar_header_make(&p->e, p->out, sizeof(p->out));
	if (n < 0)
		return fail(p, (int)n, "make header", err);
	p->out_pos = 0;
	p->out_len = (size_t)n;
	p->entries++;
	return 0;
}

/* Takes over `fd`, an open directory named p->name. */
static int enter_dir(struct tar_pack *p, int fd, const struct stat *st, bool list, struct err *err)
{
	_cleanup_close_ int owned = fd;
	int rc;

	p->e.type = TAR_DIR;
	p->e.size = 0;
	p->e.link[0] = '\0';
	rc = emit_header(p, st, err);
	if (rc < 0 || !list)
		return rc;
	if (p->depth == TAR_PACK_DEPTH)
		return err_set(err, -ELOOP, "pack " NAME_FORMAT ": more than %d directories deep", NAME_ARGS(p, p->name),
			       TAR_PACK_DEPTH);
	p->level[p->depth].fd = TAKE_FD(owned);
	p->level[p->depth].name_len = p->name_len;
	p->level[p->depth].dents.pos = p->level[p->depth].dents.len = 0;
	p->depth++;
	return 0;
}

static int open_spool(void)
{
	int fd = open("/tmp", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : memfd_create("coffer-tar", MFD_CLOEXEC);
}

/* Read all of `fd`: 0 if it is empty, else its length, with *ret_spool a copy that stands at its start. */
static ssize_t spool(const struct tar_pack *p, int fd, int *ret_spool, struct err *err)
{
	_cleanup_close_ int copy = -1;
	char buf[4096];
	size_t size = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(p, -errno, "read", err);
		size += (size_t)n;
		if (size > TAR_PACK_SPOOL_MAX)
			return err_set(err, -EFBIG, "pack " NAME_FORMAT ": a file that does not tell its size has more than %d MiB",
				       NAME_ARGS(p, p->name), TAR_PACK_SPOOL_MAX >> 20);
		if (copy < 0)
			copy = open_spool();
		if (copy < 0)
			return fail(p, -errno, "make a temporary file", err);
		int rc = fd_write_full(copy, buf, (size_t)n);

		if (rc < 0)
			return fail(p, rc, "write to a temporary file", err);
	}
	if (copy >= 0 && lseek(copy, 0, SEEK_SET) < 0)
		return fail(p, -errno, "read a temporary file", err);
	*ret_spool = TAKE_FD(copy);
	return (ssize_t)size;
}

/* Takes over `fd`. What the status says about the size is put right. */
static int enter_file(struct tar_pack *p, int fd, struct stat *st, struct err *err)
{
	p->file = fd;
	p->spooled = st->st_size == 0 || kernel_fs(fd);
	if (p->spooled) {
		int copy = -1;
		ssize_t n = spool(p, fd, &copy, err);

		if (n < 0)
			return (int)n;
		close(p->file);
		p->file = copy;
		st->st_size = n;
	}
	p->e.type = TAR_FILE;
	p->e.size = p->left = (uint64_t)st->st_size;
	p->e.link[0] = '\0';
	p->padding = (unsigned)(-p->left & (TAR_BLOCK - 1));
	p->bytes += p->left;
	return emit_header(p, st, err);
}

/* All that was promised has been read: is there more? */
static int check_grown(struct tar_pack *p, struct err *err)
{
	char more;
	ssize_t n;

	if (p->file < 0 || p->spooled)
		return 0;
	do
		n = read(p->file, &more, 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fail(p, -errno, "read", err);
	if (n > 0 && !p->grown[0])
		memcpy(p->grown, p->name, p->name_len + 1);
	return 0;
}

/* Pack the object `at`/`base`, named p->name in the stream. 1: done, 0: left out, or -errno. `parent` is its directory's
 * status, NULL at the start. */
static int pack_object(struct tar_pack *p, int at, const char *base, bool follow, const struct stat *parent, struct stat *st,
		       struct err *err)
{
	int open_flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW);
	_cleanup_close_ int fd = -1;
	ssize_t n;

	if (fstatat(at, base, st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT && parent ? 0 : fail(p, -errno, "stat", err);
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) {
		fd = openat(at, base, open_flags);
		if (fd < 0)
			return (errno == ENOENT || errno == ELOOP) && parent ? 0 : fail(p, -errno, "open", err);
		if (fstat(fd, st) < 0)
			return fail(p, -errno, "stat", err);
	}
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		n = enter_file(p, TAKE_FD(fd), st, err);
		return n < 0 ? (int)n : 1;
	case S_IFDIR: {
		bool list = !parent || parent->st_dev == st->st_dev || !kernel_fs(fd);

		n = enter_dir(p, TAKE_FD(fd), st, list, err);
		return n < 0 ? (int)n : 1;
	}
	case S_IFLNK:
		n = readlinkat(at, base, p->e.link, sizeof(p->e.link));
		if (n < 0)
			return errno == ENOENT && parent ? 0 : fail(p, -errno, "read link", err);
		if (n == sizeof(p->e.link))
			return fail(p, -ENAMETOOLONG, "read link", err);
		p->e.link[n] = '\0';
		p->e.type = TAR_SYMLINK;
		break;
	case S_IFIFO:
		p->e.type = TAR_FIFO;
		p->e.link[0] = '\0';
		break;
	default:
		if (!parent)
			return err_set(err, -EOPNOTSUPP, "pack " NAME_FORMAT ": sockets and devices cannot be copied", NAME_ARGS(p, p->name));
		p->skipped++;
		return 0;
	}
	p->e.size = 0;
	n = emit_header(p, st, err);
	return n < 0 ? (int)n : 1;
}

int tar_pack_init(struct tar_pack *p, const char *path, const char *name, bool follow, struct stat *ret_st, struct err *err)
{
	size_t n = strlen(name);
	int rc;

	p->state = WALK;
	p->depth = 0;
	p->file = -1;
	p->left = 0;
	p->spooled = false;
	p->grown[0] = '\0';
	p->padding = 0;
	p->out_pos = p->out_len = 0;
	p->entries = p->bytes = p->skipped = 0;
	if (n == 0 || n >= sizeof(p->name))
		return err_set(err, -ENAMETOOLONG, "pack: the name in the stream has %zu bytes; 1 to %d are possible", n,
			       TAR_PATH_MAX - 1);
	p->name_len = p->root_len = n;
	p->path = path;
	p->path_len = strlen(path);
	while (p->path_len > 0 && path[p->path_len - 1] == '/') /* what is below adds its own */
		p->path_len--;
	if ((follow ? stat(path, ret_st) : lstat(path, ret_st)) < 0)
		return err_errno(err, -errno, "'%s'", path);
	memcpy(p->name, name, n + 1);
	rc = pack_object(p, AT_FDCWD, path, follow, NULL, ret_st, err);
	if (rc < 0)
		tar_pack_finish(p);
	return rc < 0 ? rc : 0;
}

/* Move to the next entry that has something to say. 1, or 0 when the walk is over. */
static int walk(struct tar_pack *p, struct err *err)
{
	while (p->depth > 0) {
		struct tar_pack_level *l = &p->level[p->depth - 1];
		const struct dents_entry *d;
		struct stat dir, st;
		size_t n;
		int rc;

		p->name_len = l->name_len;
		p->name[p->name_len] = '\0';
		rc = dents_next(&l->dents, l->fd, &d);
		if (rc < 0)
			return fail(p, rc, "list", err);
		if (rc == 0) {
			l->fd = fd_close(l->fd);
			p->depth--;
			continue;
		}
		if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
			continue;
		n = strlen(d->name);
		if (p->name_len + 1 + n >= sizeof(p->name))
			return fail(p, -ENAMETOOLONG, d->name, err);
		p->name[p->name_len] = '/';
		memcpy(p->name + p->name_len + 1, d->name, n + 1);
		p->name_len += 1 + n;
		if (fstat(l->fd, &dir) < 0)
			return fail(p, -errno, "stat", err);
		rc = pack_object(p, l->fd, d->name, false, &dir, &st, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

ssize_t tar_pack_read(struct tar_pack *p, void *buf, size_t n, struct err *err)
{
	size_t done = 0;

	while (done < n) {
		char *dst = (char *)buf + done;
		size_t room = n - done, take;
		int rc;

		if (p->out_pos < p->out_len) {
			take = MIN(room, p->out_len - p->out_pos);
			memcpy(dst, p->out + p->out_pos, take);
			p->out_pos += take;
		} else if (p->left > 0) {
			ssize_t got = read(p->file, dst, (size_t)MIN((uint64_t)room, p->left));

			if (got < 0 && errno == EINTR)
				continue;
			if (got < 0)
				return fail(p, -errno, "read", err);
			take = (size_t)got;
			if (got == 0)
				return err_set(err, -EIO, "pack " NAME_FORMAT ": it became shorter while it was copied: %ju of %ju bytes are there",
					       NAME_ARGS(p, p->name), (uintmax_t)(p->e.size - p->left), (uintmax_t)p->e.size);
			p->left -= take;
		} else if (p->padding > 0) {
			take = MIN(room, (size_t)p->padding);
			memset(dst, 0, take);
			p->padding -= (unsigned)take;
		} else if (p->state == WALK) {
			rc = check_grown(p, err);
			p->file = fd_close(p->file);
			if (rc == 0)
				rc = walk(p, err);
			if (rc < 0)
				return rc;
			if (rc == 0) {
				p->state = END;
				p->padding = 2 * TAR_BLOCK;
			}
			continue;
		} else {
			if (done == 0 && p->grown[0])
				return err_set(err, -EIO, "pack " NAME_FORMAT ": it became longer while it was copied: only its first bytes were",
					       NAME_ARGS(p, p->grown));
			p->state = DONE;
			break;
		}
		done += take;
	}
	return (ssize_t)done;
}

void tar_pack_finish(struct tar_pack *p)
{
	p->file = fd_close(p->file);
	while (p->depth > 0)
		fd_close(p->level[--p->depth].fd);
}
