/* SPDX-License-Identifier: Apache-2.0 */
/* What the clients of a display ask for: input and modes. */
#include "tests/unit/display_fixture.h"

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

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(input_is_answered_once_the_driver_has_taken_it),
		T(nothing_more_is_read_before_the_answer),
		T(input_that_a_device_has_no_room_for_is_tried_again),
		T(what_the_device_says_is_the_answer),
		T(several_clients_take_turns_at_a_device),
		T(one_that_leaves_with_its_input_on_the_way_holds_nobody_up),
		T(a_device_that_goes_answers_what_it_had),
		T(a_mode_reaches_the_gpu_and_its_wish_the_clients),
		T(an_impossible_mode_ends_the_connection),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
