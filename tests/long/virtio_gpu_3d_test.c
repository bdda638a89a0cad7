/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu in 3D with the real coffer-gpu: what a driver's commands draw, transfer and show; fences; what is left when the process
 * dies. The command streams are virgl's (gpu_worker_test.c).
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/gpu_driver.h"
#include "tests/harness/gpu_program.h"

enum { SIDE = 64, CTX = 1, RES = 7, FLAT = 8, AGAIN = 9, STEP_MS = 60000, FORMAT = DISPLAY_B8G8R8A8 };
enum { CCMD_CREATE_OBJECT = 1, CCMD_SET_FRAMEBUFFER_STATE = 5, CCMD_CLEAR = 7, OBJECT_SURFACE = 8, CLEAR_COLOR0 = 4 };
enum { TEXTURE_2D = 2, BIND_RENDER_TARGET = 2, BIND_SCANOUT = 1 << 18, BIND_CUSTOM = 1 << 17 };

struct fixture {
	struct gpu_test t;
	pid_t pid;
	uint64_t fence; /* the last */
};

static void begin(struct fixture *f)
{
	char options[128];
	int sock;

	f->pid = gpu_program_start(&sock);
	snprintf(options, sizeof(options), "scanouts=2,width=128,height=96,memory=32M,3d,worker=%d", sock);
	gpu_begin_with(&f->t, options, VIRTIO_GPU_F_VIRGL | VIRTIO_GPU_F_EDID | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC);
}

static void end(struct fixture *f)
{
	gpu_end(&f->t);
	if (f->pid)
		assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	begin(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	end(f);
	free(f);
	return 0;
}

/* Without waiting. */
static void give(struct fixture *f, const void *command, size_t len)
{
	const struct driver_buf b[] = { { f->t.in, (uint32_t)len, false }, { f->t.out, sizeof(f->t.answer), true } };

	machine_poke(&f->t.m, f->t.in, command, len);
	driver_add(&f->t.d, GPU_QUEUE_CONTROL, b, 2);
	driver_kick(&f->t.d, GPU_QUEUE_CONTROL);
}

static uint32_t ask(struct fixture *f, const void *command, size_t len)
{
	give(f, command, len);
	while (!driver_used(&f->t.d, GPU_QUEUE_CONTROL, NULL, &f->t.used))
		assert_true(loop_step(&f->t.m.vm.loop, STEP_MS) > 0);
	assert_false(driver_needs_reset(&f->t.d));
	machine_peek(&f->t.m, f->t.out, f->t.answer, sizeof(f->t.answer));
	return le32_load(f->t.answer);
}

#define ASK(f, cmd) ask(f, &(cmd), sizeof(cmd))
#define OK(f, cmd) assert_int_equal(ASK(f, cmd), VIRTIO_GPU_RESP_OK_NODATA)

static struct gpu_header header(uint32_t type)
{
	return (struct gpu_header){ .type = le32_make(type), .ctx_id = le32_make(CTX) };
}

static uint32_t create_3d(struct fixture *f, uint32_t id, uint32_t target, uint32_t bind, uint32_t w, uint32_t h)
{
	struct gpu_create_3d c = { .h = header(VIRTIO_GPU_CMD_RESOURCE_CREATE_3D), .resource_id = le32_make(id), .target = le32_make(target),
				   .format = le32_make(FORMAT), .bind = le32_make(bind), .width = le32_make(w), .height = le32_make(h),
				   .depth = le32_make(1), .array_size = le32_make(1) };

	return ASK(f, c);
}

static uint32_t only(struct fixture *f, uint32_t type, uint32_t id)
{
	struct gpu_resource_only c = { .h = header(type), .resource_id = le32_make(id) };

	return ASK(f, c);
}

static void scene(struct fixture *f)
{
	struct gpu_ctx_create c = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE), .nlen = le32_make(4), .debug_name = "test" };

	OK(f, c);
	assert_int_equal(create_3d(f, RES, TEXTURE_2D, BIND_RENDER_TARGET | BIND_SCANOUT, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, RES), VIRTIO_GPU_RESP_OK_NODATA);
}

static void attach(struct fixture *f, uint32_t id, uint64_t gpa, uint32_t len)
{
	struct {
		struct gpu_attach a;
		struct gpu_entry_wire e[2];
	} c = { { header(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING), le32_make(id), le32_make(2) },
		{ { le64_make(gpa), le32_make(len / 2), le32_make(0) }, { le64_make(gpa + len), le32_make(len / 2), le32_make(0) } } };

	OK(f, c);
}

static uint32_t float_bits(float x)
{
	uint32_t v;

	memcpy(&v, &x, sizeof(v));
	return v;
}

struct clear {
	struct gpu_submit_3d s;
	uint32_t word[19];
};

static struct clear clear(float r, float g, float b)
{
	return (struct clear){
		.s = { .h = header(VIRTIO_GPU_CMD_SUBMIT_3D), .size = le32_make(sizeof(uint32_t) * 19) },
		.word = { CCMD_CREATE_OBJECT | OBJECT_SURFACE << 8 | 5u << 16, 1, RES, FORMAT, 0, 0,
			  CCMD_SET_FRAMEBUFFER_STATE | 3u << 16, 1, 0, 1,
			  CCMD_CLEAR | 8u << 16, CLEAR_COLOR0, float_bits(r), float_bits(g), float_bits(b), float_bits(1), 0, 0, 0 },
	};
}

static void show(struct fixture *f)
{
	struct gpu_set_scanout s = { header(VIRTIO_GPU_CMD_SET_SCANOUT), gpu_r(0, 0, SIDE, SIDE), le32_make(0), le32_make(RES) };

	OK(f, s);
}

static void flush(struct fixture *f)
{
	struct gpu_flush c = { header(VIRTIO_GPU_CMD_RESOURCE_FLUSH), gpu_r(0, 0, SIDE, SIDE), le32_make(RES), le32_make(0) };

	OK(f, c);
}

static const uint8_t *pixels(struct fixture *f)
{
	return display_bytes(f->t.gpu->host.display, f->t.gpu->host.shadow[0].offset, SIDE * SIDE * 4);
}

static struct gpu_transfer_3d transfer(uint32_t type)
{
	return (struct gpu_transfer_3d){ .h = header(type), .width = le32_make(SIDE), .height = le32_make(SIDE), .depth = le32_make(1),
					 .resource_id = le32_make(RES), .stride = le32_make(SIDE * 4) };
}

/* ---- */

static void capability_sets_are_told(void **state)
{
	struct fixture *f = *state;
	struct gpu_get_capset_info info = { .h = header(VIRTIO_GPU_CMD_GET_CAPSET_INFO), .index = le32_make(1) };
	struct gpu_get_capset get = { .h = header(VIRTIO_GPU_CMD_GET_CAPSET), .id = le32_make(2), .version = le32_make(2) };
	struct gpu_capset_info_response r;

	assert_int_equal(driver_config(&f->t.d, offsetof(struct gpu_config, num_capsets), 4), 2);
	assert_int_equal(ASK(f, info), VIRTIO_GPU_RESP_OK_CAPSET_INFO);
	memcpy(&r, f->t.answer, sizeof(r));
	assert_int_equal(le32_get(r.id), 2);
	assert_int_equal(ASK(f, get), VIRTIO_GPU_RESP_OK_CAPSET);
	assert_int_equal(f->t.used, sizeof(struct gpu_header) + le32_get(r.max_size));
	info.index = le32_make(2);
	assert_int_equal(ASK(f, info), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
	get.id = le32_make(9);
	assert_int_equal(ASK(f, get), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
}

static void what_is_drawn_is_shown_by_a_flush(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);
	uint64_t frame;

	scene(f);
	show(f);
	OK(f, c);
	frame = display_frame(f->t.gpu->host.display);
	flush(f);
	assert_true(display_frame(f->t.gpu->host.display) > frame);
	for (size_t i = 0; i < SIDE * SIDE; i++)
		assert_memory_equal(pixels(f) + i * 4, ((const uint8_t[]){ 0, 0, 255, 255 }), 4);
}

static void a_fenced_stream_is_answered_with_its_fence(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);
	struct gpu_header h;

	scene(f);
	c.s.h.flags = le32_make(VIRTIO_GPU_FLAG_FENCE);
	c.s.h.fence_id = le64_make(0x123456789abcull);
	OK(f, c);
	memcpy(&h, f->t.answer, sizeof(h));
	assert_int_equal(le64_get(h.fence_id), 0x123456789abcull);
	assert_int_equal(le32_get(h.ctx_id), CTX);
}

static void commands_are_answered_in_order(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);
	struct gpu_get_edid e = { .h = header(VIRTIO_GPU_CMD_GET_EDID) };
	uint32_t head;

	scene(f);
	/* The second needs nobody, and waits all the same. */
	c.s.h.flags = le32_make(VIRTIO_GPU_FLAG_FENCE);
	give(f, &c, sizeof(c));
	f->t.in += 4096;
	give(f, &e, sizeof(e));
	f->t.in -= 4096;
	while (!driver_used(&f->t.d, GPU_QUEUE_CONTROL, &head, &f->t.used))
		assert_true(loop_step(&f->t.m.vm.loop, STEP_MS) > 0);
	assert_int_equal(f->t.used, sizeof(struct gpu_header));
	assert_true(driver_used(&f->t.d, GPU_QUEUE_CONTROL, &head, &f->t.used));
	assert_int_equal(f->t.used, sizeof(struct gpu_edid_response));
}

static void transfers_go_both_ways_over_scattered_pages(void **state)
{
	struct fixture *f = *state;
	struct gpu_transfer_3d to = transfer(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D), from = transfer(VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D);
	enum { BYTES = SIDE * SIDE * 4 };
	uint8_t picture[BYTES], back[BYTES], zeros[BYTES] = { 0 };

	for (size_t i = 0; i < BYTES; i++)
		picture[i] = (uint8_t)(i * 11 + i / 251);
	scene(f);
	attach(f, RES, GPU_TEST_PIXELS, BYTES);
	machine_poke(&f->t.m, GPU_TEST_PIXELS, picture, BYTES / 2);
	machine_poke(&f->t.m, GPU_TEST_PIXELS + BYTES, picture + BYTES / 2, BYTES / 2);
	OK(f, to);
	machine_poke(&f->t.m, GPU_TEST_PIXELS, zeros, BYTES / 2);
	machine_poke(&f->t.m, GPU_TEST_PIXELS + BYTES, zeros, BYTES / 2);
	OK(f, from);
	machine_peek(&f->t.m, GPU_TEST_PIXELS, back, BYTES / 2);
	machine_peek(&f->t.m, GPU_TEST_PIXELS + BYTES, back + BYTES / 2, BYTES / 2);
	assert_memory_equal(back, picture, BYTES);
	show(f);
	flush(f);
	assert_memory_equal(pixels(f), picture, BYTES);
}

static void bytes_beside_what_comes_from_the_host_stay(void **state)
{
	struct fixture *f = *state;
	struct gpu_transfer_3d from = transfer(VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D);
	struct clear c = clear(0, 0, 1);
	enum { BYTES = SIDE * SIDE * 4 };
	uint8_t before[BYTES / 2], after[BYTES / 2];

	scene(f);
	attach(f, RES, GPU_TEST_PIXELS, BYTES);
	OK(f, c);
	memset(before, 0x5a, sizeof(before));
	machine_poke(&f->t.m, GPU_TEST_PIXELS, before, sizeof(before));
	from.width = le32_make(4);
	from.height = le32_make(3);
	OK(f, from);
	machine_peek(&f->t.m, GPU_TEST_PIXELS, after, sizeof(after));
	for (size_t i = 0; i < sizeof(after); i++) {
		size_t x = i % (SIDE * 4) / 4, y = i / (SIDE * 4);
		static const uint8_t blue[4] = { 255, 0, 0, 255 };

		assert_int_equal(after[i], x < 4 && y < 3 ? blue[i % 4] : 0x5a);
	}
}

static void resources_of_2d_work_beside(void **state)
{
	struct fixture *f = *state;

	scene(f);
	assert_int_equal(gpu_create(&f->t, FLAT, FORMAT, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	/* As Linux does with every handle. */
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, FLAT), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, 99), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
}

static void commands_of_2d_do_not_reach_pixels_of_3d(void **state)
{
	struct fixture *f = *state;
	struct gpu_transfer t = { .h = header(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D), .r = gpu_r(0, 0, 1, 1), .resource_id = le32_make(RES) };

	scene(f);
	attach(f, RES, GPU_TEST_PIXELS, 8192);
	assert_int_equal(ASK(f, t), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
}

static void errors_of_the_renderer_are_the_answers(void **state)
{
	struct fixture *f = *state;
	struct gpu_transfer_3d to = transfer(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D);
	struct clear c = clear(0, 0, 0);

	assert_int_equal(ASK(f, c), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER); /* no context */
	assert_int_equal(ASK(f, to), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(create_3d(f, RES, TEXTURE_2D, BIND_RENDER_TARGET, 0, 5), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
	assert_null(gpu_find(f->t.gpu, RES));
	assert_int_equal(create_3d(f, RES, TEXTURE_2D, BIND_RENDER_TARGET, 8192, 8192), VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY);
	scene(f);
	assert_int_equal(ASK(f, to), VIRTIO_GPU_RESP_ERR_UNSPEC); /* no backing */
	c.s.size = le32_make(UINT32_MAX - 3);
	assert_int_equal(ASK(f, c), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
	c.s.size = le32_make(sizeof(c.word) + 8); /* more than there is */
	assert_int_equal(ASK(f, c), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
}

static void what_is_dropped_frees_its_memory(void **state)
{
	struct fixture *f = *state;
	uint64_t used;

	scene(f);
	used = display_memory_used(f->t.gpu->host.display);
	for (int i = 0; i < 3; i++) {
		attach(f, RES, GPU_TEST_PIXELS, 8 << 10);
		assert_true(display_memory_used(f->t.gpu->host.display) > used);
		assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, RES), VIRTIO_GPU_RESP_OK_NODATA);
		assert_int_equal(display_memory_used(f->t.gpu->host.display), used);
	}
	attach(f, RES, GPU_TEST_PIXELS, 8 << 10);
	show(f);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(display_memory_used(f->t.gpu->host.display), used);
	assert_null(gpu_find(f->t.gpu, RES));
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
}

static void check_left_out(struct fixture *f, const char *what)
{
	char text[256] = "";
	int n = f->t.dev->ops->left_out(f->t.dev, text, sizeof(text));

	assert_int_equal(n, strlen(text));
	if (what)
		assert_non_null(strstr(text, what));
	else
		assert_int_equal(n, 0);
}

static void what_is_left_out_is_said(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);

	check_left_out(f, NULL);
	scene(f);
	check_left_out(f, "(0 contexts, 1 resources)");
	OK(f, c);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	check_left_out(f, "(1 contexts, 0 resources)");
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_DESTROY, 0), VIRTIO_GPU_RESP_OK_NODATA);
	check_left_out(f, NULL);
}

static void contexts_that_hold_nothing_are_saved(void **state)
{
	struct fixture *f = *state;
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	static uint8_t saved[1 << 20];
	struct err err = ERR_INIT;
	struct clear c = clear(0, 1, 0);
	long n;

	OK(f, create);
	assert_int_equal(device_quiesce(f->t.dev), 0);
	check_left_out(f, NULL);
	assert_true(device_saved_size(f->t.dev) <= sizeof(saved));
	n = device_save(f->t.dev, saved, sizeof(saved));
	assert_true(n > 0);
	if (device_load(f->t.dev, saved, (size_t)n, &err) < 0)
		fail_msg("%s", err.text);
	device_resume(f->t.dev);
	/* It can be drawn with. */
	assert_int_equal(create_3d(f, RES, TEXTURE_2D, BIND_RENDER_TARGET | BIND_SCANOUT, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, RES), VIRTIO_GPU_RESP_OK_NODATA);
	show(f);
	OK(f, c);
	flush(f);
	assert_int_equal(pixels(f)[1], 255);
}

/* f's state and memory in a machine with a renderer of its own; f goes on. */
static void move(struct fixture *f, struct fixture *to)
{
	static uint8_t saved[1 << 20], again[1 << 20], page[1 << 20];
	struct err err = ERR_INIT;
	long n;

	begin(to);
	assert_int_equal(device_quiesce(f->t.dev), 0);
	assert_true(device_saved_size(f->t.dev) <= sizeof(saved));
	n = device_save(f->t.dev, saved, sizeof(saved));
	assert_true(n > 0);
	if (device_load(to->t.dev, saved, (size_t)n, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(device_save(to->t.dev, again, sizeof(again)), n);
	assert_memory_equal(again, saved, n);
	for (uint64_t at = 0; at < GPU_TEST_RAM; at += sizeof(page)) {
		machine_peek(&f->t.m, at, page, sizeof(page));
		machine_poke(&to->t.m, at, page, sizeof(page));
	}
	memcpy(to->t.d.q, f->t.d.q, sizeof(f->t.d.q));
	device_resume(to->t.dev);
	device_resume(f->t.dev);
}

static void a_restored_guest_has_its_picture_and_may_draw_anew(void **state)
{
	struct fixture *f = *state, to = { 0 };
	struct clear red = clear(1, 0, 0), green = clear(0, 1, 0);

	scene(f);
	attach(f, RES, GPU_TEST_PIXELS, SIDE * SIDE * 4);
	assert_int_equal(create_3d(f, AGAIN, TEXTURE_2D, BIND_RENDER_TARGET | BIND_SCANOUT, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	show(f);
	OK(f, red);
	flush(f);
	OK(f, green); /* not flushed */
	move(f, &to);
	for (size_t i = 0; i < SIDE * SIDE; i++)
		assert_memory_equal(gpu_seen(&to.t, 0) + i * 4, ((const uint8_t[]){ 0, 0, 255, 255 }), 4);
	/* What there was is gone, and says so; the picture stays. */
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct gpu_transfer_3d upload = transfer(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D);
	struct gpu_flush fl = { header(VIRTIO_GPU_CMD_RESOURCE_FLUSH), gpu_r(0, 0, SIDE, SIDE), le32_make(RES), le32_make(0) };
	struct gpu_set_scanout flip = { header(VIRTIO_GPU_CMD_SET_SCANOUT), gpu_r(0, 0, SIDE, SIDE), le32_make(0), le32_make(AGAIN) };

	assert_int_equal(ASK(&to, green), VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID);
	assert_int_equal(ASK(&to, create), VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID);
	assert_int_equal(ASK(&to, upload), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(ASK(&to, fl), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(ASK(&to, flip), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(create_3d(&to, RES, TEXTURE_2D, BIND_RENDER_TARGET, SIDE, SIDE), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	show(&to);
	assert_int_equal(gpu_seen(&to.t, 0)[2], 255);
	/* It is let go of, and all of it is made anew. */
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, RES), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(gpu_seen(&to.t, 0)[2], 255);
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_RESOURCE_UNREF, AGAIN), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_CTX_DESTROY, 0), VIRTIO_GPU_RESP_OK_NODATA);
	check_left_out(&to, NULL);
	scene(&to);
	show(&to);
	OK(&to, green);
	flush(&to);
	assert_int_equal(pixels(&to)[1], 255);
	end(&to);
}

static void the_guest_that_was_saved_draws_on(void **state)
{
	struct fixture *f = *state, to = { 0 };
	struct clear red = clear(1, 0, 0), green = clear(0, 1, 0);

	scene(f);
	show(f);
	OK(f, red);
	flush(f);
	move(f, &to);
	end(&to);
	OK(f, green);
	flush(f);
	assert_int_equal(pixels(f)[1], 255);
	assert_int_equal(pixels(f)[2], 0);
}

static void without_its_renderer_it_is_saved_all_the_same(void **state)
{
	struct fixture *f = *state, to = { 0 };
	struct clear red = clear(1, 0, 0);

	scene(f);
	show(f);
	OK(f, red);
	flush(f);
	assert_int_equal(kill(f->pid, SIGKILL), 0);
	assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
	f->pid = 0;
	move(f, &to);
	assert_int_equal(gpu_seen(&to.t, 0)[2], 255);
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_CTX_DESTROY, 0), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(&to, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	scene(&to);
	end(&to);
}

static void a_pause_waits_for_what_is_under_way(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);

	scene(f);
	c.s.h.flags = le32_make(VIRTIO_GPU_FLAG_FENCE);
	give(f, &c, sizeof(c));
	assert_int_equal(device_quiesce(f->t.dev), 0);
	assert_true(driver_used(&f->t.d, GPU_QUEUE_CONTROL, NULL, NULL));
	device_resume(f->t.dev);
}

static void after_a_reset_nothing_is_left(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(0, 1, 0);

	scene(f);
	give(f, &c, sizeof(c));
	driver_start(&f->t.d, VIRTIO_GPU_F_VIRGL, 0);
	assert_int_equal(gpu_find(f->t.gpu, RES) != NULL, false);
	/* The same names again. */
	scene(f);
	show(f);
	OK(f, c);
	flush(f);
	assert_int_equal(pixels(f)[1], 255);
}

static void when_the_process_dies_2d_goes_on(void **state)
{
	struct fixture *f = *state;
	struct clear c = clear(1, 0, 0);

	scene(f);
	show(f);
	OK(f, c);
	flush(f);
	assert_int_equal(gpu_create(&f->t, FLAT, FORMAT, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	/* What was asked and answered before is not done again: the number has another owner now. */
	assert_int_equal(create_3d(f, AGAIN, TEXTURE_2D, BIND_RENDER_TARGET, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, AGAIN), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(create_3d(f, AGAIN, TEXTURE_2D, BIND_RENDER_TARGET, SIDE, SIDE), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(kill(f->pid, SIGKILL), 0);
	assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
	f->pid = 0;
	while (gpu_worker_alive(&f->t.gpu->host.render->worker))
		assert_true(loop_step(&f->t.m.vm.loop, STEP_MS) >= 0);
	assert_non_null(gpu_find(f->t.gpu, AGAIN));
	/* The picture stays; 3D fails; what is 2D can be made and shown. */
	assert_int_equal(pixels(f)[2], 255);
	assert_int_equal(ASK(f, c), VIRTIO_GPU_RESP_ERR_UNSPEC);
	assert_int_equal(create_3d(f, 50, TEXTURE_2D, BIND_RENDER_TARGET, SIDE, SIDE), VIRTIO_GPU_RESP_ERR_UNSPEC);
	assert_null(gpu_find(f->t.gpu, 50));
	struct gpu_set_scanout s = { header(VIRTIO_GPU_CMD_SET_SCANOUT), gpu_r(0, 0, SIDE, SIDE), le32_make(0), le32_make(FLAT) };
	OK(f, s);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	assert_null(gpu_find(f->t.gpu, RES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(capability_sets_are_told, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_drawn_is_shown_by_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fenced_stream_is_answered_with_its_fence, setup, teardown),
		cmocka_unit_test_setup_teardown(commands_are_answered_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(transfers_go_both_ways_over_scattered_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_beside_what_comes_from_the_host_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(resources_of_2d_work_beside, setup, teardown),
		cmocka_unit_test_setup_teardown(commands_of_2d_do_not_reach_pixels_of_3d, setup, teardown),
		cmocka_unit_test_setup_teardown(errors_of_the_renderer_are_the_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_dropped_frees_its_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_left_out_is_said, setup, teardown),
		cmocka_unit_test_setup_teardown(contexts_that_hold_nothing_are_saved, setup, teardown),
		cmocka_unit_test_setup_teardown(a_restored_guest_has_its_picture_and_may_draw_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(the_guest_that_was_saved_draws_on, setup, teardown),
		cmocka_unit_test_setup_teardown(without_its_renderer_it_is_saved_all_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(a_pause_waits_for_what_is_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(after_a_reset_nothing_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(when_the_process_dies_2d_goes_on, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
