/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between the files of two images. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/image.h"
#include "host/progress.h"
#include "lib/err.h"

/* What of a file is different, when both images have it. */
enum image_diff_what {
	IMAGE_DIFF_TYPE = 1,
	IMAGE_DIFF_MODE = 2,
	IMAGE_DIFF_OWNER = 4,
	IMAGE_DIFF_SIZE = 8,
	IMAGE_DIFF_CONTENT = 16, /* also a link's target and a device's number */
	IMAGE_DIFF_TIME = 32,    /* of the last change; not of directories */
	IMAGE_DIFF_XATTRS = 64,
};

enum image_diff_kind { IMAGE_DIFF_ADDED, IMAGE_DIFF_CHANGED, IMAGE_DIFF_REMOVED };

struct image_change {
	enum image_diff_kind kind;
	const char *path;            /* absolute; any bytes but '\0' */
	unsigned what;               /* enum image_diff_what, of changed ones */
	uint16_t old_mode, new_mode; /* as in stat; 0: there is none */
	uint64_t old_size, new_size;
};

/* 0, or a negative result that ends the comparison and is what image_diff returns. */
typedef int image_diff_each(void *arg, const struct image_change *c);

/* Compare two images of ext4, a the older one. Calls `each` by path, a directory before what is in it. What both have from the
 * same layers is not read. */
int image_diff(const struct image *a, const struct image *b, image_diff_each *each, void *arg, struct progress *p,
	       struct err *err);
