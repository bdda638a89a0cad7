/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of bytes over the caller's buffer, read and written through iovecs. */
#pragma once
#include <stddef.h>
#include <sys/uio.h>

struct ring {
	unsigned char *buf;
	size_t size, head, len; /* `len` bytes from `head` on, modulo size */
};

static inline void ring_init(struct ring *r, void *buf, size_t size)
{
	*r = (struct ring){ .buf = buf, .size = size };
}

static inline size_t ring_room(const struct ring *r)
{
	return r->size - r->len;
}

/* The n bytes at `offset` from the head (they may be data or room) as one or two pieces. Returns how many. */
int ring_iov(const struct ring *r, size_t offset, size_t n, struct iovec iov[2]);
void ring_write(struct ring *r, const void *data, size_t n);                        /* n <= ring_room */
void ring_store(struct ring *r, size_t offset, const void *data, size_t n);         /* over what is there */
void ring_load(const struct ring *r, size_t offset, void *data, size_t n);          /* offset + n <= len */
void ring_consume(struct ring *r, size_t n);                                        /* n <= len */
