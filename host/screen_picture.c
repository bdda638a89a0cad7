/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of a screen: see screen_picture.h. */
#include "host/screen_picture.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { PIXEL = 4 };

void picture_free(struct picture *p)
{
	free(p->rgba);
	*p = (struct picture){ 0 };
}

static int make(uint32_t width, uint32_t height, struct picture *ret)
{
	*ret = (struct picture){ width, height, malloc(MAX((size_t)width * height * PIXEL, (size_t)1)) };
	return ret->rgba ? 0 : -ENOMEM;
}

static void draw_cursor(const struct display_client_cursor *c, const struct picture_rect *rect, struct picture *p)
{
	int64_t left = (int64_t)c->x - c->hot_x - rect->x, top = (int64_t)c->y - c->hot_y - rect->y;

	if (!c->visible || !c->image)
		return;
	for (int64_t y = 0; y < DISPLAY_CURSOR_SIZE; y++) {
		if (top + y < 0 || top + y >= p->height)
			continue;
		for (int64_t x = 0; x < DISPLAY_CURSOR_SIZE; x++) {
			const uint8_t *from = c->image + (y * DISPLAY_CURSOR_SIZE + x) * PIXEL;
			uint8_t *to;
			uint32_t rest = 255u - from[3];

			if (left + x < 0 || left + x >= p->width)
				continue;
			to = p->rgba + ((size_t)(top + y) * p->width + (size_t)(left + x)) * PIXEL;
			for (int i = 0; i < 3; i++)
				to[i] = (uint8_t)MIN(from[2 - i] + (to[i] * rest + 127) / 255, 255u);
		}
	}
}

int picture_take(const struct display_client_scanout *s, const struct picture_rect *rect, bool cursor, struct picture *ret)
{
	const struct display_client_layout at = display_client_layout(s->format);
	struct picture p;

	if (rect->x > s->width || rect->y > s->height || rect->width > s->width - rect->x || rect->height > s->height - rect->y)
		return -EINVAL;
	if (make(rect->width, rect->height, &p) < 0)
		return -ENOMEM;
	for (uint32_t y = 0; y < p.height; y++) {
		const uint8_t *from = s->pixels + (size_t)(rect->y + y) * s->stride + (size_t)rect->x * PIXEL;
		uint8_t *to = p.rgba + (size_t)y * p.width * PIXEL;

		for (uint32_t x = 0; x < p.width; x++, from += PIXEL, to += PIXEL) {
			to[0] = from[at.red];
			to[1] = from[at.green];
			to[2] = from[at.blue];
			to[3] = 255;
		}
	}
	if (cursor)
		draw_cursor(&s->cursor, rect, &p);
	*ret = p;
	return 0;
}

/* One output pixel of a line of `n`: the mean of [i * n / to, (i + 1) * n / to) in units of 1 / to. */
static void mean(const uint8_t *line, size_t step, uint32_t n, uint32_t to, uint32_t i, uint8_t *out)
{
	uint64_t from = (uint64_t)i * n, end = from + n, sum[PIXEL] = { 0 };

	for (uint64_t k = from / to; k * to < end; k++) {
		uint64_t weight = MIN((k + 1) * to, end) - MAX(k * to, from);

		for (int c = 0; c < PIXEL; c++)
			sum[c] += weight * line[k * step + (size_t)c];
	}
	for (int c = 0; c < PIXEL; c++)
		out[c] = (uint8_t)((sum[c] + n / 2) / n);
}

int picture_scale(const struct picture *p, uint32_t width, uint32_t height, struct picture *ret)
{
	struct picture half, whole;

	if (p->width == 0 || p->height == 0 || width == 0 || height == 0 || width > PICTURE_SIZE_MAX || height > PICTURE_SIZE_MAX)
		return -EINVAL;
	if (make(width, p->height, &half) < 0)
		return -ENOMEM;
	for (uint32_t y = 0; y < p->height; y++)
		for (uint32_t x = 0; x < width; x++)
			mean(p->rgba + (size_t)y * p->width * PIXEL, PIXEL, p->width, width, x,
			     half.rgba + ((size_t)y * width + x) * PIXEL);
	if (make(width, height, &whole) == 0)
		for (uint32_t y = 0; y < height; y++)
			for (uint32_t x = 0; x < width; x++)
				mean(half.rgba + (size_t)x * PIXEL, (size_t)width * PIXEL, p->height, height, y,
				     whole.rgba + ((size_t)y * width + x) * PIXEL);
	picture_free(&half);
	*ret = whole;
	return whole.rgba ? 0 : -ENOMEM;
}

static bool same_colour(const uint8_t *a, const uint8_t *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

bool picture_equal(const struct picture *a, const struct picture *b)
{
	if (a->width != b->width || a->height != b->height)
		return false;
	for (size_t i = 0; i < (size_t)a->width * a->height; i++)
		if (!same_colour(a->rgba + i * PIXEL, b->rgba + i * PIXEL))
			return false;
	return true;
}

bool picture_is_flat(const struct picture *p)
{
	for (size_t i = 1; i < (size_t)p->width * p->height; i++)
		if (!same_colour(p->rgba, p->rgba + i * PIXEL))
			return false;
	return true;
}

static const uint8_t *pixel(const struct picture *p, uint32_t x, uint32_t y)
{
	return p->rgba + ((size_t)y * p->width + x) * PIXEL;
}

/* Any colour fits. */
static bool is_any(const uint8_t *what)
{
	return what[3] < 128;
}

static bool is_at(const struct picture *p, const struct picture *what, uint32_t x, uint32_t y)
{
	for (uint32_t j = 0; j < what->height; j++) {
		const uint8_t *a = pixel(p, x, y + j), *b = pixel(what, 0, j);

		for (uint32_t i = 0; i < what->width; i++, a += PIXEL, b += PIXEL)
			if (!is_any(b) && !same_colour(a, b))
				return false;
	}
	return true;
}

/* A pixel and its right neighbour that differ, which most places of a screen have not; false: there are none. */
static bool find_edge(const struct picture *what, uint32_t *ret_x, uint32_t *ret_y)
{
	for (uint32_t y = 0; y < what->height; y++)
		for (uint32_t x = 0; x + 1 < what->width; x++) {
			const uint8_t *a = pixel(what, x, y), *b = pixel(what, x + 1, y);

			if (!is_any(a) && !is_any(b) && !same_colour(a, b)) {
				*ret_x = x;
				*ret_y = y;
				return true;
			}
		}
	return false;
}

int picture_find(const struct picture *p, const struct picture *what, uint64_t until_ns, uint32_t *ret_x, uint32_t *ret_y)
{
	uint32_t ex = 0, ey = 0;
	bool edge;

	if (what->width == 0 || what->height == 0 || what->width > p->width || what->height > p->height)
		return 0;
	edge = find_edge(what, &ex, &ey);
	for (uint32_t y = 0; y <= p->height - what->height; y++) {
		for (uint32_t x = 0; x <= p->width - what->width; x++) {
			const uint8_t *a = pixel(p, x + ex, y + ey), *b = pixel(what, ex, ey);

			if (edge && !(same_colour(a, b) && same_colour(a + PIXEL, b + PIXEL)))
				continue;
			if (is_at(p, what, x, y)) {
				*ret_x = x;
				*ret_y = y;
				return 1;
			}
		}
		if (until_ns && loop_now_ns() >= until_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

bool picture_parse_number(const char **at, uint32_t *ret)
{
	size_t n = strspn(*at, "0123456789");

	if (n == 0 || n > 9)
		return false;
	*ret = (uint32_t)strtoul(*at, NULL, 10);
	*at += n;
	return true;
}

static bool parse_size(const char *text, uint32_t *ret_width, uint32_t *ret_height)
{
	return picture_parse_number(&text, ret_width) && *text++ == 'x' && picture_parse_number(&text, ret_height) && !*text;
}

int picture_parse_scale(const char *text, uint32_t width, uint32_t height, uint32_t *ret_width, uint32_t *ret_height, struct err *err)
{
	uint32_t w = 0, h = 0;
	char *end;
	double f;

	if (parse_size(text, &w, &h)) {
		if (w < 1 || h < 1 || w > PICTURE_SIZE_MAX || h > PICTURE_SIZE_MAX)
			return err_set(err, -EINVAL, "scale '%.100s': each side has 1 to %d pixels", text, PICTURE_SIZE_MAX);
		*ret_width = w;
		*ret_height = h;
		return 0;
	}
	f = strtod(text, &end);
	if (end == text || *end || !isfinite(f))
		return err_set(err, -EINVAL, "scale '%.100s' is neither WIDTHxHEIGHT nor a factor such as 0.5", text);
	if (f <= 0)
		return err_set(err, -EINVAL, "scale '%.100s': a factor is larger than 0, such as 0.5", text);
	if (f * MAX(width, height) > PICTURE_SIZE_MAX)
		return err_set(err, -EINVAL, "scale '%.100s' makes it larger than %d pixels a side", text, PICTURE_SIZE_MAX);
	*ret_width = MAX((uint32_t)(f * width + 0.5), 1u);
	*ret_height = MAX((uint32_t)(f * height + 0.5), 1u);
	return 0;
}
