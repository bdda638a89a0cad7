/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images whose layers are tars: they are fetched whole, by the fetcher that VMs use, into the cache, where an interrupted pull goes on; then an
 * OCI layout of links to them is imported as `coffer image import` imports any.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "host/image_import.h"
#include "host/pull.h"
#include "host/pull_ref.h"
#include "host/remote_layers.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"

#define LAYOUT "layout"
#define BLOBS LAYOUT "/blobs/sha256"

/* ---- the layout ---- */

static int write_file(const struct image_draft *d, const char *name, const char *text, size_t len, struct err *err)
{
	_cleanup_close_ int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fd_write_full(fd, text, len);

	return r < 0 ? err_errno(err, r, "write '%s/%s'", d->path, name) : 0;
}

static int put_layer(const struct image_draft *d, const struct remote_layers_one *l, struct err *err)
{
	char path[PATH_MAX], name[sizeof(BLOBS) + 1 + IMAGE_SHA256_LEN];
	int r = pull_path_of(l->data_fd, path, err);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), BLOBS "/%s", l->sha256);
	r = vm_disk_link(l->data_fd, path, d->fd, name, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = vm_disk_copy(l->data_fd, d->fd, name, err);
	return r < 0 ? r : (fd_close(r), 0);
}

static int put_index(const struct image_draft *d, const struct pull_documents *t, struct err *err)
{
	json_t *o = json_pack("{s:i, s:[{s:s, s:s, s:I}]}", "schemaVersion", 2, "manifests", "mediaType", t->manifest_type, "digest",
			      t->manifest_digest, "size", (json_int_t)t->manifest_len);
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text == NULL ? err_set(err, -ENOMEM, "no memory") :
			       write_file(d, LAYOUT "/index.json", text, strlen(text), err);

	json_decref(o);
	free(text);
	return r;
}

static int make_layout(const struct image_draft *d, const struct pull_documents *t, const struct remote_layers *r, struct err *err)
{
	static const char version[] = "{\"imageLayoutVersion\": \"1.0.0\"}";
	char name[sizeof(BLOBS) + 1 + IMAGE_SHA256_LEN];
	int e = 0;

	if (mkdirat(d->fd, LAYOUT, 0700) < 0 || mkdirat(d->fd, LAYOUT "/blobs", 0700) < 0 || mkdirat(d->fd, BLOBS, 0700) < 0)
		return err_errno(err, -errno, "make '%s/" LAYOUT "'", d->path);
	for (size_t i = 0; i < r->n && e == 0; i++)
		e = put_layer(d, &r->l[i], err);
	snprintf(name, sizeof(name), BLOBS "/%.64s", t->manifest_digest + 7);
	if (e == 0)
		e = write_file(d, name, t->manifest, t->manifest_len, err);
	snprintf(name, sizeof(name), BLOBS "/%.64s", t->config_digest + 7);
	if (e == 0)
		e = write_file(d, name, t->config, t->config_len, err);
	if (e == 0)
		e = write_file(d, LAYOUT "/oci-layout", version, sizeof(version) - 1, err);
	return e < 0 ? e : put_index(d, t, err);
}

int pull_tars(const struct image_store *s, const struct image *image, const struct pull_documents *t, const struct pull_options *o,
	      struct progress *p, struct err *note, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct remote_layers layers;
	char path[PATH_MAX];
	int r = pull_fetch_layers(image, o->cache_size, &layers, p, err);

	if (r < 0)
		return r;
	r = image_draft_begin(s, &d, err);
	if (r == 0) {
		r = make_layout(&d, t, &layers, err);
		snprintf(path, sizeof(path), "%s/" LAYOUT, d.path);
		if (r == 0)
			r = image_import(s,
					 &(struct image_import_options){ .path = path, .source = o->url, .name = image->name,
									 .platform = o->platform, .replace = o->replace },
					 p, note, err);
		image_draft_end(&d);
	}
	remote_layers_finish(&layers);
	free(layers.l);
	return r;
}
