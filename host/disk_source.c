/* SPDX-License-Identifier: Apache-2.0 */
/* Raw disks as a source, and what all sources share: see disk_source.h. */
#include "host/disk_source.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/progress.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { HEAD = 512, COPY_STEP = 1 << 20, ZERO_STEP = 4096 };

struct raw {
	struct disk_source d;
	int fd;
	uint64_t file_size;
	char *name;
};

/* A file system without SEEK_DATA, or a block device, is all data. */
static int raw_run(struct disk_source *d, uint64_t offset, uint64_t *ret_len, bool *ret_zero, struct err *err)
{
	struct raw *r = (struct raw *)d;
	off_t data = offset < r->file_size ? lseek(r->fd, (off_t)offset, SEEK_DATA) : -1, hole;

	if (offset >= r->file_size || (data < 0 && errno == ENXIO)) {
		*ret_zero = true;
		*ret_len = d->size - offset;
		return 0;
	}
	if (data < 0 && errno != EINVAL && errno != EOPNOTSUPP && errno != ESPIPE)
		return err_errno(err, -errno, "'%s': find data", r->name);
	*ret_zero = data > (off_t)offset;
	if (*ret_zero) {
		*ret_len = MIN((uint64_t)data, d->size) - offset;
		return 0;
	}
	hole = data < 0 ? -1 : lseek(r->fd, (off_t)offset, SEEK_HOLE);
	*ret_len = (hole > (off_t)offset ? MIN((uint64_t)hole, r->file_size) : r->file_size) - offset;
	return 0;
}

static int raw_read(struct disk_source *d, void *buf, size_t len, uint64_t offset, struct err *err)
{
	struct raw *r = (struct raw *)d;
	size_t have = offset < r->file_size ? (size_t)MIN((uint64_t)len, r->file_size - offset) : 0;
	ssize_t n = fd_pread_full(r->fd, buf, have, (off_t)offset);

	if (n < 0)
		return err_errno(err, (int)n, "read '%s' at %" PRIu64, r->name, offset);
	if ((size_t)n != have)
		return err_set(err, -EIO, "'%s' has become shorter while it was read", r->name);
	memset((char *)buf + have, 0, len - have);
	return 0;
}

static void raw_close(struct disk_source *d)
{
	free(((struct raw *)d)->name);
	free(d);
}

static const struct disk_source_ops raw_ops = { .run = raw_run, .read = raw_read, .close = raw_close };

static int raw_open(int fd, const char *name, uint64_t size, struct disk_source **ret, struct err *err)
{
	struct raw *r = calloc(1, sizeof(*r));

	if (r)
		r->name = strdup(name);
	if (!r || !r->name) {
		free(r);
		return err_set(err, -ENOMEM, "no memory to read '%s'", name);
	}
	r->d = (struct disk_source){ .ops = &raw_ops, .size = ALIGN_UP(size, (uint64_t)DISK_SOURCE_SECTOR) };
	r->fd = fd;
	r->file_size = size;
	*ret = &r->d;
	return 0;
}

int disk_source_open(int fd, const char *name, struct disk_source **ret, struct err *err)
{
	uint8_t head[HEAD];
	struct stat st;
	uint64_t size = 0;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "'%s'", name);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is no disk: neither a file nor a block device", name);
	if (S_ISREG(st.st_mode))
		size = (uint64_t)st.st_size;
	else if (ioctl(fd, BLKGETSIZE64, &size) < 0)
		return err_errno(err, -errno, "size of '%s'", name);
	ssize_t n = fd_pread_full(fd, head, sizeof(head), 0);

	if (n < 0)
		return err_errno(err, (int)n, "read '%s'", name);
	if (qcow2_is(head, (size_t)n))
		return qcow2_open(fd, name, ret, err);
	if (size == 0)
		return err_set(err, -EINVAL, "'%s' is empty: no disk", name);
	if (size > DISK_SOURCE_SIZE_MAX)
		return err_set(err, -EFBIG, "'%s' has %" PRIu64 " bytes: a disk has %llu at most", name, size, DISK_SOURCE_SIZE_MAX);
	return raw_open(fd, name, size, ret, err);
}

void disk_source_close(struct disk_source *d)
{
	if (d)
		d->ops->close(d);
}

/* Pages of zeros become holes, too. */
static int write_data(int fd, const uint8_t *buf, size_t len, uint64_t offset, struct err *err)
{
	static const uint8_t zeros[ZERO_STEP];

	for (size_t at = 0; at < len;) {
		size_t n = 0;

		while (at + n < len && memcmp(buf + at + n, zeros, MIN((size_t)ZERO_STEP, len - at - n)) != 0)
			n += MIN((size_t)ZERO_STEP, len - at - n);
		if (n == 0) {
			at += MIN((size_t)ZERO_STEP, len - at);
			continue;
		}
		int r = fd_pwrite_full(fd, buf + at, n, (off_t)(offset + at));

		if (r < 0)
			return err_errno(err, r, "write the disk");
		at += n;
	}
	return 0;
}

int disk_source_copy(struct disk_source *d, int to_fd, struct progress *progress, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc(COPY_STEP);
	uint64_t len;
	bool zero;

	if (!buf)
		return err_set(err, -ENOMEM, "no memory to copy the disk");
	if (ftruncate(to_fd, (off_t)d->size) < 0)
		return err_errno(err, -errno, "make a disk of %" PRIu64 " bytes", d->size);
	for (uint64_t at = 0; at < d->size; at += len) {
		int r = disk_source_run(d, at, &len, &zero, err);

		if (r == 0 && !zero) {
			len = MIN(len, COPY_STEP - at % COPY_STEP);
			r = disk_source_read(d, buf, (size_t)len, at, err);
			if (r == 0)
				r = write_data(to_fd, buf, (size_t)len, at, err);
		}
		if (r == 0)
			r = progress_bytes(progress, at + len, d->size, err);
		if (r < 0)
			return r;
	}
	return 0;
}
