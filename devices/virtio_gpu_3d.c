/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: 3D (virtio 1.2, 5.7.6.8, with VIRTIO_GPU_F_VIRGL). Every command becomes a request to coffer-gpu (lib/gpu_proto.h), and is
 * answered when that has answered; with a fence, when the renderer is through with it.
 *
 * How it works: the renderer has the pixels of these resources. It never sees guest memory: what a guest attaches as backing has a copy in
 * the display's memory, which transfers bring up to date first, in the range that they name. Drivers are told that streams
 * cannot transfer (gpu_worker.h), so nothing else needs the two to be alike but results of queries: small buffers that the
 * renderer writes on its own. They are copied in before a stream, and out when it is through if they have changed.
 * A scanout shows a picture of its own (the shadow, as with blobs), which a flush has the renderer draw.
 *
 * Trust: the numbers are handed on as they are and checked by the process that must survive them. What this file computes with is
 * bounded here: ranges by the backing, rectangles by what is shown, streams by GPU_SUBMIT_MAX.
 * Snapshot: resources are saved as lost, without what was drawn (virtio_gpu_render.c). Of a lost one there is nothing but its name, its
 * backing, and the picture of a scanout that shows it.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

enum { TARGET_BUFFER = 0, BIND_CUSTOM = 1 << 17 };

static struct gpu_request request(enum gpu_op op, uint32_t ctx, uint32_t resource)
{
	return (struct gpu_request){ .op = le16_make(op), .ctx = le32_make(ctx), .resource = le32_make(resource) };
}

/* One of 3D that the renderer has, and that is not on its way out. */
static struct gpu_resource *find_3d(const struct virtio_gpu *g, uint32_t id)
{
	struct gpu_resource *r = gpu_find(g, id);

	return r && r->three_d.is && !r->three_d.going && !r->st.lost ? r : NULL;
}

bool gpu_is_query(const struct gpu_resource *r)
{
	return r->three_d.is && !r->st.lost && r->three_d.target == TARGET_BUFFER && (r->three_d.bind & BIND_CUSTOM) && r->st.width <= GPU_QUERY_MAX;
}

/* ---- capability sets ---- */

enum gpu_type gpu_get_capset_info(struct gpu_call *c)
{
	const struct gpu_render *render = c->gpu->host.render;
	uint32_t i = le32_get(c->in.capset_info.index);

	if (!render || i >= render->worker.ncapsets)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	c->out.capset_info.id = render->worker.capset[i].id;
	c->out.capset_info.max_version = render->worker.capset[i].version;
	c->out.capset_info.max_size = render->worker.capset[i].size;
	return VIRTIO_GPU_RESP_OK_CAPSET_INFO;
}

enum gpu_type gpu_get_capset(struct gpu_call *c)
{
	const struct gpu_render *render = c->gpu->host.render;

	for (uint32_t i = 0; render && i < render->worker.ncapsets; i++) {
		const struct gpu_capset *set = &render->worker.capset[i];

		if (le32_get(set->id) != le32_get(c->in.capset.id) || le32_get(c->in.capset.version) > le32_get(set->version))
			continue;
		c->out_len = le32_get(set->size);
		memcpy(c->out.capset.data, set->data, c->out_len);
		return VIRTIO_GPU_RESP_OK_CAPSET;
	}
	return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
}

/* ---- contexts ---- */

static struct gpu_context *context_of(const struct gpu_call *c)
{
	uint32_t id = le32_get(c->in.h.ctx_id);

	return id ? gpu_render_context(c->gpu, id) : NULL;
}

enum gpu_type gpu_ctx_create(struct gpu_call *c)
{
	struct gpu_request q = request(GPU_CTX_CREATE, le32_get(c->in.h.ctx_id), 0);
	const struct gpu_context *old = context_of(c);

	if (old && old->lost)
		return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
	if (!gpu_render_context(c->gpu, 0))
		return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	memcpy(q.name, c->in.ctx_create.debug_name, MIN(le32_get(c->in.ctx_create.nlen), (uint32_t)sizeof(q.name)));
	q.arg[0] = c->in.ctx_create.context_init;
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_CTX_CREATE, .resource = le32_get(c->in.h.ctx_id) });
}

enum gpu_type gpu_ctx_destroy(struct gpu_call *c)
{
	struct gpu_request q = request(GPU_CTX_DESTROY, le32_get(c->in.h.ctx_id), 0);
	struct gpu_context *context = context_of(c);

	if (context && context->lost) {
		*context = (struct gpu_context){ 0 };
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_CTX_DESTROY, .resource = le32_get(c->in.h.ctx_id) });
}

/* Linux attaches everything it has to a context; what is 2D has nothing there. */
static enum gpu_type attach(struct gpu_call *c, enum gpu_op op)
{
	uint32_t id = le32_get(c->in.resource.resource_id);
	const struct gpu_resource *r = gpu_find(c->gpu, id);
	struct gpu_request q = request(op, le32_get(c->in.h.ctx_id), id);

	if (!r || r->st.lost)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (!r->three_d.is)
		return VIRTIO_GPU_RESP_OK_NODATA;
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_PLAIN });
}

enum gpu_type gpu_ctx_attach(struct gpu_call *c)
{
	return attach(c, GPU_CTX_ATTACH);
}

enum gpu_type gpu_ctx_detach(struct gpu_call *c)
{
	return attach(c, GPU_CTX_DETACH);
}

/* ---- resources ---- */

enum gpu_type gpu_create_3d(struct gpu_call *c)
{
	const struct gpu_create_3d *in = &c->in.create_3d;
	uint32_t id = le32_get(in->resource_id);
	struct gpu_request q = request(GPU_RESOURCE_CREATE, 0, id);
	struct gpu_resource *r;

	r = gpu_resource_add(c->gpu, id);
	if (!r)
		return id == 0 || gpu_find(c->gpu, id) ? VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID : VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	r->st.format = le32_get(in->format);
	r->st.width = le32_get(in->width);
	r->st.height = le32_get(in->height);
	r->three_d = (struct gpu_resource_3d){ .is = true, .target = le32_get(in->target), .bind = le32_get(in->bind) };
	c->gpu->host.render->nresources++;
	c->gpu->host.render->nqueries += gpu_is_query(r);
	q.arg[GPU_CREATE_TARGET] = in->target;
	q.arg[GPU_CREATE_FORMAT] = in->format;
	q.arg[GPU_CREATE_BIND] = in->bind;
	q.arg[GPU_CREATE_WIDTH] = in->width;
	q.arg[GPU_CREATE_HEIGHT] = in->height;
	q.arg[GPU_CREATE_DEPTH] = in->depth;
	q.arg[GPU_CREATE_ARRAY_SIZE] = in->array_size;
	q.arg[GPU_CREATE_LAST_LEVEL] = in->last_level;
	q.arg[GPU_CREATE_NR_SAMPLES] = in->nr_samples;
	q.arg[GPU_CREATE_FLAGS] = in->flags;
	if (gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_CREATE, .resource = id }) == GPU_LATER)
		return GPU_LATER;
	gpu_resource_remove(c->gpu, r);
	return VIRTIO_GPU_RESP_ERR_UNSPEC;
}

void gpu_3d_removed(struct virtio_gpu *g, struct gpu_resource *r)
{
	if (r->st.lost)
		return;
	g->host.render->nresources--;
	g->host.render->nqueries -= gpu_is_query(r);
	if (r->three_d.copy_size)
		display_free(g->host.display, r->three_d.copy);
	r->three_d.copy_size = 0;
}

/* It goes when the renderer has let go of it: until then the copy of its backing may be read and written. */
enum gpu_type gpu_3d_unref(struct gpu_call *c, struct gpu_resource *r)
{
	struct gpu_request q = request(GPU_RESOURCE_UNREF, 0, r->st.id);

	if (r->three_d.going)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (r->st.lost) {
		gpu_resource_remove(c->gpu, r);
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	gpu_scanouts_forget(c->gpu, r);
	r->three_d.going = true;
	if (gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_UNREF, .resource = r->st.id }) == GPU_LATER)
		return GPU_LATER;
	gpu_resource_remove(c->gpu, r);
	return VIRTIO_GPU_RESP_OK_NODATA;
}

enum gpu_type gpu_3d_attached(struct gpu_call *c, struct gpu_resource *r)
{
	struct gpu_request q = request(GPU_BACKING, 0, r->st.id);
	uint64_t size = ALIGN_UP(r->backing.bytes, (uint64_t)MEM_PAGE_SIZE);
	int64_t at;

	if (r->st.lost)
		return VIRTIO_GPU_RESP_OK_NODATA;
	at = r->three_d.going ? -EINVAL : display_alloc(c->gpu->host.display, size);
	if (at < 0) {
		gpu_backing_clear(c->gpu, &r->backing);
		return r->three_d.going ? VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID : VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	}
	r->three_d.copy = (uint64_t)at;
	r->three_d.copy_size = size;
	q.offset = le64_make((uint64_t)at);
	q.size = le64_make(r->backing.bytes);
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_PLAIN });
}

enum gpu_type gpu_3d_detach(struct gpu_call *c, struct gpu_resource *r)
{
	struct gpu_request q = request(GPU_BACKING, 0, r->st.id);

	if (r->three_d.going)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (r->st.lost) {
		gpu_backing_clear(c->gpu, &r->backing);
		return VIRTIO_GPU_RESP_OK_NODATA;
	}
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_DETACH, .resource = r->st.id });
}

/* ---- transfers ---- */

/* The bytes of the backing that a transfer may touch. Without a stride the renderer computes one that only it knows: all the rest. */
static uint64_t span(const struct gpu_resource *r, const struct gpu_transfer_3d *in)
{
	uint64_t offset = le64_get(in->offset), stride = le32_get(in->stride), layer = le32_get(in->layer_stride);
	uint64_t width = le32_get(in->width), height = le32_get(in->height), depth = le32_get(in->depth), n;

	if (offset >= r->backing.bytes)
		return 0;
	if (r->three_d.target == TARGET_BUFFER)
		n = width;
	else if (stride == 0)
		n = UINT64_MAX;
	else
		n = MIN((layer ? layer : stride * height), (uint64_t)UINT32_MAX) * depth;
	return MIN(n, r->backing.bytes - offset);
}

static enum gpu_type transfer(struct gpu_call *c, enum gpu_op op)
{
	const struct gpu_transfer_3d *in = &c->in.transfer_3d;
	uint32_t id = le32_get(in->resource_id);
	struct gpu_request q = request(op, le32_get(c->in.h.ctx_id), id);
	struct gpu_sent what = { .kind = op == GPU_TRANSFER_FROM ? GPU_SENT_FROM : GPU_SENT_PLAIN, .resource = id };
	struct gpu_resource *r = find_3d(c->gpu, id);

	if (!r)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	if (!r->three_d.copy_size)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	what.offset = le64_get(in->offset);
	what.size = span(r, in);
	/* Also for what comes from the host: what lies between the lines is copied back with them. */
	gpu_copy_in(c->gpu, r, what.offset, what.size);
	q.arg[GPU_BOX_X] = in->x;
	q.arg[GPU_BOX_Y] = in->y;
	q.arg[GPU_BOX_Z] = in->z;
	q.arg[GPU_BOX_W] = in->width;
	q.arg[GPU_BOX_H] = in->height;
	q.arg[GPU_BOX_D] = in->depth;
	q.arg[GPU_BOX_LEVEL] = in->level;
	q.arg[GPU_BOX_STRIDE] = in->stride;
	q.arg[GPU_BOX_LAYER_STRIDE] = in->layer_stride;
	q.offset = in->offset;
	return gpu_render_ask(c, &q, &what);
}

enum gpu_type gpu_transfer_to_host_3d(struct gpu_call *c)
{
	return transfer(c, GPU_TRANSFER_TO);
}

enum gpu_type gpu_transfer_from_host_3d(struct gpu_call *c)
{
	return transfer(c, GPU_TRANSFER_FROM);
}

/* ---- streams ---- */

static void copy_queries_in(struct virtio_gpu *g)
{
	const struct gpu_resources *t = g->host.resources;

	for (uint32_t i = 0; i < t->n && g->host.render->nqueries; i++) {
		struct gpu_resource *r = &g->host.resources->slot[t->order[i]];
		uint64_t n = MIN((uint64_t)GPU_QUERY_MAX, r->backing.bytes);

		if (!gpu_is_query(r) || !r->three_d.copy_size)
			continue;
		gpu_copy_in(g, r, 0, n);
		memcpy(r->three_d.seen, display_bytes(g->host.display, r->three_d.copy, n), n);
	}
}

enum gpu_type gpu_submit_3d(struct gpu_call *c)
{
	struct gpu_request q = request(GPU_SUBMIT, le32_get(c->in.h.ctx_id), 0);
	uint32_t size = le32_get(c->in.submit_3d.size), used;
	const uint64_t fixed = sizeof(c->in.submit_3d);
	struct gpu_context *context = context_of(c);
	uint8_t *dst;
	int64_t at;

	if (context && context->lost)
		return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
	if (size > GPU_SUBMIT_MAX || size % sizeof(le32) || size > c->chain->read_len - fixed)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	at = gpu_render_stream(c->gpu, size, &used);
	if (at < 0)
		return GPU_AGAIN;
	dst = display_bytes(c->gpu->host.display, (uint64_t)at, size);
	if (size && (!dst || vq_chain_read(c->q, c->chain, fixed, dst, size) != size))
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	c->gpu->host.copied += size;
	copy_queries_in(c->gpu);
	if (context)
		context->used = true;
	q.offset = le64_make((uint64_t)at);
	q.size = le64_make(size);
	return gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_STREAM, .size = used });
}

/* ---- what is shown ---- */

static struct gpu_request read_request(uint32_t id, const struct display_rect *part, uint32_t stride, uint64_t to)
{
	struct gpu_request q = request(GPU_READ, 0, id);

	q.arg[GPU_BOX_X] = le32_make(part->x);
	q.arg[GPU_BOX_Y] = le32_make(part->y);
	q.arg[GPU_BOX_W] = le32_make(part->width);
	q.arg[GPU_BOX_H] = le32_make(part->height);
	q.arg[GPU_BOX_STRIDE] = le32_make(stride);
	q.offset = le64_make(to);
	return q;
}

/* The answer waits for the last of the pictures. */
enum gpu_type gpu_3d_flush(struct gpu_call *c, const struct gpu_resource *r, const struct display_rect *rect)
{
	struct virtio_gpu *g = c->gpu;
	enum gpu_type answer = VIRTIO_GPU_RESP_OK_NODATA;

	if (r->three_d.going || r->st.lost)
		return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		const struct virtio_gpu_scanout_state *s = &g->state.scanout[i];
		struct display_rect there = { s->x, s->y, s->width, s->height }, part, from;
		uint32_t stride = s->width * GPU_PIXEL;
		struct gpu_request q;

		if (s->resource != r->st.id || !gpu_intersect(rect, &there, &part) || g->host.shadow[i].size != (uint64_t)stride * s->height)
			continue;
		from = (struct display_rect){ s->x + part.x, s->y + part.y, part.width, part.height };
		q = read_request(r->st.id, &from, stride, g->host.shadow[i].offset + (uint64_t)stride * part.y + (uint64_t)part.x * GPU_PIXEL);
		answer = gpu_render_ask(c, &q, &(struct gpu_sent){ .kind = GPU_SENT_PICTURE, .resource = r->st.id, .scanout = i, .rect = part });
	}
	return answer;
}

enum gpu_type gpu_3d_cursor(struct virtio_gpu *g, const struct gpu_resource *r, uint32_t scanout)
{
	const struct display_rect all = { 0, 0, DISPLAY_CURSOR_SIZE, DISPLAY_CURSOR_SIZE };
	struct gpu_request q = read_request(r->st.id, &all, DISPLAY_CURSOR_SIZE * GPU_PIXEL, (uint64_t)g->host.cursor[scanout]);
	const struct gpu_sent what = { .kind = GPU_SENT_CURSOR, .pending = GPU_NOBODY, .scanout = scanout };

	if (r->three_d.going || r->st.lost || r->st.format != DISPLAY_B8G8R8A8 || r->st.width != DISPLAY_CURSOR_SIZE || r->st.height != DISPLAY_CURSOR_SIZE)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	return gpu_render_send(g, &q, &what) < 0 ? VIRTIO_GPU_RESP_ERR_UNSPEC : VIRTIO_GPU_RESP_OK_NODATA;
}
