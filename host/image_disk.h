/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk that an image's layers are, read by the host: one merged index over all layers, as the monitor has it, and reads
 * that are cut where the index says. For comparing, exporting and looking; a VM reads through the block backend.
 *
 * Trust: layers are hostile; their indexes are checked by lsmt_read.c. Threads: one at a time.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/backend/layer_file.h"
#include "devices/backend/lsmt_index.h"
#include "host/image.h"
#include "lib/err.h"

/* Its descriptor, and the layer in it, whether compressed or not. */
struct image_disk_layer {
	int fd;
	struct layer_file *file;
};

struct image_disk {
	struct lsmt_index index;
	struct image_disk_layer *layer; /* lowest first; a raw lowest one is base_fd instead */
	size_t nlayers;
	int base_fd;        /* -1: none */
	uint64_t base_size;
	uint64_t size;
};

#define IMAGE_DISK_NONE ((struct image_disk){ .base_fd = -1 })

/* Open all layers of an image (or the file of one that was given as a path). -EREMOTE when one is remote. */
int image_disk_open(const struct image *image, struct image_disk *ret, struct err *err);
void image_disk_close(struct image_disk *d); /* IMAGE_DISK_NONE too */

/* n bytes at `off`, any alignment, inside the disk. 0, or -errno: -EIO when a file is shorter than its index says. */
int image_disk_read(const struct image_disk *d, void *buf, size_t n, uint64_t off);

/* The next range from `off` on (a multiple of 512) that may have data: false when there is none. */
bool image_disk_next_data(const struct image_disk *d, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);

/* Are n bytes of two disks, at multiples of 512, the same because they come from the same place of a layer that both have? Their
 * `common` lowest layers are the same. False: it has to be read. Nothing is read for it. */
bool image_disk_same(const struct image_disk *a, const struct image_disk *b, uint64_t off_a, uint64_t off_b, uint64_t n,
		     size_t common);
