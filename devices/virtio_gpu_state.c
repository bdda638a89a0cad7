/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: saved state. The fixed lists, and the extra part: resources with their backing and pixels, images of cursors, pictures of
 * scanouts that show a blob or 3D. docs/snapshot-format.md has the bytes.
 *
 * How it works: pixels are saved page by page, without those that are zero. Lines that nothing was transferred to are not looked at,
 * so what was never drawn costs a bitmap. The guest waits while this runs: it is a copy of the pages that were drawn.
 * Loading puts blocks close together, so a memory that was fragmented when it was saved suffices.
 *
 * Trust: what is loaded is hostile. Everything is bounded as the guest's own commands are, by the same functions; counts are
 * compared with the bytes that are left before anything is made of them.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

#define STATE_SELF struct virtio_gpu_cursor_state
STATE_SCHEMA(virtio_gpu_cursor, 1, VIRTIO_GPU_CURSOR_STATE);
#undef STATE_SELF
#define STATE_SELF struct virtio_gpu_scanout_state
STATE_SCHEMA(virtio_gpu_scanout, 1, VIRTIO_GPU_SCANOUT_STATE);
#undef STATE_SELF
#define STATE_SELF struct virtio_gpu_state
STATE_SCHEMA(virtio_gpu, 1, VIRTIO_GPU_STATE);
#undef STATE_SELF
#define STATE_SELF struct virtio_gpu_resource_state
STATE_SCHEMA(virtio_gpu_resource, 2, VIRTIO_GPU_RESOURCE_STATE);
#undef STATE_SELF

enum { EXTRA_VERSION = 2, EXTRA_HEADER = 16, EXTRA_HEADER_1 = 12, LENGTH = 4, ENTRY = 12, PAGE = MEM_PAGE_SIZE };

static uint64_t pages_of(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE;
}

static uint64_t bitmap_of(uint64_t bytes)
{
	return (pages_of(bytes) + 7) / 8;
}

/* The pages of a resource that may be other than zero: [first, end). */
static void touched(const struct gpu_resource *r, uint64_t *ret_first, uint64_t *ret_end)
{
	*ret_first = (uint64_t)r->from * gpu_stride(r) / PAGE;
	*ret_end = pages_of((uint64_t)r->to * gpu_stride(r));
}

/* Of a blob the memory is the guest's, of 3D the renderer's. */
static bool has_pixels(const struct gpu_resource *r)
{
	return !gpu_is_blob(r) && !r->three_d.is;
}

static size_t extra_max(const struct device *d)
{
	uint64_t memory = display_memory_size(virtio_gpu_from((struct device *)d)->host.display);

	/* Bitmaps: a bit a page, and what rounding adds to each. */
	return EXTRA_HEADER + GPU_CONTEXTS_MAX * sizeof(le32) + GPU_RESOURCES_MAX * (LENGTH + state_encoded_size(&virtio_gpu_resource_schema) + 1) +
	       (size_t)GPU_ENTRIES_MAX * ENTRY + memory + memory / PAGE / 8 + 2 * DISPLAY_SCANOUTS_MAX;
}

static size_t extra_bound(const struct device *d)
{
	const struct virtio_gpu *g = virtio_gpu_from((struct device *)d);
	const struct gpu_resources *t = g->host.resources;
	size_t n = EXTRA_HEADER + (size_t)GPU_CONTEXTS_MAX * sizeof(le32) + t->n * (LENGTH + state_encoded_size(&virtio_gpu_resource_schema));

	for (uint32_t i = 0; i < t->n; i++) {
		const struct gpu_resource *r = &t->slot[t->order[i]];
		uint64_t first, end;

		n += (size_t)r->backing.nentries * ENTRY;
		if (!has_pixels(r))
			continue;
		touched(r, &first, &end);
		n += bitmap_of(gpu_pixel_bytes(r)) + (end - first) * PAGE;
	}
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];

		if (s->cursor.visible)
			n += bitmap_of(GPU_CURSOR_BYTES) + GPU_CURSOR_BYTES;
		if (gpu_scanout_has_shadow(g, s))
			n += bitmap_of(gpu_shadow_bytes(s)) + pages_of(gpu_shadow_bytes(s)) * PAGE;
	}
	return n;
}

static bool is_zero(const uint8_t *page)
{
	uint64_t any = 0, v[8];

	for (size_t i = 0; i < PAGE && !any; i += sizeof(v)) {
		memcpy(v, page + i, sizeof(v));
		any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];
	}
	return !any;
}

/* A block of the display's memory, of which the pages [first, end) are looked at. Returns where the next thing goes. */
static uint8_t *put_pixels(const struct virtio_gpu *g, uint8_t *out, uint64_t offset, uint64_t bytes, uint64_t first, uint64_t end)
{
	const uint8_t *p = display_bytes(g->host.display, offset, pages_of(bytes) * PAGE);
	uint8_t *bitmap = out;

	memset(bitmap, 0, bitmap_of(bytes));
	out += bitmap_of(bytes);
	for (uint64_t i = first; p && i < end; i++) {
		if (is_zero(p + i * PAGE))
			continue;
		bitmap[i / 8] |= (uint8_t)(1u << i % 8);
		memcpy(out, p + i * PAGE, PAGE);
		out += PAGE;
	}
	return out;
}

static int put_entries(void *arg, const struct gpu_entry *e, uint32_t n)
{
	uint8_t **out = arg;

	for (uint32_t i = 0; i < n; i++, *out += ENTRY) {
		le64_store(*out, e[i].gpa);
		le32_store(*out + 8, e[i].len);
	}
	return 0;
}

static uint8_t *put_resource(const struct virtio_gpu *g, uint8_t *out, const struct gpu_resource *r)
{
	struct virtio_gpu_resource_state st = r->st;
	size_t n = state_encoded_size(&virtio_gpu_resource_schema);
	uint64_t first, end;

	st.nentries = r->backing.nentries;
	st.lost = r->three_d.is;
	le32_store(out, (uint32_t)n);
	state_encode(&virtio_gpu_resource_schema, &st, out + LENGTH, n);
	out += LENGTH + n;
	gpu_backing_each(g, &r->backing, put_entries, &out);
	if (!has_pixels(r))
		return out;
	touched(r, &first, &end);
	return put_pixels(g, out, r->pixels, gpu_pixel_bytes(r), first, end);
}

/* Their number goes to *count. */
static uint8_t *put_contexts(const struct virtio_gpu *g, uint8_t *out, bool lost, uint8_t *count)
{
	uint32_t id[GPU_CONTEXTS_MAX], n = gpu_render_contexts(g, lost, id);

	le32_store(count, n);
	for (uint32_t i = 0; i < n; i++, out += sizeof(le32))
		le32_store(out, id[i]);
	return out;
}

static size_t extra_save(const struct device *d, uint8_t *buf)
{
	const struct virtio_gpu *g = virtio_gpu_from((struct device *)d);
	const struct gpu_resources *t = g->host.resources;
	uint8_t *out = buf + EXTRA_HEADER;

	le32_store(buf, EXTRA_VERSION);
	le32_store(buf + 4, t->n);
	out = put_contexts(g, out, false, buf + 8);
	out = put_contexts(g, out, true, buf + 12);
	for (uint32_t i = 0; i < t->n; i++)
		out = put_resource(g, out, &t->slot[t->order[i]]);
	for (uint32_t i = 0; i < g->host.nscanouts; i++)
		if (g->state.scanout[i].cursor.visible)
			out = put_pixels(g, out, (uint64_t)g->host.cursor[i], GPU_CURSOR_BYTES, 0, pages_of(GPU_CURSOR_BYTES));
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		uint64_t bytes = gpu_shadow_bytes(&g->state.scanout[i]);

		if (gpu_scanout_has_shadow(g, &g->state.scanout[i]))
			out = put_pixels(g, out, g->host.shadow[i].offset, bytes, 0, pages_of(bytes));
	}
	return (size_t)(out - buf);
}

struct input {
	const uint8_t *p;
	size_t left;
};

static const uint8_t *take(struct input *in, uint64_t n)
{
	const uint8_t *p = in->p;

	if (n > in->left)
		return NULL;
	in->p += n;
	in->left -= n;
	return p;
}

static int cut_off(struct err *err, const char *what, uint32_t number)
{
	return err_set(err, -EINVAL, "the state is cut off in %s %u", what, number);
}

/* *ret_first, *ret_end: the pages that are there lie in [first, end). 0 or -EINVAL. */
static int get_pixels(struct virtio_gpu *g, struct input *in, uint64_t offset, uint64_t bytes, uint64_t *ret_first, uint64_t *ret_end)
{
	uint8_t *dst = display_bytes(g->host.display, offset, pages_of(bytes) * PAGE);
	const uint8_t *bitmap = take(in, bitmap_of(bytes));

	*ret_first = *ret_end = 0;
	if (!dst || !bitmap)
		return -EINVAL;
	for (uint64_t i = 0; i < bitmap_of(bytes) * 8; i++) {
		const uint8_t *page;

		if (!(bitmap[i / 8] >> i % 8 & 1))
			continue;
		page = i < pages_of(bytes) ? take(in, PAGE) : NULL;
		if (!page)
			return -EINVAL;
		memcpy(dst + i * PAGE, page, PAGE);
		if (*ret_end == 0)
			*ret_first = i;
		*ret_end = i + 1;
	}
	return 0;
}

static bool is_possible(const struct virtio_gpu *g, const struct virtio_gpu_resource_state *st)
{
	if (st->lost)
		return st->lost == 1 && g->host.render && st->blob_size == 0;
	if (st->format == 0)
		return st->width == 0 && st->height == 0 && st->blob_size > 0 && st->blob_size <= GPU_BLOB_MAX;
	return gpu_format_is_known(st->format) && st->width > 0 && st->width <= GPU_SIDE_MAX && st->height > 0 && st->height <= GPU_SIDE_MAX &&
	       st->blob_size == 0;
}

static int get_backing(struct virtio_gpu *g, struct input *in, struct gpu_resource *r, uint32_t n, struct err *err)
{
	const uint8_t *p = take(in, (uint64_t)n * ENTRY);

	if (!p)
		return cut_off(err, "the backing of resource", r->st.id);
	for (uint32_t i = 0; i < n; i++, p += ENTRY) {
		uint32_t len = le32_load(p + 8);
		int code = len ? gpu_backing_add(g, &r->backing, le64_load(p), len) : -EINVAL;

		if (code < 0)
			return err_errno(err, code, "resource %u: %u bytes of backing at 0x%llx", r->st.id, len,
					 (unsigned long long)le64_load(p));
	}
	return 0;
}

static int get_resource(struct virtio_gpu *g, struct input *in, uint32_t number, uint32_t *last_id, struct err *err)
{
	const uint8_t *head = take(in, LENGTH), *list = head ? take(in, le32_load(head)) : NULL;
	struct virtio_gpu_resource_state st = { 0 };
	struct gpu_resource *r;
	uint64_t first, end;
	int64_t at;
	int code;

	if (!list)
		return cut_off(err, "resource number", number);
	code = state_decode(&virtio_gpu_resource_schema, &st, list, le32_load(head), err);
	if (code < 0)
		return code;
	if (!is_possible(g, &st) || st.id <= *last_id)
		return err_set(err, -EINVAL, "resource %u of format %u, %ux%u, after %u, is impossible", st.id, st.format, st.width, st.height,
			       *last_id);
	*last_id = st.id;
	r = gpu_resource_add(g, st.id);
	if (!r)
		return err_set(err, -EINVAL, "resource %u: there are more than %d", st.id, GPU_RESOURCES_MAX);
	r->st = st;
	r->st.nentries = 0;
	r->three_d.is = st.lost;
	if (has_pixels(r)) {
		r->st.format = 0; /* without pixels for now */
		at = display_alloc(g->host.display, pages_of(gpu_pixel_bytes(r)) * PAGE);
		if (at < 0)
			return err_errno(err, (int)at, "resource %u of %ux%u: memory of the display (%llu MiB)", st.id, st.width, st.height,
					 (unsigned long long)(display_memory_size(g->host.display) >> 20));
		r->st.format = st.format;
		r->pixels = (uint64_t)at;
	}
	code = get_backing(g, in, r, st.nentries, err);
	if (code < 0 || !has_pixels(r))
		return code;
	if (get_pixels(g, in, r->pixels, gpu_pixel_bytes(r), &first, &end) < 0)
		return cut_off(err, "the pixels of resource", st.id);
	r->from = (uint32_t)(first * PAGE / gpu_stride(r));
	r->to = (uint32_t)MIN((end * PAGE + gpu_stride(r) - 1) / gpu_stride(r), (uint64_t)st.height);
	return 0;
}

static int get_shadow(struct virtio_gpu *g, struct input *in, uint32_t scanout, struct err *err)
{
	const struct virtio_gpu_scanout_state *s = &g->state.scanout[scanout];
	uint64_t bytes = gpu_shadow_bytes(s), first, end;

	if (!gpu_shadow_make(g, scanout, bytes))
		return err_set(err, -ENOMEM, "scanout %u of %ux%u: memory of the display (%llu MiB)", scanout, s->width, s->height,
			       (unsigned long long)(display_memory_size(g->host.display) >> 20));
	if (get_pixels(g, in, g->host.shadow[scanout].offset, bytes, &first, &end) < 0)
		return cut_off(err, "the picture of scanout", scanout);
	return 0;
}

static int get_scanouts(struct virtio_gpu *g, struct input *in, struct err *err)
{
	uint64_t first, end;
	int r = 0;

	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];
		const struct gpu_resource *res = gpu_find(g, s->resource);

		if (s->resource && (!res || !gpu_scanout_fits(s, res) || (res->st.lost && !gpu_format_is_known(res->st.format))))
			return err_set(err, -EINVAL, "scanout %u shows %ux%u at %u,%u of resource %u, which has not that", i, s->width, s->height,
				       s->x, s->y, s->resource);
		if (!s->cursor.visible)
			continue;
		memset(display_bytes(g->host.display, (uint64_t)g->host.cursor[i], GPU_CURSOR_BYTES), 0, GPU_CURSOR_BYTES);
		if (get_pixels(g, in, (uint64_t)g->host.cursor[i], GPU_CURSOR_BYTES, &first, &end) < 0)
			return cut_off(err, "the cursor of scanout", i);
	}
	for (uint32_t i = 0; i < g->host.nscanouts && r == 0; i++)
		if (gpu_scanout_has_shadow(g, &g->state.scanout[i]))
			r = get_shadow(g, in, i, err);
	return r;
}

static bool is_among(const uint32_t *id, uint32_t n, uint32_t wanted)
{
	while (n > 0 && id[n - 1] != wanted)
		n--;
	return n > 0;
}

static int get_contexts(struct virtio_gpu *g, struct input *in, uint32_t n, bool lost, struct err *err)
{
	uint32_t id[GPU_CONTEXTS_MAX];
	const uint8_t *p;
	int r;

	if (n > GPU_CONTEXTS_MAX || (n && !g->host.render)) /* both lists together: gpu_render_lost keeps to its table */
		return err_set(err, -EINVAL, "%u contexts of 3D are impossible here", n);
	p = take(in, n * sizeof(le32));
	if (!p)
		return cut_off(err, "the list of contexts, number", n);
	for (uint32_t i = 0; i < n; i++) {
		id[i] = le32_load(p + i * sizeof(le32));
		if (id[i] == 0)
			return err_set(err, -EINVAL, "a context of 3D without a number");
		if (gpu_render_context(g, id[i]) || is_among(id, i, id[i]))
			return err_set(err, -EINVAL, "context %u of 3D is there twice", id[i]);
	}
	if (lost) {
		gpu_render_lost(g, id, n);
		return 0;
	}
	r = gpu_render_restore(g, id, n);
	return r < 0 ? err_errno(err, r, "coffer-gpu does not make the contexts of 3D again") : 0;
}

static int extra_load(struct device *d, const uint8_t *buf, size_t len, struct err *err)
{
	struct virtio_gpu *g = virtio_gpu_from(d);
	struct input in = { buf, len };
	const uint8_t *head = take(&in, EXTRA_HEADER_1), *more = NULL;
	uint32_t n, last_id = 0;
	int r = 0;

	if (!head)
		return cut_off(err, "part", 0);
	if (le32_load(head) == 0 || le32_load(head) > EXTRA_VERSION)
		return err_set(err, -ENOTSUP, "resources of version %u, this program knows %d", le32_load(head), EXTRA_VERSION);
	if (le32_load(head) > 1) {
		more = take(&in, EXTRA_HEADER - EXTRA_HEADER_1);
		if (!more)
			return cut_off(err, "part", 0);
	}
	r = get_contexts(g, &in, le32_load(head + 8), false, err);
	if (r == 0 && more)
		r = get_contexts(g, &in, le32_load(more), true, err);
	n = le32_load(head + 4);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = get_resource(g, &in, i, &last_id, err);
	if (r == 0)
		r = get_scanouts(g, &in, err);
	if (r == 0 && in.left)
		r = err_set(err, -EINVAL, "%zu bytes left over after the pictures", in.left);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];

		g->host.mode[i].width = s->mode_width;
		g->host.mode[i].height = s->mode_height;
		display_wanted(g->host.display, i, s->mode_width, s->mode_height);
		gpu_scanout_show(g, i);
		gpu_cursor_show(g, i);
	}
	display_frame(g->host.display);
	return 0;
}

const struct device_extra virtio_gpu_extra = {
	.schema = &virtio_gpu_resource_schema,
	.max = extra_max,
	.bound = extra_bound,
	.save = extra_save,
	.load = extra_load,
};
