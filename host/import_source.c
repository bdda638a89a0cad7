/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a container image: see import_source.h. */
#include "host/import_source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/fstree_source.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BUFFER_SIZE = 1 << 20 };

int import_source_open_dir(int fd, struct import_source *ret)
{
	*ret = (struct import_source){ .fd = fd };
	return 0;
}

int import_source_open_tar(int fd, struct import_source *ret, struct progress *p, struct err *err)
{
	struct import_source s = { .fd = fd, .is_tar = true };
	int r = fstree_init(&s.tree, err);

	*ret = (struct import_source){ .fd = -1 };
	if (r < 0)
		return r;
	r = fstree_read_tar(&s.tree, fd, p, err);
	if (r < 0) {
		fstree_finish(&s.tree);
		return r;
	}
	*ret = s;
	return 0;
}

void import_source_close(struct import_source *s)
{
	if (s->is_tar)
		fstree_finish(&s->tree);
	*s = (struct import_source){ .fd = -1 };
}

static int open_beneath(int dir, const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

int import_source_open(const struct import_source *s, const char *path, struct import_blob *ret, struct err *err)
{
	struct stat st;

	if (s->is_tar) {
		/* `docker save` has symbolic links to other parts. */
		const struct fstree_inode *i = fstree_lookup_followed(&s->tree, path);

		if (i == NULL || !S_ISREG(i->mode))
			return err_set(err, -ENOENT, "the archive has no file '%.200s'", path);
		*ret = (struct import_blob){ .fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 3),
					     .offset = i->file.offset,
					     .size = i->size };
		return ret->fd < 0 ? err_errno(err, -errno, "'%.200s'", path) : 0;
	}
	_cleanup_close_ int fd = open_beneath(s->fd, path);

	if (fd < 0)
		return err_errno(err, fd, "open '%.200s'", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -ENOENT, "'%.200s' is no regular file", path);
	*ret = (struct import_blob){ .fd = TAKE_FD(fd), .size = (uint64_t)st.st_size };
	return 0;
}

void import_blob_close(struct import_blob *blob)
{
	blob->fd = fd_close(blob->fd);
}

bool import_source_has(const struct import_source *s, const char *path)
{
	struct import_blob blob = { .fd = -1 };

	if (import_source_open(s, path, &blob, NULL) < 0)
		return false;
	import_blob_close(&blob);
	return true;
}

int import_source_read(const struct import_source *s, const char *path, size_t max, char **ret, size_t *ret_len,
		       struct err *err)
{
	struct import_blob blob = { .fd = -1 };
	char *text;
	ssize_t n;
	int r = import_source_open(s, path, &blob, err);

	if (r < 0)
		return r;
	if (blob.size > max) {
		import_blob_close(&blob);
		return err_set(err, -EFBIG, "'%.200s' has %llu bytes; at most %zu are taken", path,
			       (unsigned long long)blob.size, max);
	}
	text = malloc((size_t)blob.size + 1);
	n = text == NULL ? -ENOMEM : fd_pread_full(blob.fd, text, (size_t)blob.size, (off_t)blob.offset);
	import_blob_close(&blob);
	if (n < 0 || (uint64_t)n != blob.size) {
		free(text);
		return err_errno(err, n < 0 ? (int)n : -EIO, "read '%.200s'", path);
	}
	text[n] = '\0';
	*ret = text;
	*ret_len = (size_t)n;
	return 0;
}

int import_blob_digest(const struct import_blob *blob, char ret_hex[65], struct progress *p, struct err *err)
{
	_cleanup_free_ uint8_t *buffer = malloc(BUFFER_SIZE);
	struct sha256_ctx sha;

	if (buffer == NULL)
		return err_set(err, -ENOMEM, "no memory for the checksum");
	sha256_init(&sha);
	for (uint64_t at = 0; at < blob->size;) {
		size_t want = (size_t)MIN((uint64_t)BUFFER_SIZE, blob->size - at);
		ssize_t n = fd_pread_full(blob->fd, buffer, want, (off_t)(blob->offset + at));
		int r;

		if (n < 0 || (size_t)n != want)
			return err_errno(err, n < 0 ? (int)n : -EIO, "read");
		sha256_update(&sha, want, buffer);
		at += want;
		r = progress_bytes(p, at, blob->size, err);
		if (r < 0)
			return r;
	}
	sha256_end_hex(&sha, ret_hex);
	return 0;
}
