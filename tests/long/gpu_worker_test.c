/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices/backend/gpu_worker and coffer-gpu: the real program, with virglrenderer drawing in software, and impostors in its place.
 *
 * Command streams are virgl's: le32 words, a header of command | object << 8 | words << 16, then the words.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/gpu_worker.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/gpu_program.h"

enum { MEMORY = 16 << 20, PIXELS_AT = 0, STREAM_AT = 4 << 20, BACKING_AT = 8 << 20, SIDE = 64, CTX = 1, RES = 7, DRAIN_MS = 120000 };
enum { CCMD_CREATE_OBJECT = 1, CCMD_SET_FRAMEBUFFER_STATE = 5, CCMD_CLEAR = 7, OBJECT_SURFACE = 8, CLEAR_COLOR0 = 4 };
enum { TEXTURE_2D = 2, FORMAT_B8G8R8A8 = 1, BIND_RENDER_TARGET = 2, BIND_SCANOUT = 1 << 18 };

struct fixture {
	struct gpu_worker w;
	int memory_fd;
	uint8_t *memory;
	pid_t pid;
	int status[1 << 12]; /* by seq */
	uint32_t fenced;
	uint32_t rooms;
	char died[128];
};

static void on_done(void *opaque, uint32_t seq, int status)
{
	struct fixture *f = opaque;

	f->status[seq % ARRAY_SIZE(f->status)] = status;
}

static void on_fenced(void *opaque, uint32_t seq)
{
	((struct fixture *)opaque)->fenced = seq;
}

static void on_room(void *opaque)
{
	((struct fixture *)opaque)->rooms++;
}

static void on_died(void *opaque, const char *why)
{
	struct fixture *f = opaque;

	snprintf(f->died, sizeof(f->died), "%s", why);
}

static const struct gpu_worker_ops ops = { .done = on_done, .fenced = on_fenced, .room = on_room, .died = on_died };

static void make_memory(struct fixture *f)
{
	f->memory_fd = memfd_create("display", MFD_CLOEXEC);
	assert_true(f->memory_fd >= 0);
	assert_int_equal(ftruncate(f->memory_fd, MEMORY), 0);
	f->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, f->memory_fd, 0);
	assert_ptr_not_equal(f->memory, MAP_FAILED);
}

static void open_worker(struct fixture *f, uint32_t memory_mib)
{
	struct err err = ERR_INIT;
	int sock;

	make_memory(f);
	f->pid = gpu_program_start(&sock);
	if (gpu_worker_open(&f->w, sock, f->memory_fd, memory_mib, &ops, f, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	open_worker(f, 64);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int status;

	gpu_worker_close(&f->w);
	if (f->pid > 0) {
		assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
		if (!f->died[0])
			assert_int_equal(status, 0); /* it ends in good order when the monitor does */
	}
	munmap(f->memory, MEMORY);
	close(f->memory_fd);
	free(f);
	return 0;
}

static int ask(struct fixture *f, struct gpu_request *q)
{
	assert_int_equal(gpu_worker_send(&f->w, q), 0);
	assert_int_equal(gpu_worker_drain(&f->w, false, 0, DRAIN_MS), 0);
	return f->status[le32_get(q->seq) % ARRAY_SIZE(f->status)];
}

static struct gpu_request request(enum gpu_op op, uint32_t ctx, uint32_t resource)
{
	return (struct gpu_request){ .op = le16_make(op), .ctx = le32_make(ctx), .resource = le32_make(resource) };
}

static int create_texture(struct fixture *f, uint32_t id, uint32_t w, uint32_t h)
{
	struct gpu_request q = request(GPU_RESOURCE_CREATE, 0, id);

	q.arg[GPU_CREATE_TARGET] = le32_make(TEXTURE_2D);
	q.arg[GPU_CREATE_FORMAT] = le32_make(FORMAT_B8G8R8A8);
	q.arg[GPU_CREATE_BIND] = le32_make(BIND_RENDER_TARGET | BIND_SCANOUT);
	q.arg[GPU_CREATE_WIDTH] = le32_make(w);
	q.arg[GPU_CREATE_HEIGHT] = le32_make(h);
	q.arg[GPU_CREATE_DEPTH] = q.arg[GPU_CREATE_ARRAY_SIZE] = le32_make(1);
	return ask(f, &q);
}

static int simple(struct fixture *f, enum gpu_op op, uint32_t ctx, uint32_t resource)
{
	struct gpu_request q = request(op, ctx, resource);

	return ask(f, &q);
}

static uint32_t float_bits(float x)
{
	uint32_t v;

	memcpy(&v, &x, sizeof(v));
	return v;
}

static struct gpu_request submit(struct fixture *f, const uint32_t *words, size_t n)
{
	struct gpu_request q = request(GPU_SUBMIT, CTX, 0);

	memcpy(f->memory + STREAM_AT, words, n * 4);
	q.offset = le64_make(STREAM_AT);
	q.size = le64_make(n * 4);
	return q;
}

static struct gpu_request clear(struct fixture *f, float r, float g, float b)
{
	const uint32_t words[] = {
		CCMD_CREATE_OBJECT | OBJECT_SURFACE << 8 | 5u << 16, 1, RES, FORMAT_B8G8R8A8, 0, 0,
		CCMD_SET_FRAMEBUFFER_STATE | 3u << 16, 1, 0, 1,
		CCMD_CLEAR | 8u << 16, CLEAR_COLOR0, float_bits(r), float_bits(g), float_bits(b), float_bits(1), 0, 0, 0,
	};

	return submit(f, words, ARRAY_SIZE(words));
}

static struct gpu_request read_box(uint32_t x, uint32_t y, uint32_t w, uint32_t h)
{
	struct gpu_request q = request(GPU_READ, 0, RES);

	q.arg[GPU_BOX_X] = le32_make(x);
	q.arg[GPU_BOX_Y] = le32_make(y);
	q.arg[GPU_BOX_W] = le32_make(w);
	q.arg[GPU_BOX_H] = le32_make(h);
	q.arg[GPU_BOX_STRIDE] = le32_make(SIDE * 4);
	q.offset = le64_make(PIXELS_AT + ((uint64_t)y * SIDE + x) * 4);
	return q;
}

static void scene(struct fixture *f)
{
	assert_int_equal(simple(f, GPU_CTX_CREATE, CTX, 0), 0);
	assert_int_equal(create_texture(f, RES, SIDE, SIDE), 0);
	assert_int_equal(simple(f, GPU_CTX_ATTACH, CTX, RES), 0);
}

/* ---- the program ---- */

static void capability_sets_have_no_transfers_in_streams(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(f->w.ncapsets, 2);
	assert_int_equal(le32_get(f->w.capset[1].id), 2);
	assert_true(le32_get(f->w.capset[1].size) > 396);
	assert_int_equal(le32_load(f->w.capset[1].data + 392) & (1u << 17 | 1u << 26 | 1u << 31), 0);
	assert_int_not_equal(le32_load(f->w.capset[1].data + 392), 0);
	/* capability_bits_v2, which is followed by the video memory and the renderer's name. */
	assert_true(le32_get(f->w.capset[1].size) >= 760);
	assert_int_equal(le32_load(f->w.capset[1].data + 688) & 1u << 7, 0);
	assert_int_not_equal(le32_load(f->w.capset[1].data + 688), 0);
	assert_non_null(memchr(f->w.capset[1].data + 696, 'P', 64)); /* LLVMPIPE, OpenGL */
}

static void a_cleared_frame_buffer_reads_as_its_colour(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q;

	scene(f);
	q = clear(f, 1, 0.5f, 0);
	assert_int_equal(ask(f, &q), 0);
	q = read_box(0, 0, SIDE, SIDE);
	assert_int_equal(ask(f, &q), 0);
	for (size_t i = 0; i < SIDE * SIDE; i++) {
		const uint8_t *p = f->memory + PIXELS_AT + i * 4;

		assert_int_equal(p[0], 0);
		assert_in_range(p[1], 127, 128);
		assert_int_equal(p[2], 255);
		assert_int_equal(p[3], 255);
	}
}

static void only_the_box_is_read(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q;

	scene(f);
	q = clear(f, 0, 0, 1);
	assert_int_equal(ask(f, &q), 0);
	memset(f->memory + PIXELS_AT, 0x11, SIDE * SIDE * 4);
	q = read_box(8, 4, 16, 2);
	assert_int_equal(ask(f, &q), 0);
	for (uint32_t y = 0; y < SIDE; y++)
		for (uint32_t x = 0; x < SIDE; x++) {
			bool inside = x >= 8 && x < 24 && y >= 4 && y < 6;

			assert_int_equal(f->memory[PIXELS_AT + (y * SIDE + x) * 4], inside ? 255 : 0x11);
		}
}

static void a_fence_passes_after_its_request(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q;

	scene(f);
	q = clear(f, 1, 1, 1);
	q.flags = le16_make(GPU_FENCE);
	assert_int_equal(gpu_worker_send(&f->w, &q), 0);
	assert_int_equal(gpu_worker_drain(&f->w, true, le32_get(q.seq), DRAIN_MS), 0);
	assert_int_equal(f->fenced, le32_get(q.seq));
}

static void transfers_go_through_the_backing(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q = request(GPU_BACKING, 0, RES);

	scene(f);
	q.offset = le64_make(BACKING_AT);
	q.size = le64_make(SIDE * SIDE * 4);
	assert_int_equal(ask(f, &q), 0);
	for (size_t i = 0; i < SIDE * SIDE * 4; i++)
		f->memory[BACKING_AT + i] = (uint8_t)(i * 7 + i / 256);
	q = read_box(0, 0, SIDE, SIDE);
	q.op = le16_make(GPU_TRANSFER_TO);
	q.arg[GPU_BOX_D] = le32_make(1);
	q.offset = le64_make(0);
	q.ctx = le32_make(CTX);
	assert_int_equal(ask(f, &q), 0);
	memcpy(f->memory + PIXELS_AT, f->memory + BACKING_AT, SIDE * SIDE * 4);
	memset(f->memory + BACKING_AT, 0, SIDE * SIDE * 4);
	q.op = le16_make(GPU_TRANSFER_FROM);
	assert_int_equal(ask(f, &q), 0);
	assert_memory_equal(f->memory + PIXELS_AT, f->memory + BACKING_AT, SIDE * SIDE * 4);
}

static void what_does_not_exist_is_refused(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q = read_box(0, 0, 1, 1);

	assert_int_equal(ask(f, &q), -EINVAL);
	assert_int_equal(simple(f, GPU_CTX_DESTROY, CTX, 0), -ENOENT);
	assert_int_equal(simple(f, GPU_CTX_ATTACH, CTX, RES), -ENOENT);
	assert_int_equal(simple(f, GPU_RESOURCE_UNREF, 0, RES), -ENOENT);
	assert_int_equal(simple(f, GPU_CTX_CREATE, 0, 0), -EINVAL);
	assert_int_equal(simple(f, (enum gpu_op)40, CTX, RES), -EINVAL);
	q = submit(f, (const uint32_t[]){ 0 }, 1);
	assert_int_equal(ask(f, &q), -EINVAL);
}

static void impossible_sizes_are_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(create_texture(f, RES, 0, 1), -EINVAL);
	assert_int_equal(create_texture(f, RES, UINT32_MAX, UINT32_MAX), -EINVAL);
	assert_int_equal(create_texture(f, 0, SIDE, SIDE), -EINVAL);
	assert_int_equal(create_texture(f, UINT32_MAX, SIDE, SIDE), -EINVAL);
	assert_int_equal(create_texture(f, RES, SIDE, SIDE), 0);
	assert_int_equal(create_texture(f, RES, SIDE, SIDE), -EINVAL);
}

static void memory_of_resources_is_bounded(void **state)
{
	struct fixture *f = *state; /* 64 MiB */
	int r = 0;

	for (uint32_t id = 1; id <= 16 && r == 0; id++) {
		r = create_texture(f, id, 2048, 1024); /* 8 MiB */
		assert_int_equal(r, id <= 8 ? 0 : -ENOMEM);
	}
	assert_int_equal(simple(f, GPU_RESOURCE_UNREF, 0, 1), 0);
	assert_int_equal(create_texture(f, 20, 2048, 1024), 0);
}

static void offsets_outside_the_memory_are_refused(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q;

	scene(f);
	q = read_box(0, 0, SIDE, SIDE);
	q.offset = le64_make(MEMORY - SIDE * SIDE * 4 + 4);
	assert_int_equal(ask(f, &q), -EINVAL);
	q.offset = le64_make(UINT64_MAX - 4);
	assert_int_equal(ask(f, &q), -EINVAL);
	q = request(GPU_BACKING, 0, RES);
	q.offset = le64_make(MEMORY);
	q.size = le64_make(4096);
	assert_int_equal(ask(f, &q), -EINVAL);
	q = request(GPU_SUBMIT, CTX, 0);
	q.offset = le64_make(MEMORY - 4);
	q.size = le64_make(8);
	assert_int_equal(ask(f, &q), -EINVAL);
	q.size = le64_make(GPU_SUBMIT_MAX + 4);
	q.offset = le64_make(0);
	assert_int_equal(ask(f, &q), -EINVAL);
}

static void a_senseless_stream_fails_and_the_next_draws(void **state)
{
	struct fixture *f = *state;
	uint32_t junk[64];
	struct gpu_request q;

	scene(f);
	memset(junk, 0xff, sizeof(junk));
	q = submit(f, junk, ARRAY_SIZE(junk));
	assert_int_equal(ask(f, &q), -EINVAL);
	/* That context is lost, as with a device that hung; another is not. */
	assert_int_equal(simple(f, GPU_CTX_DESTROY, CTX, 0), 0);
	assert_int_equal(simple(f, GPU_CTX_CREATE, CTX, 0), 0);
	assert_int_equal(simple(f, GPU_CTX_ATTACH, CTX, RES), 0);
	q = clear(f, 0, 1, 0);
	assert_int_equal(ask(f, &q), 0);
	q = read_box(0, 0, 1, 1);
	assert_int_equal(ask(f, &q), 0);
	assert_int_equal(f->memory[PIXELS_AT + 1], 255);
}

static void a_reset_forgets_everything(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q = request(GPU_BACKING, 0, RES);

	scene(f);
	q.offset = le64_make(BACKING_AT);
	q.size = le64_make(4096);
	assert_int_equal(ask(f, &q), 0);
	assert_int_equal(simple(f, GPU_RESET, 0, 0), 0);
	assert_int_equal(simple(f, GPU_CTX_DESTROY, CTX, 0), -ENOENT);
	scene(f);
}

static void its_death_is_told_once_and_requests_fail(void **state)
{
	struct fixture *f = *state;
	struct gpu_request q = request(GPU_CTX_CREATE, CTX, 0);

	assert_int_equal(kill(f->pid, SIGKILL), 0); /* the parent of the jailed one, which goes with it */
	assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
	f->pid = 0;
	while (gpu_worker_send(&f->w, &q) == 0)
		gpu_worker_drain(&f->w, false, 0, DRAIN_MS);
	assert_false(gpu_worker_alive(&f->w));
	assert_string_not_equal(f->died, "");
	f->died[0] = 0;
	assert_int_equal(gpu_worker_send(&f->w, &q), -EPIPE);
	assert_string_equal(f->died, "");
	snprintf(f->died, sizeof(f->died), "yes");
}

/* The child of the one that was started. */
static pid_t jailed(pid_t parent)
{
	char path[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &pid), 1);
	fclose(f);
	return pid;
}

static void its_memory_is_bounded(void **state)
{
	struct fixture *f = *state;
	struct rlimit data;

#ifdef __SANITIZE_ADDRESS__
	print_message("AddressSanitizer's shadow is larger than any bound: none is set\n");
	skip();
#endif
	assert_int_equal(prlimit(jailed(f->pid), RLIMIT_DATA, NULL, &data), 0);
	assert_true(data.rlim_max == (64ull << 20) + (2ull << 30)); /* what resources may take, and its own */
}

/* ---- impostors ---- */

/* A worker without a process: the test is at the other end, which it gets. */
static int impostor(struct fixture *f, int *ret)
{
	struct err err = ERR_INIT;
	struct gpu_ready a = { .h = { .op = le16_make(GPU_READY) }, .version = le32_make(GPU_VERSION) };
	int s[2], r;

	make_memory(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	assert_int_equal(send(s[1], &a, sizeof(a), 0), sizeof(a));
	r = gpu_worker_open(&f->w, s[0], f->memory_fd, 1, &ops, f, &err);
	*ret = s[1];
	return r;
}

static void say(struct fixture *f, int fd, enum gpu_op op, uint32_t seq, size_t size)
{
	struct gpu_reply a[2] = { { .op = le16_make(op), .seq = le32_make(seq) } };
	struct gpu_request q = request(GPU_CTX_CREATE, 1, 0);

	assert_int_equal(gpu_worker_send(&f->w, &q), 0);
	assert_int_equal(send(fd, a, size, 0), size);
	gpu_worker_drain(&f->w, false, 0, DRAIN_MS);
}

static void check_impostor(enum gpu_op op, uint32_t seq, size_t size)
{
	struct fixture f = { 0 };
	int fd;

	assert_int_equal(impostor(&f, &fd), 0);
	say(&f, fd, op, seq, size);
	assert_false(gpu_worker_alive(&f.w));
	assert_string_not_equal(f.died, "");
	gpu_worker_close(&f.w);
	close(fd);
	munmap(f.memory, MEMORY);
	close(f.memory_fd);
}

static void answers_that_nobody_asked_for_end_it(void **state)
{
	(void)state;
	check_impostor(GPU_DONE, 2, sizeof(struct gpu_reply));
	check_impostor(GPU_DONE, 0, sizeof(struct gpu_reply));
	check_impostor(GPU_FENCED, 1, sizeof(struct gpu_reply));
	check_impostor(GPU_FENCED, UINT32_MAX, sizeof(struct gpu_reply));
	check_impostor(GPU_READY, 1, sizeof(struct gpu_reply));
	check_impostor(GPU_DONE, 1, sizeof(struct gpu_reply) - 1);
	check_impostor(GPU_DONE, 1, 2 * sizeof(struct gpu_reply));
}

static void unanswered_requests_are_bounded(void **state)
{
	struct fixture f = { 0 };
	struct gpu_request q = request(GPU_CTX_CREATE, 1, 0);
	struct gpu_reply a = { .op = le16_make(GPU_DONE), .seq = le32_make(1) };
	struct loop loop;
	int fd;

	(void)state;
	assert_int_equal(loop_init(&loop, NULL), 0);
	assert_int_equal(impostor(&f, &fd), 0);
	assert_int_equal(gpu_worker_attach(&f.w, &loop, NULL), 0);
	for (int i = 0; i < GPU_INFLIGHT_MAX; i++)
		assert_int_equal(gpu_worker_send(&f.w, &q), 0);
	assert_int_equal(gpu_worker_send(&f.w, &q), -EAGAIN);
	assert_int_equal(f.rooms, 0);
	assert_int_equal(send(fd, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(loop_step(&loop, DRAIN_MS), 1);
	assert_int_equal(f.rooms, 1);
	assert_int_equal(gpu_worker_send(&f.w, &q), 0);
	gpu_worker_close(&f.w);
	loop_finish(&loop);
	close(fd);
	munmap(f.memory, MEMORY);
	close(f.memory_fd);
}

static void an_impossible_start_is_refused(void **state)
{
	struct gpu_ready a = { .h = { .op = le16_make(GPU_READY) }, .version = le32_make(GPU_VERSION), .ncapsets = le32_make(3) };
	struct err err = ERR_INIT;
	int s[2], memory = memfd_create("x", MFD_CLOEXEC);
	struct gpu_worker w;

	(void)state;
	for (int i = 0; i < 4; i++) {
		err = (struct err)ERR_INIT;
		if (i == 1)
			a.ncapsets = le32_make(1), a.capset[0].size = le32_make(GPU_CAPSET_SIZE_MAX + 1);
		if (i == 2)
			a.version = le32_make(GPU_VERSION + 1);
		if (i == 3)
			a.version = le32_make(GPU_VERSION), a.h.status = le32_make((uint32_t)-ENODEV), memcpy(a.text, "no\nGL", 6);
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
		assert_int_equal(send(s[1], &a, sizeof(a), 0), sizeof(a));
		assert_true(gpu_worker_open(&w, s[0], memory, 1, &ops, NULL, &err) < 0);
		assert_null(strchr(err.text, '\n'));
		assert_false(gpu_worker_alive(&w));
		close(s[1]);
	}
	assert_string_equal(err.text, "coffer-gpu: no?GL");
	close(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(capability_sets_have_no_transfers_in_streams, setup, teardown),
		cmocka_unit_test_setup_teardown(a_cleared_frame_buffer_reads_as_its_colour, setup, teardown),
		cmocka_unit_test_setup_teardown(only_the_box_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fence_passes_after_its_request, setup, teardown),
		cmocka_unit_test_setup_teardown(transfers_go_through_the_backing, setup, teardown),
		cmocka_unit_test_setup_teardown(what_does_not_exist_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(impossible_sizes_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_of_resources_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(offsets_outside_the_memory_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_senseless_stream_fails_and_the_next_draws, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reset_forgets_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(its_death_is_told_once_and_requests_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(its_memory_is_bounded, setup, teardown),
		cmocka_unit_test(answers_that_nobody_asked_for_end_it),
		cmocka_unit_test(unanswered_requests_are_bounded),
		cmocka_unit_test(an_impossible_start_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
