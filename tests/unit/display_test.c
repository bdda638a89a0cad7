/* SPDX-License-Identifier: Apache-2.0 */
/* What the clients of a display are told, and what becomes of hostile ones. */
#include "tests/unit/display_fixture.h"

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
