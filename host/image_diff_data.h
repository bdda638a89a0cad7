/* SPDX-License-Identifier: Apache-2.0 */
/* The contents' part of comparing images. */
#pragma once
#include "host/image_ext4.h"
#include "host/progress.h"

/* One file in two images, of the same type. */
struct image_diff_pair {
	struct image_ext4 *side[2];
	ext2_ino_t ino[2];
	const struct ext2_inode_large *inode[2];
	size_t common; /* so many lowest layers are the same */
};

/* Contents of a file or target of a link, both of `size` bytes: 1 when they differ, 0, or -errno. */
int image_diff_data(const struct image_diff_pair *f, uint64_t size, struct progress *p, struct err *err);
/* The same for the extended attributes. */
int image_diff_xattrs(const struct image_diff_pair *f, struct err *err);
