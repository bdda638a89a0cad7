/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk requests: from the chain to the backend and back.
 *
 * Guest contract: virtio 1.2, 5.2.6. The header is the first 16 readable bytes, the status the last writable byte,
 * however they are cut into descriptors; data is what lies between. A request without a writable byte is
 * completed with length 0. Everything else gets a status:
 *   IOERR   a header cut short, data not in whole sectors, a range not inside the disk, more segments or ranges than
 *           the configuration says, a write to a read-only disk, an error of the host
 *   UNSUPP  an unknown type, unknown flags of a range, unmap on a discard
 * The used length is all that was written on success, 1 (the status) otherwise.
 *
 * How it works: each request in flight has a slot made at open, with its iovecs and the guest addresses that a read
 * dirties. There are as many slots as queue entries; a hostile driver that announces more waits. Discard and write
 * zeroes go range by range. Completions of one round are followed by one look at each queue's interrupt.
 *
 * Trust: the chain is the guest's; the header and the ranges are copied once, then checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "devices/virtio_blk.h"
#include "lib/util.h"

static const char *type_name(uint32_t type)
{
	return type == VIRTIO_BLK_T_IN	     ? "read" :
	       type == VIRTIO_BLK_T_OUT	     ? "write" :
	       type == VIRTIO_BLK_T_FLUSH    ? "flush" :
	       type == VIRTIO_BLK_T_DISCARD  ? "discard" :
					       "write zeroes";
}

static void complete(struct virtio_blk *blk, uint32_t q, uint16_t head, gpa_t status_at, uint8_t status, uint32_t written)
{
	struct virtio_device *vd = &blk->vd;

	mem_write(&vd->dev.vm->mem, status_at, &status, 1);
	vq_push(&vd->vq[q], head, status == VIRTIO_BLK_S_OK ? written : 1);
	blk->host.unsignalled |= 1u << q;
}

static struct blk_slot *slot_get(struct virtio_blk *blk)
{
	struct virtio_blk_host *h = &blk->host;
	struct blk_slot *s = h->free;

	if (s)
		h->free = s->next_free;
	else
		s = &h->slots[h->fresh++];
	h->busy++;
	return s;
}

static void slot_put(struct blk_slot *s)
{
	struct virtio_blk_host *h = &s->blk->host;

	s->next_free = h->free;
	h->free = s;
	h->busy--;
}

static uint8_t host_error(struct blk_slot *s, int result)
{
	struct device *d = &s->blk->vd.dev;

	log_limited(&d->vm->log, &d->log_limit, LOG_WARN, "%s: %s of %" PRIu64 " bytes at %" PRIu64 ": %s", d->name,
		    type_name(s->type), s->req.len, s->req.offset, strerror(-result));
	return VIRTIO_BLK_S_IOERR;
}

/* Start the next range that is not empty; false when there is none. */
static bool next_range(struct blk_slot *s)
{
	while (s->next_range < s->nranges) {
		const struct virtio_blk_range *g = &s->range[s->next_range++];
		uint64_t n = le32_get(g->sectors);

		if (n == 0)
			continue;
		s->req.offset = le64_get(g->sector) << BLOCK_SECTOR_SHIFT;
		s->req.len = n << BLOCK_SECTOR_SHIFT;
		s->req.flags = virtio_blk_is_writeback(s->blk) ? 0 : BLOCK_F_DURABLE;
		if (le32_get(g->flags) & VIRTIO_BLK_RANGE_UNMAP)
			s->req.flags |= BLOCK_F_UNMAP;
		block_submit(s->blk->host.block, &s->req);
		return true;
	}
	return false;
}

static void on_done(struct block_request *req, int result)
{
	struct blk_slot *s = container_of(req, struct blk_slot, req);
	struct virtio_blk *blk = s->blk;
	struct mem *mem = &blk->vd.dev.vm->mem;

	if (!blk->host.dropping) {
		uint8_t status = result < 0 ? host_error(s, result) : VIRTIO_BLK_S_OK;

		if (status == VIRTIO_BLK_S_OK && s->nranges && next_range(s))
			return;
		/* Also after an error: part of it may have arrived. */
		for (uint16_t i = 0; i < s->nbuf; i++)
			mem_mark_dirty(mem, s->buf[i].gpa, s->buf[i].len);
		complete(blk, s->queue, s->head, s->status, status, s->written);
	}
	slot_put(s);
}

static bool inside(const struct virtio_blk *blk, uint64_t sector, uint64_t sectors)
{
	return sector <= blk->state.capacity && sectors <= blk->state.capacity - sector;
}

static struct blk_slot *prepare(struct virtio_blk *blk, uint32_t q, uint32_t type, enum block_op op, gpa_t status)
{
	struct blk_slot *s = slot_get(blk);

	s->blk = blk;
	s->queue = (uint16_t)q;
	s->head = blk->host.chain.head;
	s->type = type;
	s->status = status;
	s->written = 1;
	s->nbuf = s->nranges = s->next_range = 0;
	s->req.op = op;
	s->req.flags = 0;
	s->req.offset = s->req.len = 0;
	s->req.iov = s->iov;
	s->req.niov = 0;
	s->req.done = on_done;
	return s;
}

/* The guest buffers that hold the first `len` writable bytes. */
static uint16_t list_bufs(const struct vq_chain *c, uint64_t len, struct vq_buf *ret)
{
	uint16_t n = 0;

	for (uint16_t i = 0; i < c->nwrite && len; i++) {
		const struct vq_buf *b = &c->buf[c->nread + i];

		ret[n] = *b;
		ret[n].len = (uint32_t)MIN((uint64_t)b->len, len);
		len -= ret[n++].len;
	}
	return n;
}

/* Each start_ function returns the status of a request it completes at once, or -EINPROGRESS. */
static int start_transfer(struct virtio_blk *blk, uint32_t q, bool read, uint64_t sector, gpa_t status, uint32_t *written)
{
	const struct vq_chain *c = &blk->host.chain;
	uint64_t off = read ? 0 : sizeof(struct virtio_blk_header);
	uint64_t len = read ? c->write_len - 1 : c->read_len - off;
	struct blk_slot *s;
	int n;

	if (!read && blk->state.read_only)
		return VIRTIO_BLK_S_IOERR;
	if (len % BLOCK_SECTOR || !inside(blk, sector, len / BLOCK_SECTOR))
		return VIRTIO_BLK_S_IOERR;
	if (len == 0)
		return VIRTIO_BLK_S_OK;
	s = prepare(blk, q, read ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT, read ? BLOCK_READ : BLOCK_WRITE, status);
	n = vq_chain_iov(&blk->vd.vq[q], c, read, off, len, s->iov, BLK_SEG_MAX);
	if (n < 0) {
		slot_put(s);
		return VIRTIO_BLK_S_IOERR;
	}
	s->req.niov = n;
	s->req.offset = sector << BLOCK_SECTOR_SHIFT;
	s->req.len = len;
	if (read) {
		s->nbuf = list_bufs(c, len, s->buf);
		s->written = (uint32_t)MIN(c->write_len, (uint64_t)UINT32_MAX);
	} else if (!virtio_blk_is_writeback(blk)) {
		s->req.flags = BLOCK_F_DURABLE;
	}
	*written = s->written;
	block_submit(blk->host.block, &s->req);
	return -EINPROGRESS;
}

static int start_flush(struct virtio_blk *blk, uint32_t q, gpa_t status)
{
	if (blk->state.read_only)
		return VIRTIO_BLK_S_OK;
	block_submit(blk->host.block, &prepare(blk, q, VIRTIO_BLK_T_FLUSH, BLOCK_FLUSH, status)->req);
	return -EINPROGRESS;
}

static int check_range(const struct virtio_blk *blk, uint32_t type, const struct virtio_blk_range *g)
{
	uint32_t flags = le32_get(g->flags), n = le32_get(g->sectors);
	bool discard = type == VIRTIO_BLK_T_DISCARD;

	if (flags & ~(discard ? 0 : VIRTIO_BLK_RANGE_UNMAP))
		return VIRTIO_BLK_S_UNSUPP;
	if (n > (uint32_t)(discard ? BLK_DISCARD_SECTORS_MAX : BLK_ZEROES_SECTORS_MAX))
		return VIRTIO_BLK_S_IOERR;
	return inside(blk, le64_get(g->sector), n) ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
}

static int start_ranges(struct virtio_blk *blk, uint32_t q, uint32_t type, gpa_t status)
{
	const struct vq_chain *c = &blk->host.chain;
	uint64_t len = c->read_len - sizeof(struct virtio_blk_header);
	struct blk_slot *s;
	int r = VIRTIO_BLK_S_OK;

	if (blk->state.read_only || len == 0 || len % sizeof(struct virtio_blk_range) ||
	    len / sizeof(struct virtio_blk_range) > BLK_RANGES_MAX)
		return VIRTIO_BLK_S_IOERR;
	s = prepare(blk, q, type, type == VIRTIO_BLK_T_DISCARD ? BLOCK_DISCARD : BLOCK_WRITE_ZEROES, status);
	s->nranges = (uint16_t)(len / sizeof(struct virtio_blk_range));
	if (vq_chain_read(&blk->vd.vq[q], c, sizeof(struct virtio_blk_header), s->range, len) != len)
		r = VIRTIO_BLK_S_IOERR;
	for (uint16_t i = 0; i < s->nranges && r == VIRTIO_BLK_S_OK; i++)
		r = check_range(blk, type, &s->range[i]);
	if (r == VIRTIO_BLK_S_OK && next_range(s))
		return -EINPROGRESS;
	slot_put(s);
	return r;
}

static int get_id(struct virtio_blk *blk, uint32_t q, uint32_t *written)
{
	struct vq_chain *c = &blk->host.chain;
	size_t len = MIN(c->write_len - 1, (uint64_t)BLK_SERIAL_LEN);

	*written = (uint32_t)vq_chain_write(&blk->vd.vq[q], c, 0, blk->state.serial, len) + 1;
	return VIRTIO_BLK_S_OK;
}

static void serve_one(struct virtio_blk *blk, uint32_t q)
{
	const struct vq_chain *c = &blk->host.chain;
	struct virtio_queue *vq = &blk->vd.vq[q];
	const struct vq_buf *last;
	struct virtio_blk_header h;
	uint32_t type, written = 1;
	gpa_t status;
	int r = VIRTIO_BLK_S_UNSUPP;

	if (c->write_len == 0) {
		vq_push(vq, c->head, 0);
		blk->host.unsignalled |= 1u << q;
		return;
	}
	last = &c->buf[c->nread + c->nwrite - 1];
	status = GPA(last->gpa.v + last->len - 1);
	if (vq_chain_read(vq, c, 0, &h, sizeof(h)) != sizeof(h)) {
		complete(blk, q, c->head, status, VIRTIO_BLK_S_IOERR, 1);
		return;
	}
	type = le32_get(h.type);
	switch (type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		r = start_transfer(blk, q, type == VIRTIO_BLK_T_IN, le64_get(h.sector), status, &written);
		break;
	case VIRTIO_BLK_T_FLUSH:
		r = start_flush(blk, q, status);
		break;
	case VIRTIO_BLK_T_GET_ID:
		r = get_id(blk, q, &written);
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		r = start_ranges(blk, q, type, status);
		break;
	default:
		break;
	}
	if (r >= 0)
		complete(blk, q, c->head, status, (uint8_t)r, written);
}

static void pop_all(struct virtio_blk *blk, uint32_t q)
{
	struct virtio_queue *vq = &blk->vd.vq[q];
	uint32_t budget = 2 * BLK_QUEUE_SIZE;
	int r;

	do {
		vq_disable_notify(vq);
		for (;;) {
			if (blk->host.busy == blk->host.nslots) {
				blk->host.starved |= 1u << q;
				return;
			}
			if (budget-- == 0) {
				virtio_kick(&blk->vd, q);
				return;
			}
			r = vq_pop(vq, &blk->host.chain);
			if (r <= 0)
				break;
			serve_one(blk, q);
		}
	} while (r == 0 && vq_enable_notify(vq));
	if (r < 0)
		virtio_fail(&blk->vd, "malformed request");
}

void virtio_blk_settle(struct virtio_blk *blk)
{
	struct virtio_blk_host *h = &blk->host;

	while (h->starved && h->busy < h->nslots) {
		uint32_t q = (uint32_t)__builtin_ctz(h->starved);

		h->starved &= ~(1u << q);
		pop_all(blk, q);
		block_kick(h->block);
	}
	while (h->unsignalled) {
		uint32_t q = (uint32_t)__builtin_ctz(h->unsignalled);

		h->unsignalled &= ~(1u << q);
		virtio_signal_queue(&blk->vd, q);
	}
}

void virtio_blk_serve(struct virtio_blk *blk, uint32_t q)
{
	pop_all(blk, q);
	block_kick(blk->host.block);
	virtio_blk_settle(blk);
}
