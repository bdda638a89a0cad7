/* SPDX-License-Identifier: Apache-2.0 */
/* Translation of pixels: see picture.h. */
#include "host/vnc/picture.h"

#include <endian.h>
#include <string.h>

#include "lib/util.h"

static uint32_t load(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

/* Four pixels at once: -O2 does not make that of a loop by itself, and a full screen is a million. */
typedef uint32_t four __attribute__((vector_size(16)));

enum { AT_ONCE = sizeof(four) / sizeof(uint32_t) };

static four load_four(const uint8_t *p)
{
	four v;

	memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = v >> 24 | (v >> 8 & 0xff00) | (v & 0xff00) << 8 | v << 24;
#endif
	return v;
}

/* Defines NAME for n pixels of which `v`, read as little-endian, is one or four. */
#define CONVERTER(name, expression)                                        \
	static void name(uint32_t *to, const uint8_t *from, uint32_t n)    \
	{                                                                  \
		uint32_t i = 0;                                            \
                                                                           \
		for (; n - i >= AT_ONCE; i += AT_ONCE) {                   \
			four v = load_four(from + (size_t)i * 4);          \
                                                                           \
			v = (expression);                                  \
			memcpy(to + i, &v, sizeof(v));                     \
		}                                                          \
		for (; i < n; i++) {                                       \
			uint32_t v = load(from + (size_t)i * 4);           \
                                                                           \
			to[i] = (expression);                              \
		}                                                          \
	}

CONVERTER(from_bgrx, v & 0xffffff)
CONVERTER(from_xrgb, (v >> 8 & 0xff) << 16 | (v >> 8 & 0xff00) | v >> 24)
CONVERTER(from_rgbx, (v & 0xff) << 16 | (v & 0xff00) | (v >> 16 & 0xff))
CONVERTER(from_xbgr, v >> 8)

void picture_convert(uint32_t *to, const uint8_t *from, uint32_t n, uint32_t format)
{
	switch (format) {
	case DISPLAY_A8R8G8B8:
	case DISPLAY_X8R8G8B8: /* bytes x r g b */
		from_xrgb(to, from, n);
		return;
	case DISPLAY_R8G8B8A8:
	case DISPLAY_R8G8B8X8:
		from_rgbx(to, from, n);
		return;
	case DISPLAY_X8B8G8R8:
	case DISPLAY_A8B8G8R8: /* bytes x b g r */
		from_xbgr(to, from, n);
		return;
	default: /* b g r x */
		from_bgrx(to, from, n);
	}
}

static uint32_t divide(uint32_t colour, uint32_t alpha)
{
	return alpha == 0 ? 0 : MIN(colour * 255 / alpha, 255u);
}

void picture_cursor(struct picture_cursor *c, const uint8_t *from, uint32_t hot_x, uint32_t hot_y)
{
	uint32_t image[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE];
	uint32_t left = DISPLAY_CURSOR_SIZE, top = DISPLAY_CURSOR_SIZE, right = 0, bottom = 0;

	memset(c, 0, sizeof(*c));
	for (uint32_t i = 0; i < ARRAY_SIZE(image); i++)
		image[i] = load(from + (size_t)i * 4); /* once: it may change */
	for (uint32_t i = 0; i < ARRAY_SIZE(image); i++) {
		uint32_t x = i % DISPLAY_CURSOR_SIZE, y = i / DISPLAY_CURSOR_SIZE;

		if (image[i] >> 24 == 0)
			continue;
		left = MIN(left, x);
		right = MAX(right, x + 1);
		top = MIN(top, y);
		bottom = MAX(bottom, y + 1);
	}
	if (right == 0)
		return;
	/* The hot spot stays inside, as some viewers want it. */
	hot_x = MIN(hot_x, (uint32_t)DISPLAY_CURSOR_SIZE - 1);
	hot_y = MIN(hot_y, (uint32_t)DISPLAY_CURSOR_SIZE - 1);
	left = MIN(left, hot_x);
	top = MIN(top, hot_y);
	right = MAX(right, hot_x + 1);
	bottom = MAX(bottom, hot_y + 1);
	c->width = right - left;
	c->height = bottom - top;
	c->hot_x = hot_x - left;
	c->hot_y = hot_y - top;
	for (uint32_t y = 0; y < c->height; y++)
		for (uint32_t x = 0; x < c->width; x++) {
			uint32_t v = image[(top + y) * DISPLAY_CURSOR_SIZE + left + x], alpha = v >> 24;

			c->alpha[y * c->width + x] = (uint8_t)alpha;
			c->pixel[y * c->width + x] =
				divide(v >> 16 & 0xff, alpha) << 16 | divide(v >> 8 & 0xff, alpha) << 8 | divide(v & 0xff, alpha);
		}
}
