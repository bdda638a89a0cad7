/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of a screen: taken, cut, scaled, compared, found in one another.
 *
 * Trust: a picture's pixels are the guest's; sizes are bounded by PICTURE_SIZE_MAX a side. Of a file only PNG is read (picture_png.c).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/display_client.h"
#include "lib/err.h"

enum { PICTURE_SIZE_MAX = 16384 };

struct picture {
	uint32_t width, height;
	uint8_t *rgba; /* 4 bytes a pixel, lines without gaps; owned */
};

struct picture_rect {
	uint32_t x, y, width, height;
};

void picture_free(struct picture *p); /* accepts an empty one */

/* What `s` shows inside `rect`, opaque; with the guest's cursor over it or not. -ENOMEM. */
int picture_take(const struct display_client_scanout *s, const struct picture_rect *rect, bool cursor, struct picture *ret);

/* Each pixel is the mean of those it covers, weighted by the covered area: exact for whole factors either way. -ENOMEM. */
int picture_scale(const struct picture *p, uint32_t width, uint32_t height, struct picture *ret);

/* Same size and same colours, without regard to alpha. */
bool picture_equal(const struct picture *a, const struct picture *b);

/* One colour, or nothing. */
bool picture_is_flat(const struct picture *p);

/* Where `what` is in `p`, with exactly its colours; pixels of `what` with an alpha below 128 stand for any. 1: there, the first line by
 * line; 0: nowhere; -ETIMEDOUT: not known at until_ns (loop_now_ns; 0: no limit), since a screen can be drawn so that it takes long. */
int picture_find(const struct picture *p, const struct picture *what, uint64_t until_ns, uint32_t *ret_x, uint32_t *ret_y);

/* A number of up to 9 digits at *at, which moves behind it; false when there is none. */
bool picture_parse_number(const char **at, uint32_t *ret);
/* "WxH" or a factor ("0.5", "2"): the size to scale to. -EINVAL with a text. */
int picture_parse_scale(const char *text, uint32_t width, uint32_t height, uint32_t *ret_width, uint32_t *ret_height, struct err *err);

/* A PNG file: RGB of 8 bits. With close-on-exec or not, fd stays open. 0 or -errno with a text. */
int picture_write_png(const struct picture *p, int fd, struct err *err);
/* One that is larger than max_width x max_height is refused (-EFBIG) before there is memory for it. */
int picture_read_png(int fd, uint32_t max_width, uint32_t max_height, struct picture *ret, struct err *err);
