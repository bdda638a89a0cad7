/* SPDX-License-Identifier: Apache-2.0 */
/* Building images: from Debian's packages (a plain one, or one with a desktop), a directory or a tar. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/image_store.h"
#include "host/progress.h"
#include "lib/opt.h"

#define IMAGE_DEBIAN "debian"
#define IMAGE_DESKTOP "desktop"
#define IMAGE_BUILD_SIZE (16ull << 30)

struct image_build_options {
	const char *source;      /* "debian", "desktop", a directory, a tar (also compressed), or "-": a tar from stdin */
	const char *name;        /* NULL: that word for the first two */
	uint64_t size;           /* bytes of the file system; 0: IMAGE_BUILD_SIZE, or twice the need when that is more */
	bool replace;            /* an image of that name */
	bool root_owner;         /* everything belongs to 0:0, whatever the source says */

	/* debian and desktop only */
	const char *suite;       /* NULL: bookworm */
	const char *mirror;      /* NULL: the host's own */
	struct opt_strv include; /* packages besides the usual ones; each may be a list with commas */
	struct opt_strv with;    /* desktop only: programs that are not in every desktop (image_desktop.h) */
	bool cached;             /* take the packages of the last build without asking a mirror */
};

/* In a draft: the file system that becomes a layer. */
#define IMAGE_BUILD_DISK "disk"

/* That file becomes the image's layer (with this UUID; NULL: random), and goes. */
int image_build_add_disk(struct image_draft *d, struct image *image, const char *uuid, struct progress *p, struct err *err);

/* All that comes from `in`, a pipe or file, into the empty file `out`. No character devices. */
int image_build_spool(int in, int out, struct progress *p, struct err *err);

/* 0 or -errno. `note` (may be NULL) gets a line when something went another way than asked: the cached packages
 * were taken because no mirror answered, or attributes of files were left out. */
int image_build(const struct image_store *s, const struct image_build_options *o, struct progress *p, struct err *note,
		struct err *err);
