/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu in 3D with the real coffer-gpu: what a driver's commands draw, transfer and show; fences; what is left when the process
 * dies. The command streams are virgl's (gpu_worker_test.c).
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/gpu_driver.h"

enum { SIDE = 64, CTX = 1, RES = 7, FLAT = 8, AGAIN = 9, STEP_MS = 60000, FORMAT = DISPLAY_B8G8R8A8 };
enum { CCMD_CREATE_OBJECT = 1, CCMD_SET_FRAMEBUFFER_STATE = 5, CCMD_CLEAR = 7, OBJECT_SURFACE = 8, CLEAR_COLOR0 = 4 };
enum { TEXTURE_2D = 2, BIND_RENDER_TARGET = 2, BIND_SCANOUT = 1 << 18, BIND_CUSTOM = 1 << 17 };

struct fixture {
	struct gpu_test t;
	pid_t pid;
	uint64_t fence; /* the last */
};

static pid_t start_program(int sock)
{
	char program[512];
	pid_t pid;

	snprintf(program, sizeof(program), "%s/coffer-gpu", getenv("B"));
	pid = fork();
	if (pid == 0) {
		dup2(sock, 0);
		execl(program, "coffer-gpu", NULL);
		_exit(127);
	}
	return pid;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char options[128];
	int s[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	f->pid = start_program(s[1]);
	close(s[1]);
	snprintf(options, sizeof(options), "scanouts=2,width=128,height=96,memory=32M,3d,worker=%d", s[0]);
	gpu_begin_with(&f->t, options, VIRTIO_GPU_F_VIRGL | VIRTIO_GPU_F_EDID | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	gpu_end(&f->t);
	if (f->pid)
		assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
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

static void it_is_saved_only_without_3d_in_use(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct clear c = clear(1, 0, 0);

	assert_int_equal(f->t.dev->ops->savable(f->t.dev, &err), 0);
	scene(f);
	assert_int_equal(f->t.dev->ops->savable(f->t.dev, &err), -EBUSY);
	assert_non_null(strstr(err.text, "0 contexts, 1 resources"));
	OK(f, c);
	assert_int_equal(only(f, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), VIRTIO_GPU_RESP_OK_NODATA);
	err = (struct err)ERR_INIT;
	assert_int_equal(f->t.dev->ops->savable(f->t.dev, &err), -EBUSY);
	assert_non_null(strstr(err.text, "1 contexts, 0 resources"));
	assert_int_equal(only(f, VIRTIO_GPU_CMD_CTX_DESTROY, 0), VIRTIO_GPU_RESP_OK_NODATA);
	assert_int_equal(f->t.dev->ops->savable(f->t.dev, &err), 0);
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
	assert_int_equal(f->t.dev->ops->savable(f->t.dev, &err), 0);
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
		cmocka_unit_test_setup_teardown(it_is_saved_only_without_3d_in_use, setup, teardown),
		cmocka_unit_test_setup_teardown(contexts_that_hold_nothing_are_saved, setup, teardown),
		cmocka_unit_test_setup_teardown(a_pause_waits_for_what_is_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(after_a_reset_nothing_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(when_the_process_dies_2d_goes_on, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
