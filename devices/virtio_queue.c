/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split virtqueue, device side: see virtio_queue.h. Layout and rules: virtio 1.2, 2.7.
 *
 * How it works: the driver's index is loaded with acquire semantics before the ring entry it announces is read; the
 * device's index is stored with release semantics after the entry it announces. The two places where a store
 * must be seen before a later load (our used index against the driver's wish for interrupts, our wish for
 * notifications against the driver's index) have a full fence each. Loop and length checks are one: a chain takes at
 * most as many descriptors as its table has.
 *
 * An indirect table is copied in one checked access, so what is walked cannot change any more; descriptors of the
 * ring's own table are copied one by one.
 *
 * Threads: the owner's device lock. Trust: everything read from guest memory is hostile.
 */
#include "devices/virtio_queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"

#define STATE_SELF struct virtio_queue_state
STATE_SCHEMA(virtio_queue, 1, VIRTIO_QUEUE_STATE);
#undef STATE_SELF

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };
enum { AVAIL_NO_INTERRUPT = 1, USED_NO_NOTIFY = 1 };

struct desc {
	le64 addr;
	le32 len;
	le16 flags;
	le16 next;
};
_Static_assert(sizeof(struct desc) == 16, "descriptor layout");

struct used_elem {
	le32 id;
	le32 len;
};

enum { RING_HEADER = 4 }; /* le16 flags, le16 idx */

static gpa_t avail_flags(const struct virtio_queue *q) { return GPA(q->st->avail); }
static gpa_t avail_idx(const struct virtio_queue *q) { return GPA(q->st->avail + 2); }
static gpa_t avail_ring(const struct virtio_queue *q, uint16_t i) { return GPA(q->st->avail + RING_HEADER + 2ull * i); }
static gpa_t used_event(const struct virtio_queue *q) { return avail_ring(q, q->st->size); }
static gpa_t used_flags(const struct virtio_queue *q) { return GPA(q->st->used); }
static gpa_t used_idx(const struct virtio_queue *q) { return GPA(q->st->used + 2); }
static gpa_t used_ring(const struct virtio_queue *q, uint16_t i) { return GPA(q->st->used + RING_HEADER + 8ull * i); }
static gpa_t avail_event(const struct virtio_queue *q) { return used_ring(q, q->st->size); }

int vq_validate(const struct virtio_queue *q)
{
	const struct virtio_queue_state *st = q->st;
	uint64_t n = st->size;

	if (!IS_POWER_OF_2(st->size) || st->size > q->max_size || st->size > VQ_MAX_SIZE)
		return -EINVAL;
	if (st->desc % 16 || st->avail % 2 || st->used % 4)
		return -EINVAL;
	/* Each with its event field, whether negotiated or not: it is part of the layout. */
	if (!mem_contains(q->mem, GPA(st->desc), n * sizeof(struct desc)) ||
	    !mem_contains(q->mem, GPA(st->avail), RING_HEADER + 2 * n + 2) ||
	    !mem_contains(q->mem, GPA(st->used), RING_HEADER + n * sizeof(struct used_elem) + 2))
		return -EINVAL;
	return 0;
}

static int add_buf(const struct virtio_queue *q, struct vq_chain *c, const struct desc *d)
{
	uint64_t gpa = le64_get(d->addr);
	uint32_t len = le32_get(d->len);
	bool write = le16_get(d->flags) & DESC_WRITE;
	unsigned int n = (unsigned int)c->nread + c->nwrite;

	if (!write && c->nwrite)
		return -EBADMSG;
	if (len == 0)
		return 0;
	if (n == VQ_MAX_SIZE || !mem_contains(q->mem, GPA(gpa), len))
		return -EBADMSG;
	c->buf[n] = (struct vq_buf){ .gpa = GPA(gpa), .len = len };
	if (write) {
		c->nwrite++;
		c->write_len += len;
	} else {
		c->nread++;
		c->read_len += len;
	}
	return 0;
}

static int walk_indirect(const struct virtio_queue *q, struct vq_chain *c, const struct desc *d)
{
	struct desc table[VQ_MAX_INDIRECT];
	uint32_t len = le32_get(d->len);
	uint32_t n = len / sizeof(struct desc);
	uint16_t i = 0;

	if (!q->indirect || le16_get(d->flags) & DESC_NEXT)
		return -EBADMSG;
	if (len % sizeof(struct desc) || n == 0 || n > VQ_MAX_INDIRECT)
		return -EBADMSG;
	if (mem_read(q->mem, GPA(le64_get(d->addr)), table, len) < 0)
		return -EBADMSG;
	for (uint32_t steps = 0; steps < n; steps++) {
		uint16_t flags = le16_get(table[i].flags);

		if (flags & DESC_INDIRECT || add_buf(q, c, &table[i]) < 0)
			return -EBADMSG;
		if (!(flags & DESC_NEXT))
			return 0;
		i = le16_get(table[i].next);
		if (i >= n)
			return -EBADMSG;
	}
	return -EBADMSG; /* a loop */
}

static int walk(const struct virtio_queue *q, struct vq_chain *c)
{
	uint16_t i = c->head;

	for (uint32_t steps = 0; steps < q->st->size; steps++) {
		struct desc d;
		uint16_t flags;

		if (i >= q->st->size || mem_read(q->mem, GPA(q->st->desc + 16ull * i), &d, sizeof(d)) < 0)
			return -EBADMSG;
		flags = le16_get(d.flags);
		if (flags & DESC_INDIRECT)
			return walk_indirect(q, c, &d);
		if (add_buf(q, c, &d) < 0)
			return -EBADMSG;
		if (!(flags & DESC_NEXT))
			return 0;
		i = le16_get(d.next);
	}
	return -EBADMSG; /* a loop, or longer than the queue */
}

int vq_pop(struct virtio_queue *q, struct vq_chain *ret)
{
	struct virtio_queue_state *st = q->st;
	uint16_t idx, pending;

	if (!st->ready || q->stopped)
		return 0;
	if (mem_load_le16_acquire(q->mem, avail_idx(q), &idx) < 0)
		return -EBADMSG;
	pending = (uint16_t)(idx - st->next_avail);
	if (pending == 0)
		return 0;
	if (pending > st->size)
		return -EBADMSG;
	ret->nread = ret->nwrite = 0;
	ret->read_len = ret->write_len = 0;
	if (mem_load_le16_acquire(q->mem, avail_ring(q, st->next_avail & (st->size - 1)), &ret->head) < 0)
		return -EBADMSG;
	if (walk(q, ret) < 0)
		return -EBADMSG;
	st->next_avail++;
	return 1;
}

void vq_unpop(struct virtio_queue *q)
{
	q->st->next_avail--;
}

bool vq_has_work(const struct virtio_queue *q)
{
	uint16_t idx;

	if (!q->st->ready || q->stopped)
		return false;
	return mem_load_le16_acquire(q->mem, avail_idx(q), &idx) < 0 || idx != q->st->next_avail;
}

int vq_push(struct virtio_queue *q, uint16_t head, uint32_t written)
{
	struct virtio_queue_state *st = q->st;
	struct used_elem e = { .id = le32_make(head), .len = le32_make(written) };

	if (!st->ready) /* taken away by the driver meanwhile: nobody waits for it */
		return 0;
	if (mem_write(q->mem, used_ring(q, st->next_used & (st->size - 1)), &e, sizeof(e)) < 0)
		return -EFAULT;
	st->next_used++;
	/* Full circle since the last look at the driver's wish: the comparison there would mean nothing. */
	if (st->next_used == st->signalled_used)
		st->signalled_valid = 0;
	return mem_store_le16_release(q->mem, used_idx(q), st->next_used);
}

bool vq_needs_interrupt(struct virtio_queue *q)
{
	struct virtio_queue_state *st = q->st;
	uint16_t v, old = st->signalled_used, now = st->next_used;
	bool valid = st->signalled_valid;

	if (!st->ready)
		return false;
	if (valid && now == old)
		return false;
	st->signalled_used = now;
	st->signalled_valid = 1;
	/* Our used index must be visible before we look at what the driver wants: it writes its wish, then looks at
	 * the index. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!q->event_idx)
		return mem_load_le16_acquire(q->mem, avail_flags(q), &v) == 0 && !(v & AVAIL_NO_INTERRUPT);
	if (!valid)
		return true;
	if (mem_load_le16_acquire(q->mem, used_event(q), &v) < 0)
		return false;
	/* Was the entry with index v among those added since the last time? */
	return (uint16_t)(now - v - 1) < (uint16_t)(now - old);
}

int vq_available(const struct virtio_queue *q)
{
	uint16_t idx, n;

	if (!q->st->ready || q->stopped)
		return 0;
	if (mem_load_le16_acquire(q->mem, avail_idx(q), &idx) < 0)
		return -EBADMSG;
	n = (uint16_t)(idx - q->st->next_avail);
	return n <= q->st->size ? n : -EBADMSG;
}

bool vq_notify_at(struct virtio_queue *q, uint16_t n)
{
	int r;

	if (!q->st->ready || q->stopped)
		return false;
	if (q->event_idx)
		r = mem_store_le16_release(q->mem, avail_event(q), (uint16_t)(q->st->next_avail + n - 1));
	else
		r = mem_store_le16_release(q->mem, used_flags(q), 0);
	if (r < 0)
		return false;
	/* Our wish must be visible before we look at the driver's index: it writes the index, then looks at our wish. */
	atomic_thread_fence(memory_order_seq_cst);
	r = vq_available(q);
	return r < 0 || r >= n; /* a broken index is for the next look at the queue to report */
}

bool vq_enable_notify(struct virtio_queue *q)
{
	return vq_notify_at(q, 1);
}

void vq_disable_notify(struct virtio_queue *q)
{
	/* With EVENT_IDX the event published last stays behind the driver's index: nothing to do. */
	if (q->st->ready && !q->stopped && !q->event_idx)
		mem_store_le16_release(q->mem, used_flags(q), USED_NO_NOTIFY);
}

static const struct vq_buf *part(const struct vq_chain *c, bool write, unsigned int *ret_n)
{
	*ret_n = write ? c->nwrite : c->nread;
	return write ? c->buf + c->nread : c->buf;
}

/* Copy between buf and the part; data goes out of buf when `write`. */
static size_t copy(const struct virtio_queue *q, const struct vq_chain *c, bool write, uint64_t off, uint8_t *buf,
		   size_t len)
{
	unsigned int n;
	const struct vq_buf *b = part(c, write, &n);
	size_t done = 0;

	for (unsigned int i = 0; i < n && done < len; i++) {
		uint64_t chunk;
		gpa_t gpa;

		if (off >= b[i].len) {
			off -= b[i].len;
			continue;
		}
		chunk = MIN((uint64_t)b[i].len - off, (uint64_t)(len - done));
		gpa = GPA(b[i].gpa.v + off);
		if ((write ? mem_write(q->mem, gpa, buf + done, chunk) : mem_read(q->mem, gpa, buf + done, chunk)) < 0)
			break;
		done += chunk;
		off = 0;
	}
	return done;
}

size_t vq_chain_read(const struct virtio_queue *q, const struct vq_chain *c, uint64_t off, void *buf, size_t len)
{
	return copy(q, c, false, off, buf, len);
}

size_t vq_chain_write(struct virtio_queue *q, const struct vq_chain *c, uint64_t off, const void *buf, size_t len)
{
	return copy(q, c, true, off, (uint8_t *)buf, len);
}

int vq_chain_iov(struct virtio_queue *q, const struct vq_chain *c, bool write, uint64_t off, uint64_t len,
		 struct iovec *iov, int max_iov)
{
	unsigned int nbuf;
	const struct vq_buf *b = part(c, write, &nbuf);
	int n = 0;

	for (unsigned int i = 0; i < nbuf && len; i++) {
		if (off >= b[i].len) {
			off -= b[i].len;
			continue;
		}
		while (off < b[i].len && len) {
			uint64_t left = MIN((uint64_t)b[i].len - off, len);
			uint32_t chunk = (uint32_t)MIN(left, (uint64_t)MEM_IOV_MAX);

			if (n == max_iov)
				return -EMSGSIZE;
			if (mem_iov(q->mem, GPA(b[i].gpa.v + off), chunk, write, &iov[n]) < 0)
				return -EFAULT;
			n++;
			off += chunk;
			len -= chunk;
		}
		off = 0;
	}
	return len ? -EMSGSIZE : n;
}
