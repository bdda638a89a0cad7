/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of an image that is being made: measuring them, and putting them into the draft's image directory under the name of
 * their digest.
 *
 * A layer that is there already somewhere is linked, so that it takes up its space once; the last link's end is the
 * layer's. Only where it cannot be linked (another file system, too many links) it is copied. One that has been made is
 * dropped for the same one of another image: found by its digest, and compared, since that file may have been damaged meanwhile.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/image_store.h"
#include "host/sha256.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { HASH_BUFFER = 1 << 20 };

static int hash_all(int fd, const char *name, uint64_t size, struct sha256_ctx *sha, XXH3_state_t *xxh,
		    struct progress *p, struct err *err)
{
	_cleanup_free_ uint8_t *buffer = malloc(HASH_BUFFER);

	if (buffer == NULL)
		return err_set(err, -ENOMEM, "no memory for the checksum");
	for (uint64_t at = 0; at < size;) {
		size_t want = (size_t)MIN((uint64_t)HASH_BUFFER, size - at);
		ssize_t n = fd_pread_full(fd, buffer, want, (off_t)at);
		int r;

		if (n < 0 || (size_t)n != want)
			return err_errno(err, n < 0 ? (int)n : -EIO, "%s: read at %" PRIu64, name, at);
		sha256_update(sha, want, buffer);
		XXH3_128bits_update(xxh, buffer, want);
		at += want;
		r = progress_bytes(p, at, size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int image_layer_measure(int fd, const char *name, bool raw, struct image_layer *ret, uint64_t *ret_size,
			struct progress *p, struct err *err)
{
	struct image_layer l = { .raw = raw };
	struct lsmt_info info = { 0 };
	struct sha256_ctx sha;
	XXH3_state_t xxh;
	XXH128_hash_t h;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s", name);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return err_set(err, -EINVAL, "%s: no file, or an empty one", name);
	if (!raw) {
		r = lsmt_inspect(fd, name, &info, err);
		if (r < 0)
			return r;
	}
	sha256_init(&sha);
	XXH3_128bits_reset(&xxh);
	l.bytes = (uint64_t)st.st_size;
	r = hash_all(fd, name, l.bytes, &sha, &xxh, p, err);
	if (r < 0)
		return r;
	h = XXH3_128bits_digest(&xxh);
	sha256_end_hex(&sha, l.sha256);
	snprintf(l.xxh, sizeof(l.xxh), "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
	l.index_hash = info.index_hash;
	l.created = time(NULL);
	*ret = l;
	if (ret_size != NULL)
		*ret_size = raw ? l.bytes : info.virtual_size;
	return 0;
}

static int sync_layer(int fd, int dir, const char *name, struct err *err)
{
	if (fchmodat(dir, name, 0444, 0) < 0 || fsync(fd) < 0)
		return err_errno(err, -errno, "sync the layer '%s'", name);
	return 0;
}

static bool is_same(int a, int b, uint64_t size)
{
	_cleanup_free_ uint8_t *buffer = malloc(2 * (size_t)HASH_BUFFER);

	for (uint64_t at = 0; buffer != NULL && at < size; at += HASH_BUFFER) {
		size_t n = (size_t)MIN((uint64_t)HASH_BUFFER, size - at);

		if (fd_pread_full(a, buffer, n, (off_t)at) != (ssize_t)n ||
		    fd_pread_full(b, buffer + HASH_BUFFER, n, (off_t)at) != (ssize_t)n || memcmp(buffer, buffer + HASH_BUFFER, n) != 0)
			return false;
	}
	return buffer != NULL;
}

static bool link_same(int images, const char *image, int fd, int dir, const char *name, const char *images_path)
{
	_cleanup_close_ int there = openat(images, image, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int other = there < 0 ? -1 : openat(there, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char path[PATH_MAX];
	struct stat a, b;

	if (other < 0 || fstat(fd, &a) < 0 || fstat(other, &b) < 0 || !S_ISREG(b.st_mode) || a.st_size != b.st_size ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s/%s", images_path, image, name) >= sizeof(path))
		return false;
	return is_same(fd, other, (uint64_t)a.st_size) && vm_disk_link(other, path, dir, name, NULL) > 0;
}

/* The same layer of any image of the store, in dir under its name. */
static bool link_known(const struct image_draft *d, int fd, int dir, const char *name)
{
	int images = open(d->store->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = images < 0 ? NULL : fdopendir(images);
	bool linked = false;

	if (list == NULL) {
		fd_close(images);
		return false;
	}
	for (struct dirent *e; !linked && (e = readdir(list)) != NULL;)
		linked = e->d_name[0] != '.' && link_same(images, e->d_name, fd, dir, name, d->store->images);
	closedir(list);
	return linked;
}

static int put_file(struct image_draft *d, int dir, int fd, const char *path, const char *name, struct err *err)
{
	struct stat st;
	int r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0; /* twice in one stack */
	if (path != NULL && strchr(path, '/') == NULL) {
		if (link_known(d, fd, dir, name)) {
			unlinkat(d->fd, path, 0);
			return 0;
		}
		if (renameat(d->fd, path, dir, name) < 0)
			return err_errno(err, -errno, "move the layer '%s/%s'", d->path, path);
		return sync_layer(fd, dir, name, err);
	}
	if (path != NULL)
		r = vm_disk_link(fd, path, dir, name, err);
	if (r != 0) {
		/* It may have been made without its contents being on disk. */
		if (r > 0 && fsync(fd) < 0)
			return err_errno(err, -errno, "sync the layer '%s'", path);
		return r < 0 ? r : 0;
	}
	_cleanup_close_ int copy = vm_disk_copy(fd, dir, name, err);

	return copy < 0 ? copy : sync_layer(copy, dir, name, err);
}

static int copy_facts(const struct image_layer *facts, struct image_layer *l, struct err *err)
{
	*l = *facts;
	l->file = l->url = l->message = NULL;
	if (facts->url != NULL)
		l->url = strdup(facts->url);
	else if (asprintf(&l->file, "%s.%s", facts->sha256, facts->raw ? "raw" : "lsmt") < 0)
		l->file = NULL;
	if (facts->message != NULL)
		l->message = strndup(facts->message, IMAGE_MESSAGE_MAX);
	if ((l->file == NULL && l->url == NULL) || (facts->message != NULL && l->message == NULL)) {
		image_layer_finish(l);
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

int image_draft_add_layer(struct image_draft *d, int fd, const char *path, const struct image_layer *facts,
			  struct err *err)
{
	struct image_layer *more, l;
	int r = 0;

	if (d->nlayers == IMAGE_LAYERS_MAX)
		return err_set(err, -E2BIG, "the image would have more than %d layers", IMAGE_LAYERS_MAX);
	if (facts->raw && d->nlayers > 0)
		return err_set(err, -EINVAL, "a raw layer is the lowest or none");
	if (mkdirat(d->fd, IMAGE_DRAFT_DIR, 0755) < 0 && errno != EEXIST)
		return err_errno(err, -errno, "make '%s/" IMAGE_DRAFT_DIR "'", d->path);
	_cleanup_close_ int dir = openat(d->fd, IMAGE_DRAFT_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return err_errno(err, -errno, "open '%s/" IMAGE_DRAFT_DIR "'", d->path);
	more = realloc(d->layer, (d->nlayers + 1) * sizeof(*more));
	if (more == NULL)
		return err_set(err, -ENOMEM, "out of memory");
	d->layer = more;
	r = copy_facts(facts, &l, err);
	if (r == 0 && l.file != NULL) {
		r = put_file(d, dir, fd, path, l.file, err);
		if (r < 0)
			image_layer_finish(&l);
	}
	if (r < 0)
		return r;
	d->layer[d->nlayers++] = l;
	return 0;
}

int image_draft_add_image(struct image_draft *d, const struct image *image, struct err *err)
{
	char path[PATH_MAX];
	int r = 0;

	for (size_t k = 0; k < image->nlayers && r == 0; k++) {
		const struct image_layer *l = &image->layer[k];
		_cleanup_close_ int fd = l->file == NULL ? -1 : image_layer_open(image, k, path, err);

		r = l->file != NULL && fd < 0 ? fd : image_draft_add_layer(d, fd, path, l, err);
	}
	return r;
}
