/* SPDX-License-Identifier: Apache-2.0 */
/* virglrenderer: see renderer.h. */
#include "host/gpu/renderer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"

/* virglrenderer's own struct, which its public header only names. */
struct virgl_box {
	uint32_t x, y, z;
	uint32_t w, h, d;
};

enum { SIDE_MAX = 1 << 14, LAYERS_MAX = 1 << 11, LEVELS_MAX = 15, SAMPLES_MAX = 32, BUFFER_TARGET = 0, TARGETS = 9 };
enum { PIXEL_BYTES_MAX = 16, PIXEL_BYTES = 4, PLAIN_FORMAT_MAX = 4 };

/* ---- tables ---- */

static struct renderer_resource **slot_of(struct renderer *r, uint32_t id)
{
	struct renderer_resource **p = &r->bucket[(id * 2654435761u) >> 20];

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static struct renderer_resource *find(struct renderer *r, uint32_t id)
{
	return *slot_of(r, id);
}

static uint32_t *context_slot(struct renderer *r, uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(r->context); i++)
		if (r->context[i] == id)
			return &r->context[i];
	return NULL;
}

static bool has_context(struct renderer *r, uint32_t id)
{
	return id != 0 && context_slot(r, id) != NULL;
}

static void forget(struct renderer *r, struct renderer_resource **p)
{
	struct renderer_resource *gone = *p;

	*p = gone->next;
	r->used -= gone->bytes;
	r->nresources--;
	free(gone);
}

static void forget_all(struct renderer *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(r->bucket); i++)
		while (r->bucket[i])
			forget(r, &r->bucket[i]);
	memset(r->context, 0, sizeof(r->context));
}

/* ---- start and end ---- */

static void on_fence(void *cookie, uint32_t fence)
{
	struct renderer *r = cookie;

	r->retired = fence;
	r->retired_any = true;
}

/* It closes what it gets. */
static int on_drm_fd(void *cookie)
{
	const struct renderer *r = cookie;

	return r->render_node < 0 ? -1 : fcntl(r->render_node, F_DUPFD_CLOEXEC, 3);
}

/* What it prints about each start and each mistake of a guest is nothing that a log should be filled with. */
static void say_nothing(const char *fmt, va_list ap)
{
	(void)fmt;
	(void)ap;
}

static void read_capsets(struct gpu_ready *ret)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= GPU_CAPSETS_MAX; id++) {
		uint32_t version = 0, size = 0;

		virgl_renderer_get_cap_set(id, &version, &size);
		if (size == 0 || size > GPU_CAPSET_SIZE_MAX)
			continue;
		ret->capset[n].id = le32_make(id);
		ret->capset[n].version = le32_make(version);
		ret->capset[n].size = le32_make(size);
		virgl_renderer_fill_caps(id, version, ret->capset[n++].data);
	}
	ret->ncapsets = le32_make(n);
}

int renderer_open(struct renderer *r, int render_node, struct gpu_ready *ret, struct err *err)
{
	const int flags = VIRGL_RENDERER_USE_EGL | VIRGL_RENDERER_USE_SURFACELESS | VIRGL_RENDERER_THREAD_SYNC;
	int n;

	r->render_node = render_node;
	virgl_set_debug_callback(say_nothing);
	r->callbacks = (struct virgl_renderer_callbacks){ .version = 2, .write_fence = on_fence, .get_drm_fd = on_drm_fd };
	n = virgl_renderer_init(r, flags, &r->callbacks);
	if (n != 0)
		return err_set(err, -ENODEV, "virglrenderer does not start (%d): EGL or a driver of Mesa is missing (libegl1, libgl1-mesa-dri)",
			       n);
	r->open = true;
	read_capsets(ret);
	return 0;
}

void renderer_close(struct renderer *r)
{
	if (!r->open)
		return;
	forget_all(r);
	virgl_renderer_cleanup(r);
	r->open = false;
}

int renderer_poll_fd(const struct renderer *r)
{
	return r->open ? virgl_renderer_get_poll_fd() : -1;
}

bool renderer_poll(struct renderer *r, uint32_t *ret_seq)
{
	bool any;

	virgl_renderer_poll();
	any = r->retired_any;
	r->retired_any = false;
	if (any)
		*ret_seq = r->retired;
	return any;
}

/* ---- requests ---- */

static uint32_t arg(const struct gpu_request *q, unsigned n)
{
	return le32_get(q->arg[n]);
}

static int ctx_create(struct renderer *r, const struct gpu_request *q)
{
	uint32_t id = le32_get(q->ctx);
	uint32_t *slot = context_slot(r, 0);
	int n;

	if (id == 0 || has_context(r, id))
		return -EINVAL;
	if (slot == NULL)
		return -ENOSPC;
	/* A context for another capability set than virgl's own: none is offered. */
	if (arg(q, 0) & VIRGL_RENDERER_CONTEXT_FLAG_CAPSET_ID_MASK)
		return -ENOTSUP;
	n = virgl_renderer_context_create(id, (uint32_t)strnlen(q->name, sizeof(q->name)), q->name);
	if (n != 0)
		return -EINVAL;
	*slot = id;
	return 0;
}

static int ctx_destroy(struct renderer *r, const struct gpu_request *q)
{
	uint32_t id = le32_get(q->ctx);

	if (!has_context(r, id))
		return -ENOENT;
	virgl_renderer_context_destroy(id);
	*context_slot(r, id) = 0;
	return 0;
}

static int ctx_resource(struct renderer *r, const struct gpu_request *q, bool attach)
{
	uint32_t ctx = le32_get(q->ctx), id = le32_get(q->resource);

	if (!has_context(r, ctx) || !find(r, id))
		return -ENOENT;
	(attach ? virgl_renderer_ctx_attach_resource : virgl_renderer_ctx_detach_resource)((int)ctx, (int)id);
	return 0;
}

/* Bytes that it may take, 0: impossible. */
static uint64_t estimate(const struct gpu_request *q)
{
	uint64_t w = arg(q, GPU_CREATE_WIDTH), h = arg(q, GPU_CREATE_HEIGHT), d = arg(q, GPU_CREATE_DEPTH);
	uint64_t layers = arg(q, GPU_CREATE_ARRAY_SIZE), samples = MAX(arg(q, GPU_CREATE_NR_SAMPLES), 1u), format = arg(q, GPU_CREATE_FORMAT);

	if (arg(q, GPU_CREATE_TARGET) >= TARGETS || w == 0 || h == 0 || d == 0 || layers == 0)
		return 0;
	if (arg(q, GPU_CREATE_TARGET) == BUFFER_TARGET)
		return h == 1 && d == 1 && layers == 1 ? w : 0;
	if (w > SIDE_MAX || h > SIDE_MAX || d > LAYERS_MAX || layers > LAYERS_MAX || arg(q, GPU_CREATE_LAST_LEVEL) > LEVELS_MAX ||
	    samples > SAMPLES_MAX)
		return 0;
	/* At most 2^14 * 2^14 * 2^11 * 2^11 * 2^5 * 2^5: no overflow. */
	w = w * h * d * layers * samples * (format <= PLAIN_FORMAT_MAX ? PIXEL_BYTES : PIXEL_BYTES_MAX);
	return arg(q, GPU_CREATE_LAST_LEVEL) ? w + w / 2 : w;
}

static int resource_create(struct renderer *r, const struct gpu_request *q)
{
	struct virgl_renderer_resource_create_args a = {
		.handle = le32_get(q->resource),
		.target = arg(q, GPU_CREATE_TARGET),
		.format = arg(q, GPU_CREATE_FORMAT),
		.bind = arg(q, GPU_CREATE_BIND),
		.width = arg(q, GPU_CREATE_WIDTH),
		.height = arg(q, GPU_CREATE_HEIGHT),
		.depth = arg(q, GPU_CREATE_DEPTH),
		.array_size = arg(q, GPU_CREATE_ARRAY_SIZE),
		.last_level = arg(q, GPU_CREATE_LAST_LEVEL),
		.nr_samples = arg(q, GPU_CREATE_NR_SAMPLES),
		.flags = arg(q, GPU_CREATE_FLAGS),
	};
	uint64_t bytes = estimate(q);
	struct renderer_resource *res;

	if (a.handle == 0 || a.handle > INT32_MAX || bytes == 0 || find(r, a.handle))
		return -EINVAL;
	if (bytes > r->limit - r->used || r->nresources == RENDERER_RESOURCES_MAX)
		return -ENOMEM;
	res = calloc(1, sizeof(*res));
	if (!res)
		return -ENOMEM;
	if (virgl_renderer_resource_create(&a, NULL, 0) != 0) {
		free(res);
		return -EINVAL;
	}
	*res = (struct renderer_resource){ .id = a.handle, .bytes = bytes };
	*slot_of(r, a.handle) = res;
	r->used += bytes;
	r->nresources++;
	return 0;
}

static void detach_backing(struct renderer_resource *res)
{
	struct iovec *iov;
	int n;

	virgl_renderer_resource_detach_iov((int)res->id, &iov, &n);
	res->backing = (struct iovec){ 0 };
}

static int resource_unref(struct renderer *r, const struct gpu_request *q)
{
	struct renderer_resource **p = slot_of(r, le32_get(q->resource));

	if (!*p)
		return -ENOENT;
	detach_backing(*p);
	virgl_renderer_resource_unref((*p)->id);
	forget(r, p);
	return 0;
}

static bool in_memory(const struct renderer *r, uint64_t offset, uint64_t size)
{
	return offset <= r->memory_size && size <= r->memory_size - offset;
}

static int backing(struct renderer *r, const struct gpu_request *q)
{
	struct renderer_resource *res = find(r, le32_get(q->resource));
	uint64_t offset = le64_get(q->offset), size = le64_get(q->size);

	if (!res || !in_memory(r, offset, size))
		return -EINVAL;
	if (res->backing.iov_base)
		detach_backing(res);
	if (size == 0)
		return 0;
	res->backing = (struct iovec){ r->memory + offset, size };
	if (virgl_renderer_resource_attach_iov((int)res->id, &res->backing, 1) == 0)
		return 0;
	res->backing = (struct iovec){ 0 };
	return -EINVAL;
}

static struct virgl_box box_of(const struct gpu_request *q)
{
	return (struct virgl_box){ arg(q, GPU_BOX_X), arg(q, GPU_BOX_Y), arg(q, GPU_BOX_Z),
				   arg(q, GPU_BOX_W), arg(q, GPU_BOX_H), arg(q, GPU_BOX_D) };
}

static int transfer(struct renderer *r, const struct gpu_request *q, bool to)
{
	struct renderer_resource *res = find(r, le32_get(q->resource));
	uint32_t ctx = le32_get(q->ctx);
	struct virgl_box box = box_of(q);
	int n;

	if (!res || !res->backing.iov_base || (ctx != 0 && !has_context(r, ctx)))
		return -EINVAL;
	if (to)
		n = virgl_renderer_transfer_write_iov(res->id, ctx, (int)arg(q, GPU_BOX_LEVEL), arg(q, GPU_BOX_STRIDE),
						      arg(q, GPU_BOX_LAYER_STRIDE), &box, le64_get(q->offset), NULL, 0);
	else
		n = virgl_renderer_transfer_read_iov(res->id, ctx, arg(q, GPU_BOX_LEVEL), arg(q, GPU_BOX_STRIDE),
						     arg(q, GPU_BOX_LAYER_STRIDE), &box, le64_get(q->offset), NULL, 0);
	return n == 0 ? 0 : -EINVAL;
}

static int submit(struct renderer *r, const struct gpu_request *q)
{
	uint64_t offset = le64_get(q->offset), size = le64_get(q->size);
	uint32_t ctx = le32_get(q->ctx);

	if (!has_context(r, ctx) || size > GPU_SUBMIT_MAX || size % 4 || offset % 4 || !in_memory(r, offset, size))
		return -EINVAL;
	return virgl_renderer_submit_cmd(r->memory + offset, (int)ctx, (int)(size / 4)) == 0 ? 0 : -EINVAL;
}

/* What a viewer will look at: lines of 4 bytes a pixel, into the shared memory. */
static int read_pixels(struct renderer *r, const struct gpu_request *q)
{
	struct renderer_resource *res = find(r, le32_get(q->resource));
	struct virgl_box box = box_of(q);
	uint64_t offset = le64_get(q->offset), stride = arg(q, GPU_BOX_STRIDE), size;
	struct iovec iov;

	if (!res || box.w == 0 || box.h == 0 || box.w > SIDE_MAX || box.h > SIDE_MAX || stride < (uint64_t)box.w * PIXEL_BYTES)
		return -EINVAL;
	size = stride * (box.h - 1) + (uint64_t)box.w * PIXEL_BYTES;
	if (!in_memory(r, offset, size))
		return -EINVAL;
	box.z = 0;
	box.d = 1;
	iov = (struct iovec){ r->memory + offset, size };
	virgl_renderer_force_ctx_0();
	return virgl_renderer_transfer_read_iov(res->id, 0, 0, (uint32_t)stride, 0, &box, 0, &iov, 1) == 0 ? 0 : -EINVAL;
}

static int reset(struct renderer *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(r->bucket); i++)
		for (struct renderer_resource *res = r->bucket[i]; res; res = res->next)
			detach_backing(res);
	virgl_renderer_reset();
	forget_all(r);
	return 0;
}

static int dispatch(struct renderer *r, const struct gpu_request *q)
{
	switch (le16_get(q->op)) {
	case GPU_CTX_CREATE:
		return ctx_create(r, q);
	case GPU_CTX_DESTROY:
		return ctx_destroy(r, q);
	case GPU_CTX_ATTACH:
		return ctx_resource(r, q, true);
	case GPU_CTX_DETACH:
		return ctx_resource(r, q, false);
	case GPU_RESOURCE_CREATE:
		return resource_create(r, q);
	case GPU_RESOURCE_UNREF:
		return resource_unref(r, q);
	case GPU_BACKING:
		return backing(r, q);
	case GPU_TRANSFER_TO:
		return transfer(r, q, true);
	case GPU_TRANSFER_FROM:
		return transfer(r, q, false);
	case GPU_SUBMIT:
		return submit(r, q);
	case GPU_READ:
		return read_pixels(r, q);
	case GPU_RESET:
		return reset(r);
	default:
		return -EINVAL;
	}
}

int renderer_request(struct renderer *r, const struct gpu_request *q)
{
	int n = dispatch(r, q);

	if (n == 0 && (le16_get(q->flags) & GPU_FENCE)) {
		virgl_renderer_force_ctx_0();
		if (virgl_renderer_create_fence((int)le32_get(q->seq), 0) != 0)
			return -EIO;
	}
	return n;
}
