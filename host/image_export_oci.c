/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image as an OCI image layout whose layers are those of the image, as overlaybd's tools and registries have them:
 * blobs of the media type of a tar that are none, marked by annotations. Their digests are those of the store, so who
 * imports the layout has an equal image. A raw lowest layer becomes a sealed one.
 *
 * The layout is written beside where it shall be and appears by one rename (image_export.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/file.h"
#include "host/image_export.h"
#include "host/image_store.h"
#include "host/import_source.h"
#include "host/oci_manifest.h"
#include "host/sha256.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

#define OVERLAYBD_VERSION "0.1.0"

struct blob {
	char hex[SHA256_HEX_SIZE];
	uint64_t size;
};

struct layout {
	const struct image *image;
	int dir, blobs; /* the layout, its blobs/sha256 */
	struct progress *p;
	struct blob *layer;
	struct blob config, manifest;
};

/* ---- files ---- */

static int write_file(int dir, const char *name, const char *text, struct err *err)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int r = fd < 0 ? -errno : fd_write_full(fd, text, strlen(text));

	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r < 0 ? err_errno(err, r, "write '%s'", name) : 0;
}

/* Takes the document. */
static int put_document(const struct layout *l, json_t *o, struct blob *ret, struct err *err)
{
	_cleanup_free_ char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	struct sha256_ctx sha;

	json_decref(o);
	if (text == NULL)
		return err_set(err, -EINVAL, "a name or default is not UTF-8, or there is no memory");
	sha256_init(&sha);
	sha256_update(&sha, strlen(text), (const uint8_t *)text);
	sha256_end_hex(&sha, ret->hex);
	ret->size = strlen(text);
	return write_file(l->blobs, ret->hex, text, err);
}

static int put_raw_layer(const struct layout *l, int from, struct blob *ret, struct err *err)
{
	_cleanup_close_ int fd = openat(l->blobs, "layer", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	struct import_blob blob;
	struct stat st;
	int r;

	if (fd < 0 || fstat(from, &st) < 0)
		return err_errno(err, -errno, "make the layer");
	r = lsmt_pack_raw(from, (uint64_t)st.st_size, fd, NULL, err);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || fsync(fd) < 0)
		return err_errno(err, -errno, "write the layer");
	blob = (struct import_blob){ .fd = fd, .size = (uint64_t)st.st_size };
	r = import_blob_digest(&blob, ret->hex, l->p, err);
	ret->size = blob.size;
	if (r == 0 && renameat(l->blobs, "layer", l->blobs, ret->hex) < 0)
		r = err_errno(err, -errno, "name the layer");
	return r;
}

static int put_layer(const struct layout *l, size_t k, struct blob *ret, struct err *err)
{
	const struct image_layer *layer = &l->image->layer[k];
	_cleanup_close_ int from = image_layer_open(l->image, k, NULL, err), to = -1;
	struct stat st;

	if (from < 0)
		return from;
	if (layer->raw)
		return put_raw_layer(l, from, ret, err);
	memcpy(ret->hex, layer->sha256, sizeof(ret->hex));
	ret->size = layer->bytes;
	if (fstatat(l->blobs, ret->hex, &st, 0) == 0)
		return 0; /* twice in one stack */
	to = vm_disk_copy(from, l->blobs, ret->hex, err);
	if (to < 0)
		return to;
	return fchmod(to, 0644) < 0 || fsync(to) < 0 ? err_errno(err, -errno, "write the layer") : 0;
}

/* ---- documents ---- */

static json_t *digest_of(const struct blob *b)
{
	return json_sprintf("sha256:%s", b->hex);
}

static json_t *strings(char *const *v)
{
	json_t *a = json_array();

	for (; a != NULL && v != NULL && *v != NULL; v++)
		json_array_append_new(a, json_string(*v)); /* what is not UTF-8 was refused by the manifest */
	return a;
}

static json_t *make_config(const struct layout *l)
{
	const struct image *image = l->image;
	json_t *ids = json_array(), *history = json_array(), *config = json_object();
	char when[IMAGE_TIME_SIZE];

	for (size_t k = 0; k < image->nlayers; k++) {
		const struct image_layer *layer = &image->layer[k];

		image_time_format(layer->created, when);
		json_array_append_new(ids, digest_of(&l->layer[k]));
		json_array_append_new(history, json_pack("{s:s, s:s, s:s*}", "created", when, "created_by", "coffer",
							 "comment", layer->message));
	}
	if (image->env != NULL)
		json_object_set_new(config, "Env", strings(image->env));
	if (image->cmd != NULL)
		json_object_set_new(config, "Cmd", strings(image->cmd));
	if (image->user != NULL)
		json_object_set_new(config, "User", json_string(image->user));
	if (image->cwd != NULL)
		json_object_set_new(config, "WorkingDir", json_string(image->cwd));
	image_time_format(image->created, when);
	return json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:o}, s:o}", "created", when, "architecture", "amd64", "os",
			 "linux", "config", config, "rootfs", "type", "layers", "diff_ids", ids, "history", history);
}

static json_t *make_manifest(const struct layout *l)
{
	json_t *layers = json_array();

	for (size_t k = 0; k < l->image->nlayers; k++) {
		const struct blob *b = &l->layer[k];
		char size[24];

		snprintf(size, sizeof(size), "%" PRIu64, b->size);
		json_array_append_new(layers,
				      json_pack("{s:s, s:o, s:I, s:{s:o, s:s, s:s, s:s}}", "mediaType", OCI_TYPE_LAYER,
						"digest", digest_of(b), "size", (json_int_t)b->size, "annotations",
						OCI_OVERLAYBD_DIGEST, digest_of(b), OCI_OVERLAYBD_SIZE, size,
						OCI_OVERLAYBD_FS_TYPE, image_format_name(l->image->format),
						OCI_OVERLAYBD_VERSION, OVERLAYBD_VERSION));
	}
	return json_pack("{s:i, s:s, s:{s:s, s:o, s:I}, s:o}", "schemaVersion", 2, "mediaType", OCI_TYPE_MANIFEST,
			 "config", "mediaType", OCI_TYPE_CONFIG, "digest", digest_of(&l->config), "size",
			 (json_int_t)l->config.size, "layers", layers);
}

static char *make_index(const struct layout *l)
{
	json_t *o = json_pack("{s:i, s:s, s:[{s:s, s:o, s:I, s:{s:s, s:s}, s:{s:s}}]}", "schemaVersion", 2, "mediaType",
			      OCI_TYPE_INDEX, "manifests", "mediaType", OCI_TYPE_MANIFEST, "digest",
			      digest_of(&l->manifest), "size", (json_int_t)l->manifest.size, "platform", "architecture",
			      "amd64", "os", "linux", "annotations", OCI_REF_NAME,
			      *l->image->name != '\0' ? l->image->name : "latest");
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return text;
}

/* ---- the layout ---- */

static int fill(struct layout *l, struct err *err)
{
	_cleanup_free_ char *index = NULL;
	int r = 0;

	progress_stage(l->p, "copying layers");
	for (size_t k = 0; k < l->image->nlayers && r == 0; k++) {
		r = put_layer(l, k, &l->layer[k], err);
		if (r == 0)
			r = progress_bytes(l->p, k + 1, l->image->nlayers, err);
	}
	if (r == 0)
		r = put_document(l, make_config(l), &l->config, err);
	if (r == 0)
		r = put_document(l, make_manifest(l), &l->manifest, err);
	if (r < 0)
		return r;
	index = make_index(l);
	if (index == NULL)
		return err_set(err, -ENOMEM, "no memory");
	r = write_file(l->dir, "index.json", index, err);
	return r < 0 ? r : write_file(l->dir, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", err);
}

static int open_dirs(struct layout *l, const char *path, struct err *err)
{
	l->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->dir < 0 || flock(l->dir, LOCK_EX | LOCK_NB) < 0 || mkdirat(l->dir, "blobs", 0755) < 0 || mkdirat(l->dir, "blobs/sha256", 0755) < 0)
		return err_errno(err, -errno, "make '%s/blobs'", path);
	l->blobs = openat(l->dir, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return l->blobs < 0 || fchmod(l->dir, 0755) < 0 ? err_errno(err, -errno, "open '%s/blobs'", path) : 0;
}

int image_export_oci(const struct image *image, const char *path, int out, struct progress *p, struct err *err)
{
	struct layout l = { .image = image, .dir = -1, .blobs = -1, .p = p };
	char temp[PATH_MAX], place[PATH_MAX];
	size_t len;
	int r;

	(void)out;
	if (image->nlayers == 0)
		return err_set(err, -EINVAL, "'%s' is a disk, not an image of the store: import it first", image->path);
	len = strlen(path);
	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len == 0 || len >= sizeof(place))
		return err_set(err, -ENAMETOOLONG, "'%s'", TEXT_CUT(path));
	snprintf(place, sizeof(place), "%.*s", (int)len, path);
	if (faccessat(AT_FDCWD, place, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_errno(err, -EEXIST, "'%s'", place);
	image_export_clean(place);
	r = image_export_temp(place, temp, err);
	if (r < 0)
		return r;
	l.layer = calloc(image->nlayers, sizeof(*l.layer));
	if (l.layer == NULL)
		return err_set(err, -ENOMEM, "no memory");
	if (mkdir(temp, 0700) < 0) {
		r = err_errno(err, -errno, "make '%s'", temp);
		free(l.layer);
		return r;
	}
	r = open_dirs(&l, temp, err);
	if (r == 0)
		r = fill(&l, err);
	if (r == 0)
		r = image_export_put(temp, place, err);
	fd_close(l.blobs);
	fd_close(l.dir);
	free(l.layer);
	if (r < 0)
		file_remove_tree(AT_FDCWD, temp);
	return r;
}
