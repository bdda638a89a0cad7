/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of images, for the commands that change it.
 *
 *   BASE/images/NAME/   manifest.json and layers, named by their SHA-256; whole, or not there
 *   BASE/builds/ID/     lock, and what a build or a removal is working on; a lockdir (see lockdir.h)
 *
 * A build makes its image in a child of builds, and publishing it is one rename (or exchange) after everything has been
 * synced. A removal renames the image into such a child first. So what a crash leaves is in builds, and the next
 * build or removal sweeps it.
 */
#pragma once
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "host/image.h"
#include "host/lockdir.h"
#include "host/progress.h"

#define IMAGE_MANIFEST "manifest.json"

struct image_store {
	char images[PATH_MAX - 128], builds[PATH_MAX - 128]; /* with room for what is in them */
};

/* `base` NULL: the user's own (file_data_dir). Makes nothing. */
int image_store_init(struct image_store *s, const char *base, struct err *err);

/* image_resolve in that store. */
int image_store_resolve(const struct image_store *s, const char *name_or_path, struct image *ret, struct err *err);

/* In the draft: what becomes the image's directory. */
#define IMAGE_DRAFT_DIR "image"

/* A place to build in. */
struct image_draft {
	const struct image_store *store;
	struct lockdir builds;
	char id[32];
	char path[PATH_MAX - 64]; /* work directory, absolute */
	int fd;                   /* of it */
	int lock_fd;
	struct image_layer *layer; /* added so far */
	size_t nlayers;
};

#define IMAGE_DRAFT_NONE ((struct image_draft){ .builds = { .fd = -1 }, .fd = -1, .lock_fd = -1 })

/* Remove what earlier builds left, and make a new place. */
int image_draft_begin(const struct image_store *s, struct image_draft *ret, struct err *err);

/* What a manifest says of a layer file: bytes, digests and, unless it is raw, index_hash and *ret_size (may be NULL),
 * the size of its disk. `name` is for messages. One pass over the file. The rest of *ret is zeroed. */
int image_layer_measure(int fd, const char *name, bool raw, struct image_layer *ret, uint64_t *ret_size,
			struct progress *p, struct err *err);

/* Put one more layer on top. `facts` is copied, without its `file`. `path` says where the open file fd is: a name
 * without '/' is a file of the draft, which is moved; any other is linked, or copied where it cannot be linked (NULL: always).
 * It must not be written any more. A remote layer (facts->url) has fd -1. */
int image_draft_add_layer(struct image_draft *d, int fd, const char *path, const struct image_layer *facts,
			  struct err *err);
/* All layers of another image of the store. */
int image_draft_add_image(struct image_draft *d, const struct image *image, struct err *err);

/* Make what was added an image: write the manifest from `image` (name, format, size, source, defaults; layers, id and
 * created are filled in), sync and rename. When there is an image of that name: -EEXIST, or with `replace` it goes, unless a
 * VM uses it (-EBUSY). */
int image_draft_publish(struct image_draft *d, struct image *image, bool replace, struct progress *progress, struct err *err);

/* Remove the place with what is left in it. */
void image_draft_end(struct image_draft *d);

/* Can an image be called so: -EINVAL, -EEXIST unless one that is there is to be replaced, and -EBUSY when that is in use. To be told
 * before the work rather than after it; publishing decides. */
int image_store_check_free(const struct image_store *s, const char *name, bool replace, struct err *err);

/* Remove an image: -ENOENT, or -EBUSY when a VM uses it. */
int image_store_remove(const struct image_store *s, const char *name, struct err *err);

struct image_entry {
	struct image image;
	uint64_t disk;      /* bytes it takes up */
	uint64_t shared;    /* of these, what other images of the store have too */
	const struct image_entry *parent; /* whose layers this one's begin with, the most of them; or NULL */
	struct err problem; /* code != 0: why it cannot be used; only the name is valid then */
};

/* All images, by name. *ret is to be given to image_store_list_free. ret_total (may be NULL): bytes that all of them
 * take up; what several have counts once. */
int image_store_list(const struct image_store *s, struct image_entry **ret, size_t *ret_n, struct err *err);
int image_store_list_total(const struct image_store *s, struct image_entry **ret, size_t *ret_n, uint64_t *ret_total,
			   struct err *err);
void image_store_list_free(struct image_entry *list, size_t n);

/* The manifest's text; for image_draft_publish and tests. */
int image_manifest_parse(const char *text, size_t len, struct image *ret, struct err *err); /* all but name, path */
char *image_manifest_format(const struct image *image); /* to be freed; NULL: no memory, or not UTF-8 */
void image_id_compute(const struct image *image, char ret[IMAGE_SHA256_LEN + 1]);
int image_format_parse(const char *text, enum image_format *ret);

/* The same as JSON, for what commands print. NULL: no memory, or not UTF-8. */
json_t *image_to_json(const struct image *image);
json_t *image_layer_to_json(const struct image_layer *l);
enum { IMAGE_TIME_SIZE = 32 };
void image_time_format(int64_t t, char ret[IMAGE_TIME_SIZE]); /* 2026-01-02T03:04:05Z */
