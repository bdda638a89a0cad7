/* SPDX-License-Identifier: Apache-2.0 */
/* The pool behind slow peers: see virtio_vsock_pool.h. Threads: under the device lock. */
/* syscalls(main, vcpu): madvise */
#include "devices/virtio_vsock_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/util.h"

enum { KEEP_BLOCKS = 256 }; /* an empty pool that used no more keeps its memory */

int vsock_pool_init(struct vsock_pool *p, uint32_t nblocks, struct err *err)
{
	void *base = mmap(NULL, (size_t)nblocks * VSOCK_BLOCK, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return err_errno(err, -errno, "%u socket buffers", nblocks);
	*p = (struct vsock_pool){ .base = base, .nblocks = nblocks, .free = VSOCK_NO_BLOCK };
	p->next = calloc(nblocks, sizeof(*p->next));
	if (!p->next) {
		vsock_pool_finish(p);
		return err_errno(err, -ENOMEM, "%u socket buffers", nblocks);
	}
	return 0;
}

void vsock_pool_finish(struct vsock_pool *p)
{
	if (p->base)
		munmap(p->base, (size_t)p->nblocks * VSOCK_BLOCK);
	free(p->next);
	memset(p, 0, sizeof(*p));
}

static uint8_t *block_at(const struct vsock_pool *p, uint32_t i)
{
	return p->base + (size_t)i * VSOCK_BLOCK;
}

static uint32_t block_get(struct vsock_pool *p)
{
	uint32_t i = p->free;

	if (i != VSOCK_NO_BLOCK)
		p->free = p->next[i];
	else if (p->fresh < p->nblocks)
		i = p->fresh++;
	else
		return VSOCK_NO_BLOCK;
	p->used++;
	p->next[i] = VSOCK_NO_BLOCK;
	return i;
}

static void block_put(struct vsock_pool *p, uint32_t i)
{
	p->next[i] = p->free;
	p->free = i;
	if (--p->used == 0 && p->fresh > KEEP_BLOCKS) {
		madvise(p->base, (size_t)p->fresh * VSOCK_BLOCK, MADV_DONTNEED);
		p->fresh = 0;
		p->free = VSOCK_NO_BLOCK;
	}
}

int vsock_buffer_append(struct vsock_pool *p, struct vsock_buffer *b, const struct virtio_queue *q, const struct vq_chain *c,
			uint64_t off, uint32_t len)
{
	while (len) {
		uint32_t n;

		if (b->bytes == 0 || b->tail_end == VSOCK_BLOCK) {
			uint32_t i = block_get(p);

			if (i == VSOCK_NO_BLOCK)
				return -ENOBUFS;
			if (b->bytes == 0) {
				b->head = i;
				b->head_off = 0;
			} else {
				p->next[b->tail] = i;
			}
			b->tail = i;
			b->tail_end = 0;
		}
		n = MIN(len, VSOCK_BLOCK - b->tail_end);
		vq_chain_read(q, c, off, block_at(p, b->tail) + b->tail_end, n);
		b->tail_end += n;
		b->bytes += n;
		off += n;
		len -= n;
	}
	return 0;
}

int vsock_buffer_iov(const struct vsock_pool *p, const struct vsock_buffer *b, struct iovec *iov, int max)
{
	uint32_t i = b->head, off = b->head_off, left = b->bytes;
	int n = 0;

	while (left && n < max) {
		uint32_t k = MIN(left, VSOCK_BLOCK - off);

		iov[n++] = (struct iovec){ .iov_base = block_at(p, i) + off, .iov_len = k };
		left -= k;
		off = 0;
		i = p->next[i];
	}
	return n;
}

void vsock_buffer_consume(struct vsock_pool *p, struct vsock_buffer *b, uint32_t n)
{
	b->bytes -= n;
	b->head_off += n;
	while (b->head_off >= VSOCK_BLOCK || b->bytes == 0) {
		uint32_t i = b->head;

		b->head = p->next[i];
		b->head_off -= MIN(b->head_off, (uint32_t)VSOCK_BLOCK);
		block_put(p, i);
		if (i == b->tail)
			return;
	}
}
