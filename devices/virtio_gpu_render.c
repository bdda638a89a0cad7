/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: what the process that renders has been asked, and what follows from its answers (backend/gpu_worker.h).
 *
 * How it works: each request leaves a struct gpu_sent, found again by its number. Command streams lie in a ring of the display's
 * memory until they are answered. When the process ends, everything that waits for it is answered with an error, and so
 * is all that comes later; what is 2D goes on, and scanouts keep the pictures they have.
 *
 * The driver's reset may come on a vCPU's thread, where nothing can be sent: requests under way are dead then, and main tells the
 * renderer to forget everything before the next command. What it still draws until then may fall on memory that has become another
 * picture of the same VM, which a later frame covers.
 *
 * Linux makes a context for everyone who opens the device, also to draw in 2D alone. One that no stream was submitted to holds nothing: such
 * contexts are saved by their numbers, and made anew. What others hold, and what resources of 3D look like, only the renderer knows, and
 * virglrenderer cannot say. Saved is that they are lost: a restored guest finds their names taken and may let go of them; whatever
 * else it wants of them is an error, as after the end of the process. Scanouts keep their pictures. The guest that goes on loses nothing.
 *
 * Threads: main, but gpu_render_reset; the device lock always.
 * Trust: answers are hostile; gpu_worker.c has checked that they answer something.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"

enum { ROOM = DISPLAY_SCANOUTS_MAX + 2 }; /* requests that one command may make */

void gpu_copy_in(struct virtio_gpu *g, struct gpu_resource *r, uint64_t offset, uint64_t len)
{
	uint8_t *dst = r->three_d.copy_size && len ? display_bytes(g->host.display, r->three_d.copy + offset, len) : NULL;

	if (dst)
		gpu_backing_read(g, &r->backing, offset, len, dst, len, len, 1);
}

void gpu_copy_out(struct virtio_gpu *g, struct gpu_resource *r, uint64_t offset, uint64_t len)
{
	const uint8_t *src = r->three_d.copy_size && len ? display_bytes(g->host.display, r->three_d.copy + offset, len) : NULL;

	if (src)
		gpu_backing_write(g, &r->backing, offset, src, len);
}

struct gpu_context *gpu_render_context(struct virtio_gpu *g, uint32_t id)
{
	struct gpu_render *render = g->host.render;

	for (uint32_t i = 0; render && i < GPU_CONTEXTS_MAX; i++)
		if (render->context[i].id == id)
			return &render->context[i];
	return NULL;
}

uint32_t gpu_render_contexts(const struct virtio_gpu *g, bool lost, uint32_t *ret)
{
	const struct gpu_render *render = g->host.render;
	uint32_t n = 0;

	for (uint32_t i = 0; render && i < GPU_CONTEXTS_MAX; i++)
		if (render->context[i].id && (render->context[i].used || render->context[i].lost) == lost)
			ret[n++] = render->context[i].id;
	return n;
}

/* ---- answers ---- */

/* Results that have changed since the guest's own bytes were copied in. */
static void copy_queries_out(struct virtio_gpu *g)
{
	const struct gpu_resources *t = g->host.resources;

	for (uint32_t i = 0; i < t->n && g->host.render->nqueries; i++) {
		struct gpu_resource *r = &g->host.resources->slot[t->order[i]];
		uint64_t n = MIN((uint64_t)GPU_QUERY_MAX, r->backing.bytes);
		const uint8_t *now;

		if (!gpu_is_query(r) || !r->three_d.copy_size)
			continue;
		now = display_bytes(g->host.display, r->three_d.copy, n);
		if (!now || memcmp(now, r->three_d.seen, n) == 0)
			continue;
		memcpy(r->three_d.seen, now, n);
		gpu_copy_out(g, r, 0, n);
	}
}

/* What has been carried out, whether it succeeded or not. */
static void carry_out(struct virtio_gpu *g, const struct gpu_sent *s, int status)
{
	struct gpu_resource *r = gpu_find(g, s->resource);
	struct gpu_context *context;

	switch (s->kind) {
	case GPU_SENT_PLAIN:
	case GPU_SENT_STREAM:
		return;
	case GPU_SENT_CTX_CREATE:
		context = gpu_render_context(g, 0);
		if (status == 0 && context)
			*context = (struct gpu_context){ .id = s->resource };
		return;
	case GPU_SENT_CTX_DESTROY:
		context = gpu_render_context(g, s->resource);
		if (status == 0 && context)
			*context = (struct gpu_context){ 0 };
		return;
	case GPU_SENT_CREATE:
		if (r && r->three_d.is && status < 0)
			gpu_resource_remove(g, r);
		return;
	case GPU_SENT_UNREF:
		if (r && r->three_d.is)
			gpu_resource_remove(g, r);
		return;
	case GPU_SENT_DETACH:
		if (!r || !r->three_d.is)
			return;
		gpu_backing_clear(g, &r->backing);
		if (r->three_d.copy_size)
			display_free(g->host.display, r->three_d.copy);
		r->three_d.copy_size = 0;
		return;
	case GPU_SENT_FROM:
		if (r && r->three_d.is && status == 0)
			gpu_copy_out(g, r, s->offset, s->size);
		return;
	case GPU_SENT_PICTURE:
		if (status == 0 && g->state.scanout[s->scanout].resource == s->resource) {
			display_damage(g->host.display, s->scanout, &s->rect);
			display_frame(g->host.display);
		}
		return;
	case GPU_SENT_CURSOR:
		if (status == 0)
			gpu_cursor_show(g, s->scanout);
		return;
	}
}

static enum gpu_type answer_of(int status)
{
	switch (status) {
	case 0:
		return VIRTIO_GPU_RESP_OK_NODATA;
	case -ENOMEM:
	case -ENOSPC:
		return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
	case -ENOENT:
		return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
	case -EINVAL:
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	default:
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	}
}

static void on_done(void *opaque, uint32_t seq, int status)
{
	struct virtio_gpu *g = opaque;
	struct gpu_render *render = g->host.render;
	const struct gpu_sent s = render->sent[seq % GPU_INFLIGHT_MAX];
	struct gpu_pending *p;

	render->sent[seq % GPU_INFLIGHT_MAX].dead = true; /* answered: nothing follows from it any more */
	if (s.kind == GPU_SENT_STREAM)
		render->stream_used -= (uint32_t)s.size;
	if (s.dead)
		return;
	carry_out(g, &s, status);
	if (s.pending == GPU_NOBODY)
		return;
	p = &g->host.pending[s.pending];
	if (p->seq == seq && (!p->fence || status < 0))
		gpu_pending_ready(g, s.pending, answer_of(status));
	gpu_pending_flush(g);
}

static void on_fenced(void *opaque, uint32_t seq)
{
	struct virtio_gpu *g = opaque;

	copy_queries_out(g);
	for (uint32_t i = 0; i < g->host.pending_n; i++) {
		uint32_t number = (g->host.pending_first + i) % g->host.pending_max;
		struct gpu_pending *p = &g->host.pending[number];

		/* Numbers go round; those that wait are close together. */
		if (!p->ready && p->fence && (int32_t)(seq - p->seq) >= 0)
			gpu_pending_ready(g, number, VIRTIO_GPU_RESP_OK_NODATA);
	}
	gpu_pending_flush(g);
}

static void on_room(void *opaque)
{
	struct virtio_gpu *g = opaque;

	if (g->host.render->waiting) {
		g->host.render->waiting = false;
		virtio_kick(&g->vd, GPU_QUEUE_CONTROL);
	}
}

static void on_died(void *opaque, const char *why)
{
	struct virtio_gpu *g = opaque;
	struct gpu_render *render = g->host.render;

	log_limited(&g->vd.dev.vm->log, &render->limit, LOG_WARN, "%s: coffer-gpu: %s; the guest has no 3D any more", g->vd.dev.name, why);
	display_set_accelerated(g->host.display, false);
	for (uint32_t i = 0; i < GPU_INFLIGHT_MAX; i++) {
		struct gpu_sent *s = &render->sent[i];

		if (!s->dead && (s->kind == GPU_SENT_UNREF || s->kind == GPU_SENT_DETACH))
			carry_out(g, s, -EPIPE);
		s->dead = true;
	}
	for (uint32_t i = 0; i < g->host.pending_n; i++) {
		uint32_t number = (g->host.pending_first + i) % g->host.pending_max;

		if (!g->host.pending[number].ready)
			gpu_pending_ready(g, number, VIRTIO_GPU_RESP_ERR_UNSPEC);
	}
	gpu_pending_flush(g);
	on_room(g);
}

static void on_turn(void *opaque, bool begins)
{
	struct virtio_gpu *g = opaque;

	(begins ? device_lock : device_unlock)(&g->vd.dev);
}

static const struct gpu_worker_ops worker_ops = { .done = on_done, .fenced = on_fenced, .room = on_room, .died = on_died, .turn = on_turn };

/* ---- requests ---- */

int gpu_render_open(struct virtio_gpu *g, int sock, uint32_t memory_mib, struct err *err)
{
	struct gpu_render *render = calloc(1, sizeof(*render));
	int64_t at;
	int r;

	if (!render)
		return err_errno(err, -ENOMEM, "coffer-gpu");
	g->host.render = render;
	for (uint32_t i = 0; i < GPU_INFLIGHT_MAX; i++)
		render->sent[i].dead = true;
	at = display_alloc(g->host.display, GPU_STREAM_BYTES);
	if (at < 0)
		return err_set(err, (int)at, "memory: no room for command streams, %d MiB", GPU_STREAM_BYTES >> 20);
	render->stream = (uint64_t)at;
	r = gpu_worker_open(&render->worker, sock, display_memory_fd(g->host.display), memory_mib, &worker_ops, g, err);
	if (r == 0)
		r = gpu_worker_attach(&render->worker, &g->vd.dev.vm->loop, err);
	if (r == 0)
		display_set_accelerated(g->host.display, true);
	return r;
}

void gpu_render_close(struct virtio_gpu *g)
{
	if (g->host.render)
		gpu_worker_close(&g->host.render->worker);
	free(g->host.render);
	g->host.render = NULL;
}

static bool has_room(const struct gpu_render *render)
{
	return render->worker.last_sent - render->worker.last_done <= GPU_INFLIGHT_MAX - ROOM;
}

bool gpu_render_room(struct virtio_gpu *g)
{
	struct gpu_render *render = g->host.render;

	if (!render || !gpu_worker_alive(&render->worker))
		return true;
	gpu_render_main(g);
	if (!render->reset_wanted && has_room(render))
		return true;
	render->waiting = render->worker.want_room = true;
	return false;
}

int gpu_render_send(struct virtio_gpu *g, struct gpu_request *q, const struct gpu_sent *what)
{
	struct gpu_render *render = g->host.render;
	int r = render ? gpu_worker_send(&render->worker, q) : -EPIPE;

	if (r < 0)
		return r;
	render->sent[le32_get(q->seq) % GPU_INFLIGHT_MAX] = *what;
	if (what->kind == GPU_SENT_STREAM) {
		render->stream_at = (uint32_t)((le64_get(q->offset) - render->stream + ALIGN_UP(le64_get(q->size), 8ull)) % GPU_STREAM_BYTES);
		render->stream_used += (uint32_t)what->size;
	}
	return 0;
}

enum gpu_type gpu_render_ask(struct gpu_call *c, struct gpu_request *q, const struct gpu_sent *what)
{
	struct gpu_pending *p = &c->gpu->host.pending[c->number];
	bool fence = le32_get(c->in.h.flags) & VIRTIO_GPU_FLAG_FENCE;
	struct gpu_sent sent = *what;

	sent.pending = c->number;
	if (fence)
		q->flags = le16_make(GPU_FENCE);
	if (gpu_render_send(c->gpu, q, &sent) < 0)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	p->seq = le32_get(q->seq);
	p->fence = fence;
	if (fence)
		c->gpu->host.render->last_fence = p->seq;
	return GPU_LATER;
}

int64_t gpu_render_stream(struct virtio_gpu *g, uint32_t size, uint32_t *ret_used)
{
	struct gpu_render *render = g->host.render;
	uint32_t need = ALIGN_UP(size, 8u), at = render->stream_at, skip = 0;

	if (need > GPU_STREAM_BYTES - at) { /* not over the end */
		skip = GPU_STREAM_BYTES - at;
		at = 0;
	}
	if (skip + need > GPU_STREAM_BYTES - render->stream_used)
		return -EAGAIN;
	*ret_used = skip + need;
	return (int64_t)(render->stream + at);
}

/* ---- still moments ---- */

void gpu_render_reset(struct virtio_gpu *g)
{
	struct gpu_render *render = g->host.render;

	if (!render)
		return;
	for (uint32_t i = 0; i < GPU_INFLIGHT_MAX; i++)
		render->sent[i].dead = true;
	memset(render->context, 0, sizeof(render->context));
	if (render->worker.last_sent != 0) {
		render->reset_wanted = true;
		virtio_main_call(&g->vd);
	}
}

void gpu_render_main(struct virtio_gpu *g)
{
	struct gpu_request q = { .op = le16_make(GPU_RESET) };
	const struct gpu_sent what = { .kind = GPU_SENT_PLAIN, .dead = true, .pending = GPU_NOBODY };

	if (g->host.render && g->host.render->reset_wanted && gpu_render_send(g, &q, &what) != -EAGAIN)
		g->host.render->reset_wanted = false;
}

int gpu_render_quiesce(struct virtio_gpu *g)
{
	struct gpu_render *render = g->host.render;

	return render ? gpu_worker_drain(&render->worker, render->last_fence != 0, render->last_fence, GPU_DRAIN_MS) : 0;
}

int gpu_render_restore(struct virtio_gpu *g, const uint32_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct gpu_request q = { .op = le16_make(GPU_CTX_CREATE), .ctx = le32_make(id[i]) };
		const struct gpu_sent what = { .kind = GPU_SENT_CTX_CREATE, .pending = GPU_NOBODY, .resource = id[i] };

		if (!gpu_render_room(g) && gpu_render_quiesce(g) < 0)
			return -EPIPE;
		gpu_render_main(g); /* the reset before the load comes first */
		if (gpu_render_send(g, &q, &what) < 0)
			return -EPIPE;
	}
	if (gpu_render_quiesce(g) < 0)
		return -EPIPE;
	for (uint32_t i = 0; i < n; i++)
		if (!gpu_render_context(g, id[i]))
			return -ENOMEM;
	return 0;
}

void gpu_render_lost(struct virtio_gpu *g, const uint32_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct gpu_context *context = gpu_render_context(g, 0);

		if (context)
			*context = (struct gpu_context){ .id = id[i], .lost = true };
	}
}

int gpu_render_left_out(const struct virtio_gpu *g, char *text, size_t size)
{
	const struct gpu_render *render = g->host.render;
	uint32_t used = 0;

	for (uint32_t i = 0; render && i < GPU_CONTEXTS_MAX; i++)
		used += render->context[i].used;
	if (!render || (render->nresources == 0 && used == 0))
		return 0;
	return snprintf(text, size,
			"%s: what programs have in 3D is not saved (%u contexts, %u resources): a restored guest has the picture, and errors "
			"for what they draw until they are started again",
			g->vd.dev.name, used, render->nresources);
}
