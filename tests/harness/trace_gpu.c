/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest may say to virtio-gpu: commands about a few small resources, most of them possible. Words in the order of the
 * structs in devices/virtio_gpu.h.
 */
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/util.h"
#include "tests/harness/trace.h"

enum { IDS = 5, HEADER = sizeof(struct gpu_header), MEMORY = 512 << 10 };

struct words {
	uint8_t *p;
	size_t n;
};

static void put(struct words *w, uint32_t v)
{
	le32_store(w->p + w->n, v);
	w->n += 4;
}

static void put_rect(struct words *w, struct rnd *r)
{
	bool whole = rnd_below(r, 2);

	put(w, whole ? 0 : rnd_below(r, 40));
	put(w, whole ? 0 : rnd_below(r, 40));
	put(w, whole ? 64 : rnd_below(r, 80));
	put(w, whole ? 64 : rnd_below(r, 80));
}

static void put_entries(struct words *w, struct rnd *r, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		put(w, MEMORY + rnd_below(r, 64) * 4096);
		put(w, 0);
		put(w, rnd_below(r, 4) ? 16384 : rnd_below(r, 3000));
		put(w, 0);
	}
}

static uint32_t pick_format(struct rnd *r)
{
	static const uint32_t f[] = { 1, 2, 3, 4, 67, 68, 121, 134, 1, 1, 0, 5 };

	return f[rnd_below(r, ARRAY_SIZE(f))];
}

static void put_blob_frame(struct words *w, struct rnd *r)
{
	put(w, 64 + rnd_below(r, 2) * 16);
	put(w, 64);
	put(w, pick_format(r));
	put(w, 0);
	put(w, 256 + rnd_below(r, 2) * 64); /* strides, offsets */
	for (int i = 0; i < 3; i++)
		put(w, 0);
	put(w, rnd_below(r, 2) * 64);
	for (int i = 0; i < 3; i++)
		put(w, 0);
}

size_t trace_gpu_request(struct rnd *r, uint32_t queue, uint8_t *buf)
{
	static const enum gpu_type control[] = {
		VIRTIO_GPU_CMD_GET_DISPLAY_INFO, VIRTIO_GPU_CMD_RESOURCE_CREATE_2D, VIRTIO_GPU_CMD_RESOURCE_UNREF,
		VIRTIO_GPU_CMD_SET_SCANOUT, VIRTIO_GPU_CMD_RESOURCE_FLUSH, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D,
		VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, VIRTIO_GPU_CMD_GET_EDID,
		VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB, VIRTIO_GPU_CMD_SET_SCANOUT_BLOB, VIRTIO_GPU_CMD_RESOURCE_CREATE_2D,
		VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, VIRTIO_GPU_CMD_SET_SCANOUT,
	};
	struct words w = { buf, HEADER };
	enum gpu_type type = queue == GPU_QUEUE_CURSOR ? VIRTIO_GPU_CMD_UPDATE_CURSOR + rnd_below(r, 2) : control[rnd_below(r, ARRAY_SIZE(control))];
	uint32_t id = rnd_below(r, IDS), n = 1 + rnd_below(r, 4);

	memset(buf, 0, TRACE_REQUEST_MAX);
	le32_store(buf, type);
	le32_store(buf + 4, rnd_below(r, 4));
	le64_store(buf + 8, rnd_next(r));
	if (type == VIRTIO_GPU_CMD_SET_SCANOUT || type == VIRTIO_GPU_CMD_RESOURCE_FLUSH || type == VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D ||
	    type == VIRTIO_GPU_CMD_SET_SCANOUT_BLOB)
		put_rect(&w, r);
	if (type == VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D) {
		put(&w, rnd_below(r, 2) ? 0 : rnd_below(r, 8192));
		put(&w, 0);
	}
	if (type == VIRTIO_GPU_CMD_SET_SCANOUT || type == VIRTIO_GPU_CMD_SET_SCANOUT_BLOB || type == VIRTIO_GPU_CMD_GET_EDID)
		put(&w, rnd_below(r, 3));
	if (queue == GPU_QUEUE_CURSOR) {
		put(&w, rnd_below(r, 3));
		put(&w, rnd_below(r, 100));
		put(&w, (uint32_t)-(int32_t)rnd_below(r, 10));
		put(&w, 0);
	}
	put(&w, id);
	if (type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D) {
		put(&w, pick_format(r));
		put(&w, 64);
		put(&w, 64 + rnd_below(r, 2) * 30);
	} else if (type == VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING) {
		put(&w, n);
		put_entries(&w, r, n);
	} else if (type == VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB) {
		put(&w, 1 + (rnd_below(r, 8) == 0));
		put(&w, rnd_below(r, 4));
		put(&w, n);
		put(&w, 0);
		put(&w, 0);
		put(&w, 16384 + rnd_below(r, 2) * 16384);
		put(&w, 0);
		put_entries(&w, r, n);
	} else if (type == VIRTIO_GPU_CMD_SET_SCANOUT_BLOB) {
		put_blob_frame(&w, r);
	} else if (queue == GPU_QUEUE_CURSOR) {
		put(&w, rnd_below(r, 70));
		put(&w, rnd_below(r, 64));
		put(&w, 0);
	} else {
		put(&w, 0);
	}
	return w.n;
}
