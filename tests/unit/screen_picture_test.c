/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of a screen: formats, cutting, the cursor, scaling, finding, PNG. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/screen_picture.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { WIDTH = 7, HEIGHT = 5, STRIDE = WIDTH * 4 + 12 };

static uint8_t value(uint32_t x, uint32_t y, uint32_t channel)
{
	return (uint8_t)(x * 30 + y * 7 + channel * 3);
}

/* The same picture in one of the formats: where red, green and blue are says virtio 1.2, 5.7.6.8. */
static void paint(uint8_t *at, uint32_t format)
{
	static const struct {
		uint32_t format;
		uint8_t red, green, blue;
	} f[] = { { 1, 2, 1, 0 }, { 2, 2, 1, 0 }, { 3, 1, 2, 3 }, { 4, 1, 2, 3 }, { 67, 0, 1, 2 }, { 68, 3, 2, 1 }, { 121, 3, 2, 1 }, { 134, 0, 1, 2 } };

	for (size_t i = 0; i < ARRAY_SIZE(f); i++) {
		for (uint32_t y = 0; f[i].format == format && y < HEIGHT; y++) {
			for (uint32_t x = 0; x < WIDTH; x++) {
				at[y * STRIDE + x * 4 + f[i].red] = value(x, y, 0);
				at[y * STRIDE + x * 4 + f[i].green] = value(x, y, 1);
				at[y * STRIDE + x * 4 + f[i].blue] = value(x, y, 2);
			}
		}
	}
}

static struct display_client_scanout scanout(const uint8_t *pixels, uint32_t format)
{
	return (struct display_client_scanout){ .width = WIDTH, .height = HEIGHT, .stride = STRIDE, .format = format, .pixels = pixels };
}

static void every_format_gives_the_same_colours(void **ctx)
{
	static const uint32_t formats[] = { DISPLAY_B8G8R8A8, DISPLAY_B8G8R8X8, DISPLAY_A8R8G8B8, DISPLAY_X8R8G8B8,
					    DISPLAY_R8G8B8A8, DISPLAY_X8B8G8R8, DISPLAY_A8B8G8R8, DISPLAY_R8G8B8X8 };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		uint8_t pixels[STRIDE * HEIGHT] = { 0 };
		struct display_client_scanout s = scanout(pixels, formats[i]);
		struct picture p;

		paint(pixels, formats[i]);
		assert_int_equal(picture_take(&s, &(struct picture_rect){ 2, 1, 4, 3 }, false, &p), 0);
		for (uint32_t y = 0; y < 3; y++)
			for (uint32_t x = 0; x < 4; x++)
				for (uint32_t c = 0; c < 4; c++)
					assert_int_equal(p.rgba[(y * 4 + x) * 4 + c], c == 3 ? 255 : value(x + 2, y + 1, c));
		picture_free(&p);
	}
}

static void a_region_outside_is_refused(void **ctx)
{
	uint8_t pixels[STRIDE * HEIGHT] = { 0 };
	struct display_client_scanout s = scanout(pixels, DISPLAY_B8G8R8X8);
	struct picture p;

	(void)ctx;
	assert_int_equal(picture_take(&s, &(struct picture_rect){ 4, 0, 4, 1 }, false, &p), -EINVAL);
	assert_int_equal(picture_take(&s, &(struct picture_rect){ 0, UINT32_MAX, 1, 1 }, false, &p), -EINVAL);
	assert_int_equal(picture_take(&s, &(struct picture_rect){ 1, 1, UINT32_MAX, 1 }, false, &p), -EINVAL);
}

static void the_cursor_is_drawn_where_its_hot_spot_is(void **ctx)
{
	uint8_t pixels[STRIDE * HEIGHT] = { 0 };
	_cleanup_free_ uint8_t *image = calloc(DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE, 4);
	struct display_client_scanout s = scanout(pixels, DISPLAY_B8G8R8X8);
	struct picture p;

	(void)ctx;
	/* Half of red, premultiplied, at 1,1; opaque blue at 2,1. */
	memcpy(image + (DISPLAY_CURSOR_SIZE + 1) * 4, "\x00\x00\x80\x80", 4);
	memcpy(image + (DISPLAY_CURSOR_SIZE + 2) * 4, "\xff\x00\x00\xff", 4);
	memset(pixels, 0xff, sizeof(pixels));
	s.cursor = (struct display_client_cursor){ .visible = true, .x = 3, .y = 2, .hot_x = 1, .hot_y = 1, .image = image };
	assert_int_equal(picture_take(&s, &(struct picture_rect){ 3, 2, 2, 1 }, true, &p), 0);
	assert_memory_equal(p.rgba, "\xff\x7f\x7f\xff\x00\x00\xff\xff", 8);
	picture_free(&p);
	/* Partly off the screen. */
	s.cursor.x = -1;
	s.cursor.y = 0;
	assert_int_equal(picture_take(&s, &(struct picture_rect){ 0, 0, 1, 1 }, true, &p), 0);
	assert_memory_equal(p.rgba, "\x00\x00\xff\xff", 4);
	picture_free(&p);
}

static struct picture make(uint32_t width, uint32_t height)
{
	struct picture p = { width, height, malloc((size_t)width * height * 4) };

	for (uint32_t i = 0; i < width * height; i++)
		memcpy(p.rgba + i * 4, (uint8_t[]){ (uint8_t)(i * 7), (uint8_t)(i * 11), (uint8_t)(i * 13), 255 }, 4);
	return p;
}

static void twice_as_large_doubles_each_pixel(void **ctx)
{
	struct picture p = make(3, 2), big;

	(void)ctx;
	assert_int_equal(picture_scale(&p, 6, 4, &big), 0);
	for (uint32_t y = 0; y < 4; y++)
		for (uint32_t x = 0; x < 6; x++)
			assert_memory_equal(big.rgba + (y * 6 + x) * 4, p.rgba + (y / 2 * 3 + x / 2) * 4, 4);
	picture_free(&big);
	picture_free(&p);
}

static void half_as_large_has_the_means(void **ctx)
{
	struct picture p = make(4, 2), small;

	(void)ctx;
	for (int i = 0; i < 8; i++)
		p.rgba[i * 4] = (uint8_t)(i * 20);
	assert_int_equal(picture_scale(&p, 2, 1, &small), 0);
	assert_int_equal(small.rgba[0], (0 + 20 + 80 + 100) / 4);
	assert_int_equal(small.rgba[4], (40 + 60 + 120 + 140) / 4);
	picture_free(&small);
	picture_free(&p);
}

static void odd_factors_weigh_by_area(void **ctx)
{
	struct picture p = make(3, 1), q;

	(void)ctx;
	p.rgba[0] = 0;
	p.rgba[4] = 90;
	p.rgba[8] = 240;
	assert_int_equal(picture_scale(&p, 2, 1, &q), 0);
	assert_int_equal(q.rgba[0], 30);  /* all of the first, half of the second */
	assert_int_equal(q.rgba[4], 190); /* half of the second, all of the third */
	assert_int_equal(q.rgba[3], 255);
	picture_free(&q);
	picture_free(&p);
}

static void a_scale_is_a_size_or_a_factor(void **ctx)
{
	static const char *const bad[] = { "", "x", "0", "-1", "0x10", "10x", "nan", "inf", "1e9", "99999x2", "3x4x5", "-3x4", "2 " };
	struct err err = ERR_INIT;
	uint32_t w, h;

	(void)ctx;
	assert_int_equal(picture_parse_scale("640x400", 1280, 800, &w, &h, &err), 0);
	assert_true(w == 640 && h == 400);
	assert_int_equal(picture_parse_scale("0.5", 1281, 800, &w, &h, &err), 0);
	assert_true(w == 641 && h == 400);
	assert_int_equal(picture_parse_scale("0.0001", 1280, 800, &w, &h, &err), 0);
	assert_true(w == 1 && h == 1);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(picture_parse_scale(bad[i], 1280, 800, &w, &h, &err), -EINVAL);
}

static void an_image_is_found_where_it_is(void **ctx)
{
	struct picture p = make(9, 8), part = { 2, 3, malloc(2 * 3 * 4) };
	uint32_t x, y;

	(void)ctx;
	for (uint32_t j = 0; j < 3; j++)
		memcpy(part.rgba + j * 8, p.rgba + ((5 + j) * 9 + 7) * 4, 8);
	assert_int_equal(picture_find(&p, &part, 0, &x, &y), 1);
	assert_true(x == 7 && y == 5);
	part.rgba[0] ^= 1;
	assert_int_equal(picture_find(&p, &part, 0, &x, &y), 0);
	part.rgba[3] = 0; /* may be anything */
	assert_int_equal(picture_find(&p, &part, 0, &x, &y), 1);
	assert_int_equal(picture_find(&part, &p, 0, &x, &y), 0);
	picture_free(&part);
	picture_free(&p);
}

static void an_image_of_one_colour_is_found(void **ctx)
{
	struct picture p = { 6, 5, calloc(6 * 5, 4) }, part = { 2, 3, malloc(2 * 3 * 4) };
	uint32_t x, y;

	(void)ctx;
	memset(part.rgba, 0xff, 2 * 3 * 4);
	assert_int_equal(picture_find(&p, &part, 0, &x, &y), 0);
	for (uint32_t j = 1; j < 4; j++)
		memset(p.rgba + (j * 6 + 3) * 4, 0xff, 8);
	assert_int_equal(picture_find(&p, &part, 0, &x, &y), 1);
	assert_true(x == 3 && y == 1);
	picture_free(&part);
	picture_free(&p);
}

static void a_search_ends_with_its_time(void **ctx)
{
	struct picture p = make(9, 8), part = { 2, 1, malloc(2 * 4) };
	uint32_t x, y;

	(void)ctx;
	memcpy(part.rgba, p.rgba + (7 * 9 + 7) * 4, 8);
	assert_int_equal(picture_find(&p, &part, 1, &x, &y), -ETIMEDOUT);
	assert_int_equal(picture_find(&p, &part, loop_now_ns() + 600000000000, &x, &y), 1);
	assert_true(x == 7 && y == 7);
	picture_free(&part);
	picture_free(&p);
}

static void png_keeps_every_pixel(void **ctx)
{
	_cleanup_close_ int fd = memfd_create("png", MFD_CLOEXEC);
	struct picture p = make(61, 43), q;
	struct err err = ERR_INIT;

	(void)ctx;
	if (picture_write_png(&p, fd, &err) < 0)
		fail_msg("%s", err.text);
	lseek(fd, 0, SEEK_SET);
	if (picture_read_png(fd, PICTURE_SIZE_MAX, PICTURE_SIZE_MAX, &q, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(picture_equal(&p, &q));
	assert_int_equal(q.rgba[3], 255);
	picture_free(&p);
	picture_free(&q);
}

static void what_is_no_png_is_said(void **ctx)
{
	_cleanup_close_ int fd = memfd_create("png", MFD_CLOEXEC);
	struct picture q;
	struct err err = ERR_INIT;

	(void)ctx;
	assert_int_equal(fd_write_full(fd, "GIF89a and so on", 16), 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(picture_read_png(fd, PICTURE_SIZE_MAX, PICTURE_SIZE_MAX, &q, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no PNG that can be read"));
}

static void a_full_disk_is_said(void **ctx)
{
	_cleanup_close_ int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct picture p = make(8, 8);
	struct err err = ERR_INIT;

	(void)ctx;
	assert_true(picture_write_png(&p, fd, &err) < 0);
	picture_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_format_gives_the_same_colours),
		cmocka_unit_test(a_region_outside_is_refused),
		cmocka_unit_test(the_cursor_is_drawn_where_its_hot_spot_is),
		cmocka_unit_test(twice_as_large_doubles_each_pixel),
		cmocka_unit_test(half_as_large_has_the_means),
		cmocka_unit_test(odd_factors_weigh_by_area),
		cmocka_unit_test(a_scale_is_a_size_or_a_factor),
		cmocka_unit_test(an_image_is_found_where_it_is),
		cmocka_unit_test(an_image_of_one_colour_is_found),
		cmocka_unit_test(a_search_ends_with_its_time),
		cmocka_unit_test(png_keeps_every_pixel),
		cmocka_unit_test(what_is_no_png_is_said),
		cmocka_unit_test(a_full_disk_is_said),
	};

	return cmocka_run_group_tests_name("screen_picture", tests, NULL, NULL);
}
