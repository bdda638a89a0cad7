/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers that a VM has written, made one for an image.
 *
 * The result is a sealed layer, written front to back so that it can go through a compressor: header, data in the order of the
 * disk, index, trailer. What lies together on the disk lies together in the file, and garbage of the layers stays behind.
 * What is zeroed stays so: something below may have data there.
 *
 * The file system in it is an ext4 that was frozen. Without a journal it does not say so itself: what is mounted for
 * writing counts as not clean until it is unmounted. So the copy of the superblock is marked clean. One with a journal is
 * clean by being frozen. One that has found errors in itself is refused.
 *
 * Trust: the layers are the guest's work: indexes are checked by lsmt_read.c, data and the superblock are hostile.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "devices/backend/zfile.h"
#include "host/image.h"
#include "lib/err.h"

struct progress;

enum { PACK_SUPER_BYTES = 1024 }; /* of an ext4 superblock, 1024 bytes into the disk */

typedef int pack_sink(void *ctx, const void *buf, size_t n); /* 0 or -errno */

struct pack_layer_facts {
	uint64_t size;    /* of the disk, bytes */
	uint64_t data;    /* in the layer */
	uint64_t entries; /* of its index */
};

/* n layers, lowest first, with names for messages; fd is only read. *ret may be NULL. */
int pack_layer_write(const int *fd, const char *const *name, size_t n, pack_sink *sink, void *ctx, struct progress *progress,
		     struct pack_layer_facts *ret, struct err *err);

/* The same into an empty file, compressed unless zfile is NULL. Digests are taken of the bytes as they are written, so the
 * file is not read again but for its index. *ret_layer gets what image_layer_measure would say of the file. */
int pack_layer_file(const int *fd, const char *const *name, size_t n, const struct zfile_options *zfile, int out,
		    struct progress *progress, struct pack_layer_facts *ret, struct image_layer *ret_layer, struct err *err);

/* Let the superblock of a frozen ext4 say that it is clean. -EINVAL when it is none or damaged, -EUCLEAN when its file
 * system has errors or was not frozen. */
int pack_super_clean(uint8_t super[PACK_SUPER_BYTES], struct err *err);
