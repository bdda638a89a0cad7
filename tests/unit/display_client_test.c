/* SPDX-License-Identifier: Apache-2.0 */
/* A display's client against a monitor that has been taken over: what cannot be is refused, before anything of it is looked at. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/display_client.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { MEMORY = 1 << 20 };

struct fixture {
	int fd; /* the monitor's end */
	int memory;
	struct display_client c;
	struct err err;
};

static struct display_header header(uint16_t op, uint16_t scanout)
{
	return (struct display_header){ le16_make(op), le16_make(scanout) };
}

static void say(struct fixture *f, const void *m, size_t n)
{
	assert_int_equal(send(f->fd, m, n, 0), n);
}

static struct display_hello hello(void)
{
	return (struct display_hello){ .h = header(DISPLAY_HELLO, 0), .version = le32_make(DISPLAY_VERSION), .scanouts = le32_make(2),
				       .memory_size = le64_make(MEMORY) };
}

static struct display_scanout scanout(uint32_t width, uint32_t height, uint32_t stride, uint64_t offset)
{
	return (struct display_scanout){ .h = header(DISPLAY_SCANOUT, 1), .width = le32_make(width), .height = le32_make(height),
					 .stride = le32_make(stride), .format = le32_make(DISPLAY_B8G8R8X8), .offset = le64_make(offset) };
}

static int setup(void **ctx)
{
	static struct fixture f;

	f = (struct fixture){ .fd = -1, .err = ERR_INIT, .c.fd = -1 };
	f.memory = memfd_create("display", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(f.memory, MEMORY), 0);
	assert_int_equal(fcntl(f.memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	display_client_close(&f->c);
	fd_close(f->fd);
	fd_close(f->memory);
	return 0;
}

/* Greet by `m` with this memory, then say the lights, which come last. */
static int greet(struct fixture *f, struct display_hello m, int memory)
{
	const struct display_leds leds = { header(DISPLAY_LEDS, 0), le32_make(0) };
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f->fd = pair[0];
	assert_int_equal(fd_send(f->fd, &m, sizeof(m), &memory, memory >= 0), sizeof(m));
	say(f, &leds, sizeof(leds));
	return display_client_start(pair[1], &f->c, &f->err);
}

static void begin(struct fixture *f)
{
	if (greet(f, hello(), f->memory) < 0)
		fail_msg("%s", f->err.text);
}

static void refuses(struct fixture *f, const void *m, size_t n)
{
	say(f, m, n);
	assert_int_equal(display_client_read(&f->c, &f->err), -EPROTO);
}

static void greetings_that_cannot_be_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_hello m = hello();

	m.version = le32_make(2);
	assert_int_equal(greet(f, m, f->memory), -EPROTO);
	assert_non_null(strstr(f->err.text, "version 2"));
	fd_close(f->fd);
	m = hello();
	m.scanouts = le32_make(5);
	assert_int_equal(greet(f, m, f->memory), -EPROTO);
	fd_close(f->fd);
	m = hello();
	m.memory_size = le64_make(MEMORY + 1);
	assert_int_equal(greet(f, m, f->memory), -EPROTO);
	fd_close(f->fd);
	assert_int_equal(greet(f, hello(), -1), -EPROTO);
	fd_close(f->fd);
	f->fd = -1;
}

static void memory_that_could_shrink_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	_cleanup_close_ int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	_cleanup_close_ int pipe_end = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_int_equal(ftruncate(loose, MEMORY), 0);
	assert_int_equal(greet(f, hello(), loose), -EPROTO);
	fd_close(f->fd);
	assert_int_equal(greet(f, hello(), pipe_end), -EPROTO);
}

static void surfaces_outside_of_the_memory_are_refused(void **ctx)
{
	static const struct {
		uint32_t width, height, stride;
		uint64_t offset;
	} bad[] = {
		{ 512, 513, 2048, 0 }, { 512, 512, 2048, 4 }, { 512, 1, 2047, 0 }, { 512, 1, 2044, 0 }, { 8193, 1, 32772, 0 },
		{ 1, 8193, 4, 0 }, { 1, 1, 4, UINT64_MAX }, { 1, 1, 4, MEMORY }, { 1, 1, 4, MEMORY - 3 }, { 8192, 8192, UINT32_MAX - 3, 0 },
		{ 1, 1, 4, 2 },
	};
	struct fixture *f = *ctx;
	struct display_scanout m = scanout(512, 512, 2048, 0);

	begin(f);
	say(f, &m, sizeof(m));
	assert_int_equal(display_client_read(&f->c, &f->err), DISPLAY_CLIENT_SCANOUT);
	assert_ptr_equal(f->c.scanout[1].pixels, f->c.memory);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		m = scanout(bad[i].width, bad[i].height, bad[i].stride, bad[i].offset);
		refuses(f, &m, sizeof(m));
		assert_int_equal(f->c.scanout[1].width, 512);
	}
}

static void cursors_outside_of_the_memory_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_cursor m = { .h = header(DISPLAY_CURSOR, 1), .visible = le32_make(1), .offset = le64_make(MEMORY - 64 * 64 * 4) };

	begin(f);
	say(f, &m, sizeof(m));
	assert_int_equal(display_client_read(&f->c, &f->err), DISPLAY_CLIENT_CURSOR);
	m.offset = le64_make(MEMORY - 64 * 64 * 4 + 4);
	refuses(f, &m, sizeof(m));
	m.offset = le64_make(0);
	m.hot_x = le32_make(64);
	refuses(f, &m, sizeof(m));
}

static void screens_that_are_not_there_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_scanout m = scanout(1, 1, 4, 0);

	begin(f);
	m.h.scanout = le16_make(2);
	refuses(f, &m, sizeof(m));
}

static void damage_stays_inside_of_the_screen(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_scanout s = scanout(100, 50, 400, 0);
	struct display_damage m = { .h = header(DISPLAY_DAMAGE, 1), .n = le32_make(3), .frame = le64_make(7),
				    .rect = { { le32_make(90), le32_make(40), le32_make(UINT32_MAX), le32_make(20) },
					      { le32_make(100), le32_make(0), le32_make(1), le32_make(1) },
					      { le32_make(UINT32_MAX), le32_make(UINT32_MAX), le32_make(1), le32_make(1) } } };

	begin(f);
	say(f, &s, sizeof(s));
	assert_true(display_client_read(&f->c, &f->err) > 0);
	display_client_clear(&f->c, 1);
	say(f, &m, sizeof(m));
	assert_int_equal(display_client_read(&f->c, &f->err), DISPLAY_CLIENT_DAMAGE);
	assert_int_equal(f->c.scanout[1].ndamage, 1);
	assert_int_equal(f->c.scanout[1].damage[0].width, 10);
	assert_int_equal(f->c.scanout[1].damage[0].height, 10);
	m.n = le32_make(17);
	refuses(f, &m, sizeof(m));
	m.n = le32_make(0);
	refuses(f, &m, sizeof(m));
}

static void damage_that_nobody_sees_to_becomes_all(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_scanout s = scanout(100, 50, 400, 0);
	struct display_damage m = { .h = header(DISPLAY_DAMAGE, 1), .n = le32_make(1),
				    .rect = { { le32_make(1), le32_make(1), le32_make(1), le32_make(1) } } };

	begin(f);
	say(f, &s, sizeof(s));
	for (int i = 0; i < DISPLAY_RECTS_MAX; i++)
		say(f, &m, sizeof(m));
	assert_true(display_client_read(&f->c, &f->err) > 0);
	assert_int_equal(f->c.scanout[1].ndamage, 1);
	assert_int_equal(f->c.scanout[1].damage[0].width, 100);
}

/* The guest is told of a wish: nothing that is seen has changed. */
static void only_another_picture_is_all_damaged(void **ctx)
{
	struct fixture *f = *ctx;
	struct display_scanout s = scanout(100, 50, 400, 0);

	begin(f);
	say(f, &s, sizeof(s));
	assert_true(display_client_read(&f->c, &f->err) > 0);
	assert_int_equal(f->c.scanout[1].ndamage, 1);
	display_client_clear(&f->c, 1);
	s.wanted_width = le32_make(640);
	say(f, &s, sizeof(s));
	assert_int_equal(display_client_read(&f->c, &f->err), DISPLAY_CLIENT_SCANOUT);
	assert_int_equal(f->c.scanout[1].wanted_width, 640);
	assert_int_equal(f->c.scanout[1].ndamage, 0);
	s.offset = le64_make(4);
	say(f, &s, sizeof(s));
	assert_int_equal(display_client_read(&f->c, &f->err), DISPLAY_CLIENT_SCANOUT);
	assert_int_equal(f->c.scanout[1].ndamage, 1);
	assert_int_equal(f->c.scanout[1].damage[0].height, 50);
}

static void answers_to_nothing_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct display_taken m = { .h = header(DISPLAY_TAKEN, 0), .seq = le32_make(0) };

	begin(f);
	refuses(f, &m, sizeof(m));
}

static void messages_of_another_size_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t m[512] = { 0 };

	begin(f);
	for (uint16_t op = 0; op < 20; op++) {
		le16_store(m, op);
		for (size_t n = 1; n < 500; n += 37)
			refuses(f, m, n);
	}
}

static void an_end_is_said(void **ctx)
{
	struct fixture *f = *ctx;

	begin(f);
	f->fd = fd_close(f->fd);
	assert_int_equal(display_client_read(&f->c, &f->err), -ECONNRESET);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(greetings_that_cannot_be_are_refused),
		TEST(memory_that_could_shrink_is_refused),
		TEST(surfaces_outside_of_the_memory_are_refused),
		TEST(cursors_outside_of_the_memory_are_refused),
		TEST(screens_that_are_not_there_are_refused),
		TEST(damage_stays_inside_of_the_screen),
		TEST(damage_that_nobody_sees_to_becomes_all),
		TEST(only_another_picture_is_all_damaged),
		TEST(answers_to_nothing_are_refused),
		TEST(messages_of_another_size_are_refused),
		TEST(an_end_is_said),
	};

	return cmocka_run_group_tests_name("display_client", tests, NULL, NULL);
}
