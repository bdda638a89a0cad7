/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of overlaybd: see import_chain.h. A layer keeps its bytes, so that its digest stays that of whoever made it.
 * It is copied: the store's files never change, and nobody knows who else writes to those that were given.
 *
 * Trust: layers, names and configurations are hostile. Each layer is checked as it is measured (lsmt_inspect), and all
 * of them together when the disk's first block is read. A configuration can name nothing outside its directory.
 */
#include "host/import_chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/zfile.h"
#include "host/image_disk.h"
#include "host/image_ext4.h"
#include "host/oci_manifest.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { CONFIG_MAX = 1 << 20, COPY_STEP = 8 << 20 };

static const char lsmt_magic[8] = "LSMT\0\1\2";

/* ---- one layer ---- */

static bool is_layer(const struct import_blob *blob)
{
	struct zfile_source s = {
		.read_at = zfile_read_fd, .ctx = (void *)(intptr_t)blob->fd, .start = blob->offset, .size = blob->size
	};
	char head[sizeof(lsmt_magic)];

	if (zfile_unwrap(&s, "layer", NULL) < 0)
		return false;
	if (zfile_probe(&s) > 0)
		return true;
	return s.size >= sizeof(head) && s.read_at(s.ctx, head, sizeof(head), s.start) == (ssize_t)sizeof(head) &&
	       memcmp(head, lsmt_magic, sizeof(head)) == 0;
}

static int copy_blob(const struct import_blob *blob, int out, struct progress *p, struct err *err)
{
	off_t from = (off_t)blob->offset, to = 0;
	_cleanup_free_ uint8_t *buffer = NULL;

	while ((uint64_t)to < blob->size) {
		size_t want = (size_t)MIN(blob->size - (uint64_t)to, (uint64_t)COPY_STEP);
		ssize_t n = buffer != NULL ? -1 : copy_file_range(blob->fd, &from, out, &to, want, 0);
		int r;

		if (n <= 0) { /* not between these file systems */
			if (buffer == NULL)
				buffer = malloc(COPY_STEP);
			n = buffer == NULL ? -ENOMEM : fd_pread_full(blob->fd, buffer, want, from);
			if (n >= 0 && (size_t)n != want)
				n = -EIO;
			r = n < 0 ? (int)n : fd_pwrite_full(out, buffer, want, to);
			if (r < 0)
				return err_errno(err, r, "copy the layer");
			from += (off_t)want;
			to += (off_t)want;
		}
		r = progress_bytes(p, (uint64_t)to, blob->size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int import_chain_add(struct image_draft *d, struct image *image, const struct import_blob *blob, struct progress *p,
		     struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct image_layer facts;
	uint64_t size;
	int r;

	if (!is_layer(blob))
		return err_set(err, -EINVAL, "it is no layer of overlaybd (LSMT, plain or in a ZFile)");
	fd = openat(d->fd, "layer", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(err, -errno, "create '%s/layer'", d->path);
	progress_stage(p, "copying layers");
	r = copy_blob(blob, fd, p, err);
	if (r == 0)
		r = image_layer_measure(fd, "the layer", false, &facts, &size, p, err);
	if (r == 0) {
		image->size = MAX(image->size, size);
		r = image_draft_add_layer(d, fd, "layer", &facts, err);
	}
	/* Twice in one stack: it was there already. */
	unlinkat(d->fd, "layer", 0);
	return r;
}

int import_chain_finish(struct image_draft *d, struct image *image, struct err *err)
{
	struct image_disk disk = IMAGE_DISK_NONE;
	struct image all = { .layer = d->layer, .nlayers = d->nlayers, .size = image->size };
	uint8_t block[IMAGE_SNIFF] = { 0 };
	int r;

	if ((size_t)snprintf(all.path, sizeof(all.path), "%s/" IMAGE_DRAFT_DIR, d->path) >= sizeof(all.path))
		return err_set(err, -ENAMETOOLONG, "'%.80s...'", d->path);
	snprintf(all.name, sizeof(all.name), "%s", image->name);
	r = image_disk_open(&all, &disk, err);
	if (r < 0)
		return r;
	r = image_disk_read(&disk, block, (size_t)MIN(disk.size, (uint64_t)sizeof(block)), 0);
	image_disk_close(&disk);
	if (r < 0)
		return err_errno(err, r, "read the disk that the layers make");
	image->format = image_format_sniff(block);
	if (image->format == IMAGE_FORMAT_UNKNOWN)
		return err_set(err, -EINVAL,
			       "the disk that the layers make has no ext4, erofs or squashfs: are all layers there, "
			       "the lowest first?");
	r = image_format_check(block, all.size, err);
	all.format = image->format;
	return r == 0 && all.format == IMAGE_FORMAT_EXT4 ? image_ext4_check(&all, err) : r;
}

int import_chain_file(struct image_draft *d, struct image *image, int fd, const char *name, struct progress *p,
		      struct err *err)
{
	struct import_blob blob = { .fd = fd };
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "'%s'", name);
	blob.size = (uint64_t)st.st_size;
	if (!is_layer(&blob))
		return 0;
	r = import_chain_add(d, image, &blob, p, err);
	if (r == 0)
		r = import_chain_finish(d, image, err);
	return r < 0 ? (err_prefix(err, "'%s': ", name), r) : 1;
}

/* ---- a directory ---- */

/* digest: what it has to have, or NULL. */
static int add_named(struct image_draft *d, struct image *image, const struct import_source *s, const char *file,
		     const char *digest, struct progress *p, struct err *err)
{
	struct import_blob blob;
	char hex[65];
	int r = import_source_open(s, file, &blob, err);

	if (r < 0)
		return r;
	if (digest != NULL)
		r = import_blob_digest(&blob, hex, p, err);
	if (r == 0 && digest != NULL && strcmp(oci_digest_hex(digest), hex) != 0)
		r = err_set(err, -EBADMSG, "it has the digest sha256:%s, not %s: it is damaged", hex, digest);
	if (r == 0)
		r = import_chain_add(d, image, &blob, p, err);
	import_blob_close(&blob);
	return r < 0 ? (err_prefix(err, "'%s': ", file), r) : 0;
}

/* Where a "file" of the configuration is in the directory: it may have been written with the place it was made in. */
static const char *within(const struct import_source *s, const char *file)
{
	const char *base = strrchr(file, '/');

	return *file != '/' && import_source_has(s, file) ? file : base != NULL ? base + 1 : file;
}

static int add_lowers(struct image_draft *d, struct image *image, const struct import_source *s, const json_t *lowers,
		      struct progress *p, struct err *err)
{
	for (size_t k = 0; k < json_array_size(lowers); k++) {
		const json_t *o = json_array_get(lowers, k), *file = json_object_get(o, "file"), *digest = json_object_get(o, "digest");
		int r;

		if (digest != NULL && (!json_is_string(digest) || !oci_is_digest(json_string_value(digest))))
			return err_set(err, -EINVAL, "\"lowers\": layer %zu: its \"digest\" is not sha256 and 64 digits", k + 1);
		if (!json_is_string(file))
			return err_set(
				err, -EINVAL,
				"\"lowers\": layer %zu has no \"file\": only layers that are here can be imported",
				k + 1);
		r = add_named(d, image, s, within(s, json_string_value(file)), json_string_value(digest), p, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* 1: done; 0: there is no such configuration. */
static int by_config(struct image_draft *d, struct image *image, const struct import_source *s, struct progress *p,
		     struct err *err)
{
	static const char *const names[] = { "config.v1.json", "config.json" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *text = NULL;
		json_t *o, *lowers;
		size_t len;
		int r = 0;

		if (import_source_read(s, names[i], CONFIG_MAX, &text, &len, NULL) < 0)
			continue;
		o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
		lowers = json_object_get(o, "lowers");
		/* Files of other programs may be called so, the second one above all: without "lowers" it is none. */
		if (o == NULL && i == 0)
			r = err_set(err, -EINVAL, "it is no JSON");
		else if (lowers != NULL && json_array_size(lowers) == 0)
			r = err_set(err, -EINVAL, "\"lowers\" is no list of layers, or an empty one");
		else if (lowers != NULL)
			r = add_lowers(d, image, s, lowers, p, err);
		if (r == 0 && lowers != NULL)
			r = 1;
		json_decref(o);
		if (r < 0)
			err_prefix(err, "%s: ", names[i]);
		if (r != 0)
			return r;
	}
	return 0;
}

static int is_named(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static int by_name(struct image_draft *d, struct image *image, const struct import_source *s, struct progress *p,
		   struct err *err)
{
	struct dirent **list;
	int n = scandirat(s->fd, ".", &list, is_named, alphasort), layers = 0, r = 0;

	if (n < 0)
		return err_errno(err, -errno, "read the directory");
	for (int k = 0; k < n; k++) {
		struct import_blob blob;

		if (import_source_open(s, list[k]->d_name, &blob, NULL) < 0)
			continue;
		layers += is_layer(&blob);
		import_blob_close(&blob);
	}
	for (int k = 0; k < n; k++) {
		if (layers > 0 && layers == n && r == 0)
			r = add_named(d, image, s, list[k]->d_name, NULL, p, err);
		free(list[k]);
	}
	free(list);
	return r < 0 ? r : layers > 0 && layers == n;
}

int import_chain_dir(struct image_draft *d, struct image *image, int dir, const char *name, struct progress *p,
		     struct err *err)
{
	struct import_source s;
	int r;

	import_source_open_dir(dir, &s);
	r = by_config(d, image, &s, p, err);
	if (r == 0)
		r = by_name(d, image, &s, p, err);
	if (r > 0 && import_chain_finish(d, image, err) < 0)
		r = err->code;
	return r < 0 ? (err_prefix(err, "'%s': ", name), r) : r;
}
