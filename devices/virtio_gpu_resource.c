/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: resources (virtio 1.2, 5.7.6.8): making and dropping them, their backing, pixels from the guest.
 *
 * How it works: a 2D resource has its pixels in the display's memory, where those who look on read them, without a gap between
 * lines. A blob has none: its memory is the guest's, and is read when it is shown. Resources lie in a fixed table, found by a
 * sorted index. Lines that no transfer has reached are known to be zero, so saving a large and empty resource costs nothing.
 *
 * Threads: the device lock.
 * Trust: ids, sizes, rectangles, offsets and lists are the guest's. Sizes are bounded before they are multiplied; the display's memory
 * bounds pixels, GPU_RESOURCES_MAX their number, the pool their backing.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

enum { ENTRIES_AT_ONCE = 256 };

bool gpu_format_is_known(uint32_t format)
{
	switch ((enum display_format)format) {
	case DISPLAY_B8G8R8A8:
	case DISPLAY_B8G8R8X8:
	case DISPLAY_A8R8G8B8:
	case DISPLAY_X8R8G8B8:
	case DISPLAY_R8G8B8A8:
	case DISPLAY_X8B8G8R8:
	case DISPLAY_A8B8G8R8:
	case DISPLAY_R8G8B8X8:
		return true;
	}
	return false;
}

bool gpu_rect_fits(const struct display_rect *r, uint32_t width, uint32_t height)
{
	return r->width <= width && r->x <= width - r->width && r->height <= height && r->y <= height - r->height;
}

struct display_rect gpu_rect(const struct gpu_rect_wire *r)
{
	return (struct display_rect){ le32_get(r->x), le32_get(r->y), le32_get(r->width), le32_get(r->height) };
}

/* Where in the order an id is, or would be. */
static uint32_t position(const struct gpu_resources *t, uint32_t id)
{
	uint32_t low = 0, high = t->n;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (t->slot[t->order[mid]].st.id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct gpu_resource *gpu_find(const struct virtio_gpu *g, uint32_t id)
{
	struct gpu_resources *t = g->host.resources;
	uint32_t i = position(t, id);

	return i < t->n && t->slot[t->order[i]].st.id == id ? &t->slot[t->order[i]] : NULL;
}

struct gpu_resource *gpu_resource_add(struct virtio_gpu *g, uint32_t id)
{
	struct gpu_resources *t = g->host.resources;
	uint32_t i = position(t, id);
	uint16_t slot;

	if (id == 0 || t->n == GPU_RESOURCES_MAX || (i < t->n && t->slot[t->order[i]].st.id == id))
		return NULL;
	slot = t->order[t->n];
	memmove(&t->order[i + 1], &t->order[i], (t->n - i) * sizeof(t->order[0]));
	t->order[i] = slot;
	t->n++;
	t->slot[slot] = (struct gpu_resource){ .st = { .id = id } };
	return &t->slot[slot];
}

void gpu_resource_remove(struct virtio_gpu *g, struct gpu_resource *r)
{
	struct gpu_resources *t = g->host.resources;
	uint32_t i = position(t, r->st.id);
	uint16_t slot = t->order[i];

	gpu_scanouts_forget(g, r);
	gpu_backing_clear(g, &r->backing);
	if (r->three_d.is)
		gpu_3d_removed(g, r);
	else if (!gpu_is_blob(r))
		display_free(g->host.display, r->pixels);
	t->n--;
	memmove(&t->order[i], &t->order[i + 1], (t->n - i) * sizeof(t->order[0]));
	t->order[t->n] = slot;
}

void gpu_resources_clear(struct virtio_gpu *g)
{
	struct gpu_resources *t = g->host.resources;

	while (t->n > 0)
		gpu_resource_remove(g, &t->slot[t->order[t->n - 1]]);
}

static enum gpu_type why_not_added(const struct virtio_gpu *g, uint32_t id)
{
	return id == 0 || gpu_find(g, id) ? VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID : VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
}

enum gpu_type gpu_resource_create_2d(struct gpu_call *c)
{
	struct virtio_gpu *g = c->gpu;
	uint32_t id = le32_get(c->in.create_2d.resource_id), format = le32_get(c->in.create_2d.format);
	uint32_t width = le32_get(c->in.create_2d.width), height = le32_get(c->in.create_2d.height);
	struct gpu_resource *r;
	int64_t at;

	if (!gpu_format_is_known(format) || width == 0 || height == 0 || width > GPU_SIDE_MAX || height > GPU_SIDE_MAX)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	r = gpu_resource_add(g, id);
	if (!r)
		return why_not_added(g, id);
	r->st.width = width;
	r->st.height = height;
	at = display_alloc(g->host.display, ALIGN_UP(gpu_pixel_bytes(r), (uint64_t)MEM_PAGE_SIZE));
	if (at < 0) {
		gpu_resource_remove(g, r); /* a blob as yet: it has no pixels to free */
		return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	}
	r->st.format = format;
	r->pixels = (uint64_t)at;
	return VIRTIO_GPU_RESP_OK_NODATA;
}

/* The list behind a command's `fixed` bytes. */
static enum gpu_type read_entries(struct gpu_call *c, struct gpu_backing *b, size_t fixed, uint32_t n)
{
	struct gpu_entry_wire e[ENTRIES_AT_ONCE];
	const struct vq_chain *chain = c->chain;
	int r = 0;

	if (n > GPU_ENTRIES_MAX)
		return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	if (chain->read_len - fixed < (uint64_t)n * sizeof(e[0]))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	for (uint32_t at = 0; at < n && r == 0;) {
		size_t some = MIN(n - at, (uint32_t)ENTRIES_AT_ONCE);

		if (vq_chain_read(c->q, chain, fixed + (uint64_t)at * sizeof(e[0]), e, some * sizeof(e[0])) != some * sizeof(e[0]))
			r = -EFAULT;
		for (size_t i = 0; i < some && r == 0; i++)
			r = gpu_backing_add(c->gpu, b, le64_get(e[i].addr), le32_get(e[i].length));
		at += (uint32_t)some;
	}
	c->gpu->host.copied += (uint64_t)n * sizeof(e[0]);
	if (r == 0)
		return VIRTIO_GPU_RESP_OK_NODATA;
	gpu_backing_clear(c->gpu, b);
	return r == -ENOSPC ? VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY : VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
}

enum gpu_type gpu_resource_create_blob(struct gpu_call *c)
{
	const struct gpu_create_blob *in = &c->in.create_blob;
	uint32_t id = le32_get(in->resource_id), flags = le32_get(in->blob_flags);
	uint64_t size = le64_get(in->size);
	struct gpu_resource *r;
	enum gpu_type answer;

	if (le32_get(in->blob_mem) != VIRTIO_GPU_BLOB_MEM_GUEST || size == 0 || size > GPU_BLOB_MAX ||
	    flags & ~(VIRTIO_GPU_BLOB_FLAG_MAPPABLE | VIRTIO_GPU_BLOB_FLAG_SHAREABLE))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	r = gpu_resource_add(c->gpu, id);
	if (!r)
		return why_not_added(c->gpu, id);
	r->st.blob_size = size;
	answer = read_entries(c, &r->backing, sizeof(*in), le32_get(in->nr_entries));
	if (answer != VIRTIO_GPU_RESP_OK_NODATA)
		gpu_resource_remove(c->gpu, r);
	return answer;
}

enum gpu_type gpu_resource_unref(struct gpu_call *c)
{
	struct gpu_resource *r = gpu_find(c->gpu, le32_get(c->in.resource.resource_id));

	if (!r)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (r->three_d.is)
		return gpu_3d_unref(c, r);
	gpu_resource_remove(c->gpu, r);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

enum gpu_type gpu_attach_backing(struct gpu_call *c)
{
	struct gpu_resource *r = gpu_find(c->gpu, le32_get(c->in.attach.resource_id));
	enum gpu_type answer;

	if (!r)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (r->backing.nentries)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	answer = read_entries(c, &r->backing, sizeof(c->in.attach), le32_get(c->in.attach.nr_entries));
	if (answer == VIRTIO_GPU_RESP_OK_NODATA && r->backing.nentries == 0)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	return answer == VIRTIO_GPU_RESP_OK_NODATA && r->three_d.is ? gpu_3d_attached(c, r) : answer;
}

enum gpu_type gpu_detach_backing(struct gpu_call *c)
{
	struct gpu_resource *r = gpu_find(c->gpu, le32_get(c->in.resource.resource_id));

	if (!r)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (r->backing.nentries == 0)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	if (r->three_d.is)
		return gpu_3d_detach(c, r);
	gpu_backing_clear(c->gpu, &r->backing);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

enum gpu_type gpu_transfer_to_host_2d(struct gpu_call *c)
{
	struct virtio_gpu *g = c->gpu;
	struct gpu_resource *r = gpu_find(g, le32_get(c->in.transfer.resource_id));
	struct display_rect rect = gpu_rect(&c->in.transfer.r);
	uint64_t at, line;
	uint8_t *dst;

	if (!r || r->three_d.is)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	/* A blob's memory is where it is shown from; drivers that transfer all the same mean no harm. */
	if (gpu_is_blob(r))
		return VIRTIO_GPU_RESP_OK_NODATA;
	if (r->backing.nentries == 0)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	if (!gpu_rect_fits(&rect, r->st.width, r->st.height))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (rect.width == 0 || rect.height == 0)
		return VIRTIO_GPU_RESP_OK_NODATA;
	at = (uint64_t)gpu_stride(r) * rect.y + (uint64_t)rect.x * GPU_PIXEL;
	line = (uint64_t)rect.width * GPU_PIXEL;
	dst = display_bytes(g->host.display, r->pixels, gpu_pixel_bytes(r));
	if (!dst || gpu_backing_read(g, &r->backing, le64_get(c->in.transfer.offset), gpu_stride(r), dst + at, gpu_stride(r), line,
				     rect.height) < 0)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	r->from = r->from == r->to ? rect.y : MIN(r->from, rect.y);
	r->to = MAX(r->to, rect.y + rect.height);
	return VIRTIO_GPU_RESP_OK_NODATA;
}
