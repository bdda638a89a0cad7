/* SPDX-License-Identifier: Apache-2.0 */
/* Damage as a few rectangles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>

#include "devices/backend/display_region.h"

static bool covered(const struct display_region *r, uint32_t x, uint32_t y)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (x - r->rect[i].x < r->rect[i].width && y - r->rect[i].y < r->rect[i].height)
			return true;
	return false;
}

static void add(struct display_region *r, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	display_region_add(r, &(struct display_rect){x, y, width, height});
}

static void a_rectangle_within_another_is_left_out(void **state)
{
	struct display_region r = {0};

	(void)state;
	add(&r, 0, 0, 100, 100);
	add(&r, 10, 10, 5, 5);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.rect[0].width, 100);
}

static void a_rectangle_around_others_replaces_them(void **state)
{
	struct display_region r = {0};

	(void)state;
	add(&r, 10, 10, 5, 5);
	add(&r, 50, 60, 5, 5);
	add(&r, 0, 0, 100, 100);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.rect[0].height, 100);
}

static void rectangles_side_by_side_are_joined_exactly(void **state)
{
	struct display_region r = {0};

	(void)state;
	add(&r, 0, 0, 10, 20);
	add(&r, 20, 0, 10, 20);
	add(&r, 10, 0, 10, 20); /* closes the gap */
	assert_int_equal(r.n, 1);
	assert_int_equal(r.rect[0].x, 0);
	assert_int_equal(r.rect[0].width, 30);
}

static void rectangles_far_apart_stay_apart(void **state)
{
	struct display_region r = {0};

	(void)state;
	add(&r, 0, 0, 1, 1);
	add(&r, 8000, 8000, 1, 1);
	assert_int_equal(r.n, 2);
}

static void an_empty_rectangle_adds_nothing(void **state)
{
	struct display_region r = {0};

	(void)state;
	add(&r, 5, 5, 0, 10);
	add(&r, 5, 5, 10, 0);
	assert_int_equal(r.n, 0);
}

static void any_number_of_rectangles_is_covered_by_sixteen(void **state)
{
	struct display_region r = {0};
	unsigned short seed[3] = {1, 2, 3};
	bool want[100][100] = {0};

	(void)state;
	for (int i = 0; i < 500; i++) {
		uint32_t x = (uint32_t)nrand48(seed) % 97, y = (uint32_t)nrand48(seed) % 97;

		add(&r, x, y, 3, 3);
		assert_true(r.n <= DISPLAY_RECTS_MAX);
		for (uint32_t k = 0; k < 9; k++)
			want[x + k % 3][y + k / 3] = true;
	}
	for (uint32_t x = 0; x < 100; x++)
		for (uint32_t y = 0; y < 100; y++)
			assert_true(!want[x][y] || covered(&r, x, y));
}

static void one_that_finds_no_room_joins_its_nearest(void **state)
{
	struct display_region r = {0};

	(void)state;
	for (uint32_t i = 0; i < DISPLAY_RECTS_MAX; i++)
		add(&r, i * 100, 0, 1, 1);
	add(&r, 503, 0, 1, 1);
	assert_int_equal(r.n, DISPLAY_RECTS_MAX);
	assert_true(covered(&r, 500, 0) && covered(&r, 503, 0));
	assert_false(covered(&r, 550, 0) || covered(&r, 450, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rectangle_within_another_is_left_out),
		cmocka_unit_test(a_rectangle_around_others_replaces_them),
		cmocka_unit_test(rectangles_side_by_side_are_joined_exactly),
		cmocka_unit_test(rectangles_far_apart_stay_apart),
		cmocka_unit_test(an_empty_rectangle_adds_nothing),
		cmocka_unit_test(any_number_of_rectangles_is_covered_by_sixteen),
		cmocka_unit_test(one_that_finds_no_room_joins_its_nearest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
