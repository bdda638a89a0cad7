/* SPDX-License-Identifier: Apache-2.0 */
/* Making an image of what other programs made: container images, archives, disks, layers of overlaybd. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/image_store.h"
#include "host/progress.h"

#define IMAGE_IMPORT_PLATFORM "linux/amd64"

struct image_import_options {
	const char *path;
	const char *source;   /* where it came from, for the manifest; NULL: path */
	const char *name;
	const char *platform; /* NULL: IMAGE_IMPORT_PLATFORM */
	const char *tag;      /* of container images: which of several; NULL: there is one */
	uint64_t size;        /* bytes of the file system; 0: IMAGE_BUILD_SIZE, or twice the need when that is more */
	bool replace;
};

/* 0 or -errno. `note` gets a line when something was chosen that could have been another: a partition of a disk. */
int image_import(const struct image_store *s, const struct image_import_options *o, struct progress *p, struct err *note,
		 struct err *err);
