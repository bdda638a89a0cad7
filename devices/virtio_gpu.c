/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: a display adapter (virtio 1.2, 5.7), in 2D, and in 3D when coffer-gpu renders for it.
 *
 * Guest contract: a control and a cursor queue of 256; 1 to 4 scanouts; all 2D commands; EDID; without 3D, blobs in guest memory, which
 * can be shown; with 3D, the commands and capability sets of virgl. Not offered: UUIDs of resources (no other device could use
 * one), other kinds of contexts. A command that is not known here is answered with ERR_UNSPEC. Commands are answered in order, each
 * when it is complete, so fences pass with the answer.
 *
 * How it works: a command is copied up to the length its table entry says, served by one function (virtio_gpu_*.c), and
 * answered. What is shown lies in the display (backend/display.h), which belongs to this device and is the VM's.
 * After GPU_BURST commands, or GPU_BURST_BYTES copied, the device yields to the rest of the main loop and kicks itself.
 *
 * Threads: queues and the host's wishes in main, the configuration space and reset on vCPU threads, all under the device lock.
 * Trust: every byte of a command is the guest's; each file says what bounds what. A command that makes no sense is
 * answered with an error and changes nothing.
 * Snapshot: virtio_gpu_state.c.
 */
#include "devices/virtio_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"

enum { GPU_BURST = 256, GPU_BURST_BYTES = 64 << 20 };
enum { DEFAULT_WIDTH = 1280, DEFAULT_HEIGHT = 800 };
#define DEFAULT_MEMORY MIB(256)
#define DEFAULT_MEMORY_3D MIB(512)

struct gpu_options {
	uint64_t scanouts, width, height, memory, worker;
	bool three_d;
	char *socket;
};

static const struct opt gpu_options[] = {
	OPT_U64(struct gpu_options, scanouts, "scanouts", 0, "N", 1, DISPLAY_SCANOUTS_MAX, "monitors (1)"),
	OPT_U64(struct gpu_options, width, "width", 0, "PIXELS", DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX, "the mode they prefer at first (1280)"),
	OPT_U64(struct gpu_options, height, "height", 0, "PIXELS", DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX, "(800)"),
	OPT_SIZE(struct gpu_options, memory, "memory", 0, "SIZE", MIB(1), GIB(1), 1, "what all pictures of the guest may take (256M, with 3D 512M)"),
	OPT_U64(struct gpu_options, worker, "worker", 0, "FD", 3, INT32_MAX, "coffer-gpu is at the other end of this socket, which is inherited"),
	OPT_BOOL(struct gpu_options, three_d, "3d", 0, "render in 3D, by the worker"),
	OPT_STRING(struct gpu_options, socket, "socket", 0, "NAME", "socket in the VM's directory for programs that look on"),
	OPT_END,
};

#define CONTROL(c, s, f) { .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CONTROL, .size = sizeof(struct s), .fn = f }
#define BLOB(c, s, f) \
	{ .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CONTROL, .size = sizeof(struct s), .fn = f, .feature = VIRTIO_GPU_F_RESOURCE_BLOB }
#define VIRGL(c, s, f) \
	{ .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CONTROL, .size = sizeof(struct s), .fn = f, .feature = VIRTIO_GPU_F_VIRGL }
#define CURSOR(c, f) { .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CURSOR, .size = sizeof(struct gpu_cursor_command), .fn = f }

static const struct command {
	enum gpu_type type;
	uint32_t queue;
	uint32_t size;
	gpu_command_fn *fn;
	uint64_t feature; /* without which the guest may not use it */
} commands[] = {
	CONTROL(GET_DISPLAY_INFO, gpu_header, gpu_get_display_info),
	CONTROL(RESOURCE_CREATE_2D, gpu_create_2d, gpu_resource_create_2d),
	CONTROL(RESOURCE_UNREF, gpu_resource_only, gpu_resource_unref),
	CONTROL(SET_SCANOUT, gpu_set_scanout, gpu_set_scanout),
	CONTROL(RESOURCE_FLUSH, gpu_flush, gpu_flush),
	CONTROL(TRANSFER_TO_HOST_2D, gpu_transfer, gpu_transfer_to_host_2d),
	CONTROL(RESOURCE_ATTACH_BACKING, gpu_attach, gpu_attach_backing),
	CONTROL(RESOURCE_DETACH_BACKING, gpu_resource_only, gpu_detach_backing),
	CONTROL(GET_CAPSET_INFO, gpu_get_capset_info, gpu_get_capset_info),
	CONTROL(GET_CAPSET, gpu_get_capset, gpu_get_capset),
	CONTROL(GET_EDID, gpu_get_edid, gpu_get_edid),
	BLOB(RESOURCE_CREATE_BLOB, gpu_create_blob, gpu_resource_create_blob),
	BLOB(SET_SCANOUT_BLOB, gpu_set_scanout_blob, gpu_set_scanout_blob),
	VIRGL(CTX_CREATE, gpu_ctx_create, gpu_ctx_create),
	VIRGL(CTX_DESTROY, gpu_header, gpu_ctx_destroy),
	VIRGL(CTX_ATTACH_RESOURCE, gpu_resource_only, gpu_ctx_attach),
	VIRGL(CTX_DETACH_RESOURCE, gpu_resource_only, gpu_ctx_detach),
	VIRGL(RESOURCE_CREATE_3D, gpu_create_3d, gpu_create_3d),
	VIRGL(TRANSFER_TO_HOST_3D, gpu_transfer_3d, gpu_transfer_to_host_3d),
	VIRGL(TRANSFER_FROM_HOST_3D, gpu_transfer_3d, gpu_transfer_from_host_3d),
	VIRGL(SUBMIT_3D, gpu_submit_3d, gpu_submit_3d),
	CURSOR(UPDATE_CURSOR, gpu_update_cursor),
	CURSOR(MOVE_CURSOR, gpu_move_cursor),
};

static const struct command *find_command(const struct virtio_gpu *g, uint32_t type, uint32_t queue)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];

		if (c->type == type)
			return c->queue == queue && virtio_has(&g->vd, c->feature) ? c : NULL;
	}
	return NULL;
}

static enum gpu_type run(struct gpu_call *c, uint32_t queue)
{
	const struct command *command = find_command(c->gpu, le32_get(c->in.h.type), queue);
	size_t rest;

	if (!command)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	rest = command->size - sizeof(c->in.h);
	if (vq_chain_read(c->q, c->chain, sizeof(c->in.h), (char *)&c->in + sizeof(c->in.h), rest) != rest)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	return command->fn(c);
}

static size_t answer_size(enum gpu_type type, size_t capset_len)
{
	switch ((uint32_t)type) {
	case VIRTIO_GPU_RESP_OK_DISPLAY_INFO:
		return sizeof(struct gpu_display_info);
	case VIRTIO_GPU_RESP_OK_EDID:
		return sizeof(struct gpu_edid_response);
	case VIRTIO_GPU_RESP_OK_CAPSET_INFO:
		return sizeof(struct gpu_capset_info_response);
	case VIRTIO_GPU_RESP_OK_CAPSET:
		return offsetof(struct gpu_capset_response, data) + capset_len;
	default:
		return sizeof(struct gpu_header);
	}
}

/* The bytes written: none where there is no room for a header (the cursor queue's driver leaves none). */
static uint32_t write_answer(struct virtio_queue *q, const struct vq_chain *chain, const struct gpu_header *in, union gpu_answer *out,
			     enum gpu_type answer, size_t capset_len)
{
	uint32_t flags = le32_get(in->flags) & (VIRTIO_GPU_FLAG_FENCE | VIRTIO_GPU_FLAG_INFO_RING_IDX);

	if (answer_size(answer, capset_len) > chain->write_len)
		answer = VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (chain->write_len < sizeof(out->h))
		return 0;
	out->h = (struct gpu_header){ .type = le32_make(answer) };
	if (flags & VIRTIO_GPU_FLAG_FENCE) {
		out->h.flags = le32_make(flags);
		out->h.fence_id = in->fence_id;
		out->h.ctx_id = in->ctx_id;
		if (flags & VIRTIO_GPU_FLAG_INFO_RING_IDX)
			out->h.ring_idx = in->ring_idx;
	}
	return (uint32_t)vq_chain_write(q, chain, 0, out, answer_size(answer, capset_len));
}

static enum gpu_type serve(struct gpu_call *c, uint32_t queue)
{
	if (vq_chain_read(c->q, c->chain, 0, &c->in.h, sizeof(c->in.h)) != sizeof(c->in.h))
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	return run(c, queue);
}

/* ---- commands that wait ---- */

void gpu_pending_ready(struct virtio_gpu *g, uint32_t number, enum gpu_type answer)
{
	struct gpu_pending *p = &g->host.pending[number];

	p->answer = answer;
	p->ready = true;
}

static bool answer_head(struct virtio_gpu *g)
{
	struct gpu_pending *p = &g->host.pending[g->host.pending_first];
	struct virtio_queue *q = &g->vd.vq[GPU_QUEUE_CONTROL];

	if (g->host.pending_n == 0 || !p->ready)
		return false;
	vq_push(q, p->chain.head, write_answer(q, &p->chain, &p->in, &p->out, p->answer, p->out_len));
	g->host.pending_first = (g->host.pending_first + 1) % g->host.pending_max;
	g->host.pending_n--;
	return true;
}

void gpu_pending_flush(struct virtio_gpu *g)
{
	bool any = false;

	while (answer_head(g))
		any = true;
	if (!any)
		return;
	virtio_signal_queue(&g->vd, GPU_QUEUE_CONTROL);
	if (g->host.render && g->host.render->waiting) {
		g->host.render->waiting = false;
		virtio_kick(&g->vd, GPU_QUEUE_CONTROL);
	}
}

/* One that was answered at once, or has to wait for others or for the renderer. */
static void keep(struct virtio_gpu *g, struct gpu_call *c, enum gpu_type answer)
{
	struct gpu_pending *p = &g->host.pending[c->number];

	p->in = c->in.h;
	p->out_len = c->out_len;
	g->host.pending_n++;
	if (answer == GPU_LATER)
		return;
	memcpy(&p->out, &c->out, MIN(sizeof(c->out), answer_size(answer, c->out_len)));
	gpu_pending_ready(g, c->number, answer);
}

/* The next command of the control queue: 1, 0 when there is none (or no room for it now), -EBADMSG. */
static int serve_control(struct virtio_gpu *g, struct virtio_queue *q)
{
	uint32_t number = (g->host.pending_first + g->host.pending_n) % g->host.pending_max;
	struct gpu_call c = { .gpu = g, .q = q, .chain = &g->host.pending[number].chain, .number = number };
	enum gpu_type answer;
	int r;

	if (g->host.pending_n == g->host.pending_max || !gpu_render_room(g)) {
		g->host.render->waiting = true;
		return 0;
	}
	r = vq_pop(q, &g->host.pending[number].chain);
	if (r <= 0)
		return r;
	g->host.pending[number].ready = g->host.pending[number].fence = false;
	g->host.pending[number].seq = 0;
	answer = serve(&c, GPU_QUEUE_CONTROL);
	if (answer == GPU_AGAIN) {
		vq_unpop(q);
		g->host.render->waiting = g->host.render->worker.want_room = true;
		return 0;
	}
	keep(g, &c, answer);
	while (answer_head(g))
		;
	return 1;
}

/* Nothing here waits. */
static int serve_cursor(struct virtio_gpu *g, struct virtio_queue *q)
{
	struct gpu_call c = { .gpu = g, .q = q, .chain = &g->host.cursor_chain };
	int r = vq_pop(q, &g->host.cursor_chain);
	enum gpu_type answer;

	if (r <= 0)
		return r;
	answer = serve(&c, GPU_QUEUE_CURSOR);
	vq_push(q, c.chain->head, write_answer(q, c.chain, &c.in.h, &c.out, answer, 0));
	return 1;
}

static void gpu_queue_ready(struct virtio_device *vd, uint32_t qi)
{
	struct virtio_gpu *g = virtio_gpu_from(&vd->dev);
	struct virtio_queue *q = &vd->vq[qi];
	int served = 0, r;

	g->host.copied = 0;
	do {
		vq_disable_notify(q);
		while ((r = (qi == GPU_QUEUE_CONTROL ? serve_control : serve_cursor)(g, q)) > 0) {
			if (++served == GPU_BURST || g->host.copied >= GPU_BURST_BYTES) {
				virtio_kick(vd, qi);
				virtio_signal_queue(vd, qi);
				return;
			}
		}
	} while (r == 0 && !(qi == GPU_QUEUE_CONTROL && g->host.render && g->host.render->waiting) && vq_enable_notify(q));
	virtio_signal_queue(vd, qi);
	if (r < 0)
		virtio_fail(vd, "malformed request");
}

/* What waits is nobody's any more. */
static void gpu_deactivate(struct virtio_device *vd)
{
	struct virtio_gpu *g = virtio_gpu_from(&vd->dev);

	g->host.pending_n = 0;
	gpu_render_reset(g);
}

/* The driver takes the queue away, and what waits with it. */
static void gpu_queue_stop(struct virtio_device *vd, uint32_t q)
{
	struct virtio_gpu *g = virtio_gpu_from(&vd->dev);

	if (q == GPU_QUEUE_CONTROL)
		g->host.pending_n = 0;
}

static void gpu_main_work(struct virtio_device *vd)
{
	gpu_render_main(virtio_gpu_from(&vd->dev));
}

static int gpu_left_out(const struct device *d, char *text, size_t size)
{
	return gpu_render_left_out(virtio_gpu_from((struct device *)d), text, size);
}

static int gpu_quiesce(struct device *d)
{
	/* The end of the process is none of the VM: a renderer that does not come to rest is given up, and what it had is lost. */
	(void)gpu_render_quiesce(virtio_gpu_from(d));
	return 0;
}

static uint64_t gpu_features(struct virtio_device *vd)
{
	/* A blob would be memory of the guest that the renderer has to read: it cannot. */
	return VIRTIO_GPU_F_EDID | (virtio_gpu_from(&vd->dev)->host.render ? VIRTIO_GPU_F_VIRGL : VIRTIO_GPU_F_RESOURCE_BLOB);
}

static void gpu_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	const struct virtio_gpu *g = virtio_gpu_from(&vd->dev);
	const struct gpu_config c = {
		.events_read = le32_make(g->state.events),
		.num_scanouts = le32_make(g->state.nscanouts),
		.num_capsets = le32_make(g->host.render ? g->host.render->worker.ncapsets : 0),
	};

	memcpy(data, (const char *)&c + offset, len);
}

/* Only events_clear can be written. */
static void gpu_config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	struct gpu_config c = { .events_clear = le32_make(0) };

	memcpy((char *)&c + offset, data, len);
	virtio_gpu_from(&vd->dev)->state.events &= ~le32_get(c.events_clear);
}

static void on_mode(void *opaque, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct virtio_gpu *g = opaque;

	device_lock(&g->vd.dev);
	gpu_mode(g, scanout, width, height);
	device_unlock(&g->vd.dev);
}

static const struct display_gpu_ops display_ops = { .mode = on_mode };

static int make_tables(struct virtio_gpu *g, bool three_d, struct err *err)
{
	struct virtio_gpu_host *h = &g->host;

	/* Without 3D every command is answered before the next is looked at. */
	h->pending_max = three_d ? GPU_INFLIGHT_MAX : 1;
	h->pending = calloc(h->pending_max, sizeof(*h->pending));
	h->resources = calloc(1, sizeof(*h->resources));
	h->pool.chunk = calloc(GPU_CHUNKS_MAX, sizeof(*h->pool.chunk));
	if (!h->resources || !h->pool.chunk || !h->pending)
		return err_errno(err, -ENOMEM, "tables");
	for (uint32_t i = 0; i < GPU_RESOURCES_MAX; i++)
		h->resources->order[i] = (uint16_t)i;
	return 0;
}

static int gpu_open(struct device *d, const void *options, struct err *err)
{
	const struct gpu_options *o = options;
	struct virtio_gpu *g = virtio_gpu_from(d);
	struct virtio_gpu_host *h = &g->host;
	uint32_t width = o->width ? (uint32_t)o->width : DEFAULT_WIDTH, height = o->height ? (uint32_t)o->height : DEFAULT_HEIGHT;
	uint64_t memory = o->memory ? ALIGN_UP(o->memory, (uint64_t)MEM_PAGE_SIZE) : o->worker ? DEFAULT_MEMORY_3D : DEFAULT_MEMORY, need;
	int r;

	if (o->three_d != (o->worker != 0))
		return err_set(err, -EINVAL, "3d and worker=FD: each needs the other");
	h->nscanouts = o->scanouts ? (uint32_t)o->scanouts : 1;
	need = h->nscanouts * ((uint64_t)width * height * GPU_PIXEL + GPU_CURSOR_BYTES);
	if (memory < need)
		return err_set(err, -EINVAL, "memory of %llu KiB: %u of %ux%u pixels need %llu KiB and more", (unsigned long long)(memory >> 10),
			       h->nscanouts, width, height, (unsigned long long)(need >> 10));
	r = make_tables(g, o->worker != 0, err);
	if (r == 0)
		r = display_open(&d->vm->loop, &d->vm->log, memory, h->nscanouts, width, height, o->socket, &h->display, err);
	if (r < 0)
		return r;
	d->vm->display = h->display;
	for (uint32_t i = 0; i < h->nscanouts; i++) {
		h->cursor[i] = display_alloc(h->display, GPU_CURSOR_BYTES);
		if (h->cursor[i] < 0)
			return err_errno(err, (int)h->cursor[i], "memory of a cursor");
		h->mode[i].width = width;
		h->mode[i].height = height;
	}
	display_set_gpu(h->display, &display_ops, g);
	return o->worker ? gpu_render_open(g, (int)o->worker, (uint32_t)(memory >> 20), err) : 0;
}

static void gpu_reset(struct device *d)
{
	struct virtio_gpu *g = virtio_gpu_from(d);

	gpu_scanouts_reset(g);
	gpu_resources_clear(g);
	g->state = (struct virtio_gpu_state){ .nscanouts = g->host.nscanouts };
	for (uint32_t i = 0; i < g->host.nscanouts; i++) {
		g->state.scanout[i].mode_width = g->host.mode[i].width;
		g->state.scanout[i].mode_height = g->host.mode[i].height;
	}
}

static int gpu_check(struct device *d, struct err *err)
{
	const struct virtio_gpu *g = virtio_gpu_from(d);
	int r = 0;

	if (g->state.nscanouts != g->host.nscanouts)
		return err_set(err, -EINVAL, "the guest knows %u scanouts, this display has %u", g->state.nscanouts, g->host.nscanouts);
	if (g->state.events & ~VIRTIO_GPU_EVENT_DISPLAY)
		return err_set(err, -EINVAL, "events 0x%x are impossible", g->state.events);
	for (uint32_t i = 0; i < DISPLAY_SCANOUTS_MAX && r == 0; i++) {
		if (i < g->host.nscanouts)
			r = gpu_scanout_check(&g->state.scanout[i], i, err);
		else if (!gpu_scanout_is_unused(&g->state.scanout[i]))
			r = err_set(err, -EINVAL, "scanout %u is in use, this display has %u", i, g->host.nscanouts);
	}
	return r;
}

static void gpu_close(struct device *d)
{
	struct virtio_gpu_host *h = &virtio_gpu_from(d)->host;

	gpu_render_close(virtio_gpu_from(d));
	if (h->display) {
		display_set_gpu(h->display, NULL, NULL);
		d->vm->display = NULL;
		display_close(h->display);
		h->display = NULL;
	}
	free(h->resources);
	free(h->pool.chunk);
	free(h->pending);
	h->pending = NULL;
	h->resources = NULL;
	h->pool.chunk = NULL;
}

static const struct virtio_ops gpu_virtio = {
	.device_id = 16,
	.nqueues_max = GPU_NQUEUES,
	.queue_size = 256,
	.features = gpu_features,
	.config_size = sizeof(struct gpu_config),
	.config_read = gpu_config_read,
	.config_write = gpu_config_write,
	.queue_ready = gpu_queue_ready,
	.deactivate = gpu_deactivate,
	.queue_stop = gpu_queue_stop,
	.main_work = gpu_main_work,
};

const struct device_ops virtio_gpu_device = {
	.name = "gpu",
	.help = "display adapter (virtio-gpu)",
	.bus = DEVICE_VIRTIO,
	.instances = 1,
	.instance_size = sizeof(struct virtio_gpu),
	.options = gpu_options,
	.opt_size = sizeof(struct gpu_options),
	.test_options = "scanouts=2,width=64,height=64,memory=1M",
	.schema = &virtio_gpu_schema,
	.state_offset = offsetof(struct virtio_gpu, state),
	.extra = &virtio_gpu_extra,
	.virtio = &gpu_virtio,
	.open = gpu_open,
	.reset = gpu_reset,
	.left_out = gpu_left_out,
	.quiesce = gpu_quiesce,
	.check = gpu_check,
	.close = gpu_close,
};
