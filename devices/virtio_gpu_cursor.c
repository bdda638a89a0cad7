/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: cursors (virtio 1.2, 5.7.6.9). A cursor's image is copied out of its resource when the driver says so, and is
 * nobody's but the scanout's from then on: B8G8R8A8 with premultiplied alpha, whatever the resource's format was.
 *
 * Guest contract: resources of 64 x 64 pixels, or blobs that begin with as many in B8G8R8A8. Positions are those of the image's corner,
 * and may be a little outside; what looks on is told where the hot spot is.
 *
 * Trust: everything is the guest's. Snapshot: virtio_gpu_cursor_state, and the images in the extra part.
 */
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

/* Which byte of a pixel has blue, green, red and alpha (4: none, it is opaque). */
static const struct order {
	uint8_t b, g, r, a;
} *order_of(enum display_format f)
{
	static const struct order bgra = { 0, 1, 2, 3 }, bgrx = { 0, 1, 2, 4 }, argb = { 3, 2, 1, 0 }, xrgb = { 3, 2, 1, 4 };
	static const struct order rgba = { 2, 1, 0, 3 }, rgbx = { 2, 1, 0, 4 }, abgr = { 1, 2, 3, 0 }, xbgr = { 1, 2, 3, 4 };

	switch (f) {
	case DISPLAY_B8G8R8A8:
		return &bgra;
	case DISPLAY_B8G8R8X8:
		return &bgrx;
	case DISPLAY_A8R8G8B8:
		return &argb;
	case DISPLAY_X8R8G8B8:
		return &xrgb;
	case DISPLAY_R8G8B8A8:
		return &rgba;
	case DISPLAY_R8G8B8X8:
		return &rgbx;
	case DISPLAY_A8B8G8R8:
		return &abgr;
	case DISPLAY_X8B8G8R8:
		return &xbgr;
	}
	return &bgra;
}

static void convert(uint8_t *dst, const uint8_t *src, enum display_format format)
{
	const struct order *o = order_of(format);

	for (size_t i = 0; i < GPU_CURSOR_BYTES; i += GPU_PIXEL) {
		dst[i] = src[i + o->b];
		dst[i + 1] = src[i + o->g];
		dst[i + 2] = src[i + o->r];
		dst[i + 3] = o->a < GPU_PIXEL ? src[i + o->a] : 0xff;
	}
}

/* The resource's pixels as the image of the scanout's cursor. */
static enum gpu_type take_image(struct virtio_gpu *g, uint32_t scanout, uint32_t id)
{
	const struct gpu_resource *r = gpu_find(g, id);
	uint8_t *dst = display_bytes(g->host.display, (uint64_t)g->host.cursor[scanout], GPU_CURSOR_BYTES);

	if (!r || !dst)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (gpu_is_blob(r)) {
		if (r->st.blob_size < GPU_CURSOR_BYTES ||
		    gpu_backing_read(g, &r->backing, 0, GPU_CURSOR_BYTES, dst, GPU_CURSOR_BYTES, GPU_CURSOR_BYTES, 1) < 0)
			return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	if (r->three_d.is)
		return gpu_3d_cursor(g, r, scanout);

	const uint8_t *src = display_bytes(g->host.display, r->pixels, GPU_CURSOR_BYTES);

	if (!src || r->st.width != DISPLAY_CURSOR_SIZE || r->st.height != DISPLAY_CURSOR_SIZE)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	convert(dst, src, (enum display_format)r->st.format);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

/* The hot spot is never left of or above the screen, even if the image's corner is. */
static uint32_t hot_position(uint32_t corner, uint32_t hot)
{
	int64_t at = (int64_t)(int32_t)corner + hot;

	return at < 0 ? 0 : (uint32_t)at;
}

static void move(struct virtio_gpu *g, uint32_t scanout)
{
	const struct virtio_gpu_cursor_state *s = &g->state.scanout[scanout].cursor;

	display_cursor_move(g->host.display, scanout, hot_position(s->x, s->hot_x), hot_position(s->y, s->hot_y));
}

void gpu_cursor_show(struct virtio_gpu *g, uint32_t scanout)
{
	const struct virtio_gpu_cursor_state *s = &g->state.scanout[scanout].cursor;

	if (!s->visible) {
		display_cursor_hide(g->host.display, scanout);
		return;
	}
	move(g, scanout);
	display_cursor_image(g->host.display, scanout, (uint64_t)g->host.cursor[scanout], s->hot_x, s->hot_y);
}

enum gpu_type gpu_update_cursor(struct gpu_call *c)
{
	const struct gpu_cursor_command *in = &c->in.cursor;
	uint32_t scanout = le32_get(in->scanout_id), id = le32_get(in->resource_id);
	struct virtio_gpu_cursor_state next = {
		.visible = id != 0,
		.x = le32_get(in->x),
		.y = le32_get(in->y),
		.hot_x = le32_get(in->hot_x),
		.hot_y = le32_get(in->hot_y),
	};

	if (scanout >= c->gpu->host.nscanouts)
		return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
	if (next.hot_x >= DISPLAY_CURSOR_SIZE || next.hot_y >= DISPLAY_CURSOR_SIZE)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (id) {
		enum gpu_type answer = take_image(c->gpu, scanout, id);

		if (answer != VIRTIO_GPU_RESP_OK_NODATA)
			return answer;
	}
	c->gpu->state.scanout[scanout].cursor = next;
	gpu_cursor_show(c->gpu, scanout);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

enum gpu_type gpu_move_cursor(struct gpu_call *c)
{
	const struct gpu_cursor_command *in = &c->in.cursor;
	uint32_t scanout = le32_get(in->scanout_id);

	if (scanout >= c->gpu->host.nscanouts)
		return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
	c->gpu->state.scanout[scanout].cursor.x = le32_get(in->x);
	c->gpu->state.scanout[scanout].cursor.y = le32_get(in->y);
	move(c->gpu, scanout);
	return VIRTIO_GPU_RESP_OK_NODATA;
}
