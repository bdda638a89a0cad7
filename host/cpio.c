/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newc: a header of 6 magic digits and 13 fields of 8 hexadecimal digits, the name with its zero, padding to 4 bytes,
 * the contents, padding to 4 bytes. The member named TRAILER!!! ends the archive (Linux,
 * Documentation/driver-api/early-userspace/buffer-format.rst).
 */
#include "host/cpio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/util.h"

enum { HEADER_SIZE = 110 };

static int reserve(struct cpio *c, size_t n)
{
	size_t want = c->size + n, capacity = MAX(c->capacity, (size_t)64 << 10);
	uint8_t *p;

	if (n > CPIO_SIZE_MAX || want > CPIO_SIZE_MAX)
		return -EFBIG;
	if (want <= c->capacity)
		return 0;
	while (capacity < want)
		capacity *= 2;
	p = realloc(c->data, capacity);
	if (p == NULL)
		return -ENOMEM;
	c->data = p;
	c->capacity = capacity;
	return 0;
}

static void append_padded(struct cpio *c, const void *data, size_t n)
{
	size_t end = c->size + n;

	if (n > 0)
		memcpy(c->data + c->size, data, n);
	c->size = ALIGN_UP(end, (size_t)4);
	memset(c->data + end, 0, c->size - end);
}

static int add(struct cpio *c, const char *name, mode_t mode, const void *data, size_t size, unsigned major, unsigned minor)
{
	char head[HEADER_SIZE + CPIO_NAME_MAX + 1];
	size_t name_len = strlen(name);
	int r, head_len;

	if (name_len > CPIO_NAME_MAX)
		return -ENAMETOOLONG;
	if (size > CPIO_SIZE_MAX)
		return -EFBIG;
	r = reserve(c, sizeof(head) + size + 8);
	if (r < 0)
		return r;
	head_len = snprintf(head, sizeof(head), "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s",
			    ++c->inode, (unsigned)mode, 0u, 0u, S_ISDIR(mode) ? 2u : 1u, 0u, (unsigned)size, 0u, 0u, major,
			    minor, (unsigned)name_len + 1, 0u, name);
	append_padded(c, head, (size_t)head_len + 1);
	append_padded(c, data, size);
	return 0;
}

int cpio_add_dir(struct cpio *c, const char *name, mode_t mode)
{
	return add(c, name, S_IFDIR | (mode & 07777), NULL, 0, 0, 0);
}

int cpio_add_file(struct cpio *c, const char *name, mode_t mode, const void *data, size_t size)
{
	return add(c, name, S_IFREG | (mode & 07777), data, size, 0, 0);
}

int cpio_add_chardev(struct cpio *c, const char *name, mode_t mode, unsigned major, unsigned minor)
{
	return add(c, name, S_IFCHR | (mode & 07777), NULL, 0, major, minor);
}

int cpio_end(struct cpio *c)
{
	return add(c, "TRAILER!!!", 0, NULL, 0, 0, 0);
}

void cpio_finish(struct cpio *c)
{
	if (c == NULL)
		return;
	free(c->data);
	*c = (struct cpio){ 0 };
}
