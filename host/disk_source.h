/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a disk can be read from when it is imported: a raw file or block device, or a qcow2 file. A source says where it
 * has data, so that nobody reads what is only zeros.
 *
 * Threads: one. Trust: files are hostile; every offset and length in one is checked against the file and the disk
 * before it is used, and what is allocated for it is bounded.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum { DISK_SOURCE_SECTOR = 512 };

/* No disk is larger: 1 PiB, far above what the file systems of guests are made for. */
#define DISK_SOURCE_SIZE_MAX (1ull << 50)

struct disk_source;

struct disk_source_ops {
	int (*run)(struct disk_source *d, uint64_t offset, uint64_t *ret_len, bool *ret_zero, struct err *err);
	int (*read)(struct disk_source *d, void *buf, size_t len, uint64_t offset, struct err *err);
	void (*close)(struct disk_source *d);
};

struct disk_source {
	const struct disk_source_ops *ops;
	uint64_t size; /* bytes, a positive multiple of DISK_SOURCE_SECTOR */
};

/* Whichever of both the file is, by its first bytes. `fd` (borrowed) stays open for as long as the source; `name` is
 * for messages, and copied. A raw size that is no multiple of a sector is rounded up, the rest reads as zeros. */
int disk_source_open(int fd, const char *name, struct disk_source **ret, struct err *err);

/* What begins at `offset` (below size): its length, at least 1, and whether it reads as zeros. */
static inline int disk_source_run(struct disk_source *d, uint64_t offset, uint64_t *ret_len, bool *ret_zero, struct err *err)
{
	return d->ops->run(d, offset, ret_len, ret_zero, err);
}

/* [offset, offset + len) is inside the disk. */
static inline int disk_source_read(struct disk_source *d, void *buf, size_t len, uint64_t offset, struct err *err)
{
	return d->ops->read(d, buf, len, offset, err);
}

void disk_source_close(struct disk_source *d); /* accepts NULL */

/* Write the disk into an empty file: sparse, of the disk's size. `progress` may be NULL. */
struct progress;
int disk_source_copy(struct disk_source *d, int to_fd, struct progress *progress, struct err *err);

/* For disk_source_open. */
bool qcow2_is(const void *head, size_t len);
int qcow2_open(int fd, const char *name, struct disk_source **ret, struct err *err);
