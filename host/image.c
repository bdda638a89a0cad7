/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of images, and resolving one for a VM. Manifests: image_manifest.c.
 *
 * Trust: names come from the command line and become path components, so they have a strict form. Of a disk that is given
 * as a path nothing is looked at but the magic numbers and sizes of file systems; layers are judged by whoever reads them.
 */
#include "host/image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "host/blob_cache.h"
#include "host/file.h"
#include "host/image_store.h"
#include "host/json_get.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/text.h"
#include "lib/util.h"

enum { SECTOR = 512, EXT4_64BIT = 0x80 };

static const char *const format_names[] = {
	[IMAGE_FORMAT_UNKNOWN] = "raw",
	[IMAGE_FORMAT_EXT4] = "ext4",
	[IMAGE_FORMAT_EROFS] = "erofs",
	[IMAGE_FORMAT_SQUASHFS] = "squashfs",
};

const char *image_format_name(enum image_format format)
{
	return (size_t)format < ARRAY_SIZE(format_names) ? format_names[format] : "raw";
}

int image_format_parse(const char *text, enum image_format *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(format_names); i++) {
		if (strcmp(text, format_names[i]) == 0) {
			*ret = (enum image_format)i;
			return 0;
		}
	}
	return -EINVAL;
}

int image_name_check(const char *name, struct err *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strlen(name);

	if (n >= 1 && n <= IMAGE_NAME_MAX && strchr(letters, name[0]) != NULL &&
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0')
		return 0;
	return err_set(err, -EINVAL, "'%s' is no name for an image: 1 to %d of a-z 0-9 . _ -, beginning with a letter or digit",
		       TEXT_CUT(name), IMAGE_NAME_MAX);
}

void image_layer_finish(struct image_layer *layer)
{
	free(layer->file);
	free(layer->url);
	free(layer->message);
	*layer = (struct image_layer){ 0 };
}

void image_finish(struct image *image)
{
	if (image == NULL)
		return;
	free(image->user);
	free(image->cwd);
	json_strings_free(image->env);
	json_strings_free(image->cmd);
	for (size_t k = 0; k < image->nlayers; k++)
		image_layer_finish(&image->layer[k]);
	free(image->layer);
	*image = (struct image){ 0 };
}

/* ---- resolving ---- */

static int sniff(int fd, uint64_t size, enum image_format *ret, struct err *err)
{
	uint8_t block[IMAGE_SNIFF];

	*ret = IMAGE_FORMAT_UNKNOWN;
	if (fd_pread_full(fd, block, sizeof(block), 0) != (ssize_t)sizeof(block))
		return 0;
	*ret = image_format_sniff(block);
	return image_format_check(block, size, err);
}

enum image_format image_format_sniff(const uint8_t *block)
{
	if (block[1080] == 0x53 && block[1081] == 0xef) /* ext2 superblock at 1024, s_magic at 56 */
		return IMAGE_FORMAT_EXT4;
	if (memcmp(block + 1024, "\xe2\xe1\xf5\xe0", 4) == 0)
		return IMAGE_FORMAT_EROFS;
	if (memcmp(block, "hsqs", 4) == 0)
		return IMAGE_FORMAT_SQUASHFS;
	return IMAGE_FORMAT_UNKNOWN;
}

int image_format_check(const uint8_t *block, uint64_t size, struct err *err)
{
	enum image_format format = image_format_sniff(block);
	const uint8_t *super = block + 1024;
	unsigned shift = 0; /* of the unit that `units` has */
	uint64_t units = 0;

	switch (format) {
	case IMAGE_FORMAT_EXT4:
		shift = 10 + MIN(le32_load(super + 24), 6u);
		units = le32_load(super + 4);
		if (le32_load(super + 96) & EXT4_64BIT)
			units |= (uint64_t)le32_load(super + 336) << 32;
		break;
	case IMAGE_FORMAT_EROFS:
		shift = MIN(super[12], (uint8_t)16);
		units = le32_load(super + 36);
		break;
	case IMAGE_FORMAT_SQUASHFS: units = le64_load(block + 40); break;
	case IMAGE_FORMAT_UNKNOWN: return 0;
	}
	if (units <= size >> shift)
		return 0;
	return err_set(err, -EINVAL, "the %s says that it has %llu blocks of %u bytes, but there are only %llu bytes: it is cut off",
		       image_format_name(format), (unsigned long long)units, 1u << shift, (unsigned long long)size);
}

/* Open a disk file and fill path, size and format. */
static int open_disk(const char *path, struct image *image, struct err *err)
{
	/* O_NONBLOCK: a FIFO must not hang the open. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ char *absolute = NULL;
	struct stat st;
	uint64_t size;

	if (fd < 0)
		return err_errno(err, -errno, "image: open '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "image: stat '%s'", path);
	if (S_ISDIR(st.st_mode))
		return err_set(err, -EISDIR, "image: '%s' is a directory: make an image of it with: coffer image build '%s' --name NAME",
			       path, path);
	if (S_ISBLK(st.st_mode)) {
		if (ioctl(fd, BLKGETSIZE64, &size) < 0)
			return err_errno(err, -errno, "image: size of '%s'", path);
	} else if (S_ISREG(st.st_mode)) {
		size = (uint64_t)st.st_size;
	} else {
		return err_set(err, -EINVAL, "image: '%s' is neither a file nor a block device", path);
	}
	if (size == 0 || size % SECTOR != 0)
		return err_set(err, -EINVAL, "image: '%s' has %llu bytes: a disk has a multiple of %d", path,
			       (unsigned long long)size, SECTOR);
	absolute = realpath(path, NULL);
	if (absolute == NULL || strlen(absolute) >= sizeof(image->path))
		return err_errno(err, absolute == NULL ? -errno : -ENAMETOOLONG, "image: '%s'", path);
	snprintf(image->path, sizeof(image->path), "%s", absolute);
	image->size = size;
	if (sniff(fd, size, &image->format, err) < 0)
		return err_prefix(err, "image: '%s': ", path), -EINVAL;
	return 0;
}

static int check_layers(const struct image *image, struct err *err)
{
	for (size_t k = 0; k < image->nlayers; k++) {
		const struct image_layer *l = &image->layer[k];
		char path[PATH_MAX + IMAGE_FILE_MAX + 2];
		struct stat st;

		if (l->file == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", image->path, l->file);
		if (lstat(path, &st) < 0)
			return err_set(err, -EINVAL, "it is damaged: layer %zu, '%s': %s: build it again", k + 1, path,
				       strerror(errno));
		if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != l->bytes)
			return err_set(err, -EINVAL, "it is damaged: layer %zu, '%s', is no file of %llu bytes: build it again", k + 1,
				       path, (unsigned long long)l->bytes);
	}
	return 0;
}

int image_missing(const char *name, struct err *err)
{
	bool file = access(name, F_OK) == 0;

	return err_set(err, -ENOENT,
		       "there is no image '%s'%s%s%s: 'coffer image ls' lists them; 'coffer image build', 'import' or 'pull' makes one",
		       name, file ? " (but a file './" : "", file ? name : "", file ? "')" : "");
}

static int resolve_name(const struct image_store *s, const char *name, struct image *image, struct err *err)
{
	char path[PATH_MAX];
	_cleanup_free_ uint8_t *text = NULL;
	_cleanup_free_ char *absolute = NULL;
	size_t len;
	int r = image_name_check(name, err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/%s/" IMAGE_MANIFEST, s->images, name);
	r = file_read(path, IMAGE_MANIFEST_MAX, &text, &len, err);
	*strrchr(path, '/') = 0;
	if (r == -ENOENT && access(path, F_OK) == 0)
		return err_set(err, r, "image '%s' is damaged, it has no " IMAGE_MANIFEST ": 'coffer image rm %s' and make it again", name,
			       name);
	if (r == -ENOENT)
		return image_missing(name, err);
	if (r == 0)
		r = image_manifest_parse((const char *)text, len, image, err);
	if (r == 0) {
		absolute = realpath(path, NULL);
		if (absolute == NULL || strlen(absolute) >= sizeof(image->path))
			r = err_errno(err, absolute == NULL ? -errno : -ENAMETOOLONG, "'%s'", path);
	}
	if (r == 0) {
		snprintf(image->path, sizeof(image->path), "%s", absolute);
		snprintf(image->name, sizeof(image->name), "%s", name);
		r = check_layers(image, err);
	}
	return r < 0 ? err_prefix(err, "image '%s': ", name), r : 0;
}

int image_store_resolve(const struct image_store *s, const char *name_or_path, struct image *ret, struct err *err)
{
	int r = strchr(name_or_path, '/') != NULL ? -1 : 0;

	*ret = (struct image){ 0 };
	r = r < 0 ? open_disk(name_or_path, ret, err) : resolve_name(s, name_or_path, ret, err);
	if (r < 0)
		image_finish(ret);
	return r;
}

int image_resolve(const char *name_or_path, struct image *ret, struct err *err)
{
	struct image_store s;
	int r = image_store_init(&s, NULL, err);

	*ret = (struct image){ 0 };
	return r < 0 ? r : image_store_resolve(&s, name_or_path, ret, err);
}

int image_open(const struct image *image, struct err *err)
{
	char path[PATH_MAX + sizeof(IMAGE_MANIFEST) + 1];

	snprintf(path, sizeof(path), "%s%s", image->path, image->name[0] != '\0' ? "/" IMAGE_MANIFEST : "");
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return err_errno(err, -errno, "image: open '%s'", path);
	/* Whoever removes an image holds the exclusive lock only for the length of a rename. */
	while (flock(fd, LOCK_SH) < 0)
		if (errno != EINTR)
			return err_errno(err, -errno, "image: lock '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "image: stat '%s'", path);
	if (image->name[0] != '\0') {
		struct stat there;

		if (stat(path, &there) < 0 || there.st_ino != st.st_ino || there.st_dev != st.st_dev)
			return err_set(err, -EBUSY, "image '%s' was removed or replaced just now: repeat", image->name);
	}
	return TAKE_FD(fd);
}

static int open_remote(const struct image *image, size_t k, char *ret_path, struct err *err)
{
	const struct image_layer *l = &image->layer[k];
	int fd = blob_cache_open_whole(l->sha256, l->bytes, ret_path);

	if (fd >= 0)
		return fd;
	return err_set(err, -EREMOTE, "image '%s': layer %zu is remote, and not all of it is here: 'coffer image fetch %s' fetches it",
		       image->name, k + 1, image->name);
}

int image_layer_open(const struct image *image, size_t k, char *ret_path, struct err *err)
{
	const struct image_layer *l = &image->layer[k];
	char path[PATH_MAX + IMAGE_FILE_MAX + 2];
	struct stat st;

	if (l->file == NULL)
		return open_remote(image, k, ret_path, err);
	snprintf(path, sizeof(path), "%s/%s", image->path, l->file);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "image '%s': layer %zu: open '%s'", image->name, k + 1, path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != l->bytes)
		return err_set(err, -EINVAL, "image '%s' is damaged: layer %zu, '%s', is no file of %llu bytes: build it again",
			       image->name, k + 1, path, (unsigned long long)l->bytes);
	if (ret_path != NULL && strlen(path) >= PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "image '%s': '%.80s...'", image->name, path);
	if (ret_path != NULL)
		memcpy(ret_path, path, strlen(path) + 1);
	return TAKE_FD(fd);
}
