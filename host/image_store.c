/* SPDX-License-Identifier: Apache-2.0 */
/* The store of images: see image_store.h. Two builds of one name race by rename: the second is told that it exists. */
#include "host/image_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "host/file.h"
#include "lib/fd.h"
#include "lib/util.h"

int image_store_init(struct image_store *s, const char *base, struct err *err)
{
	char own[PATH_MAX];
	int n, m;

	*s = (struct image_store){ 0 };
	if (base == NULL) {
		int r = file_data_dir("", own, sizeof(own), err);

		if (r < 0)
			return r;
		for (size_t len = strlen(own); len > 1 && own[len - 1] == '/';)
			own[--len] = '\0';
		base = own;
	}
	n = snprintf(s->images, sizeof(s->images), "%s/images", base);
	m = snprintf(s->builds, sizeof(s->builds), "%s/builds", base);
	if ((size_t)n >= sizeof(s->images) || (size_t)m >= sizeof(s->builds))
		return err_set(err, -ENAMETOOLONG, "the path of the image store, '%.80s...', is too long", base);
	return 0;
}

static int say_exists(const char *name, struct err *err)
{
	return err_set(err, -EEXIST, "there is an image '%s' already: remove it first, or add --replace", name);
}

int image_draft_begin(const struct image_store *s, struct image_draft *ret, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	uint64_t random = 0;
	int r = file_make_dirs(s->images, 0700, err); /* an image may hold secrets */

	if (r == 0)
		r = lockdir_open(&d.builds, s->builds, err);
	if (r < 0)
		return r;
	/* What cannot be removed now does not stop a new build. */
	lockdir_sweep(&d.builds, NULL, NULL, NULL);
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
	d.store = s;
	snprintf(d.id, sizeof(d.id), "%016llx", (unsigned long long)random);
	snprintf(d.path, sizeof(d.path), "%s/%s", s->builds, d.id);
	r = lockdir_create(&d.builds, d.id, &d.fd, &d.lock_fd, err);
	if (r < 0) {
		lockdir_close(&d.builds);
		return r;
	}
	*ret = d;
	return 0;
}

void image_draft_end(struct image_draft *d)
{
	if (d->lock_fd >= 0)
		lockdir_remove(&d->builds, d->id, d->lock_fd, NULL);
	for (size_t k = 0; k < d->nlayers; k++)
		image_layer_finish(&d->layer[k]);
	free(d->layer);
	d->layer = NULL;
	d->nlayers = 0;
	d->lock_fd = fd_close(d->lock_fd);
	d->fd = fd_close(d->fd);
	lockdir_close(&d->builds);
}

/* Take the exclusive lock of an image, so that no VM uses or begins to use it. *ret_fd is -1 when it has no manifest.
 * -ENOENT when there is no such image. */
static int lock_image(int images, const char *name, int *ret_fd, struct err *err)
{
	_cleanup_close_ int dir = openat(images, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int fd = -1;

	*ret_fd = -1;
	if (dir < 0)
		return errno == ENOENT || errno == ENOTDIR ? /* a stray file is no image */
			       image_missing(name, err) :
			       err_errno(err, -errno, "image '%s'", name);
	fd = openat(dir, IMAGE_MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? err_set(err, -EBUSY, "image '%s' is in use by a running VM", name) :
					      err_errno(err, -errno, "image '%s': lock", name);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int image_store_check_free(const struct image_store *s, const char *name, bool replace, struct err *err)
{
	_cleanup_close_ int images = -1, lock = -1;
	char path[PATH_MAX];
	int r = image_name_check(name, err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/%s", s->images, name);
	if (access(path, F_OK) < 0)
		return 0;
	if (!replace)
		return say_exists(name, err);
	images = open(s->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return images < 0 ? err_errno(err, -errno, "open '%s'", s->images) : lock_image(images, name, &lock, err);
}

/* Put DRAFT/image in the place of the image `name`; the old one, if any, ends up in the draft. */
static int put_in_place(struct image_draft *d, int images, const char *name, bool replace, struct err *err)
{
	_cleanup_close_ int old_lock = -1;
	int r;

	/* A directory does not replace one that has contents, so this is also right for two builds at once. */
	if (renameat(d->fd, IMAGE_DRAFT_DIR, images, name) == 0)
		return 0;
	if (errno != EEXIST && errno != ENOTEMPTY)
		return err_errno(err, -errno, "rename the new image to '%s/%s'", d->store->images, name);
	if (!replace)
		return say_exists(name, err);
	r = lock_image(images, name, &old_lock, err);
	if (r < 0)
		return r;
	if (renameat2(d->fd, IMAGE_DRAFT_DIR, images, name, RENAME_EXCHANGE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return err_errno(err, -errno, "exchange '%s/%s' with the new image", d->store->images, name);
	/* A file system without exchange: for a moment there is no image of that name. */
	if (renameat(images, name, d->fd, "old") < 0)
		return err_errno(err, -errno, "replace '%s/%s'", d->store->images, name);
	if (renameat(d->fd, IMAGE_DRAFT_DIR, images, name) == 0)
		return 0;
	r = -errno;
	renameat(d->fd, "old", images, name); /* or it would go with the draft */
	return err_errno(err, r, "replace '%s/%s'", d->store->images, name);
}

/* The manifest, and all of it on disk. */
static int finish_image(struct image_draft *d, struct image *image, struct err *err)
{
	char path[PATH_MAX];
	char *manifest;
	int r;

	image->created = time(NULL);
	image_id_compute(image, image->id);
	manifest = image_manifest_format(image);
	if (manifest == NULL)
		return err_set(err, -EINVAL, "the manifest cannot be written: a name or default is not UTF-8");
	snprintf(path, sizeof(path), "%s/" IMAGE_DRAFT_DIR "/" IMAGE_MANIFEST, d->path);
	if (strlen(manifest) > IMAGE_MANIFEST_MAX)
		r = err_set(err, -E2BIG, "the manifest would have %zu bytes; at most %d are taken: shorten defaults or messages",
			    strlen(manifest), IMAGE_MANIFEST_MAX);
	else
		r = file_write_atomic(path, manifest, strlen(manifest), 0444, true, err);
	free(manifest);
	return r;
}

int image_draft_publish(struct image_draft *d, struct image *image, bool replace, struct progress *progress, struct err *err)
{
	_cleanup_close_ int images = -1;
	int r = image_name_check(image->name, err);

	if (r == 0 && d->nlayers == 0)
		r = err_set(err, -EINVAL, "an image without layers");
	if (r < 0)
		return r;
	progress_stage(progress, "writing to disk");
	image->layer = d->layer;
	image->nlayers = d->nlayers;
	d->layer = NULL;
	d->nlayers = 0;
	r = finish_image(d, image, err);
	if (r < 0)
		return r;
	images = open(d->store->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (images < 0)
		return err_errno(err, -errno, "open '%s'", d->store->images);
	r = put_in_place(d, images, image->name, replace, err);
	if (r < 0)
		return r;
	if (fsync(images) < 0)
		return err_errno(err, -errno, "sync '%s'", d->store->images);
	return 0;
}

int image_store_remove(const struct image_store *s, const char *name, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	_cleanup_close_ int images = -1, lock = -1;
	int r = image_name_check(name, err);

	if (r < 0)
		return r;
	images = open(s->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (images < 0)
		return errno == ENOENT ? image_missing(name, err) :
					 err_errno(err, -errno, "open '%s'", s->images);
	r = lock_image(images, name, &lock, err);
	if (r == 0)
		r = image_draft_begin(s, &d, err);
	if (r < 0)
		return r;
	if (renameat(images, name, d.fd, "removed") < 0)
		r = err_errno(err, -errno, "remove the image '%s'", name);
	else if (fsync(images) < 0)
		r = err_errno(err, -errno, "sync '%s'", s->images);
	image_draft_end(&d);
	return r;
}
