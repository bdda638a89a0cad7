/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer for the "newc" cpio format, the one that Linux unpacks as its initial file system. The archive is made in
 * memory (it is a few MiB) and depends on nothing but what is put in: times are zero, owners root, inode numbers
 * count up. So equal contents give equal bytes.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	CPIO_NAME_MAX = 1024,
	CPIO_SIZE_MAX = 512 << 20, /* of the whole archive */
};

struct cpio {
	uint8_t *data; /* owned */
	size_t size, capacity;
	uint32_t inode;
};

/* Names are relative, without a leading '/'. A directory comes before what is in it. 0, -ENOMEM, -ENAMETOOLONG,
 * or -EFBIG when the archive would pass CPIO_SIZE_MAX. */
int cpio_add_dir(struct cpio *c, const char *name, mode_t mode);
int cpio_add_file(struct cpio *c, const char *name, mode_t mode, const void *data, size_t size);
int cpio_add_chardev(struct cpio *c, const char *name, mode_t mode, unsigned major, unsigned minor);

int cpio_end(struct cpio *c);     /* write the trailer */
void cpio_finish(struct cpio *c); /* free; zeroed ones too */
