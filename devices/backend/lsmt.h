/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LSMT layer files (overlaybd's format): making, checking and sealing them. docs/layers.md has the bytes.
 *
 * A layer is a sealed file (header, data, sorted index, trailer), or, while it is written, a pair: a data file
 * and a log of index entries. Nothing here does I/O on guest memory: the "layers" backend
 * (block_layers.c) does, through the same index.
 *
 * Trust: every field of a layer is hostile.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum { LSMT_UUID_LEN = 36, LSMT_LAYERS_MAX = 255 };

struct lsmt_info {
	uint64_t virtual_size; /* bytes */
	uint64_t entries;      /* of the index */
	uint64_t file_size;
	bool compressed;       /* in a ZFile */
	char uuid[LSMT_UUID_LEN + 1], parent_uuid[LSMT_UUID_LEN + 1]; /* "" : none */
	uint64_t index_hash;   /* XXH3-64 of header block, index and trailer block: what of it is read at every start */
};

/* Make an empty pair in two empty files. uuid: 36 characters, or NULL: a random one. */
int lsmt_create(int data_fd, int index_fd, uint64_t virtual_size, const char *uuid, const char *parent_uuid,
		struct err *err);
/* Read and check header, trailer and index of a sealed layer, plain, in a ZFile or wrapped in a tar (layer_file.c); `name`
 * is for messages. */
int lsmt_inspect(int fd, const char *name, struct lsmt_info *ret, struct err *err);
/* A sealed layer from the nonzero content of a raw file (holes are skipped). */
int lsmt_pack_raw(int raw_fd, uint64_t size, int out_fd, const char *uuid, struct err *err);
/* A sealed layer in an empty file that holds what n sealed layers (1..LSMT_LAYERS_MAX, lowest first, with names for messages) hold
 * together. keep_zeroes: something is below them, so what they zero must go on hiding it. Data are not checked. */
int lsmt_merge(const int *fd, const char *const *name, size_t n, bool keep_zeroes, int out_fd, struct err *err);
/* Turn a pair that nobody has open into a sealed layer, in place: the data file becomes it. For a VM that has ended. */
int lsmt_seal_pair(int data_fd, int index_fd, const char *name, struct err *err);
