/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of a container image, one after the other, into one tree. Each is read by a jailed process of
 * coffer-import (host/import/), which sends records and writes contents to a spool, where ext4_write finds them.
 *
 * A layer is applied as the OCI specification says: names of it replace what lower layers have; ".wh.NAME" removes NAME, ".wh..wh..opq"
 * removes all that its directory has, both only of lower layers, wherever in the layer they stand. Directories keep their contents
 * when they come again; a directory gives way to anything else. Hard links are to what has the name at that moment, of this layer or a lower
 * one. Symbolic links on the way to a member are followed inside the tree.
 *
 * Trust: the records are hostile, as the archive is: every length, number and name is checked here.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/fstree.h"
#include "host/import_reader.h"
#include "host/progress.h"
#include "lib/err.h"

enum { IMPORT_ENTRIES_MAX = 8 << 20 };       /* members of all layers */
#define IMPORT_BYTES_MAX (64ull << 30)       /* of all layers without compression; with --size twice that */
#define IMPORT_BYTES_MORE (64ull << 20)      /* and this for what is no contents */
#define IMPORT_META_MAX (2ull << 30)         /* bytes of names, targets and attributes */

struct import_tree {
	struct fstree *tree;
	int spool_fd;         /* an empty file */
	uint64_t spool;       /* of it used */
	uint64_t bytes_left;  /* that layers may have yet */
	uint64_t entries_left, meta_left;
	struct import_reader reader;
};

#define IMPORT_TREE(tree_, fd_, bytes_)                                                                             \
	((struct import_tree){ .tree = (tree_), .spool_fd = (fd_), .bytes_left = (bytes_),                           \
			       .entries_left = IMPORT_ENTRIES_MAX, .meta_left = IMPORT_META_MAX, .reader = IMPORT_READER_NONE })

/* Where a layer or another blob is: a part of a regular file. */
struct import_blob {
	int fd;
	uint64_t offset, size;
};

/* Apply the tar, however compressed. whiteouts: they mean something; else they are files like others. ret_sha256 (65 bytes, may be
 * NULL) is that of the tar without compression. After an error the tree is of no use. */
int import_tree_add(struct import_tree *s, const struct import_blob *blob, bool whiteouts, char *ret_sha256, struct progress *p,
		    struct err *err);

/* The tree and the spool stay. */
void import_tree_finish(struct import_tree *t);

/* What import_tree_add does with the records, from any descriptor. -EPIPE: they end before IMPORT_END. */
int import_tree_follow(struct import_tree *t, int records, bool whiteouts, char *ret_sha256, struct err *err);

/* Write what a compressed file is without its compression to the empty file `out`. */
int import_decompress_to(const struct import_blob *blob, int out, uint64_t bytes_max, struct progress *p, struct err *err);
