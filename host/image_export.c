/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporting images: the table of formats, and the raw disk.
 *
 * What is written appears whole or not at all. A file has no name until then, so nothing is left of an export that was killed. Where that is
 * not possible (a directory, a file system without such files) it is written beside its place, as PATH.coffer-XXXXXXXX, with
 * a lock (flock), and renamed; one whose lock is free goes with the next export to the same place.
 */
#include "host/image_export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "host/image_disk.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

#define TEMP_SUFFIX ".coffer-"

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

int image_export_temp(const char *path, char ret[PATH_MAX], struct err *err)
{
	uint32_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return err_errno(err, -errno, "a random name");
	if ((size_t)snprintf(ret, PATH_MAX, "%s" TEMP_SUFFIX "%08x", path, random) >= PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "'%s'", TEXT_CUT(path));
	return 0;
}

static bool is_temp_of(const char *name, const char *base)
{
	size_t n = strlen(base);

	return strncmp(name, base, n) == 0 && strncmp(name + n, TEMP_SUFFIX, strlen(TEMP_SUFFIX)) == 0 &&
	       strspn(name + n + strlen(TEMP_SUFFIX), "0123456789abcdef") == 8 && name[n + strlen(TEMP_SUFFIX) + 8] == '\0';
}

void image_export_clean(const char *path)
{
	_cleanup_free_ char *copy = strdup(path), *again = strdup(path);
	DIR *dir = copy == NULL || again == NULL ? NULL : opendir(dirname(copy));
	const char *base = dir == NULL ? NULL : basename(again);

	for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
		_cleanup_close_ int fd = -1;

		if (!is_temp_of(e->d_name, base))
			continue;
		fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			file_remove_tree(dirfd(dir), e->d_name);
	}
	if (dir != NULL)
		closedir(dir);
}

int image_export_put(const char *temp, const char *path, struct err *err)
{
	if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	if ((errno == EINVAL || errno == ENOSYS) && access(path, F_OK) < 0 && rename(temp, path) == 0)
		return 0;
	return err_errno(err, -errno, "'%s'", path);
}

/* A file without a name, temp ""; or one beside its place. */
static int open_temp(const char *path, char temp[PATH_MAX], struct err *err)
{
	_cleanup_free_ char *copy = strdup(path);
	int fd = copy == NULL ? -1 : open(dirname(copy), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666), r;

	temp[0] = '\0';
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd >= 0 ? fd : err_errno(err, -errno, "make '%s'", path);
	r = image_export_temp(path, temp, err);
	if (r < 0)
		return r;
	fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_errno(err, -errno, "make '%s'", temp);
	flock(fd, LOCK_EX | LOCK_NB);
	return fd;
}

static int name_file(int fd, const char *temp, const char *path, struct err *err)
{
	char self[32];

	if (temp[0] != '\0')
		return image_export_put(temp, path, err);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? err_errno(err, -errno, "'%s'", path) : 0;
}

static int export_raw(const struct image *image, const char *path, int out, struct progress *p, struct err *err)
{
	char temp[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int r;

	if (strcmp(path, "-") == 0)
		return image_export_raw(image, out, p, err);
	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_errno(err, -EEXIST, "'%s'", path);
	image_export_clean(path);
	fd = open_temp(path, temp, err);
	if (fd < 0)
		return fd;
	r = image_export_raw(image, fd, p, err);
	if (r == 0 && fsync(fd) < 0)
		r = err_errno(err, -errno, "write '%s'", path);
	if (r == 0)
		r = name_file(fd, temp, path, err);
	if (r < 0 && temp[0] != '\0')
		unlink(temp);
	return r;
}

const struct image_export_format image_export_formats[] = {
	{ "raw", "the disk as it is, a sparse file", true, export_raw },
	{ "oci", "a directory, an OCI image layout with the layers as they are (overlaybd)", false, image_export_oci },
	{ .name = NULL },
};
