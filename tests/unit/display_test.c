/* SPDX-License-Identifier: Apache-2.0 */
/* The display without devices: its memory, damage, and its server with real sockets; the test is gpu, input device and
 * client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/backend/display.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { PAGE = 4096, PAGES = 64, WIDTH = 64, HEIGHT = 64 };

struct fixture {
	char dir[64], path[96];
	struct loop loop;
	struct log log;
	struct display *d;
	/* as gpu */
	uint32_t mode_scanout, mode_width, mode_height, modes;
	/* as input device */
	struct display_input_event event[DISPLAY_EVENTS_MAX];
	size_t events, injected;
	int answer; /* of inject */
};

static void on_mode(void *opaque, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct fixture *f = opaque;

	f->mode_scanout = scanout;
	f->mode_width = width;
	f->mode_height = height;
	f->modes++;
}

static int on_inject(void *opaque, const struct display_input_event *event, size_t n)
{
	struct fixture *f = opaque;

	if (f->answer)
		return f->answer;
	memcpy(f->event, event, n * sizeof(*event));
	f->events = n;
	f->injected++;
	return 0;
}

static const struct display_gpu_ops gpu_ops = {.mode = on_mode};
static const struct display_input_ops input_ops = {.inject = on_inject};

static int setup_scanouts(void **state, uint32_t scanouts)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;

	assert_non_null(f);
	f->log.fd = -1;
	snprintf(f->dir, sizeof(f->dir), "/tmp/display_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/%s", f->dir, DISPLAY_SOCKET);
	assert_int_equal(loop_init(&f->loop, &err), 0);
	if (display_open(&f->loop, &f->log, PAGES * PAGE, scanouts, 1280, 800, f->path, &f->d, &err) < 0)
		fail_msg("%s", err.text);
	display_set_gpu(f->d, &gpu_ops, f);
	display_set_input(f->d, DISPLAY_POINTER, &input_ops, f);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_scanouts(state, 1);
}

static int setup_two(void **state)
{
	return setup_scanouts(state, 2);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	display_close(f->d);
	loop_finish(&f->loop);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
	return 0;
}

static void run(struct fixture *f)
{
	while (loop_step(&f->loop, 0) > 0)
		;
}

static int connect_client(struct fixture *f)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	run(f);
	return fd;
}

/* The next message, which must be of this kind and size. */
static void expect(struct fixture *f, int fd, enum display_op op, void *m, size_t n)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];
	ssize_t r;

	run(f);
	r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	assert_int_equal(r, n);
	memcpy(m, buf, n);
	assert_int_equal(le16_get(((struct display_header *)m)->op), op);
	run(f);
}

static void expect_nothing(struct fixture *f, int fd)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];

	run(f);
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static void expect_closed(struct fixture *f, int fd)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];
	ssize_t r;

	run(f);
	do
		r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	while (r > 0);
	assert_true(r == 0 || errno == ECONNRESET);
	close(fd);
}

/* Reads what a new client is told; returns the memory's descriptor. */
static int greet(struct fixture *f, int fd, uint32_t scanouts, struct display_hello *hello)
{
	struct display_scanout s;
	struct display_cursor c;
	struct display_leds l;
	size_t nfds = 0;
	int memory = -1;

	assert_int_equal(fd_recv(fd, hello, sizeof(*hello), &memory, 1, &nfds), sizeof(*hello));
	assert_int_equal(le16_get(hello->h.op), DISPLAY_HELLO);
	assert_int_equal(nfds, 1);
	for (uint32_t i = 0; i < scanouts; i++) {
		expect(f, fd, DISPLAY_SCANOUT, &s, sizeof(s));
		assert_int_equal(le16_get(s.h.scanout), i);
		expect(f, fd, DISPLAY_CURSOR, &c, sizeof(c));
		assert_int_equal(le16_get(c.h.scanout), i);
	}
	expect(f, fd, DISPLAY_LEDS, &l, sizeof(l));
	return memory;
}

static int client(struct fixture *f)
{
	struct display_hello hello;
	int fd = connect_client(f);

	close(greet(f, fd, 1, &hello));
	return fd;
}

static void say(struct fixture *f, int fd, const void *m, size_t n)
{
	assert_int_equal(send(fd, m, n, MSG_NOSIGNAL), n);
	run(f);
}

static void say_ready(struct fixture *f, int fd)
{
	struct display_header h = {.op = le16_make(DISPLAY_READY)};

	say(f, fd, &h, sizeof(h));
}

static void say_input(struct fixture *f, int fd, uint32_t seq, uint32_t kind, uint32_t n)
{
	struct display_input m = {
	    .h.op = le16_make(DISPLAY_INPUT), .seq = le32_make(seq), .kind = le32_make(kind), .n = le32_make(n)};

	for (uint32_t i = 0; i < DISPLAY_EVENTS_MAX; i++)
		m.event[i] = (struct display_input_event){le16_make(1), le16_make((uint16_t)(30 + i)), le32_make(seq)};
	say(f, fd, &m, sizeof(m));
}

static void expect_taken(struct fixture *f, int fd, uint32_t seq, int status, uint64_t frame)
{
	struct display_taken t;

	expect(f, fd, DISPLAY_TAKEN, &t, sizeof(t));
	assert_int_equal(le32_get(t.seq), seq);
	assert_int_equal((int)le32_get(t.status), status);
	assert_int_equal(le64_get(t.frame), frame);
}

static void show(struct fixture *f, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct display_surface s = {
	    .offset = 0, .width = width, .height = height, .stride = width * 4, .format = DISPLAY_B8G8R8X8};

	display_scanout(f->d, scanout, &s);
}

static void damage(struct fixture *f, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	display_damage(f->d, 0, &(struct display_rect){x, y, width, height});
}

/* A client that has seen a first whole picture. */
static int client_shown(struct fixture *f)
{
	struct display_damage m;
	int fd;

	assert_int_equal(display_alloc(f->d, WIDTH * HEIGHT * 4), 0);
	show(f, 0, WIDTH, HEIGHT);
	assert_int_equal(display_frame(f->d), 1);
	fd = client(f);
	say_ready(f, fd);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	return fd;
}

/* ---- memory ---- */

static void a_client_can_map_the_memory_for_reading_only(void **state)
{
	struct fixture *f = *state;
	struct display_hello hello;
	int fd = connect_client(f), memory = greet(f, fd, 1, &hello);
	uint8_t *map;

	assert_int_equal(le64_get(hello.memory_size), PAGES * PAGE);
	assert_int_equal(display_alloc(f->d, PAGE), 0);
	display_bytes(f->d, 0, PAGE)[17] = 42;
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memory, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(map[17], 42);
	assert_int_equal(mprotect(map, PAGE, PROT_READ | PROT_WRITE), -1);
	assert_ptr_equal(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
	assert_int_equal(write(memory, "x", 1), -1);
	assert_int_equal(ftruncate(memory, 0), -1);
	assert_int_equal(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
	assert_int_equal(ftruncate(display_memory_fd(f->d), PAGE), -1); /* sealed for everybody */
	munmap(map, PAGE);
	close(memory);
	close(fd);
}

static void the_process_that_renders_can_map_it_for_writing(void **state)
{
	struct fixture *f = *state;
	uint8_t *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, display_memory_fd(f->d), 0);

	assert_true(map != MAP_FAILED);
	assert_int_equal(display_alloc(f->d, PAGE), 0);
	map[3] = 7;
	assert_int_equal(display_bytes(f->d, 0, PAGE)[3], 7);
	munmap(map, PAGE);
}

/* ---- what clients are told ---- */

static void a_new_client_hears_what_there_is(void **state)
{
	struct fixture *f = *state;
	struct display_hello hello;
	int fd = connect_client(f);

	close(greet(f, fd, 2, &hello));
	assert_int_equal(le32_get(hello.version), DISPLAY_VERSION);
	assert_int_equal(le32_get(hello.scanouts), 2);
	assert_int_equal(le32_get(hello.inputs), 1u << DISPLAY_POINTER);
	expect_nothing(f, fd);
	close(fd);
}

static void the_first_damage_covers_everything(void **state)
{
	struct fixture *f = *state;
	struct display_damage m;
	int fd;

	show(f, 0, WIDTH, HEIGHT);
	display_frame(f->d);
	fd = client(f);
	expect_nothing(f, fd); /* it has not said READY */
	say_ready(f, fd);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	assert_int_equal(le32_get(m.n), 1);
	assert_int_equal(le32_get(m.rect[0].width), WIDTH);
	assert_int_equal(le32_get(m.rect[0].height), HEIGHT);
	assert_int_equal(le64_get(m.frame), 1);
	close(fd);
}

static void damage_is_told_when_the_frame_is_whole(void **state)
{
	struct fixture *f = *state;
	struct display_damage m;
	int fd = client_shown(f);

	say_ready(f, fd);
	damage(f, 3, 4, 5, 6);
	expect_nothing(f, fd);
	assert_int_equal(display_frame(f->d), 2);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	assert_int_equal(le32_get(m.n), 1);
	assert_int_equal(le32_get(m.rect[0].x), 3);
	assert_int_equal(le32_get(m.rect[0].height), 6);
	assert_int_equal(le64_get(m.frame), 2);
	close(fd);
}

static void damage_is_clipped_to_the_scanout(void **state)
{
	struct fixture *f = *state;
	struct display_damage m;
	int fd = client_shown(f);

	say_ready(f, fd);
	damage(f, WIDTH - 2, 1, UINT32_MAX, 1);
	damage(f, WIDTH, 0, 1, 1);
	damage(f, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
	display_frame(f->d);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	assert_int_equal(le32_get(m.n), 1);
	assert_int_equal(le32_get(m.rect[0].x), WIDTH - 2);
	assert_int_equal(le32_get(m.rect[0].width), 2);
	close(fd);
}

static void a_frame_in_which_nothing_changed_is_none(void **state)
{
	struct fixture *f = *state;
	int fd = client_shown(f);

	say_ready(f, fd);
	assert_int_equal(display_frame(f->d), 1);
	expect_nothing(f, fd);
	close(fd);
}

static void what_changes_before_the_client_is_ready_is_gathered(void **state)
{
	struct fixture *f = *state;
	struct display_damage m;
	int fd = client_shown(f);

	for (uint32_t i = 0; i < 1000; i++) {
		damage(f, i % 8, 0, 1, 1);
		display_frame(f->d);
	}
	expect_nothing(f, fd);
	say_ready(f, fd);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	assert_int_equal(le32_get(m.n), 1);
	assert_int_equal(le32_get(m.rect[0].width), 8);
	assert_int_equal(le64_get(m.frame), 1001);
	expect_nothing(f, fd); /* one READY, one DAMAGE */
	close(fd);
}

static void each_scanout_has_its_turn(void **state)
{
	struct fixture *f = *state;
	struct display_hello hello;
	struct display_damage m;
	uint16_t seen[2];
	int fd = connect_client(f);

	close(greet(f, fd, 2, &hello));
	for (uint32_t i = 0; i < 2; i++) {
		struct display_scanout s;

		show(f, i, WIDTH, HEIGHT);
		expect(f, fd, DISPLAY_SCANOUT, &s, sizeof(s));
	}
	display_frame(f->d);
	for (int i = 0; i < 2; i++) {
		say_ready(f, fd);
		expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
		seen[i] = le16_get(m.h.scanout);
		display_damage(f->d, 0, &(struct display_rect){0, 0, 1, 1});
		display_frame(f->d);
	}
	assert_int_equal(seen[0] + seen[1], 1);
	close(fd);
}

static void another_size_is_told_before_its_damage(void **state)
{
	struct fixture *f = *state;
	struct display_scanout s;
	struct display_damage m;
	int fd = client_shown(f);

	damage(f, WIDTH - 1, HEIGHT - 1, 1, 1);
	display_frame(f->d);
	show(f, 0, 32, 16); /* what was damaged is not there any more */
	display_frame(f->d);
	say_ready(f, fd);
	expect(f, fd, DISPLAY_SCANOUT, &s, sizeof(s));
	assert_int_equal(le32_get(s.width), 32);
	assert_int_equal(le32_get(s.stride), 128);
	assert_int_equal(le32_get(s.wanted_width), 1280);
	expect(f, fd, DISPLAY_DAMAGE, &m, sizeof(m));
	assert_int_equal(le32_get(m.n), 1);
	assert_int_equal(le32_get(m.rect[0].width), 32);
	display_scanout(f->d, 0, NULL);
	expect(f, fd, DISPLAY_SCANOUT, &s, sizeof(s));
	assert_int_equal(le32_get(s.width), 0);
	close(fd);
}

static void a_client_that_does_not_read_finds_the_newest_state(void **state)
{
	struct fixture *f = *state;
	struct display_cursor c = {0};
	unsigned messages = 0;
	int fd = client(f);

	display_cursor_image(f->d, 0, 0, 1, 2);
	for (uint32_t i = 1; i <= 10000; i++) {
		display_cursor_move(f->d, 0, i, i);
		run(f);
	}
	while (recv(fd, &c, sizeof(c), MSG_DONTWAIT) == (ssize_t)sizeof(c)) {
		run(f);
		messages++;
	}
	assert_in_range(messages, 1, 64); /* no queue */
	assert_int_equal(le32_get(c.x), 10000);
	assert_int_equal(le32_get(c.visible), 1);
	assert_int_equal(le32_get(c.hot_y), 2);
	close(fd);
}

static void each_cursor_image_has_a_serial_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct display_cursor a, b;
	int fd = client(f);

	display_cursor_image(f->d, 0, 0, 0, 0);
	expect(f, fd, DISPLAY_CURSOR, &a, sizeof(a));
	display_cursor_image(f->d, 0, 0, 0, 0);
	expect(f, fd, DISPLAY_CURSOR, &b, sizeof(b));
	assert_int_not_equal(le32_get(a.serial), le32_get(b.serial));
	display_cursor_hide(f->d, 0);
	expect(f, fd, DISPLAY_CURSOR, &a, sizeof(a));
	assert_int_equal(le32_get(a.visible), 0);
	assert_int_equal(le32_get(a.serial), le32_get(b.serial));
	close(fd);
}

static void lamps_are_told(void **state)
{
	struct fixture *f = *state;
	struct display_leds l;
	int fd = client(f);

	display_leds(f->d, 2);
	expect(f, fd, DISPLAY_LEDS, &l, sizeof(l));
	assert_int_equal(le32_get(l.leds), 2);
	close(fd);
}

/* ---- input ---- */

static void input_is_answered_once_the_driver_has_taken_it(void **state)
{
	struct fixture *f = *state;
	int fd = client_shown(f);

	say_input(f, fd, 7, DISPLAY_POINTER, 3);
	assert_int_equal(f->events, 3);
	assert_int_equal(le16_get(f->event[2].code), 32);
	expect_nothing(f, fd);
	display_taken(f->d, DISPLAY_POINTER);
	damage(f, 0, 0, 1, 1);
	display_frame(f->d); /* drawn after it was taken */
	expect_taken(f, fd, 7, 0, 1);
	close(fd);
}

static void nothing_more_is_read_before_the_answer(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	say_input(f, fd, 1, DISPLAY_POINTER, 1);
	say_input(f, fd, 2, DISPLAY_POINTER, 1);
	assert_int_equal(f->injected, 1);
	display_taken(f->d, DISPLAY_POINTER);
	expect_taken(f, fd, 1, 0, 0);
	assert_int_equal(f->injected, 2);
	display_taken(f->d, DISPLAY_POINTER);
	expect_taken(f, fd, 2, 0, 0);
	close(fd);
}

static void input_that_a_device_has_no_room_for_is_tried_again(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	f->answer = -EAGAIN;
	say_input(f, fd, 1, DISPLAY_POINTER, 1);
	expect_nothing(f, fd);
	f->answer = 0;
	display_taken(f->d, DISPLAY_POINTER);
	run(f);
	assert_int_equal(f->injected, 1);
	expect_nothing(f, fd);
	display_taken(f->d, DISPLAY_POINTER);
	expect_taken(f, fd, 1, 0, 0);
	close(fd);
}

static void what_the_device_says_is_the_answer(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	f->answer = -ENODEV;
	say_input(f, fd, 1, DISPLAY_POINTER, 1);
	expect_taken(f, fd, 1, -ENODEV, 0);
	f->answer = -EINVAL;
	say_input(f, fd, 2, DISPLAY_POINTER, 1);
	expect_taken(f, fd, 2, -EINVAL, 0);
	say_input(f, fd, 3, DISPLAY_TOUCH, 1); /* there is none */
	expect_taken(f, fd, 3, -ENODEV, 0);
	close(fd);
}

static void several_clients_take_turns_at_a_device(void **state)
{
	struct fixture *f = *state;
	int fd[3];

	for (uint32_t i = 0; i < 3; i++) {
		fd[i] = client(f);
		say_input(f, fd[i], i, DISPLAY_POINTER, 1);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(f->injected, i + 1);
		assert_int_equal(le32_get(f->event[0].value), i);
		display_taken(f->d, DISPLAY_POINTER);
		expect_taken(f, fd[i], i, 0, 0);
	}
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}

static void one_that_leaves_with_its_input_on_the_way_holds_nobody_up(void **state)
{
	struct fixture *f = *state;
	int a = client(f), b = client(f), c = client(f);

	say_input(f, a, 1, DISPLAY_POINTER, 1);
	say_input(f, b, 2, DISPLAY_POINTER, 1);
	say_input(f, c, 3, DISPLAY_POINTER, 1);
	close(a);
	close(b);
	run(f);
	display_taken(f->d, DISPLAY_POINTER);
	run(f);
	assert_int_equal(le32_get(f->event[0].value), 3);
	display_taken(f->d, DISPLAY_POINTER);
	expect_taken(f, c, 3, 0, 0);
	close(c);
}

static void a_device_that_goes_answers_what_it_had(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	say_input(f, fd, 1, DISPLAY_POINTER, 1);
	display_set_input(f->d, DISPLAY_POINTER, NULL, NULL);
	expect_taken(f, fd, 1, 0, 0);
	say_input(f, fd, 2, DISPLAY_POINTER, 1);
	expect_taken(f, fd, 2, -ENODEV, 0);
	close(fd);
}

/* ---- modes ---- */

static void say_mode(struct fixture *f, int fd, uint16_t scanout, uint32_t width, uint32_t height)
{
	struct display_mode m = {{le16_make(DISPLAY_MODE), le16_make(scanout)}, le32_make(width), le32_make(height)};

	say(f, fd, &m, sizeof(m));
}

static void a_mode_reaches_the_gpu_and_its_wish_the_clients(void **state)
{
	struct fixture *f = *state;
	struct display_scanout s;
	int fd = client(f);

	say_mode(f, fd, 0, 1024, 768);
	assert_int_equal(f->modes, 1);
	assert_int_equal(f->mode_width, 1024);
	assert_int_equal(f->mode_height, 768);
	display_wanted(f->d, 0, 1024, 768);
	expect(f, fd, DISPLAY_SCANOUT, &s, sizeof(s));
	assert_int_equal(le32_get(s.wanted_width), 1024);
	close(fd);
}

static void an_impossible_mode_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint16_t scanout;
		uint32_t width, height;
	} bad[] = {{0, 63, 768}, {0, 1024, 8193}, {0, UINT32_MAX, 768}, {1, 1024, 768}, {0, 0, 0}};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int fd = client(f);

		say_mode(f, fd, bad[i].scanout, bad[i].width, bad[i].height);
		expect_closed(f, fd);
	}
	assert_int_equal(f->modes, 0);
}

/* ---- hostile clients ---- */

static void what_is_no_message_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint16_t op;
		size_t size;
	} bad[] = {
	    {DISPLAY_READY, 1},
	    {DISPLAY_READY, 5},
	    {DISPLAY_INPUT, sizeof(struct display_input) - 1},
	    {DISPLAY_INPUT, sizeof(struct display_input) + 1},
	    {DISPLAY_INPUT, sizeof(struct display_input)}, /* of no events */
	    {DISPLAY_MODE, sizeof(struct display_header)},
	    {DISPLAY_MODE, DISPLAY_MESSAGE_MAX + 100},
	    {DISPLAY_HELLO, sizeof(struct display_hello)},
	    {0, 4},
	    {0xffff, 100},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint8_t buf[1024] = {0};
		int fd = client(f);

		le16_store(buf, bad[i].op);
		say(f, fd, buf, bad[i].size);
		expect_closed(f, fd);
	}
	assert_int_equal(f->injected, 0);
}

static void input_of_too_many_events_or_of_no_device_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint32_t kind, n;
	} bad[] = {{DISPLAY_INPUT_KINDS, 1},
		   {UINT32_MAX, 1},
		   {DISPLAY_POINTER, DISPLAY_EVENTS_MAX + 1},
		   {DISPLAY_POINTER, UINT32_MAX}};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int fd = client(f);

		say_input(f, fd, 1, bad[i].kind, bad[i].n);
		expect_closed(f, fd);
	}
	assert_int_equal(f->injected, 0);
}

static void descriptors_that_a_client_sends_are_closed(void **state)
{
	struct fixture *f = *state;
	struct display_header h = {.op = le16_make(DISPLAY_READY)};
	int fd = client(f), pipefd[2];
	char c;

	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(fd_send(fd, &h, sizeof(h), &pipefd[1], 1), sizeof(h));
	close(pipefd[1]);
	run(f);
	assert_int_equal(read(pipefd[0], &c, 1), 0); /* nobody has the other end */
	close(pipefd[0]);
	close(fd);
}

static void one_client_too_many_is_turned_away_until_another_leaves(void **state)
{
	struct fixture *f = *state;
	int fd[DISPLAY_CLIENTS_MAX], late;

	for (int i = 0; i < DISPLAY_CLIENTS_MAX; i++)
		fd[i] = client(f);
	late = connect_client(f);
	expect_closed(f, late);
	close(fd[3]);
	run(f);
	fd[3] = client(f);
	for (int i = 0; i < DISPLAY_CLIENTS_MAX; i++)
		close(fd[i]);
}

static void a_slow_client_holds_up_no_other(void **state)
{
	struct fixture *f = *state;
	struct display_damage m;
	int slow = client_shown(f), quick = client(f);

	say_ready(f, slow);
	say_ready(f, quick);
	expect(f, quick, DISPLAY_DAMAGE, &m, sizeof(m));
	for (uint32_t i = 0; i < 100; i++) {
		display_cursor_move(f->d, 0, i, i);
		damage(f, 0, i % HEIGHT, WIDTH, 1);
		display_frame(f->d);
		say_ready(f, quick);
		for (;;) {
			uint8_t buf[DISPLAY_MESSAGE_MAX];

			run(f);
			assert_true(recv(quick, buf, sizeof(buf), MSG_DONTWAIT) > 0);
			if (le16_load(buf) == DISPLAY_DAMAGE)
				break;
		}
	}
	close(slow);
	close(quick);
}

/* ---- others ---- */

static void a_display_without_a_socket_works(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct display *d;

	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 1, 640, 480, NULL, &d, &err), 0);
	assert_int_equal(display_alloc(d, PAGE), 0);
	display_scanout(d, 0, &(struct display_surface){0, 32, 32, 128, DISPLAY_B8G8R8X8});
	assert_int_equal(display_frame(d), 1);
	display_taken(d, DISPLAY_KEYBOARD);
	display_leds(d, 1);
	run(f);
	display_close(d);
	display_close(NULL);
}

static void impossible_displays_are_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct display *d = NULL;

	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 0, 640, 480, NULL, &d, &err), -EINVAL);
	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 5, 640, 480, NULL, &d, &err), -EINVAL);
	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 1, 63, 480, NULL, &d, &err), -EINVAL);
	assert_string_equal(err.text, "display of 63x480 pixels: 64 to 8192 a side are possible");
	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 1, 640, 8193, NULL, &d, &err), -EINVAL);
	assert_int_equal(display_open(&f->loop, &f->log, PAGE + 1, 1, 640, 480, NULL, &d, &err), -EINVAL);
	assert_int_equal(display_open(&f->loop, &f->log, 0, 1, 640, 480, NULL, &d, &err), -EINVAL);
	assert_int_equal(display_open(&f->loop, &f->log, PAGE, 1, 640, 480, "/nowhere/display.sock", &d, &err),
			 -ENOENT);
	assert_null(d);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(a_client_can_map_the_memory_for_reading_only),
	    T(the_process_that_renders_can_map_it_for_writing),
	    cmocka_unit_test_setup_teardown(a_new_client_hears_what_there_is, setup_two, teardown),
	    T(the_first_damage_covers_everything),
	    T(damage_is_told_when_the_frame_is_whole),
	    T(damage_is_clipped_to_the_scanout),
	    T(a_frame_in_which_nothing_changed_is_none),
	    T(what_changes_before_the_client_is_ready_is_gathered),
	    cmocka_unit_test_setup_teardown(each_scanout_has_its_turn, setup_two, teardown),
	    T(another_size_is_told_before_its_damage),
	    T(a_client_that_does_not_read_finds_the_newest_state),
	    T(each_cursor_image_has_a_serial_of_its_own),
	    T(lamps_are_told),
	    T(input_is_answered_once_the_driver_has_taken_it),
	    T(nothing_more_is_read_before_the_answer),
	    T(input_that_a_device_has_no_room_for_is_tried_again),
	    T(what_the_device_says_is_the_answer),
	    T(several_clients_take_turns_at_a_device),
	    T(one_that_leaves_with_its_input_on_the_way_holds_nobody_up),
	    T(a_device_that_goes_answers_what_it_had),
	    T(a_mode_reaches_the_gpu_and_its_wish_the_clients),
	    T(an_impossible_mode_ends_the_connection),
	    T(what_is_no_message_ends_the_connection),
	    T(input_of_too_many_events_or_of_no_device_ends_the_connection),
	    T(descriptors_that_a_client_sends_are_closed),
	    T(one_client_too_many_is_turned_away_until_another_leaves),
	    T(a_slow_client_holds_up_no_other),
	    T(a_display_without_a_socket_works),
	    T(impossible_displays_are_refused),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
