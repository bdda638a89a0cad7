/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: the backing of resources, lists of pieces of guest memory.
 *
 * How it works: entries lie in chunks of a pool that is reserved when the device is opened, so that attaching allocates nothing and a
 * guest can have GPU_ENTRIES_MAX in all. Neighbours in guest memory become one entry. A chunk knows its bytes, so a
 * transfer from far inside a list skips most of it; from there on it only goes forward, and copies each run in one call.
 *
 * Threads: the device lock.
 * Trust: every entry lies inside guest memory when it is added, and memory never shrinks; the copy checks again.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

static struct gpu_chunk *chunk_at(const struct gpu_pool *p, uint32_t index)
{
	return index ? &p->chunk[index - 1] : NULL;
}

/* Index + 1, or 0 when there are none left. */
static uint32_t new_chunk(struct gpu_pool *p)
{
	uint32_t i = p->free;
	struct gpu_chunk *c = chunk_at(p, i);

	if (c) {
		p->free = c->next;
	} else {
		if (p->fresh == GPU_CHUNKS_MAX)
			return 0;
		i = ++p->fresh;
		c = chunk_at(p, i);
	}
	c->next = c->n = 0;
	c->bytes = 0;
	return i;
}

static bool extend(struct gpu_chunk *c, uint64_t gpa, uint32_t len)
{
	struct gpu_entry *e = c && c->n ? &c->entry[c->n - 1] : NULL;

	if (!e || e->gpa + e->len != gpa || len > UINT32_MAX - e->len)
		return false;
	e->len += len;
	return true;
}

int gpu_backing_add(struct virtio_gpu *g, struct gpu_backing *b, uint64_t gpa, uint32_t len)
{
	struct gpu_pool *p = &g->host.pool;
	struct gpu_chunk *c = chunk_at(p, b->last);

	if (!mem_contains(&g->vd.dev.vm->mem, GPA(gpa), len))
		return -EFAULT;
	if (len == 0)
		return 0;
	if (!extend(c, gpa, len)) {
		if (!c || c->n == GPU_CHUNK_ENTRIES) {
			uint32_t i = new_chunk(p);

			if (!i)
				return -ENOSPC;
			if (c)
				c->next = i;
			else
				b->first = i;
			b->last = i;
			c = chunk_at(p, i);
		}
		c->entry[c->n++] = (struct gpu_entry){ .gpa = gpa, .len = len };
		b->nentries++;
	}
	c->bytes += len;
	b->bytes += len;
	return 0;
}

void gpu_backing_clear(struct virtio_gpu *g, struct gpu_backing *b)
{
	struct gpu_pool *p = &g->host.pool;

	if (b->last) {
		chunk_at(p, b->last)->next = p->free;
		p->free = b->first;
	}
	*b = (struct gpu_backing){ 0 };
}

int gpu_backing_each(const struct virtio_gpu *g, const struct gpu_backing *b, int (*fn)(void *arg, const struct gpu_entry *e, uint32_t n),
		     void *arg)
{
	int r = 0;

	for (const struct gpu_chunk *c = chunk_at(&g->host.pool, b->first); c && r == 0; c = chunk_at(&g->host.pool, c->next))
		r = fn(arg, c->entry, c->n);
	return r;
}

/* A place in a list: `off` bytes into entry i of c, where there is another byte. */
struct place {
	const struct gpu_pool *pool;
	const struct gpu_chunk *c; /* NULL: the end */
	uint32_t i;
	uint64_t off;
};

static void forward(struct place *at, uint64_t n)
{
	at->off += n;
	while (at->c) {
		if (at->i == 0 && at->off >= at->c->bytes) {
			at->off -= at->c->bytes;
			at->c = chunk_at(at->pool, at->c->next);
			continue;
		}
		for (; at->i < at->c->n; at->i++) {
			if (at->off < at->c->entry[at->i].len)
				return;
			at->off -= at->c->entry[at->i].len;
		}
		at->c = chunk_at(at->pool, at->c->next);
		at->i = 0;
	}
}

static int read_line(const struct mem *mem, struct place *at, uint8_t *dst, uint64_t len)
{
	while (len) {
		if (!at->c)
			return -ERANGE;
		const struct gpu_entry *e = &at->c->entry[at->i];
		uint64_t n = MIN(e->len - at->off, len);

		/* Pieces are as scattered as the guest's pages: processors do not guess the next one. */
		if (n < len && at->i + 1 < at->c->n)
			mem_prefetch(mem, GPA(e[1].gpa));
		if (mem_read(mem, GPA(e->gpa + at->off), dst, n) < 0)
			return -EFAULT;
		forward(at, n);
		dst += n;
		len -= n;
	}
	return 0;
}

int gpu_backing_read(struct virtio_gpu *g, const struct gpu_backing *b, uint64_t offset, uint64_t stride, uint8_t *dst, uint64_t dst_stride,
		     uint64_t line, uint32_t lines)
{
	struct place at = { .pool = &g->host.pool, .c = chunk_at(&g->host.pool, b->first) };
	uint64_t span;

	if (lines == 0 || line == 0)
		return 0;
	/* Strides and lines are 32 bits each: their product fits. */
	span = stride * (lines - 1) + line;
	if (span > b->bytes || offset > b->bytes - span)
		return -ERANGE;
	g->host.copied += line * lines;
	if (stride == line && dst_stride == line) {
		line *= lines;
		lines = 1;
	}
	forward(&at, offset);
	for (uint32_t i = 0; i < lines; i++) {
		int r = read_line(&g->vd.dev.vm->mem, &at, dst, line);

		if (r < 0)
			return r;
		/* The last line may end where the list does. */
		if (i + 1 < lines)
			forward(&at, stride - line);
		dst += dst_stride;
	}
	return 0;
}

int gpu_backing_write(struct virtio_gpu *g, const struct gpu_backing *b, uint64_t offset, const uint8_t *src, uint64_t len)
{
	struct place at = { .pool = &g->host.pool, .c = chunk_at(&g->host.pool, b->first) };

	if (len > b->bytes || offset > b->bytes - len)
		return -ERANGE;
	g->host.copied += len;
	forward(&at, offset);
	while (len) {
		const struct gpu_entry *e = at.c ? &at.c->entry[at.i] : NULL;
		uint64_t n = e ? MIN(e->len - at.off, len) : 0;

		if (!e || mem_write(&g->vd.dev.vm->mem, GPA(e->gpa + at.off), src, n) < 0)
			return -EFAULT;
		forward(&at, n);
		src += n;
		len -= n;
	}
	return 0;
}
