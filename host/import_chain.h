/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of overlaybd (LSMT, plain or in a ZFile, maybe in a tar) that become the layers of an image as they are. */
#pragma once
#include "host/image_store.h"
#include "host/import_source.h"
#include "host/progress.h"

/* Put the blob on top of what the draft has. The image becomes as large as its largest layer. */
int import_chain_add(struct image_draft *d, struct image *image, const struct import_blob *blob, struct progress *p,
		     struct err *err);
/* All are there: what file system do they make? What its superblock and descriptors say of themselves has to be true. */
int import_chain_finish(struct image_draft *d, struct image *image, struct err *err);

/* 1: the file is such a layer, and has become the image's only one; 0: it is none. */
int import_chain_file(struct image_draft *d, struct image *image, int fd, const char *name, struct progress *p,
		      struct err *err);
/* 1: the directory has such layers and nothing else, and they have become the image's: in the order of overlaybd's
 * config.v1.json ("lowers") when it is there, else of their names. 0: it has not. */
int import_chain_dir(struct image_draft *d, struct image *image, int dir, const char *name, struct progress *p,
		     struct err *err);
