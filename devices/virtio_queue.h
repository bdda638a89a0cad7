/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split virtqueue, device side (virtio 1.2, 2.7).
 *
 * vq_pop copies each descriptor once and checks the copy. The chain is bounded by the queue size (indirect
 * tables included, bounded by VQ_MAX_INDIRECT), loops are therefore refused, an indirect table must be a multiple of 16
 * bytes, inside memory, not nested; readable descriptors come before writable ones. A violation is -EBADMSG: the
 * caller calls virtio_fail. Nothing is ever read or written outside guest memory. Zero-length descriptors are
 * skipped. With EVENT_IDX the avail event is published by vq_enable_notify with a full barrier, so that a
 * request added at that moment is not lost.
 *
 * Snapshot: virtio_queue_state is all there is; the ring positions are next_avail and next_used.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "snapshot/state.h"
#include "vmm/memory.h"

enum { VQ_MAX_SIZE = 1024, VQ_MAX_INDIRECT = 1024 };

#define VIRTIO_QUEUE_STATE(F, A, S, V)       \
	F(1, 1, u16, size)                   \
	F(2, 1, u8, ready)                   \
	F(3, 1, u64, desc)                   \
	F(4, 1, u64, avail)                  \
	F(5, 1, u64, used)                   \
	F(6, 1, u16, next_avail)             \
	F(7, 1, u16, next_used)              \
	F(8, 1, u16, signalled_used)         /* next_used at the last vq_needs_interrupt */ \
	F(9, 1, u8, signalled_valid)         /* 0: it has come full circle since */
STATE_STRUCT(virtio_queue, VIRTIO_QUEUE_STATE);

struct virtio_queue {
	struct virtio_queue_state *st; /* points into the device's saved state */
	struct mem *mem;
	uint16_t max_size;
	bool event_idx; /* negotiated */
	bool indirect;
	bool stopped; /* not active, failed or quiesced: vq_pop finds nothing */
};

/* One request: host views of its readable and writable parts, for iovec I/O and the vq_chain_* copies. */
struct vq_chain {
	uint16_t head;
	uint16_t nread, nwrite;          /* elements used */
	uint64_t read_len, write_len;    /* bytes */
	struct vq_buf { gpa_t gpa; uint32_t len; } buf[VQ_MAX_SIZE]; /* nread readable ones, then nwrite writable ones */
};

/* Are size, alignment, ranges right for a queue the driver enables? 0 or -EINVAL. Overlap between rings is the
 * driver's problem: it corrupts only its own memory. */
int vq_validate(const struct virtio_queue *q);

/* Next request: 1 with *ret filled, 0 when there is none, -EBADMSG on a violation. */
int vq_pop(struct virtio_queue *q, struct vq_chain *ret);
/* Put back what the last vq_pop returned, unserved. */
void vq_unpop(struct virtio_queue *q);
/* Is there a request? (Without taking it; a broken index counts as one, for vq_pop to report.) */
bool vq_has_work(const struct virtio_queue *q);
/* Return a request with `written` bytes in its writable part. 0 or -EFAULT. */
int vq_push(struct virtio_queue *q, uint16_t head, uint32_t written);
/* Must the driver be interrupted for what was pushed since the last call? (EVENT_IDX or the avail flags) */
bool vq_needs_interrupt(struct virtio_queue *q);
/* Ask for notifications again; returns true when requests arrived meanwhile: pop again. */
bool vq_enable_notify(struct virtio_queue *q);
void vq_disable_notify(struct virtio_queue *q);
/* How many requests are there? (0 when it is stopped, -EBADMSG when the driver's index is broken) */
int vq_available(const struct virtio_queue *q);
/* Ask to be notified once there are n (1 to its size) of them; returns true when there are already. */
bool vq_notify_at(struct virtio_queue *q, uint16_t n);

/* Copy between the chain's parts and a buffer, from byte `off` of the part. Return bytes copied (short at its end). */
size_t vq_chain_read(const struct virtio_queue *q, const struct vq_chain *c, uint64_t off, void *buf, size_t len);
size_t vq_chain_write(struct virtio_queue *q, const struct vq_chain *c, uint64_t off, const void *buf, size_t len);
/* iovecs of [off, off+len) of the readable or writable part; returns their number or -EFAULT/-EMSGSIZE. */
int vq_chain_iov(struct virtio_queue *q, const struct vq_chain *c, bool write, uint64_t off, uint64_t len,
		 struct iovec *iov, int max_iov);
