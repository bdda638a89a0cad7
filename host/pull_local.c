/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote image becomes one of files: what is missing of its layers is fetched into the cache, and the cache's files are linked into the
 * image, which needs neither registry nor cache from then on. It has the same layers and the same id.
 *
 * Trust: the cache has compared each layer's SHA-256; it is computed once more here, with the checksums that the manifest has of files.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/pull.h"
#include "lib/fd.h"
#include "lib/util.h"

static const struct remote_layers_one *find(const struct remote_layers *r, const char *sha256)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->l[i].sha256, sha256) == 0)
			return &r->l[i];
	return NULL;
}

static int add_remote(struct image_draft *d, const struct remote_layers *r, const struct image *image, size_t k, struct progress *p,
		      struct err *err)
{
	const struct image_layer *l = &image->layer[k];
	const struct remote_layers_one *from = find(r, l->sha256);
	struct image_layer facts;
	char path[PATH_MAX], name[32];
	int e;

	if (from == NULL)
		return err_set(err, -ENOENT, "layer %zu has not been fetched", k + 1);
	snprintf(name, sizeof(name), "layer %zu", k + 1);
	e = pull_path_of(from->data_fd, path, err);
	if (e == 0)
		e = image_layer_measure(from->data_fd, name, l->raw, &facts, NULL, p, err);
	if (e < 0)
		return e;
	if (strcmp(facts.sha256, l->sha256) != 0)
		return err_set(err, -EBADMSG, "%s is damaged in the cache: the SHA-256 of '%s' is %s; remove it", name, path, facts.sha256);
	facts.created = l->created;
	facts.message = l->message;
	return image_draft_add_layer(d, from->data_fd, path, &facts, err);
}

static int add_layers(struct image_draft *d, const struct remote_layers *r, const struct image *image, struct progress *p, struct err *err)
{
	int e = 0;

	progress_stage(p, "reading the layers");
	for (size_t k = 0; k < image->nlayers && e == 0; k++) {
		char path[PATH_MAX];

		if (image->layer[k].url != NULL) {
			e = add_remote(d, r, image, k, p, err);
			continue;
		}
		_cleanup_close_ int fd = image_layer_open(image, k, path, err);

		e = fd < 0 ? fd : image_draft_add_layer(d, fd, path, &image->layer[k], err);
	}
	return e;
}

int pull_publish_local(const struct image_store *s, const struct image *from, const struct remote_layers *r, bool replace,
		       struct progress *p, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = *from;
	int e = image_draft_begin(s, &d, err);

	if (e < 0)
		return e;
	image.layer = NULL;
	image.nlayers = 0;
	e = add_layers(&d, r, from, p, err);
	if (e == 0)
		e = image_draft_publish(&d, &image, replace, p, err);
	for (size_t i = 0; i < image.nlayers; i++)
		image_layer_finish(&image.layer[i]);
	free(image.layer);
	image_draft_end(&d);
	return e;
}

/* Somebody may have made it anew while its layers came. */
static int check_same(const struct image_store *s, const struct image *image, struct err *err)
{
	struct image now;
	int r = image_store_resolve(s, image->name, &now, err);

	if (r < 0)
		return r;
	if (strcmp(now.id, image->id) != 0 || now.created != image->created)
		r = err_set(err, -EBUSY, "image '%s' was replaced meanwhile: repeat", image->name);
	image_finish(&now);
	return r;
}

static bool is_remote(const struct image *image)
{
	for (size_t k = 0; k < image->nlayers; k++)
		if (image->layer[k].url != NULL)
			return true;
	return false;
}

int pull_make_local(const struct image_store *s, const char *name, uint64_t cache_size, struct progress *p, struct err *err)
{
	struct remote_layers layers;
	struct image image;
	int r = image_store_resolve(s, name, &image, err);

	if (r < 0)
		return r;
	if (!is_remote(&image)) {
		image_finish(&image);
		return 0;
	}
	r = image_store_check_free(s, name, true, err);
	if (r == 0)
		r = pull_fetch_layers(&image, cache_size, &layers, p, err);
	if (r == 0) {
		r = check_same(s, &image, err);
		if (r == 0)
			r = pull_publish_local(s, &image, &layers, true, p, err);
		remote_layers_finish(&layers);
		free(layers.l);
	}
	image_finish(&image);
	return r < 0 ? r : 1;
}
