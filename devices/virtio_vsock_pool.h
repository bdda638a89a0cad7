/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers for what the guest sent and a slow peer has not taken yet: lists of blocks from one bounded pool.
 *
 * The pool's address space is reserved at open; a block costs memory only while it was used. When the last block is
 * free again, all of it goes back to the host. The device promises (as credit) only what the pool can hold, so
 * an append does not fail for a guest that keeps to its credit.
 */
#pragma once
#include "devices/virtio_queue.h"
#include "lib/err.h"

enum { VSOCK_BLOCK = 4096 };

struct vsock_pool {
	uint8_t *base;
	uint32_t *next;
	uint32_t nblocks;
	uint32_t fresh; /* blocks from here on were never used since the pool was last empty */
	uint32_t free;  /* list of used ones, VSOCK_NO_BLOCK at its end */
	uint32_t used;
};

#define VSOCK_NO_BLOCK UINT32_MAX

struct vsock_buffer {
	uint32_t bytes;      /* 0: the other fields mean nothing */
	uint32_t head, tail; /* blocks */
	uint32_t head_off;   /* first byte in head */
	uint32_t tail_end;   /* one past the last in tail */
};

int vsock_pool_init(struct vsock_pool *p, uint32_t nblocks, struct err *err);
void vsock_pool_finish(struct vsock_pool *p); /* accepts zeroed */

/* Copy [off, off + len) of the chain's readable part to the end. 0, or -ENOBUFS with a part appended. */
int vsock_buffer_append(struct vsock_pool *p, struct vsock_buffer *b, const struct virtio_queue *q, const struct vq_chain *c,
			uint64_t off, uint32_t len);
/* The first bytes as iovecs; returns their number (0 when empty). */
int vsock_buffer_iov(const struct vsock_pool *p, const struct vsock_buffer *b, struct iovec *iov, int max);
void vsock_buffer_consume(struct vsock_pool *p, struct vsock_buffer *b, uint32_t n); /* n <= bytes */
