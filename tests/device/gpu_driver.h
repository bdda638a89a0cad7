/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of virtio-gpu share: a machine with the device, and commands as a driver gives them. */
#pragma once
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/backend/display_state.h"
#include "devices/virtio_gpu.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { GPU_TEST_RAM = 32 << 20, GPU_TEST_W = 128, GPU_TEST_H = 96 };
#define GPU_TEST_PIXELS 0x800000ull /* where pictures of the guest are put */
#define GPU_TEST_FEATURES (VIRTIO_GPU_F_EDID | VIRTIO_GPU_F_RESOURCE_BLOB | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC)

struct gpu_test {
	struct machine m;
	struct device *dev;
	struct virtio_gpu *gpu;
	struct driver d;
	uint64_t in, out; /* where commands and answers are put */
	uint8_t answer[sizeof(union gpu_answer)];
	uint32_t used;    /* bytes of it */
};

static inline void gpu_begin_with(struct gpu_test *t, const char *options, uint64_t features)
{
	memset(t, 0, sizeof(*t));
	machine_init(&t->m, GPU_TEST_RAM);
	t->dev = machine_add(&t->m, "gpu", options);
	t->gpu = virtio_gpu_from(t->dev);
	driver_init(&t->d, &t->m, t->dev);
	driver_start(&t->d, features, 0);
	machine_irqs(t->dev);
	t->in = driver_alloc(&t->d, 4 << 20, 4096);
	t->out = driver_alloc(&t->d, 4096, 4096);
}

static inline void gpu_begin(struct gpu_test *t)
{
	gpu_begin_with(t, "scanouts=2,width=1280,height=800,memory=32M", GPU_TEST_FEATURES);
}

static inline void gpu_end(struct gpu_test *t)
{
	machine_finish(&t->m);
}

/* The answer's type; 0 when nothing was written. */
static inline uint32_t gpu_send(struct gpu_test *t, const void *command, size_t len, uint32_t room)
{
	const struct driver_buf b[] = { { t->in, (uint32_t)len, false }, { t->out, room, true } };
	static const uint8_t zeros[sizeof(t->answer)];
	uint32_t queue = le32_load(command) >= VIRTIO_GPU_CMD_UPDATE_CURSOR ? GPU_QUEUE_CURSOR : GPU_QUEUE_CONTROL;

	machine_poke(&t->m, t->in, command, len);
	machine_poke(&t->m, t->out, zeros, sizeof(zeros));
	driver_add(&t->d, queue, b, room ? 2 : 1);
	driver_kick(&t->d, queue);
	assert_true(driver_used(&t->d, queue, NULL, &t->used));
	assert_false(driver_needs_reset(&t->d));
	machine_peek(&t->m, t->out, t->answer, sizeof(t->answer));
	return le32_load(t->answer);
}

#define GPU_DO(t, cmd) gpu_send(t, &(cmd), sizeof(cmd), sizeof((t)->answer))
#define GPU_OK(t, cmd) assert_int_equal(GPU_DO(t, cmd), VIRTIO_GPU_RESP_OK_NODATA)

static inline struct gpu_header gpu_header(uint32_t type)
{
	return (struct gpu_header){ .type = le32_make(type) };
}

static inline struct gpu_rect_wire gpu_r(uint32_t x, uint32_t y, uint32_t w, uint32_t h)
{
	return (struct gpu_rect_wire){ le32_make(x), le32_make(y), le32_make(w), le32_make(h) };
}

static inline uint32_t gpu_create(struct gpu_test *t, uint32_t id, uint32_t format, uint32_t w, uint32_t h)
{
	struct gpu_create_2d c = { gpu_header(VIRTIO_GPU_CMD_RESOURCE_CREATE_2D), le32_make(id), le32_make(format), le32_make(w), le32_make(h) };

	return GPU_DO(t, c);
}

static inline uint32_t gpu_only(struct gpu_test *t, uint32_t type, uint32_t id)
{
	struct gpu_resource_only c = { .h = gpu_header(type), .resource_id = le32_make(id) };

	return GPU_DO(t, c);
}

static inline uint32_t gpu_unref(struct gpu_test *t, uint32_t id)
{
	return gpu_only(t, VIRTIO_GPU_CMD_RESOURCE_UNREF, id);
}

/* Commands with a list. */
static inline uint32_t gpu_list(struct gpu_test *t, const void *command, size_t len, const struct gpu_entry_wire *e, uint32_t n)
{
	uint8_t *all = malloc(len + n * sizeof(*e));
	uint32_t r;

	memcpy(all, command, len);
	if (n)
		memcpy(all + len, e, n * sizeof(*e));
	r = gpu_send(t, all, len + n * sizeof(*e), sizeof(t->answer));
	free(all);
	return r;
}

static inline struct gpu_entry_wire gpu_piece(uint64_t gpa, uint32_t len)
{
	return (struct gpu_entry_wire){ .addr = le64_make(gpa), .length = le32_make(len) };
}

static inline uint32_t gpu_attach(struct gpu_test *t, uint32_t id, const struct gpu_entry_wire *e, uint32_t n)
{
	struct gpu_attach c = { gpu_header(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING), le32_make(id), le32_make(n) };

	return gpu_list(t, &c, sizeof(c), e, n);
}

static inline uint32_t gpu_blob(struct gpu_test *t, uint32_t id, uint64_t size, const struct gpu_entry_wire *e, uint32_t n)
{
	struct gpu_create_blob c = { .h = gpu_header(VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB), .resource_id = le32_make(id),
				     .blob_mem = le32_make(VIRTIO_GPU_BLOB_MEM_GUEST), .nr_entries = le32_make(n), .size = le64_make(size) };

	return gpu_list(t, &c, sizeof(c), e, n);
}

static inline uint32_t gpu_transfer(struct gpu_test *t, uint32_t id, struct gpu_rect_wire r, uint64_t offset)
{
	struct gpu_transfer c = { .h = gpu_header(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D), .r = r, .offset = le64_make(offset),
				  .resource_id = le32_make(id) };

	return GPU_DO(t, c);
}

static inline uint32_t gpu_show(struct gpu_test *t, uint32_t scanout, uint32_t id, struct gpu_rect_wire r)
{
	struct gpu_set_scanout c = { gpu_header(VIRTIO_GPU_CMD_SET_SCANOUT), r, le32_make(scanout), le32_make(id) };

	return GPU_DO(t, c);
}

static inline uint32_t gpu_flush_rect(struct gpu_test *t, uint32_t id, struct gpu_rect_wire r)
{
	struct gpu_flush c = { .h = gpu_header(VIRTIO_GPU_CMD_RESOURCE_FLUSH), .r = r, .resource_id = le32_make(id) };

	return GPU_DO(t, c);
}

static inline struct gpu_set_scanout_blob gpu_blob_frame(uint32_t scanout, uint32_t id, uint32_t w, uint32_t h, uint32_t stride)
{
	return (struct gpu_set_scanout_blob){ .h = gpu_header(VIRTIO_GPU_CMD_SET_SCANOUT_BLOB), .r = gpu_r(0, 0, w, h),
					      .scanout_id = le32_make(scanout), .resource_id = le32_make(id), .width = le32_make(w),
					      .height = le32_make(h), .format = le32_make(DISPLAY_B8G8R8X8), .strides = { le32_make(stride) } };
}

static inline uint32_t gpu_cursor(struct gpu_test *t, uint32_t type, uint32_t scanout, uint32_t id, uint32_t x, uint32_t y, uint32_t hot)
{
	struct gpu_cursor_command c = { .h = gpu_header(type), .scanout_id = le32_make(scanout), .x = le32_make(x), .y = le32_make(y),
					.resource_id = le32_make(id), .hot_x = le32_make(hot), .hot_y = le32_make(hot + 1) };

	return GPU_DO(t, c);
}

/* Random bytes in guest memory; `copy` gets them too. */
static inline void gpu_fill(struct gpu_test *t, uint64_t gpa, uint8_t *copy, size_t len, uint64_t seed)
{
	struct rnd r = { seed };

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = rnd_next(&r);

		memcpy(copy + i, &v, MIN(len - i, sizeof(v)));
	}
	machine_poke(&t->m, gpa, copy, len);
}

/* Resource 1, GPU_TEST_W x GPU_TEST_H, its backing in one piece at GPU_TEST_PIXELS, on scanout 0; its random pixels in `picture`. */
static inline void gpu_picture(struct gpu_test *t, uint8_t *picture)
{
	const size_t n = GPU_TEST_W * GPU_TEST_H * 4;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, (uint32_t)n);

	gpu_fill(t, GPU_TEST_PIXELS, picture, n, 7);
	assert_int_equal(gpu_create(t, 1, DISPLAY_B8G8R8X8, GPU_TEST_W, GPU_TEST_H), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(gpu_attach(t, 1, &e, 1), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, GPU_TEST_W, GPU_TEST_H), 0), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(gpu_show(t, 0, 1, gpu_r(0, 0, GPU_TEST_W, GPU_TEST_H)), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(gpu_flush_rect(t, 1, gpu_r(0, 0, GPU_TEST_W, GPU_TEST_H)), VIRTIO_GPU_RESP_OK_NODATA);
}

/* What clients would see. */
static inline const struct display_surface *gpu_surface(struct gpu_test *t, uint32_t scanout)
{
	return &t->m.vm.display->scanout[scanout].surface;
}

static inline const uint8_t *gpu_seen(struct gpu_test *t, uint32_t scanout)
{
	const struct display_surface *s = gpu_surface(t, scanout);

	assert_true(s->width > 0);
	return display_bytes(t->m.vm.display, s->offset, (uint64_t)s->stride * (s->height - 1) + s->width * 4);
}

static inline bool gpu_sees(struct gpu_test *t, uint32_t scanout, const uint8_t *pixels, uint32_t stride)
{
	const struct display_surface *s = gpu_surface(t, scanout);
	const uint8_t *p = gpu_seen(t, scanout);

	for (uint32_t y = 0; y < s->height; y++)
		if (memcmp(p + (size_t)y * s->stride, pixels + (size_t)y * stride, s->width * 4) != 0)
			return false;
	return true;
}
