/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image pull`: an image of a registry or of a directory on a web server (docs/remote.md). */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/image_store.h"
#include "host/progress.h"
#include "host/pull_creds.h"
#include "host/remote_layers.h"
#include "lib/err.h"

struct pull_options {
	const char *url;
	const char *name;      /* NULL: the last part of the address */
	bool replace;
	uint64_t cache_size;   /* 0: the default */
	bool all;              /* all of it is fetched now, and becomes the image's own */
	const char *platform;  /* NULL: linux/amd64 */
	struct pull_access access;
};

enum { PULL_NAME_SIZE = IMAGE_NAME_MAX + 1 };

/* Layers of overlaybd's kind stay where they are (unless o->all), others are fetched and imported. ret_name: what the image is called. `note`: a line when
 * there is something to say of a success. 0 or -errno. */
int pull_image(const struct image_store *s, const struct pull_options *o, char ret_name[PULL_NAME_SIZE], struct progress *p,
	       struct err *note, struct err *err);

/* Fetch what is missing of an image's layers, and make them its own (pull_local.c). 1, or 0 when they were already, or -errno. */
int pull_make_local(const struct image_store *s, const char *name, uint64_t cache_size, struct progress *p, struct err *err);

/* ---- between the files of pulling ---- */

/* pull_fetch.c: all layers of an image that have a URL, each once, held in the cache and whole. *ret: finish it, and free ret->l. */
int pull_fetch_layers(const struct image *image, uint64_t cache_size, struct remote_layers *ret, struct progress *p, struct err *err);
int pull_path_of(int fd, char ret[PATH_MAX], struct err *err); /* where an open file is */

/* pull_local.c: an image whose remote layers have been fetched, with them as files. */
int pull_publish_local(const struct image_store *s, const struct image *from, const struct remote_layers *r, bool replace,
		       struct progress *p, struct err *err);

/* pull_tar.c: the layers of *image (all with a URL) are tars. The documents have been checked. */
struct pull_documents {
	char *manifest, *config; /* owned */
	size_t manifest_len, config_len;
	const char *manifest_type;
	char manifest_digest[80], config_digest[80];
};
int pull_tars(const struct image_store *s, const struct image *image, const struct pull_documents *t, const struct pull_options *o,
	      struct progress *p, struct err *note, struct err *err);

/* pull_disk.c: what the layers (all remote) are together: size and format of *image, from what of them is read at every start. The
 * cache has that then. */
int pull_inspect_disk(struct image *image, uint64_t cache_size, struct progress *p, struct err *err);
