/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and manifests of images, and resolving one for a VM.
 *
 * Trust: names come from the command line and become path components, so they have a strict form. A manifest is a file
 * of the user's own, yet parsed as hostile: its size, every string and every list have limits, and unknown members are ignored.
 * The disk's contents are not looked at beyond the magic numbers of file systems.
 */
#include "host/image.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include "host/file.h"
#include "host/image_store.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"

enum { MANIFEST_VERSION = 1, STRING_MAX = 32 << 10, SECTOR = 512 };

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

int image_name_check(const char *name, struct err *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strlen(name);

	if (n >= 1 && n <= IMAGE_NAME_MAX && strchr(letters, name[0]) != NULL &&
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0')
		return 0;
	return err_set(err, -EINVAL, "'%.80s' is no name for an image: 1 to %d of a-z 0-9 . _ -, beginning with a letter or digit",
		       name, IMAGE_NAME_MAX);
}

static void free_strings(char **v)
{
	for (char **s = v; s != NULL && *s != NULL; s++)
		free(*s);
	free(v);
}

void image_finish(struct image *image)
{
	if (image == NULL)
		return;
	free(image->user);
	free(image->cwd);
	free_strings(image->env);
	free_strings(image->cmd);
	*image = (struct image){ 0 };
}

/* ---- manifest ---- */

static int get_string(const json_t *o, const char *key, size_t max, bool required, const char **ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);

	*ret = NULL;
	if ((v == NULL || json_is_null(v)) && !required)
		return 0;
	if (!json_is_string(v) || json_string_length(v) > max)
		return err_set(err, -EINVAL, "manifest: \"%s\" is not a string of at most %zu bytes", key, max);
	*ret = json_string_value(v);
	return 0;
}

static int copy_string(const json_t *o, const char *key, char **ret, struct err *err)
{
	const char *s;
	int r = get_string(o, key, STRING_MAX, false, &s, err);

	if (r < 0 || s == NULL)
		return r;
	*ret = strdup(s);
	return *ret == NULL ? err_set(err, -ENOMEM, "manifest: no memory") : 0;
}

static int copy_strings(const json_t *o, const char *key, char ***ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_array_size(v);

	if (v == NULL || json_is_null(v))
		return 0;
	if (!json_is_array(v) || n > IMAGE_ENV_MAX)
		return err_set(err, -EINVAL, "manifest: \"%s\" is not an array of at most %d strings", key, IMAGE_ENV_MAX);
	*ret = calloc(n + 1, sizeof(**ret));
	if (*ret == NULL)
		return err_set(err, -ENOMEM, "manifest: no memory");
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_array_get(v, i);

		if (!json_is_string(e) || json_string_length(e) > STRING_MAX)
			return err_set(err, -EINVAL, "manifest: \"%s\" is not an array of strings", key);
		(*ret)[i] = strdup(json_string_value(e));
		if ((*ret)[i] == NULL)
			return err_set(err, -ENOMEM, "manifest: no memory");
	}
	return 0;
}

static int parse_format(const char *s, enum image_format *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(format_names); i++) {
		if (strcmp(s, format_names[i]) == 0) {
			*ret = (enum image_format)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_object(const json_t *o, struct image *image, struct err *err)
{
	const char *created, *format, *sha256, *source;
	struct tm tm = { 0 };
	int r;

	if (json_integer_value(json_object_get(o, "version")) != MANIFEST_VERSION)
		return err_set(err, -EINVAL, "manifest: \"version\" is not %d: the image is from another release, build it again",
			       MANIFEST_VERSION);
	r = get_string(o, "format", 16, true, &format, err);
	if (r == 0 && parse_format(format, &image->format) < 0)
		r = err_set(err, -EINVAL, "manifest: \"format\" is '%.16s', which is not known", format);
	if (r == 0)
		r = get_string(o, "created", 32, true, &created, err);
	if (r == 0) {
		const char *end = strptime(created, "%Y-%m-%dT%H:%M:%SZ", &tm);

		if (end == NULL || *end != '\0')
			return err_set(err, -EINVAL, "manifest: \"created\" is '%.32s', not a time", created);
		image->created = timegm(&tm);
	}
	if (r == 0)
		r = get_string(o, "source", IMAGE_SOURCE_MAX, false, &source, err);
	if (r == 0)
		snprintf(image->source, sizeof(image->source), "%s", source != NULL ? source : "");
	if (r == 0)
		r = get_string(o, "sha256", IMAGE_SHA256_LEN, true, &sha256, err);
	if (r == 0) {
		if (strlen(sha256) != IMAGE_SHA256_LEN || sha256[strspn(sha256, "0123456789abcdef")] != '\0')
			return err_set(err, -EINVAL, "manifest: \"sha256\" is not 64 hexadecimal digits");
		memcpy(image->sha256, sha256, IMAGE_SHA256_LEN + 1);
	}
	if (r == 0) {
		const json_t *size = json_object_get(o, "size");

		if (!json_is_integer(size) || json_integer_value(size) <= 0 || json_integer_value(size) % SECTOR != 0)
			return err_set(err, -EINVAL, "manifest: \"size\" is not a number of bytes in whole sectors");
		image->size = (uint64_t)json_integer_value(size);
	}
	if (r == 0)
		r = copy_string(o, "user", &image->user, err);
	if (r == 0)
		r = copy_string(o, "cwd", &image->cwd, err);
	if (r == 0)
		r = copy_strings(o, "env", &image->env, err);
	if (r == 0)
		r = copy_strings(o, "cmd", &image->cmd, err);
	return r;
}

int image_manifest_parse(const char *text, size_t len, struct image *ret, struct err *err)
{
	struct image image = { 0 };
	json_error_t e;
	json_t *o;
	int r;

	if (len > IMAGE_MANIFEST_MAX)
		return err_set(err, -EFBIG, "manifest: %zu bytes; at most %d are taken", len, IMAGE_MANIFEST_MAX);
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (o == NULL)
		return err_set(err, -EINVAL, "manifest: line %d: %s", e.line, e.text);
	r = json_is_object(o) ? parse_object(o, &image, err) : err_set(err, -EINVAL, "manifest: not an object");
	json_decref(o);
	if (r < 0) {
		image_finish(&image);
		return r;
	}
	*ret = image;
	return 0;
}

static json_t *strings_to_json(char *const *v)
{
	json_t *a = v == NULL ? json_null() : json_array();

	for (; a != NULL && v != NULL && *v != NULL; v++)
		json_array_append_new(a, json_string(*v));
	return a;
}

static json_t *string_to_json(const char *s)
{
	return s == NULL ? json_null() : json_string(s);
}

char *image_manifest_format(const struct image *image)
{
	time_t created = (time_t)image->created;
	char when[32];
	struct tm tm;
	json_t *o;
	char *text;

	gmtime_r(&created, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	o = json_pack("{s:i, s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:o}", "version", MANIFEST_VERSION, "name", image->name,
		      "created", when, "source", image->source, "size", (json_int_t)image->size, "sha256", image->sha256,
		      "format", image_format_name(image->format), "user", string_to_json(image->user), "cwd",
		      string_to_json(image->cwd), "env", strings_to_json(image->env), "cmd", strings_to_json(image->cmd));
	if (o == NULL)
		return NULL;
	text = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	return text;
}

/* ---- resolving ---- */

/* Which file system a disk has, by the magic numbers at their places. */
static enum image_format sniff(int fd)
{
	uint8_t block[2048];

	if (fd_pread_full(fd, block, sizeof(block), 0) != (ssize_t)sizeof(block))
		return IMAGE_FORMAT_UNKNOWN;
	if (block[1080] == 0x53 && block[1081] == 0xef) /* ext2 superblock at 1024, s_magic at 56 */
		return IMAGE_FORMAT_EXT4;
	if (memcmp(block + 1024, "\xe2\xe1\xf5\xe0", 4) == 0)
		return IMAGE_FORMAT_EROFS;
	if (memcmp(block, "hsqs", 4) == 0)
		return IMAGE_FORMAT_SQUASHFS;
	return IMAGE_FORMAT_UNKNOWN;
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
	strcpy(image->path, absolute);
	image->size = size;
	image->format = sniff(fd);
	return 0;
}

static int resolve_name(const struct image_store *s, const char *name, struct image *image, struct err *err)
{
	char path[PATH_MAX];
	_cleanup_free_ uint8_t *text = NULL;
	struct image disk = { 0 };
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
	if (r == -ENOENT && access(name, F_OK) == 0)
		return err_set(err, r, "there is no image '%s'; for the file of that name write './%s'", name, name);
	if (r == -ENOENT)
		return err_set(err, r, "there is no image '%s': see 'coffer image ls', or make it with 'coffer image build'", name);
	if (r == 0)
		r = image_manifest_parse((const char *)text, len, image, err);
	if (r < 0)
		return err_prefix(err, "image '%s': ", name), r;
	snprintf(path, sizeof(path), "%s/%s/" IMAGE_ROOTFS, s->images, name);
	r = open_disk(path, &disk, err);
	if (r < 0)
		return err_prefix(err, "image '%s': ", name), r;
	if (disk.size != image->size || disk.format != image->format)
		return err_set(err, -EINVAL, "image '%s' is damaged: the manifest says %s of %llu bytes, the file is %s of %llu: build it again",
			       name, image_format_name(image->format), (unsigned long long)image->size,
			       image_format_name(disk.format), (unsigned long long)disk.size);
	snprintf(image->name, sizeof(image->name), "%s", name);
	memcpy(image->path, disk.path, sizeof(image->path));
	return 0;
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
	_cleanup_close_ int fd = open(image->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return err_errno(err, -errno, "image: open '%s'", image->path);
	/* Whoever removes an image holds the exclusive lock only for the length of a rename. */
	while (flock(fd, LOCK_SH) < 0)
		if (errno != EINTR)
			return err_errno(err, -errno, "image: lock '%s'", image->path);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "image: stat '%s'", image->path);
	if (image->name[0] != '\0') {
		struct stat there;

		if (stat(image->path, &there) < 0 || there.st_ino != st.st_ino || there.st_dev != st.st_dev)
			return err_set(err, -EBUSY, "image '%s' was removed or replaced just now: repeat", image->name);
	}
	return TAKE_FD(fd);
}
