/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "file" backend: a regular file or a block device, and the "memory" one: the same over a memfd.
 *
 * Opening checks what is there (a directory, a FIFO, an odd size each get their sentence) and takes a flock: exclusive
 * to write, shared to read. So a disk can be used for writing by one monitor only, and images shared
 * read-only by many. The lock goes with the descriptor, which is therefore not the one the engine uses: the kernel
 * takes a ring apart some time after its process is gone, and until then the ring's files, and their locks, live on.
 *
 * Size: a multiple of 512. A read-only image that is not is used without its last bytes, with a note for the log; one
 * that can be written is refused, since a guest that fills it would lose data.
 *
 * cache=none opens the file a second time with O_DIRECT. A request whose memory and offset are aligned takes it, any
 * other (and any that the file system refuses) takes the page cache.
 *
 * Snapshot: the size is the device's to save. Trust: the path is the user's; the bytes are opaque.
 */
/* syscalls(main): lseek ftruncate */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "devices/backend/block_io.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { FILE_CACHED, FILE_DIRECT, DIRECT_ALIGN = 512 };

struct block_file {
	struct block b;
	struct block_io *io;
	int fd;        /* owned, holds the lock */
	int io_fd;     /* owned, the same file for the engine */
	int direct_fd; /* owned, -1 without cache=none */
	bool regular;  /* can be extended */
	bool unsafe;   /* cache=unsafe: nothing waits for the storage */
	struct block_request *skipped; /* flushes then, done at the next kick */
};

static struct block_file *file_of(struct block *b)
{
	return container_of(b, struct block_file, b);
}

static bool is_aligned(const struct block_request *r)
{
	for (int i = 0; i < r->niov; i++)
		if (((uintptr_t)r->iov[i].iov_base | r->iov[i].iov_len) % DIRECT_ALIGN)
			return false;
	return true;
}

static void file_submit(struct block *b, struct block_request *r)
{
	struct block_file *f = file_of(b);

	if (f->unsafe && r->op == BLOCK_FLUSH) {
		r->next = f->skipped;
		f->skipped = r;
		return;
	}
	r->file = FILE_CACHED;
	r->flags &= ~(uint32_t)BLOCK_F_DIRECT;
	if (f->direct_fd >= 0 && (r->op == BLOCK_READ || r->op == BLOCK_WRITE) && is_aligned(r))
		r->file = FILE_DIRECT;
	if (r->file == FILE_DIRECT)
		r->flags |= BLOCK_F_DIRECT;
	if (f->unsafe)
		r->flags &= ~(uint32_t)BLOCK_F_DURABLE;
	f->io->ops->submit(f->io, r);
}

static void finish_skipped(struct block_file *f)
{
	struct block_request *r;

	while ((r = f->skipped)) {
		f->skipped = r->next;
		r->done(r, 0);
	}
}

static void file_kick(struct block *b)
{
	struct block_file *f = file_of(b);

	finish_skipped(f);
	f->io->ops->kick(f->io);
}

static void file_complete(struct block *b)
{
	struct block_file *f = file_of(b);

	f->io->ops->complete(f->io);
}

static void file_drain(struct block *b)
{
	struct block_file *f = file_of(b);

	do {
		finish_skipped(f);
		f->io->ops->drain(f->io);
	} while (f->skipped);
}

static int file_start(struct block *b, struct vm *vm, struct err *err)
{
	struct block_io *io = file_of(b)->io;

	return io->ops->start ? io->ops->start(io, vm, err) : 0;
}

static int file_resize(struct block *b, uint64_t bytes, struct err *err)
{
	struct block_file *f = file_of(b);
	off_t end = lseek(f->fd, 0, SEEK_END);
	uint64_t now;

	if (end < 0)
		return err_errno(err, -errno, "size of the disk");
	now = (uint64_t)end;
	if (bytes == 0) {
		bytes = ALIGN_DOWN(now, (uint64_t)BLOCK_SECTOR);
		if (bytes < b->size)
			return err_set(err, -EINVAL, "the file has shrunk from %" PRIu64 " to %" PRIu64
				       " bytes while in use: extend it again", b->size, now);
	}
	if (bytes > now) {
		if (!f->regular || b->ro)
			return err_set(err, -EINVAL, "%s has %" PRIu64 " bytes: extend it first",
				       b->ro ? "the read-only file" : "the block device", now);
		if (ftruncate(f->fd, (off_t)bytes) < 0)
			return err_errno(err, -errno, "extend the file to %" PRIu64 " bytes", bytes);
	}
	b->size = bytes;
	return 0;
}

static void file_close(struct block *b)
{
	struct block_file *f = file_of(b);

	if (f->io)
		f->io->ops->close(f->io);
	fd_close(f->direct_fd);
	fd_close(f->io_fd);
	fd_close(f->fd);
	fd_close(b->event_fd);
	free(f);
}

static const struct block_ops file_ops = {
	.submit = file_submit,
	.kick = file_kick,
	.complete = file_complete,
	.drain = file_drain,
	.start = file_start,
	.resize = file_resize,
	.close = file_close,
};

static const char *kind_name(mode_t mode)
{
	return S_ISDIR(mode)  ? "a directory" :
	       S_ISFIFO(mode) ? "a FIFO" :
	       S_ISSOCK(mode) ? "a socket" :
	       S_ISCHR(mode)  ? "a character device" :
				"not a file";
}

/* Who holds a lock on it, from /proc/locks: "N: FLOCK ADVISORY WRITE pid major:minor:inode start end". */
static void find_holder(const struct stat *st, char *ret, size_t len)
{
	FILE *f = fopen("/proc/locks", "re");
	char line[256], path[64], comm[64];

	snprintf(ret, len, "another process");
	while (f && fgets(line, sizeof(line), f)) {
		char pid_text[16], where[64], *inode;
		long pid;
		FILE *c;

		if (sscanf(line, "%*s FLOCK %*s %*s %15s %63s", pid_text, where) != 2)
			continue;
		pid = strtol(pid_text, NULL, 10);
		inode = strrchr(where, ':');
		if (pid <= 0 || !inode || strtoull(inode + 1, NULL, 10) != st->st_ino)
			continue;
		snprintf(ret, len, "process %ld", pid);
		snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
		c = fopen(path, "re");
		if (c && fgets(comm, sizeof(comm), c)) {
			comm[strcspn(comm, "\n")] = 0;
			snprintf(ret, len, "process %ld (%s)", pid, comm);
		}
		if (c)
			fclose(c);
		break;
	}
	if (f)
		fclose(f);
}

static int lock_file(struct block_file *f, const char *path, const struct stat *st, struct err *err)
{
	char who[128];

	if (flock(f->fd, (f->b.ro ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK) {
		snprintf(f->b.note, sizeof(f->b.note), "'%s' cannot be locked (%s): nothing keeps others from writing to it",
			 path, strerror(errno));
		return 0;
	}
	find_holder(st, who, sizeof(who));
	if (f->b.ro)
		return err_set(err, -EBUSY, "'%s' is in use for writing by %s: wait, or use a copy", path, who);
	return err_set(err, -EBUSY, "'%s' is in use by %s: a disk can be written by one VM at a time (use ro in all, or a copy)",
		       path, who);
}

static int set_size(struct block_file *f, const char *path, struct err *err)
{
	struct block *b = &f->b;
	off_t end = lseek(f->fd, 0, SEEK_END);
	uint64_t over;

	if (end < 0)
		return err_errno(err, -errno, "size of '%s'", path);
	b->size = (uint64_t)end;
	over = b->size % BLOCK_SECTOR;
	if (over && !b->ro)
		return err_set(err, -EINVAL, "'%s' is %" PRIu64 " bytes, %" PRIu64 " more than a multiple of %d: "
			       "extend it with 'truncate -s %" PRIu64 "', or use ro", path, b->size, over, BLOCK_SECTOR,
			       b->size - over + BLOCK_SECTOR);
	b->size -= over;
	if (b->size == 0)
		return err_set(err, -EINVAL, "'%s' has no sector in it (%" PRIu64 " bytes)", path, over);
	if (over)
		snprintf(b->note, sizeof(b->note), "'%s' is not a multiple of %d bytes: the last %" PRIu64 " are left out",
			 path, BLOCK_SECTOR, over);
	return 0;
}

/* Open what f->fd is once more, whatever its name has come to mean. */
static int reopen(const struct block_file *f, int flags)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	fd = open(path, (f->b.ro ? O_RDONLY : O_RDWR) | O_CLOEXEC | flags);
	return fd < 0 ? -errno : fd;
}

static int open_path(struct block_file *f, const char *path, bool direct, struct err *err)
{
	int flags = (f->b.ro ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK; /* a FIFO */
	struct stat st;
	int r;

	/* Before opening: it would wake whoever is at the other end of a FIFO. */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is %s: a disk is a file or a block device", path, kind_name(st.st_mode));
	f->fd = open(path, flags);
	if (f->fd < 0) {
		r = -errno;
		if ((r == -EACCES || r == -EROFS || r == -EPERM) && !f->b.ro && access(path, R_OK) == 0)
			return err_errno(err, r, "open '%s' for writing (ro opens it read-only)", path);
		return err_errno(err, r, "open '%s'", path);
	}
	if (fstat(f->fd, &st) < 0)
		return err_errno(err, -errno, "stat '%s'", path);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is %s: a disk is a file or a block device", path, kind_name(st.st_mode));
	f->regular = S_ISREG(st.st_mode);
	r = lock_file(f, path, &st, err);
	if (r < 0)
		return r;
	f->io_fd = reopen(f, 0);
	if (f->io_fd < 0)
		return err_errno(err, f->io_fd, "open '%s' by /proc/self/fd", path);
	if (direct) {
		f->direct_fd = reopen(f, O_DIRECT);
		if (f->direct_fd < 0)
			return err_errno(err, f->direct_fd, "open '%s' without the page cache (cache=writeback works everywhere)",
					 path);
	}
	return set_size(f, path, err);
}

static int open_memory(struct block_file *f, uint64_t size, struct err *err)
{
	f->fd = memfd_create("disk", MFD_CLOEXEC);
	if (f->fd < 0)
		return err_errno(err, -errno, "memfd_create");
	if (ftruncate(f->fd, (off_t)size) < 0)
		return err_errno(err, -errno, "a disk of %" PRIu64 " bytes in memory", size);
	f->io_fd = reopen(f, 0);
	if (f->io_fd < 0)
		return err_errno(err, f->io_fd, "open the memory disk by /proc/self/fd");
	f->regular = true;
	f->b.size = size;
	return 0;
}

static int open_engine(struct block_file *f, const struct block_config *c, struct err *err)
{
	const int files[] = { f->io_fd, f->direct_fd };

	f->b.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (f->b.event_fd < 0)
		return err_errno(err, -errno, "eventfd");
	return block_io_open(c, &f->b, c->depth, files, f->direct_fd >= 0 ? 2 : 1, &f->io, err);
}

int block_file_open(const struct block_config *c, struct block **ret, struct err *err)
{
	const char *cache = c->cache ? c->cache : "writeback";
	struct block_file *f;
	int r;

	r = block_io_check(c, err);
	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_errno(err, -ENOMEM, "disk");
	f->b.ops = &file_ops;
	f->b.ro = c->ro;
	f->b.event_fd = f->fd = f->io_fd = f->direct_fd = -1;
	f->b.writethrough = strcmp(cache, "writethrough") == 0;
	f->unsafe = strcmp(cache, "unsafe") == 0;
	r = c->path ? open_path(f, c->path, strcmp(cache, "none") == 0, err) : open_memory(f, c->size, err);
	if (r >= 0)
		r = open_engine(f, c, err);
	if (r < 0) {
		file_close(&f->b);
		return r;
	}
	*ret = &f->b;
	return 0;
}
