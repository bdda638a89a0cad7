/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk taken apart into layers as packs on packs would have them: each block is in one of them, older ones of many are
 * below it, and what `coffer pack` calls makes the layers, in turn with zstd, with LZ4 and plain.
 */
#pragma once
#include <stdint.h>

#include "host/image.h"
#include "lib/err.h"

/* Layer k of n, into the empty file `out`. The disk begins with an ext4's superblock, which each layer has. */
int stack_make_layer(const uint8_t *disk, uint64_t size, unsigned k, unsigned n, int out, struct image_layer *ret,
		     struct err *err);
