/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a sealed layer in a local file, however they are wrapped there: as they are, in a ZFile, either of them in a
 * tar with one entry. For what reads layers on the host's side; a VM's disk has block_layers_source.c.
 *
 * Threads: one at a time on a layer_file. Trust: files are hostile.
 */
#pragma once
#include <sys/types.h>

#include "devices/backend/lsmt_format.h"
#include "devices/backend/zfile.h"

struct layer_file {
	struct zfile_source source;
	struct zfile *z;          /* NULL: not compressed */
	struct zfile_ctx *ctx;
	struct lsmt_bytes bytes;  /* for lsmt_*_bytes: the layer itself */
};

/* `fd` stays the caller's, who keeps it open for as long as the layer. */
int layer_file_open(int fd, const char *name, struct layer_file **ret, struct err *err);
void layer_file_close(struct layer_file *f); /* accepts NULL */

/* As pread, of the layer: fewer than n bytes only at its end. Not into memory that others write meanwhile. */
static inline ssize_t layer_file_read(struct layer_file *f, void *buf, size_t n, uint64_t off)
{
	return f->bytes.read_at(f->bytes.ctx, buf, n, off);
}
