/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporting images: the table of formats, and the raw disk.
 *
 * A file appears whole or not at all: it is written beside its place and renamed.
 */
#include "host/image_export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/image_disk.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BUFFER = 1 << 20 };

struct raw {
	const struct image_disk *disk;
	int out;
	bool seekable;
	uint8_t *buffer;
	struct progress *p;
};

static int put_zeros(const struct raw *w, uint64_t n, struct err *err)
{
	memset(w->buffer, 0, BUFFER);
	while (n > 0 && !w->seekable) {
		size_t part = (size_t)MIN((uint64_t)BUFFER, n);
		int r = fd_write_full(w->out, w->buffer, part);

		if (r < 0)
			return err_errno(err, r, "write the disk");
		n -= part;
	}
	return 0;
}

static int put_data(const struct raw *w, uint64_t from, uint64_t to, struct err *err)
{
	while (from < to) {
		size_t part = (size_t)MIN((uint64_t)BUFFER, to - from);
		int r = image_disk_read(w->disk, w->buffer, part, from);

		if (r < 0)
			return err_errno(err, r, "read the image at %llu", (unsigned long long)from);
		r = w->seekable ? fd_pwrite_full(w->out, w->buffer, part, (off_t)from) :
				  fd_write_full(w->out, w->buffer, part);
		if (r < 0)
			return err_errno(err, r, "write the disk");
		from += part;
		r = progress_bytes(w->p, from, w->disk->size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put_all(const struct raw *w, struct err *err)
{
	uint64_t at = 0, start, end;

	while (image_disk_next_data(w->disk, at, &start, &end)) {
		int r = put_zeros(w, start - at, err);

		if (r == 0)
			r = put_data(w, start, end, err);
		if (r < 0)
			return r;
		at = end;
	}
	return put_zeros(w, w->disk->size - at, err);
}

int image_export_raw(const struct image *image, int out, struct progress *p, struct err *err)
{
	_cleanup_free_ uint8_t *buffer = malloc(BUFFER);
	struct image_disk disk = IMAGE_DISK_NONE;
	struct raw w = { .disk = &disk, .out = out, .buffer = buffer, .p = p };
	struct stat st;
	int r;

	if (buffer == NULL)
		return err_set(err, -ENOMEM, "no memory");
	r = image_disk_open(image, &disk, err);
	if (r < 0)
		return r;
	/* Holes are left only in a file that has nothing in it. */
	w.seekable = fstat(out, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && lseek(out, 0, SEEK_CUR) == 0 &&
		     !(fcntl(out, F_GETFL) & O_APPEND);
	progress_stage(p, "writing the disk");
	if (w.seekable && ftruncate(out, (off_t)disk.size) < 0)
		r = err_errno(err, -errno, "make a disk of %llu bytes", (unsigned long long)disk.size);
	if (r == 0)
		r = put_all(&w, err);
	image_disk_close(&disk);
	return r;
}

/* ---- formats ---- */

int image_export_put(const char *temp, const char *path, struct err *err)
{
	if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	if ((errno == EINVAL || errno == ENOSYS) && access(path, F_OK) < 0 && rename(temp, path) == 0)
		return 0;
	return err_errno(err, -errno, "'%s'", path);
}

static int export_raw(const struct image *image, const char *path, int out, struct progress *p, struct err *err)
{
	char temp[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int r;

	if (strcmp(path, "-") == 0)
		return image_export_raw(image, out, p, err);
	if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp))
		return err_set(err, -ENAMETOOLONG, "'%.80s...'", path);
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, -errno, "make '%s'", temp);
	r = image_export_raw(image, fd, p, err);
	if (r == 0 && fsync(fd) < 0)
		r = err_errno(err, -errno, "write '%s'", temp);
	if (r == 0)
		r = image_export_put(temp, path, err);
	if (r < 0)
		unlink(temp);
	return r;
}

const struct image_export_format image_export_formats[] = {
	{ "raw", "the disk as it is, a sparse file", true, export_raw },
	{ "oci", "a directory, an OCI image layout with the layers as they are (overlaybd)", false, image_export_oci },
	{ .name = NULL },
};
