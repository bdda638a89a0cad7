/* SPDX-License-Identifier: Apache-2.0 */
/* What the private writable disk of a VM begins with: an empty ext4 file system, as a sealed layer that all VMs share.
 * */
#pragma once
#include <stdint.h>

#include "host/snapshot_manifest.h"
#include "lib/err.h"

#define OVERLAY_DISK_MIN (16ull << 20)
#define OVERLAY_DISK_MAX (4ull << 40)
#define OVERLAY_DISK_DEFAULT (16ull << 30)

/* Open the layer for a disk of `size` bytes (a multiple of 1 MiB), made when it is not in the cache. Its descriptor or
 * -errno with a text; `path` (of PATH_MAX bytes) is where it is, *ret what is known of it (`file` is NULL). */
int overlay_disk_open(uint64_t size, char *path, struct snapshot_layer *ret, struct err *err);
