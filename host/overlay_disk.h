/* SPDX-License-Identifier: Apache-2.0 */
/* The private writable disk of a VM: an empty ext4 file system in a sparse file. */
#pragma once
#include <stdint.h>

#include "lib/err.h"

#define OVERLAY_DISK_MIN (16ull << 20)
#define OVERLAY_DISK_MAX (4ull << 40)
#define OVERLAY_DISK_DEFAULT (16ull << 30)

/* Make `name` in dirfd with `size` bytes (a multiple of 1 MiB). 0 or -errno with a text; nothing is left after a failure. */
int overlay_disk_create(int dirfd, const char *name, uint64_t size, struct err *err);

/* Only put the template that overlay_disk_create needs into the cache. */
int overlay_disk_prepare(uint64_t size, struct err *err);
