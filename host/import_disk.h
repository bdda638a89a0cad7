/* SPDX-License-Identifier: Apache-2.0 */
/* Disks (raw, qcow2) that become images: the file system on them, or on their only partition for Linux. */
#pragma once
#include "host/disk_source.h"
#include "host/image.h"
#include "host/progress.h"

/* Does a file begin like a disk: a qcow2, a file system that guests can have as root, a partition table? */
bool import_disk_is(const uint8_t *head, size_t len);

/* Copy the file system of the disk `fd` into the empty file `out`, sparse. *ret_format is what it is. `note` says which partition
 * was taken. */
int import_disk_copy(int fd, const char *name, int out, enum image_format *ret_format, struct progress *p, struct err *note,
		     struct err *err);
