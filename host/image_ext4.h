/* SPDX-License-Identifier: Apache-2.0 */
/* The ext4 of an image for libext2fs, read through its layers. */
#pragma once
#include <ext2fs/ext2fs.h>

#include "host/image_disk.h"

struct image_ext4 {
	struct image_disk disk;
	ext2_filsys fs;
	struct struct_io_manager *manager;
};

#define IMAGE_EXT4_NONE ((struct image_ext4){ .disk = { .base_fd = -1 } })

/* Read-only. The struct must not move while it is open. -EINVAL when the superblock or a group's descriptor is damaged. */
int image_ext4_open(const struct image *image, struct image_ext4 *ret, struct err *err);
/* Whether that would succeed. What only a newer library knows is nothing against it. */
int image_ext4_check(const struct image *image, struct err *err);
void image_ext4_close(struct image_ext4 *e); /* IMAGE_EXT4_NONE too */

/* An error of libext2fs as one of ours: -errno with a text. */
int image_ext4_error(errcode_t code, const char *what, struct err *err);
