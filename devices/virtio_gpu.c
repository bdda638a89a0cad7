/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: a display adapter (virtio 1.2, 5.7), in 2D.
 *
 * Guest contract: a control and a cursor queue of 256; 1 to 4 scanouts; all 2D commands; EDID; blobs in guest memory, which can
 * be shown. Not offered: 3D, capability sets, UUIDs of resources (no other device could use one). A command that is not known
 * here is answered with ERR_UNSPEC. Every command is complete when it is answered, so fences pass with the answer.
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

struct gpu_options {
	uint64_t scanouts, width, height, memory;
	char *socket;
};

static const struct opt gpu_options[] = {
	OPT_U64(struct gpu_options, scanouts, "scanouts", 0, "N", 1, DISPLAY_SCANOUTS_MAX, "monitors (1)"),
	OPT_U64(struct gpu_options, width, "width", 0, "PIXELS", DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX, "the mode they prefer at first (1280)"),
	OPT_U64(struct gpu_options, height, "height", 0, "PIXELS", DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX, "(800)"),
	OPT_SIZE(struct gpu_options, memory, "memory", 0, "SIZE", MIB(1), GIB(1), 1, "what all pictures of the guest may take (256M)"),
	OPT_STRING(struct gpu_options, socket, "socket", 0, "NAME", "socket in the VM's directory for programs that look on"),
	OPT_END,
};

#define CONTROL(c, s, f) { .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CONTROL, .size = sizeof(struct s), .fn = f }
#define BLOB(c, s, f) \
	{ .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CONTROL, .size = sizeof(struct s), .fn = f, .feature = VIRTIO_GPU_F_RESOURCE_BLOB }
#define CURSOR(c, f) { .type = VIRTIO_GPU_CMD_##c, .queue = GPU_QUEUE_CURSOR, .size = sizeof(struct gpu_cursor_command), .fn = f }

/* There are no capability sets that could have been asked for. */
static enum gpu_type no_capset(struct gpu_call *c)
{
	(void)c;
	return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
}

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
	CONTROL(GET_CAPSET_INFO, gpu_header, no_capset),
	CONTROL(GET_CAPSET, gpu_header, no_capset),
	CONTROL(GET_EDID, gpu_get_edid, gpu_get_edid),
	BLOB(RESOURCE_CREATE_BLOB, gpu_create_blob, gpu_resource_create_blob),
	BLOB(SET_SCANOUT_BLOB, gpu_set_scanout_blob, gpu_set_scanout_blob),
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
	const struct vq_chain *chain = &c->gpu->host.chain;
	const struct command *command = find_command(c->gpu, le32_get(c->in.h.type), queue);
	size_t rest;

	if (!command)
		return VIRTIO_GPU_RESP_ERR_UNSPEC;
	rest = command->size - sizeof(c->in.h);
	if (vq_chain_read(c->q, chain, sizeof(c->in.h), (char *)&c->in + sizeof(c->in.h), rest) != rest)
		return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	return command->fn(c);
}

static size_t answer_size(enum gpu_type type)
{
	if (type == VIRTIO_GPU_RESP_OK_DISPLAY_INFO)
		return sizeof(struct gpu_display_info);
	return type == VIRTIO_GPU_RESP_OK_EDID ? sizeof(struct gpu_edid_response) : sizeof(struct gpu_header);
}

/* The bytes written: none where there is no room for a header (the cursor queue's driver leaves none). */
static uint32_t serve(struct virtio_gpu *g, uint32_t queue)
{
	const struct vq_chain *chain = &g->host.chain;
	struct gpu_call c = { .gpu = g, .q = &g->vd.vq[queue] };
	enum gpu_type answer = VIRTIO_GPU_RESP_ERR_UNSPEC;
	uint32_t flags;

	if (vq_chain_read(c.q, chain, 0, &c.in.h, sizeof(c.in.h)) == sizeof(c.in.h))
		answer = run(&c, queue);
	if (answer_size(answer) > chain->write_len)
		answer = VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
	if (chain->write_len < sizeof(c.out.h))
		return 0;
	c.out.h.type = le32_make(answer);
	flags = le32_get(c.in.h.flags) & (VIRTIO_GPU_FLAG_FENCE | VIRTIO_GPU_FLAG_INFO_RING_IDX);
	if (flags & VIRTIO_GPU_FLAG_FENCE) {
		c.out.h.flags = le32_make(flags);
		c.out.h.fence_id = c.in.h.fence_id;
		c.out.h.ctx_id = c.in.h.ctx_id;
		if (flags & VIRTIO_GPU_FLAG_INFO_RING_IDX)
			c.out.h.ring_idx = c.in.h.ring_idx;
	}
	return (uint32_t)vq_chain_write(c.q, chain, 0, &c.out, answer_size(answer));
}

static void gpu_queue_ready(struct virtio_device *vd, uint32_t qi)
{
	struct virtio_gpu *g = virtio_gpu_from(&vd->dev);
	struct virtio_queue *q = &vd->vq[qi];
	int served = 0, r;

	g->host.copied = 0;
	do {
		vq_disable_notify(q);
		while ((r = vq_pop(q, &g->host.chain)) > 0) {
			vq_push(q, g->host.chain.head, serve(g, qi));
			if (++served == GPU_BURST || g->host.copied >= GPU_BURST_BYTES) {
				virtio_kick(vd, qi);
				virtio_signal_queue(vd, qi);
				return;
			}
		}
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(vd, qi);
	if (r < 0)
		virtio_fail(vd, "malformed request");
}

static uint64_t gpu_features(struct virtio_device *vd)
{
	(void)vd;
	return VIRTIO_GPU_F_EDID | VIRTIO_GPU_F_RESOURCE_BLOB;
}

static void gpu_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	const struct virtio_gpu *g = virtio_gpu_from(&vd->dev);
	const struct gpu_config c = {
		.events_read = le32_make(g->state.events),
		.num_scanouts = le32_make(g->state.nscanouts),
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

static int make_tables(struct virtio_gpu *g, struct err *err)
{
	struct virtio_gpu_host *h = &g->host;

	h->resources = calloc(1, sizeof(*h->resources));
	h->pool.chunk = calloc(GPU_CHUNKS_MAX, sizeof(*h->pool.chunk));
	if (!h->resources || !h->pool.chunk)
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
	uint64_t memory = o->memory ? ALIGN_UP(o->memory, (uint64_t)MEM_PAGE_SIZE) : DEFAULT_MEMORY, need;
	int r;

	h->nscanouts = o->scanouts ? (uint32_t)o->scanouts : 1;
	need = h->nscanouts * ((uint64_t)width * height * GPU_PIXEL + GPU_CURSOR_BYTES);
	if (memory < need)
		return err_set(err, -EINVAL, "memory of %llu KiB: %u of %ux%u pixels need %llu KiB and more", (unsigned long long)(memory >> 10),
			       h->nscanouts, width, height, (unsigned long long)(need >> 10));
	r = make_tables(g, err);
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
	return 0;
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

	if (h->display) {
		display_set_gpu(h->display, NULL, NULL);
		d->vm->display = NULL;
		display_close(h->display);
		h->display = NULL;
	}
	free(h->resources);
	free(h->pool.chunk);
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
	.check = gpu_check,
	.close = gpu_close,
};
