/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: what of 3D a saved guest loses. Who renders is a process that says yes to everything and draws nothing, so pictures are put
 * where a renderer would have put them. The real one: tests/long/virtio_gpu_3d_test.c.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/gpu_driver.h"

enum { W = 80, H = 64, STRIDE = W * 4, SIDE = 256, CTX = 5, RES = 7, FLAT = 8, BUFFER = 9, STEP_MS = 20000, OK = VIRTIO_GPU_RESP_OK_NODATA };
#define FEATURES (VIRTIO_GPU_F_VIRGL | VIRTIO_GPU_F_EDID | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC)

struct fixture {
	struct gpu_test a, b; /* b: a fresh machine */
	pid_t pid[2];
};

/* To everything but `no`, an enum gpu_op; 0: to everything. */
static void say_yes(int sock, uint16_t no)
{
	struct gpu_ready ready = { .h = { .op = le16_make(GPU_READY) }, .version = le32_make(GPU_VERSION) };
	struct gpu_request q;

	while (recv(sock, &q, sizeof(q), 0) == sizeof(q)) {
		struct gpu_reply a = { .op = le16_make(GPU_DONE), .seq = q.seq };

		if (le16_get(q.op) == GPU_START) {
			send(sock, &ready, sizeof(ready), MSG_NOSIGNAL);
			continue;
		}
		if (no && le16_get(q.op) == no)
			a.status = le32_make((uint32_t)-ENOMEM);
		send(sock, &a, sizeof(a), MSG_NOSIGNAL);
		a.op = le16_make(GPU_FENCED);
		if (le16_get(q.flags) & GPU_FENCE)
			send(sock, &a, sizeof(a), MSG_NOSIGNAL);
	}
}

static pid_t begin(struct gpu_test *t, uint16_t no)
{
	char options[128];
	pid_t pid;
	int s[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	pid = fork();
	if (pid == 0) {
		close(s[0]);
		say_yes(s[1], no);
		_exit(0);
	}
	assert_true(pid > 0);
	close(s[1]);
	snprintf(options, sizeof(options), "scanouts=2,width=128,height=96,memory=32M,3d,worker=%d", s[0]);
	gpu_begin_with(t, options, FEATURES);
	return pid;
}

static int setup(void **ctx)
{
	static struct fixture f;

	f.pid[0] = begin(&f.a, 0);
	f.pid[1] = begin(&f.b, 0);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	gpu_end(&f->b); /* the later child has the other's socket, too */
	gpu_end(&f->a);
	assert_int_equal(waitpid(f->pid[1], NULL, 0), f->pid[1]);
	assert_int_equal(waitpid(f->pid[0], NULL, 0), f->pid[0]);
	return 0;
}

static uint32_t ask(struct gpu_test *t, const void *command, size_t len)
{
	const struct driver_buf b[] = { { t->in, (uint32_t)len, false }, { t->out, sizeof(t->answer), true } };

	machine_poke(&t->m, t->in, command, len);
	driver_add(&t->d, GPU_QUEUE_CONTROL, b, 2);
	driver_kick(&t->d, GPU_QUEUE_CONTROL);
	while (!driver_used(&t->d, GPU_QUEUE_CONTROL, NULL, &t->used))
		assert_true(loop_step(&t->m.vm.loop, STEP_MS) > 0);
	machine_peek(&t->m, t->out, t->answer, sizeof(t->answer));
	return le32_load(t->answer);
}

#define ASK(t, c) ask(t, &(c), sizeof(c))

static struct gpu_header header(uint32_t type)
{
	return (struct gpu_header){ .type = le32_make(type), .ctx_id = le32_make(CTX) };
}

static uint32_t create_3d(struct gpu_test *t, uint32_t id, uint32_t target, uint32_t format, uint32_t w, uint32_t h)
{
	struct gpu_create_3d c = { .h = header(VIRTIO_GPU_CMD_RESOURCE_CREATE_3D), .resource_id = le32_make(id), .target = le32_make(target),
				   .format = le32_make(format), .width = le32_make(w), .height = le32_make(h), .depth = le32_make(1),
				   .array_size = le32_make(1) };

	return ASK(t, c);
}

static uint32_t only(struct gpu_test *t, uint32_t type, uint32_t id)
{
	struct gpu_resource_only c = { .h = header(type), .resource_id = le32_make(id) };

	return ASK(t, c);
}

static uint32_t show(struct gpu_test *t, uint32_t scanout, uint32_t id, struct gpu_rect_wire r)
{
	struct gpu_set_scanout c = { header(VIRTIO_GPU_CMD_SET_SCANOUT), r, le32_make(scanout), le32_make(id) };

	return ASK(t, c);
}

static uint32_t flush(struct gpu_test *t, uint32_t id)
{
	struct gpu_flush c = { .h = header(VIRTIO_GPU_CMD_RESOURCE_FLUSH), .r = gpu_r(0, 0, SIDE, SIDE), .resource_id = le32_make(id) };

	return ASK(t, c);
}

/* What the renderer would have drawn there. */
static void paint(struct gpu_test *t, uint32_t scanout, uint8_t *copy, uint64_t seed)
{
	struct rnd r = { seed };

	for (size_t i = 0; i < STRIDE * H; i++)
		copy[i] = (uint8_t)rnd_next(&r);
	memcpy(display_bytes(t->m.vm.display, t->gpu->host.shadow[scanout].offset, STRIDE * H), copy, STRIDE * H);
}

/* A used context, and one resource, of which each scanout shows a part. */
static void scene(struct gpu_test *t)
{
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct gpu_submit_3d submit = { .h = header(VIRTIO_GPU_CMD_SUBMIT_3D) };

	assert_int_equal(ASK(t, create), OK);
	assert_int_equal(ASK(t, submit), OK);
	assert_int_equal(create_3d(t, RES, 2, DISPLAY_B8G8R8X8, SIDE, SIDE), OK);
	assert_int_equal(show(t, 0, RES, gpu_r(3, 5, W, H)), OK);
	assert_int_equal(show(t, 1, RES, gpu_r(100, 90, W, H)), OK);
}

/* Save a, let `damage` at the bytes, load into another with the memory of a. */
static int move_damaged(struct fixture *f, struct gpu_test *to, void (*damage)(uint8_t *blob, size_t n), struct err *err)
{
	static uint8_t page[1 << 20];
	size_t room;
	uint8_t *blob;
	long n;
	int r;

	assert_int_equal(device_quiesce(f->a.dev), 0);
	room = device_saved_size(f->a.dev);
	assert_true(room <= device_saved_max(f->a.dev));
	blob = malloc(room);
	n = device_save(f->a.dev, blob, room);
	assert_true(n > 0 && (size_t)n <= room);
	if (damage)
		damage(blob, (size_t)n);
	r = device_load(to->dev, blob, (size_t)n, err);
	free(blob);
	for (uint64_t at = 0; at < GPU_TEST_RAM; at += sizeof(page)) {
		machine_peek(&f->a.m, at, page, sizeof(page));
		machine_poke(&to->m, at, page, sizeof(page));
	}
	memcpy(to->d.q, f->a.d.q, sizeof(f->a.d.q));
	if (r == 0)
		device_resume(to->dev);
	device_resume(f->a.dev);
	return r;
}

static int move(struct fixture *f, struct gpu_test *to, struct err *err)
{
	return move_damaged(f, to, NULL, err);
}

static void move_ok(struct fixture *f)
{
	struct err err = ERR_INIT;

	if (move(f, &f->b, &err) < 0)
		fail_msg("%s", err.text);
}

static void pictures_of_parts_stay(void **ctx)
{
	struct fixture *f = *ctx;
	static uint8_t one[STRIDE * H], two[STRIDE * H];

	scene(&f->a);
	paint(&f->a, 0, one, 1);
	paint(&f->a, 1, two, 2);
	move_ok(f);
	assert_true(gpu_sees(&f->b, 0, one, STRIDE));
	assert_true(gpu_sees(&f->b, 1, two, STRIDE));
	assert_int_equal(gpu_surface(&f->b, 0)->format, DISPLAY_B8G8R8X8);
	/* As it was, but not another part. */
	assert_int_equal(show(&f->b, 0, RES, gpu_r(3, 5, W, H)), OK);
	assert_int_equal(show(&f->b, 0, RES, gpu_r(4, 5, W, H)), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_true(gpu_sees(&f->b, 0, one, STRIDE));
	assert_int_equal(only(&f->b, VIRTIO_GPU_CMD_RESOURCE_UNREF, RES), OK);
	assert_int_equal(gpu_surface(&f->b, 0)->width, 0);
	assert_int_equal(gpu_surface(&f->b, 1)->width, 0);
}

static void a_lost_context_can_be_destroyed_and_nothing_else(void **ctx)
{
	struct fixture *f = *ctx;
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct gpu_submit_3d submit = { .h = header(VIRTIO_GPU_CMD_SUBMIT_3D) };
	struct gpu_header destroy = header(VIRTIO_GPU_CMD_CTX_DESTROY);

	scene(&f->a);
	move_ok(f);
	assert_int_equal(ASK(&f->b, submit), VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID);
	assert_int_equal(ASK(&f->b, create), VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID);
	assert_int_equal(only(&f->b, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, RES), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(ASK(&f->b, destroy), OK);
	assert_int_equal(ASK(&f->b, create), OK);
	assert_int_equal(ASK(&f->b, submit), OK);
	/* The one that was saved goes on. */
	assert_int_equal(ASK(&f->a, submit), OK);
}

static void what_is_2d_goes_on(void **ctx)
{
	struct fixture *f = *ctx;
	static uint8_t pixels[STRIDE * H];
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, STRIDE * H);

	scene(&f->a);
	assert_int_equal(create_3d(&f->a, BUFFER, 0, 64, 1u << 31, 1), OK); /* as wide as it gets */
	gpu_fill(&f->a, GPU_TEST_PIXELS, pixels, sizeof(pixels), 3);
	assert_int_equal(gpu_create(&f->a, FLAT, DISPLAY_B8G8R8X8, W, H), OK);
	assert_int_equal(gpu_attach(&f->a, FLAT, &e, 1), OK);
	move_ok(f);
	assert_int_equal(gpu_transfer(&f->b, FLAT, gpu_r(0, 0, W, H), 0), OK);
	assert_int_equal(gpu_show(&f->b, 0, FLAT, gpu_r(0, 0, W, H)), OK);
	assert_true(gpu_sees(&f->b, 0, pixels, STRIDE));
	assert_int_equal(only(&f->b, VIRTIO_GPU_CMD_RESOURCE_UNREF, BUFFER), OK);
	assert_int_equal(display_memory_used(f->b.m.vm.display) < display_memory_used(f->a.m.vm.display), true);
}

static uint64_t frame_of(struct gpu_test *t)
{
	return display_frame(t->m.vm.display);
}

/* A program that does not know of its loss puts the same on the screen as fast as it can. */
static void what_is_lost_makes_no_frames(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t before;

	scene(&f->a);
	assert_int_equal(create_3d(&f->a, RES + 10, 2, DISPLAY_B8G8R8X8, SIDE, SIDE), OK);
	move_ok(f);
	before = frame_of(&f->b);
	assert_int_equal(show(&f->b, 0, RES, gpu_r(3, 5, W, H)), OK);
	assert_int_equal(show(&f->b, 0, RES + 10, gpu_r(3, 5, W, H)), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(flush(&f->b, RES), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
	assert_int_equal(frame_of(&f->b), before);
}

static void a_flip_is_a_frame_with_its_flush(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t before;

	scene(&f->a);
	assert_int_equal(create_3d(&f->a, RES + 10, 2, DISPLAY_B8G8R8X8, SIDE, SIDE), OK);
	assert_int_equal(create_3d(&f->a, RES + 11, 2, DISPLAY_R8G8B8A8, SIDE, SIDE), OK);
	before = frame_of(&f->a);
	assert_int_equal(show(&f->a, 0, RES + 10, gpu_r(4, 5, W, H)), OK);
	assert_int_equal(frame_of(&f->a), before);
	assert_int_equal(flush(&f->a, RES), OK); /* no longer on scanout 0, still on 1 */
	assert_int_equal(frame_of(&f->a), before + 1);
	assert_int_equal(flush(&f->a, RES + 10), OK);
	assert_int_equal(frame_of(&f->a), before + 2);
	/* Other colours or another size are another picture. */
	assert_int_equal(show(&f->a, 0, RES + 11, gpu_r(4, 5, W, H)), OK);
	assert_int_equal(gpu_surface(&f->a, 0)->format, DISPLAY_R8G8B8A8);
	assert_int_equal(frame_of(&f->a), before + 3);
	assert_int_equal(show(&f->a, 0, RES + 11, gpu_r(4, 5, W, H + 1)), OK);
	assert_int_equal(gpu_surface(&f->a, 0)->height, H + 1);
	assert_int_equal(frame_of(&f->a), before + 4);
}

static void a_reset_forgets_what_is_lost(void **ctx)
{
	struct fixture *f = *ctx;

	scene(&f->a);
	move_ok(f);
	driver_start(&f->b.d, FEATURES, 0);
	assert_null(gpu_find(f->b.gpu, RES));
	scene(&f->b);
}

static void use_context(struct gpu_test *t, uint32_t id)
{
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct gpu_submit_3d submit = { .h = header(VIRTIO_GPU_CMD_SUBMIT_3D) };

	create.h.ctx_id = submit.h.ctx_id = le32_make(id);
	assert_int_equal(ASK(t, create), OK);
	assert_int_equal(ASK(t, submit), OK);
}

/* The two contexts of the list become one. */
static void make_equal(uint8_t *blob, size_t n)
{
	const le32 ids[2] = { le32_make(CTX), le32_make(CTX + 1) };
	uint8_t *at = memmem(blob, n, ids, sizeof(ids));

	assert_non_null(at);
	memcpy(at + sizeof(le32), ids, sizeof(le32));
}

static void a_context_that_is_there_twice_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;

	use_context(&f->a, CTX);
	use_context(&f->a, CTX + 1);
	assert_int_equal(move_damaged(f, &f->b, make_equal, &err), -EINVAL);
	assert_non_null(strstr(err.text, "context 5 of 3D is there twice"));
}

/* Nothing was drawn with it, so the restored guest is promised to find it. */
static void a_renderer_that_makes_no_context_ends_the_load(void **ctx)
{
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;
	struct gpu_test poor;
	pid_t pid = begin(&poor, GPU_CTX_CREATE);

	assert_int_equal(ASK(&f->a, create), OK);
	assert_int_equal(move(f, &poor, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "coffer-gpu"));
	gpu_end(&poor);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_renderer_that_has_ended_ends_the_load(void **ctx)
{
	struct gpu_ctx_create create = { .h = header(VIRTIO_GPU_CMD_CTX_CREATE) };
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;
	struct gpu_test dead;
	pid_t pid = begin(&dead, 0);

	assert_int_equal(ASK(&f->a, create), OK);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(move(f, &dead, &err), -EPIPE);
	gpu_end(&dead);
}

static void a_display_without_3d_refuses_it(void **ctx)
{
	struct fixture *f = *ctx;
	struct err err = ERR_INIT;
	struct gpu_test flat;

	scene(&f->a);
	gpu_begin_with(&flat, "scanouts=2,width=128,height=96,memory=32M", GPU_TEST_FEATURES);
	assert_int_equal(move(f, &flat, &err), -EINVAL);
	gpu_end(&flat);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(pictures_of_parts_stay),
		T(a_lost_context_can_be_destroyed_and_nothing_else),
		T(what_is_2d_goes_on),
		T(what_is_lost_makes_no_frames),
		T(a_flip_is_a_frame_with_its_flush),
		T(a_reset_forgets_what_is_lost),
		T(a_context_that_is_there_twice_is_refused),
		T(a_renderer_that_makes_no_context_ends_the_load),
		T(a_renderer_that_has_ended_ends_the_load),
		T(a_display_without_3d_refuses_it),
	};

	return cmocka_run_group_tests_name("virtio_gpu_lost", tests, NULL, NULL);
}
