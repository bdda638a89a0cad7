/* SPDX-License-Identifier: Apache-2.0 */
/* A display with real sockets in the test's own loop; the test is gpu, input device and client. */
#pragma once
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

static inline void on_mode(void *opaque, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct fixture *f = opaque;

	f->mode_scanout = scanout;
	f->mode_width = width;
	f->mode_height = height;
	f->modes++;
}

static inline int on_inject(void *opaque, const struct display_input_event *event, size_t n)
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

static inline int setup_scanouts(void **state, uint32_t scanouts)
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

static inline int setup(void **state)
{
	return setup_scanouts(state, 1);
}

static inline int setup_two(void **state)
{
	return setup_scanouts(state, 2);
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	display_close(f->d);
	loop_finish(&f->loop);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
	return 0;
}

static inline void run(struct fixture *f)
{
	while (loop_step(&f->loop, 0) > 0)
		;
}

static inline int connect_client(struct fixture *f)
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
static inline void expect(struct fixture *f, int fd, enum display_op op, void *m, size_t n)
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

static inline void expect_nothing(struct fixture *f, int fd)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];

	run(f);
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static inline void expect_closed(struct fixture *f, int fd)
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
static inline int greet(struct fixture *f, int fd, uint32_t scanouts, struct display_hello *hello)
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

static inline int client(struct fixture *f)
{
	struct display_hello hello;
	int fd = connect_client(f);

	close(greet(f, fd, 1, &hello));
	return fd;
}

static inline void say(struct fixture *f, int fd, const void *m, size_t n)
{
	assert_int_equal(send(fd, m, n, MSG_NOSIGNAL), n);
	run(f);
}

static inline void say_ready(struct fixture *f, int fd)
{
	struct display_header h = {.op = le16_make(DISPLAY_READY)};

	say(f, fd, &h, sizeof(h));
}

static inline void say_input(struct fixture *f, int fd, uint32_t seq, uint32_t kind, uint32_t n)
{
	struct display_input m = {
	    .h.op = le16_make(DISPLAY_INPUT), .seq = le32_make(seq), .kind = le32_make(kind), .n = le32_make(n)};

	for (uint32_t i = 0; i < DISPLAY_EVENTS_MAX; i++)
		m.event[i] = (struct display_input_event){le16_make(1), le16_make((uint16_t)(30 + i)), le32_make(seq)};
	say(f, fd, &m, sizeof(m));
}

static inline void expect_taken(struct fixture *f, int fd, uint32_t seq, int status, uint64_t frame)
{
	struct display_taken t;

	expect(f, fd, DISPLAY_TAKEN, &t, sizeof(t));
	assert_int_equal(le32_get(t.seq), seq);
	assert_int_equal((int)le32_get(t.status), status);
	assert_int_equal(le64_get(t.frame), frame);
}

static inline void show(struct fixture *f, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct display_surface s = {
	    .offset = 0, .width = width, .height = height, .stride = width * 4, .format = DISPLAY_B8G8R8X8};

	display_scanout(f->d, scanout, &s);
}

static inline void damage(struct fixture *f, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	display_damage(f->d, 0, &(struct display_rect){x, y, width, height});
}

/* A client that has seen a first whole picture. */
static inline int client_shown(struct fixture *f)
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
