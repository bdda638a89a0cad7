/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels of the display made into those of the server: 32 bits, 0x00RRGGBB in the machine's order. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/display_proto.h"

enum { PICTURE_RED_SHIFT = 16, PICTURE_GREEN_SHIFT = 8, PICTURE_BLUE_SHIFT = 0 };

/* n pixels of a row; both may be anywhere, source pixels may change meanwhile. */
void picture_convert(uint32_t *to, const uint8_t *from, uint32_t n, uint32_t format);

struct picture_cursor {
	uint32_t width, height, hot_x, hot_y; /* what of the image is not transparent; width 0: nothing */
	uint32_t pixel[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE]; /* without the alpha that was multiplied in */
	uint8_t alpha[DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE];
};

/* from: an image as lib/display_proto.h has it. */
void picture_cursor(struct picture_cursor *c, const uint8_t *from, uint32_t hot_x, uint32_t hot_y);
