/* SPDX-License-Identifier: Apache-2.0 */
/* Films of coffer-record: every picture is in them, for exactly as long as it was seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/record/record.h"
#include "lib/util.h"

enum { WIDTH = 160, HEIGHT = 100, DELAYS_MAX = 32 };

struct film {
	struct record_encoder *encoder;
	struct picture picture;
	int fd;
	struct err err;
};

static void film_open(struct film *f, bool gif)
{
	*f = (struct film){ .fd = memfd_create("film", MFD_CLOEXEC), .err = ERR_INIT,
			    .picture = { .width = WIDTH, .height = HEIGHT, .rgba = malloc(WIDTH * HEIGHT * 4) } };
	assert_true(f->fd >= 0 && f->picture.rgba);
	memset(f->picture.rgba, 0xff, WIDTH * HEIGHT * 4);
	assert_int_equal(record_encoder_open(gif, false, WIDTH, HEIGHT, f->fd, &f->encoder, &f->err), 0);
}

/* From at_ms on: a white screen with a square of this colour, or one with more colours than a gif has. */
static void film_add(struct film *f, uint8_t colour, bool many, uint64_t at_ms)
{
	for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
		uint8_t *p = f->picture.rgba + (size_t)i * 4;

		p[0] = many ? (uint8_t)i : 0xff;
		p[1] = many ? (uint8_t)(i >> 6) : 0xff;
		if (i / WIDTH < 20 && i % WIDTH < 20)
			p[0] = p[1] = p[2] = colour;
	}
	assert_int_equal(record_encoder_add(f->encoder, &f->picture, at_ms, &f->err), 0);
}

static void film_close(struct film *f)
{
	record_encoder_close(f->encoder);
	free(f->picture.rgba);
	close(f->fd);
}

/* The delay of each frame, in hundredths. */
static int gif_delays(struct film *f, uint64_t end_ms, int *delay)
{
	static const uint8_t control[] = { 0x21, 0xf9, 4 };
	size_t size;
	uint8_t *data;
	int n = 0;

	assert_int_equal(record_encoder_finish(f->encoder, end_ms, &f->err), 0);
	size = (size_t)lseek(f->fd, 0, SEEK_END);
	data = mmap(NULL, size, PROT_READ, MAP_SHARED, f->fd, 0);
	assert_true(data != MAP_FAILED);
	for (size_t i = 0; i + 8 <= size; i++) {
		if (memcmp(data + i, control, sizeof(control)) == 0 && data[i + 7] == 0) {
			assert_true(n < DELAYS_MAX);
			delay[n++] = data[i + 4] | data[i + 5] << 8;
		}
	}
	munmap(data, size);
	film_close(f);
	return n;
}

static void a_picture_lasts_until_the_next(void **state)
{
	static const int want[] = { 6, 13, 21, 160, 100 };
	struct film f;
	int delay[DELAYS_MAX];

	(void)state;
	film_open(&f, true);
	film_add(&f, 0, false, 0);
	film_add(&f, 40, false, 60);
	film_add(&f, 80, false, 190);
	film_add(&f, 120, false, 400);
	film_add(&f, 160, false, 2000);
	assert_int_equal(gif_delays(&f, 3000, delay), ARRAY_SIZE(want));
	assert_memory_equal(delay, want, sizeof(want));
}

static void one_picture_lasts_until_the_end(void **state)
{
	struct film f;
	int delay[DELAYS_MAX];

	(void)state;
	film_open(&f, true);
	film_add(&f, 0, false, 0);
	assert_int_equal(gif_delays(&f, 1000, delay), 1);
	assert_int_equal(delay[0], 100);
}

static void what_is_the_same_again_takes_its_time(void **state)
{
	struct film f;
	int delay[DELAYS_MAX], sum = 0, n;

	(void)state;
	film_open(&f, true);
	for (uint32_t i = 0; i < 8; i++)
		film_add(&f, (uint8_t)(i / 4), i % 2, (uint64_t)i / 2 * 100);
	n = gif_delays(&f, 1000, delay);
	for (int i = 0; i < n; i++)
		sum += delay[i];
	assert_int_equal(sum, 100);
}

static void pictures_of_many_colours_are_all_there(void **state)
{
	struct film f;
	int delay[DELAYS_MAX];

	(void)state;
	film_open(&f, true);
	for (uint32_t i = 0; i < 10; i++)
		film_add(&f, (uint8_t)(i * 25), true, (uint64_t)i * 100);
	assert_int_equal(gif_delays(&f, 1000, delay), 10);
	for (int i = 0; i < 10; i++)
		assert_int_equal(delay[i], 10);
}

/* A gif's delays have 16 bits. */
static void a_screen_that_stands_still_for_an_hour_is_an_hour_in_the_film(void **state)
{
	struct film f;
	int delay[DELAYS_MAX], sum = 0, n;

	(void)state;
	film_open(&f, true);
	film_add(&f, 0, false, 0);
	film_add(&f, 200, false, 3600 * 1000);
	n = gif_delays(&f, 2 * 3600 * 1000, delay);
	for (int i = 0; i < n; i++)
		sum += delay[i];
	assert_int_equal(sum, 2 * 3600 * 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_picture_lasts_until_the_next),
		cmocka_unit_test(one_picture_lasts_until_the_end),
		cmocka_unit_test(what_is_the_same_again_takes_its_time),
		cmocka_unit_test(pictures_of_many_colours_are_all_there),
		cmocka_unit_test(a_screen_that_stands_still_for_an_hour_is_an_hour_in_the_film),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
