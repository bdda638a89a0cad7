/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels of each of the display's formats, and cursors, for viewers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/vnc/picture.h"
#include "lib/util.h"

enum { N = 19 };

/* Where in a pixel's bytes red, green and blue are. */
static const struct {
	uint32_t format;
	int red, green, blue;
} formats[] = {
	{ DISPLAY_B8G8R8A8, 2, 1, 0 }, { DISPLAY_B8G8R8X8, 2, 1, 0 }, { DISPLAY_A8R8G8B8, 1, 2, 3 }, { DISPLAY_X8R8G8B8, 1, 2, 3 },
	{ DISPLAY_R8G8B8A8, 0, 1, 2 }, { DISPLAY_R8G8B8X8, 0, 1, 2 }, { DISPLAY_A8B8G8R8, 3, 2, 1 }, { DISPLAY_X8B8G8R8, 3, 2, 1 },
};

/* Every number of pixels up to N, at an odd address: the same colours, and nothing behind them is touched. */
static void each_format_gives_its_colours(void **state)
{
	uint8_t from[1 + N * 4];

	(void)state;
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 37 + 200);
	for (size_t f = 0; f < ARRAY_SIZE(formats); f++)
		for (uint32_t n = 0; n <= N; n++) {
			uint32_t to[N + 1];

			memset(to, 0x5a, sizeof(to));
			picture_convert(to, from + 1, n, formats[f].format);
			for (uint32_t i = 0; i < n; i++) {
				const uint8_t *p = from + 1 + (size_t)i * 4;

				assert_int_equal(to[i], (uint32_t)p[formats[f].red] << 16 | (uint32_t)p[formats[f].green] << 8 | p[formats[f].blue]);
			}
			assert_int_equal(to[n], 0x5a5a5a5a);
		}
}

static void a_cursor_is_cut_to_what_is_seen(void **state)
{
	static uint32_t image[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE];
	static struct picture_cursor c;

	(void)state;
	memset(image, 0, sizeof(image));
	image[3 * DISPLAY_CURSOR_SIZE + 5] = 0x80402010; /* half transparent: colours are multiplied */
	image[4 * DISPLAY_CURSOR_SIZE + 7] = 0xff112233;
	picture_cursor(&c, (const uint8_t *)image, 5, 3);
	assert_int_equal(c.width, 3);
	assert_int_equal(c.height, 2);
	assert_int_equal(c.hot_x, 0);
	assert_int_equal(c.hot_y, 0);
	assert_int_equal(c.pixel[0], 0x7f3f1f);
	assert_int_equal(c.alpha[0], 0x80);
	assert_int_equal(c.pixel[5], 0x112233);
}

static void a_cursor_of_nothing_is_none(void **state)
{
	static const uint8_t image[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * 4];
	static struct picture_cursor c;

	(void)state;
	picture_cursor(&c, image, 4000000000u, 4000000000u);
	assert_int_equal(c.width, 0);
}

/* Colours above their alpha, and a hot spot outside: the guest's to say, not to be believed. */
static void a_wrong_cursor_is_bounded(void **state)
{
	static uint32_t image[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE];
	static struct picture_cursor c;

	(void)state;
	memset(image, 0, sizeof(image));
	image[0] = 0x01ffffff;
	picture_cursor(&c, (const uint8_t *)image, 4000000000u, 4000000000u);
	assert_int_equal(c.pixel[0], 0xffffff);
	assert_int_equal(c.width, DISPLAY_CURSOR_SIZE);
	assert_int_equal(c.hot_x, DISPLAY_CURSOR_SIZE - 1);
	assert_int_equal(c.hot_y, DISPLAY_CURSOR_SIZE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_format_gives_its_colours),
		cmocka_unit_test(a_cursor_is_cut_to_what_is_seen),
		cmocka_unit_test(a_cursor_of_nothing_is_none),
		cmocka_unit_test(a_wrong_cursor_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
