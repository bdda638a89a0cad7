/* SPDX-License-Identifier: Apache-2.0 */
/* Few colours for a gif. Screens often have few; where not, a cube of 6 x 7 x 6 stands for all: see record.h. */
#include <string.h>

#include "host/record/record.h"

enum { COLOURS = 256, SLOTS = 1024, RED = 6, GREEN = 7, BLUE = 6 };

static uint32_t colour_at(const uint8_t *p)
{
	return 0xff000000u | (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

/* Open addressing: a slot is a colour (0: free) and its number. */
struct table {
	uint32_t colour[SLOTS];
	uint8_t number[SLOTS];
	uint32_t n;
};

/* Its number, or -1 when there are too many. */
static int number_of(struct table *t, uint32_t *palette, uint32_t colour)
{
	uint32_t i = (colour * 2654435761u) >> 22;

	while (t->colour[i] && t->colour[i] != colour)
		i = (i + 1) % SLOTS;
	if (!t->colour[i]) {
		if (t->n == COLOURS)
			return -1;
		t->colour[i] = colour;
		t->number[i] = (uint8_t)t->n;
		palette[t->n++] = colour;
	}
	return t->number[i];
}

static bool exact(const struct picture *p, uint32_t *palette, uint8_t *index, uint32_t stride)
{
	struct table t = { .n = 0 };
	uint32_t last = 0;
	int number = 0;

	for (uint32_t y = 0; y < p->height; y++) {
		for (uint32_t x = 0; x < p->width; x++) {
			uint32_t colour = colour_at(p->rgba + ((size_t)y * p->width + x) * 4);

			if (colour != last) {
				number = number_of(&t, palette, colour);
				last = colour;
			}
			if (number < 0)
				return false;
			index[(size_t)y * stride + x] = (uint8_t)number;
		}
	}
	return true;
}

static uint32_t level(uint32_t v, uint32_t n)
{
	return (v * (n - 1) + 127) / 255;
}

void record_palette(const struct picture *p, uint32_t *palette, uint8_t *index, uint32_t stride)
{
	memset(palette, 0, COLOURS * sizeof(*palette));
	if (exact(p, palette, index, stride))
		return;
	memset(palette, 0, COLOURS * sizeof(*palette));
	for (uint32_t i = 0; i < RED * GREEN * BLUE; i++)
		palette[i] = 0xff000000u | i / (GREEN * BLUE) * 255 / (RED - 1) << 16 | i / BLUE % GREEN * 255 / (GREEN - 1) << 8 |
			     i % BLUE * 255 / (BLUE - 1);
	for (uint32_t y = 0; y < p->height; y++) {
		for (uint32_t x = 0; x < p->width; x++) {
			const uint8_t *c = p->rgba + ((size_t)y * p->width + x) * 4;

			index[(size_t)y * stride + x] =
				(uint8_t)((level(c[0], RED) * GREEN + level(c[1], GREEN)) * BLUE + level(c[2], BLUE));
		}
	}
}
