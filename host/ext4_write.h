/* SPDX-License-Identifier: Apache-2.0 */
/* Write a tree as an ext4 file system into a file. */
#pragma once
#include <stdint.h>

#include "host/fstree_source.h"

enum { EXT4_BLOCK = 4096 };
#define EXT4_SIZE_MAX ((uint64_t)1 << 40)

struct ext4_options {
	uint64_t size;     /* of the file system in bytes; 0: what the tree needs and a little more */
	const char *label; /* at most 16 bytes are used; may be NULL */
	const char *uuid;  /* NULL: random. With one, the same tree gives the same bytes: times that are of the making are the newest of a file */
};

/* The smallest size in bytes that ext4_write would choose. */
uint64_t ext4_size_of(const struct fstree *t);

/* Make the new file `path`. Needs no privileges: owners, devices and attributes exist only inside it. Blocks of zeros
 * become holes, of the file system and of `path`. 0 or -errno; after a failure `path` is of no use. Sets the `number`
 * of the tree's inodes. */
int ext4_write(struct fstree *t, const struct fstree_source *source, const char *path, const struct ext4_options *options,
	       struct progress *progress, struct err *err);
