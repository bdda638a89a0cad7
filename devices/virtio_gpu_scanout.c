/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: scanouts (virtio 1.2, 5.7.6.8): which part of which resource is shown where, flushes, and the modes a host asks for.
 *
 * How it works: a scanout of a 2D resource shows the resource's own pixels, so a flush only says what has changed. A blob's pixels
 * are in guest memory, which nobody else may read: the scanout has a picture of its own in the display's memory (the
 * shadow), filled when the blob is put there and by each flush of it. Flipping between blobs of one size keeps the shadow. So does
 * flipping between resources of 3D, which is no frame: that comes with the flush. A program whose flushes fail, as after a restore, makes
 * none, so its picture stands still and nobody encodes it again and again.
 *
 * Threads: commands in main, a reset on a vCPU's thread, all under the device lock.
 * Trust: rectangles, ids, strides and offsets are the guest's; a shadow's size is bounded by the display's memory.
 * Snapshot: virtio_gpu_scanout_state, and the shadow in the extra part, since the guest may have drawn without a flush since.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

static bool is_blob_shown(const struct virtio_gpu_scanout_state *s)
{
	return s->resource && s->format;
}

bool gpu_scanout_has_shadow(const struct virtio_gpu *g, const struct virtio_gpu_scanout_state *s)
{
	const struct gpu_resource *r = s->resource ? gpu_find(g, s->resource) : NULL;

	return is_blob_shown(s) || (r && r->three_d.is);
}

static struct display_rect shown(const struct virtio_gpu_scanout_state *s)
{
	return (struct display_rect){ s->x, s->y, s->width, s->height };
}

bool gpu_intersect(const struct display_rect *a, const struct display_rect *b, struct display_rect *ret)
{
	uint64_t left = MAX(a->x, b->x), top = MAX(a->y, b->y);
	uint64_t right = MIN((uint64_t)a->x + a->width, (uint64_t)b->x + b->width);
	uint64_t bottom = MIN((uint64_t)a->y + a->height, (uint64_t)b->y + b->height);

	if (left >= right || top >= bottom)
		return false;
	*ret = (struct display_rect){ (uint32_t)(left - b->x), (uint32_t)(top - b->y), (uint32_t)(right - left), (uint32_t)(bottom - top) };
	return true;
}

static void shadow_drop(struct virtio_gpu *g, uint32_t scanout)
{
	struct gpu_shadow *sh = &g->host.shadow[scanout];

	if (sh->size)
		display_free(g->host.display, sh->offset);
	*sh = (struct gpu_shadow){ 0 };
}

bool gpu_shadow_make(struct virtio_gpu *g, uint32_t scanout, uint64_t size)
{
	struct gpu_shadow *sh = &g->host.shadow[scanout];
	int64_t at;

	if (sh->size == size)
		return true;
	shadow_drop(g, scanout);
	at = display_alloc(g->host.display, ALIGN_UP(size, (uint64_t)MEM_PAGE_SIZE));
	if (at < 0)
		return false;
	*sh = (struct gpu_shadow){ .offset = (uint64_t)at, .size = size };
	return true;
}

/* Copy a part (relative to what is shown) of the blob to the shadow. */
static int shadow_draw(struct virtio_gpu *g, uint32_t scanout, const struct virtio_gpu_scanout_state *s, const struct gpu_resource *r,
		       const struct display_rect *part)
{
	const struct gpu_shadow *sh = &g->host.shadow[scanout];
	uint64_t from = s->offset + (uint64_t)s->stride * ((uint64_t)s->y + part->y) + ((uint64_t)s->x + part->x) * GPU_PIXEL;
	uint64_t stride = (uint64_t)s->width * GPU_PIXEL, to = stride * part->y + (uint64_t)part->x * GPU_PIXEL;
	uint8_t *dst = display_bytes(g->host.display, sh->offset, sh->size);

	if (!dst || sh->size != stride * s->height)
		return -EINVAL;
	return gpu_backing_read(g, &r->backing, from, s->stride, dst + to, stride, (uint64_t)part->width * GPU_PIXEL, part->height);
}

void gpu_scanout_show(struct virtio_gpu *g, uint32_t scanout)
{
	const struct virtio_gpu_scanout_state *s = &g->state.scanout[scanout];
	const struct gpu_resource *r = s->resource ? gpu_find(g, s->resource) : NULL;
	struct display_surface surface = { .width = s->width, .height = s->height };

	if (!r) {
		display_scanout(g->host.display, scanout, NULL);
		return;
	}
	if (is_blob_shown(s) || r->three_d.is) {
		surface.offset = g->host.shadow[scanout].offset;
		surface.stride = s->width * GPU_PIXEL;
		surface.format = r->three_d.is ? r->st.format : s->format;
	} else {
		surface.offset = r->pixels + (uint64_t)gpu_stride(r) * s->y + (uint64_t)s->x * GPU_PIXEL;
		surface.stride = gpu_stride(r);
		surface.format = r->st.format;
	}
	display_scanout(g->host.display, scanout, &surface);
}

/* Put `next` (a resource and what of it is shown) there. */
static void show(struct virtio_gpu *g, uint32_t scanout, const struct virtio_gpu_scanout_state *next)
{
	struct virtio_gpu_scanout_state *s = &g->state.scanout[scanout];
	struct virtio_gpu_scanout_state old = *s;

	*s = *next;
	s->mode_width = old.mode_width;
	s->mode_height = old.mode_height;
	s->cursor = old.cursor;
	gpu_scanout_show(g, scanout);
	/* Nobody looks at it any more. */
	if (!gpu_scanout_has_shadow(g, s))
		shadow_drop(g, scanout);
}

void gpu_scanout_hide(struct virtio_gpu *g, uint32_t scanout)
{
	if (g->state.scanout[scanout].resource)
		show(g, scanout, &(struct virtio_gpu_scanout_state){ 0 });
}

void gpu_scanouts_forget(struct virtio_gpu *g, const struct gpu_resource *r)
{
	bool any = false;

	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		if (g->state.scanout[i].resource == r->st.id) {
			gpu_scanout_hide(g, i);
			any = true;
		}
	}
	if (any)
		display_frame(g->host.display);
}

void gpu_scanouts_reset(struct virtio_gpu *g)
{
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		struct virtio_gpu_scanout_state *s = &g->state.scanout[i];

		gpu_scanout_hide(g, i);
		shadow_drop(g, i); /* also one that a failed load has made */
		if (s->cursor.visible)
			display_cursor_hide(g->host.display, i);
		s->cursor.visible = 0;
	}
	display_frame(g->host.display);
}

static bool size_is_shown(uint32_t width, uint32_t height)
{
	return width >= DISPLAY_SIZE_MIN && width <= DISPLAY_SIZE_MAX && height >= DISPLAY_SIZE_MIN && height <= DISPLAY_SIZE_MAX;
}

/* For something else to be shown: the old one may be what makes room for the new one. False: nothing is shown now. */
static bool shadow_resize(struct virtio_gpu *g, uint32_t scanout, uint64_t size)
{
	if (g->host.shadow[scanout].size == size)
		return true;
	gpu_scanout_hide(g, scanout);
	if (gpu_shadow_make(g, scanout, size))
		return true;
	display_frame(g->host.display);
	return false;
}

/* From one resource of 3D to one like it: viewers look at the shadow, into which only the flush that follows draws. */
static bool keeps_picture(const struct virtio_gpu *g, const struct virtio_gpu_scanout_state *s, const struct gpu_resource *r,
			  const struct display_rect *rect)
{
	const struct gpu_resource *old = s->resource ? gpu_find(g, s->resource) : NULL;

	return r->three_d.is && old && old->three_d.is && old->st.format == r->st.format && s->width == rect->width && s->height == rect->height;
}

enum gpu_type gpu_set_scanout(struct gpu_call *c)
{
	struct virtio_gpu *g = c->gpu;
	uint32_t scanout = le32_get(c->in.set_scanout.scanout_id), id = le32_get(c->in.set_scanout.resource_id);
	struct display_rect rect = gpu_rect(&c->in.set_scanout.r);
	const struct gpu_resource *r;

	if (scanout >= g->host.nscanouts)
		return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
	if (id == 0) {
		gpu_scanout_hide(g, scanout);
		display_frame(g->host.display);
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	r = gpu_find(g, id);
	if (!r || gpu_is_blob(r))
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (!size_is_shown(rect.width, rect.height) || !gpu_rect_fits(&rect, r->st.width, r->st.height))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (r->three_d.is) {
		uint64_t bytes = (uint64_t)rect.width * rect.height * GPU_PIXEL;

		struct virtio_gpu_scanout_state *s = &g->state.scanout[scanout];
		struct display_rect now = shown(s);

		/* Of a lost one there is no other picture than the one that is shown. */
		if (!gpu_format_is_known(r->st.format) || r->three_d.going ||
		    (r->st.lost && (s->resource != id || memcmp(&rect, &now, sizeof(rect)) != 0)))
			return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
		if (keeps_picture(g, s, r, &rect)) {
			s->resource = id;
			s->x = rect.x;
			s->y = rect.y;
			return VIRTIO_GPU_RESP_OK_NODATA;
		}
		if (!shadow_resize(g, scanout, bytes))
			return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	}
	show(g, scanout, &(struct virtio_gpu_scanout_state){ .resource = id, .x = rect.x, .y = rect.y, .width = rect.width, .height = rect.height });
	display_frame(g->host.display);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

bool gpu_scanout_fits(const struct virtio_gpu_scanout_state *s, const struct gpu_resource *r)
{
	struct display_rect rect = shown(s);

	if (gpu_is_blob(r) != is_blob_shown(s))
		return false;
	if (!gpu_is_blob(r))
		return gpu_rect_fits(&rect, r->st.width, r->st.height);
	/* 32 bits each: the sum fits. */
	return s->offset + (uint64_t)s->stride * (s->frame_height - 1) + (uint64_t)s->frame_width * GPU_PIXEL <= r->st.blob_size;
}

/* Of itself: a frame with lines long enough, and what is shown inside it. */
static bool frame_is_sound(const struct virtio_gpu_scanout_state *s)
{
	struct display_rect rect = shown(s);

	return gpu_format_is_known(s->format) && s->frame_width >= 1 && s->frame_width <= GPU_SIDE_MAX && s->frame_height >= 1 &&
	       s->frame_height <= GPU_SIDE_MAX && s->stride >= s->frame_width * GPU_PIXEL && size_is_shown(s->width, s->height) &&
	       gpu_rect_fits(&rect, s->frame_width, s->frame_height);
}

enum gpu_type gpu_set_scanout_blob(struct gpu_call *c)
{
	const struct gpu_set_scanout_blob *in = &c->in.set_scanout_blob;
	struct virtio_gpu *g = c->gpu;
	uint32_t scanout = le32_get(in->scanout_id);
	struct display_rect rect = gpu_rect(&in->r);
	struct virtio_gpu_scanout_state next = {
		.resource = le32_get(in->resource_id),
		.x = rect.x,
		.y = rect.y,
		.width = rect.width,
		.height = rect.height,
		.format = le32_get(in->format),
		.frame_width = le32_get(in->width),
		.frame_height = le32_get(in->height),
		.stride = le32_get(in->strides[0]),
		.offset = le32_get(in->offsets[0]),
	};
	struct display_rect whole = { 0, 0, rect.width, rect.height };
	const struct gpu_resource *r;

	if (scanout >= g->host.nscanouts)
		return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
	if (next.resource == 0) {
		gpu_scanout_hide(g, scanout);
		display_frame(g->host.display);
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	r = gpu_find(g, next.resource);
	if (!r || !gpu_is_blob(r))
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (!frame_is_sound(&next) || !gpu_scanout_fits(&next, r))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (!shadow_resize(g, scanout, gpu_shadow_bytes(&next)))
		return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	if (shadow_draw(g, scanout, &next, r, &whole) < 0) {
		gpu_scanout_hide(g, scanout);
		shadow_drop(g, scanout);
		display_frame(g->host.display);
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	}
	show(g, scanout, &next);
	display_frame(g->host.display);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

enum gpu_type gpu_flush(struct gpu_call *c)
{
	struct virtio_gpu *g = c->gpu;
	uint32_t id = le32_get(c->in.flush.resource_id);
	const struct gpu_resource *r = gpu_find(g, id);
	struct display_rect rect = gpu_rect(&c->in.flush.r), part;
	bool any = false;

	if (!r)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (!gpu_is_blob(r) && !gpu_rect_fits(&rect, r->st.width, r->st.height))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (r->three_d.is)
		return gpu_3d_flush(c, r, &rect);
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];
		struct display_rect there = shown(s);

		if (s->resource != id || !gpu_intersect(&rect, &there, &part))
			continue;
		/* A blob whose backing was taken away keeps the picture it had. */
		if (gpu_is_blob(r) && shadow_draw(g, i, s, r, &part) < 0)
			return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
		display_damage(g->host.display, i, &part);
		any = true;
	}
	if (any)
		display_frame(g->host.display);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

void gpu_mode(struct virtio_gpu *g, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct virtio_gpu_scanout_state *s;

	if (scanout >= g->host.nscanouts || !size_is_shown(width, height))
		return;
	s = &g->state.scanout[scanout];
	if (s->mode_width == width && s->mode_height == height)
		return;
	s->mode_width = g->host.mode[scanout].width = width;
	s->mode_height = g->host.mode[scanout].height = height;
	display_wanted(g->host.display, scanout, width, height);
	g->state.events |= VIRTIO_GPU_EVENT_DISPLAY;
	virtio_signal_config(&g->vd);
}

/* Monitors stand side by side. */
enum gpu_type gpu_get_display_info(struct gpu_call *c)
{
	const struct virtio_gpu *g = c->gpu;
	uint32_t x = 0;

	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];

		c->out.info.mode[i].r.x = le32_make(x);
		c->out.info.mode[i].r.width = le32_make(s->mode_width);
		c->out.info.mode[i].r.height = le32_make(s->mode_height);
		c->out.info.mode[i].enabled = le32_make(1);
		x += s->mode_width;
	}
	return VIRTIO_GPU_RESP_OK_DISPLAY_INFO;
}

enum gpu_type gpu_get_edid(struct gpu_call *c)
{
	uint32_t scanout = le32_get(c->in.get_edid.scanout);
	const struct virtio_gpu_scanout_state *s;

	if (!virtio_has(&c->gpu->vd, VIRTIO_GPU_F_EDID))
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	if (scanout >= c->gpu->host.nscanouts)
		return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
	s = &c->gpu->state.scanout[scanout];
	c->out.edid.size = le32_make((uint32_t)gpu_edid(s->mode_width, s->mode_height, scanout, c->out.edid.edid));
	return VIRTIO_GPU_RESP_OK_EDID;
}

static bool has_place(const struct virtio_gpu_scanout_state *s)
{
	return s->x || s->y || s->width || s->height || s->format || s->frame_width || s->frame_height || s->stride || s->offset;
}

bool gpu_scanout_is_unused(const struct virtio_gpu_scanout_state *s)
{
	const struct virtio_gpu_cursor_state *c = &s->cursor;

	return !s->resource && !has_place(s) && !s->mode_width && !s->mode_height && !c->visible && !c->x && !c->y && !c->hot_x && !c->hot_y;
}

int gpu_scanout_check(const struct virtio_gpu_scanout_state *s, uint32_t number, struct err *err)
{
	if (!size_is_shown(s->mode_width, s->mode_height))
		return err_set(err, -EINVAL, "scanout %u: a mode of %ux%u is impossible", number, s->mode_width, s->mode_height);
	if (s->cursor.visible > 1 || s->cursor.hot_x >= DISPLAY_CURSOR_SIZE || s->cursor.hot_y >= DISPLAY_CURSOR_SIZE)
		return err_set(err, -EINVAL, "scanout %u: a cursor with its hot spot at %u,%u is impossible", number, s->cursor.hot_x,
			       s->cursor.hot_y);
	if (s->resource == 0 && has_place(s))
		return err_set(err, -EINVAL, "scanout %u shows nothing, but has a size", number);
	if (s->resource && !(s->format ? frame_is_sound(s) : size_is_shown(s->width, s->height) && !s->frame_width && !s->frame_height &&
									   !s->stride && !s->offset))
		return err_set(err, -EINVAL, "scanout %u: %ux%u at %u,%u of %ux%u are impossible", number, s->width, s->height, s->x, s->y,
			       s->frame_width, s->frame_height);
	return 0;
}
