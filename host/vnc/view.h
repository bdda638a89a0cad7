/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coffer-vnc knows of the display: the client's side of display.sock (lib/display_proto.h), and the input it has yet to
 * send, one message at a time.
 *
 * Trust: the monitor may have been taken over by its guest: surfaces and cursors must lie in the memory, and have sizes a display can
 * have, or the connection is over. Pixels change while they are read; they are only ever copied.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/display_proto.h"
#include "lib/err.h"

enum { VIEW_QUEUE_MAX = 256, VIEW_QUEUE_PRESS_MAX = 192 /* beyond it only what ends something is taken */ };

struct view_surface {
	uint32_t width, height, stride, format; /* width 0: nothing is shown */
	uint64_t offset;
	uint32_t wanted_width, wanted_height;
};

struct view_cursor {
	bool visible;
	uint32_t x, y, hot_x, hot_y, serial;
	uint64_t offset;
};

struct view_moment {
	uint32_t kind, n;
	bool motion; /* nothing but the pointer's place: a newer one replaces it */
	struct display_input_event event[8];
};

struct view {
	int fd; /* borrowed */
	const uint8_t *memory;
	uint64_t memory_size;
	struct view_surface surface; /* of scanout 0 */
	struct view_cursor cursor;
	uint32_t leds;
	/* what the last view_read brought */
	bool surface_changed, cursor_changed, leds_changed;
	uint32_t ndamage;
	struct display_rect_wire damage[DISPLAY_RECTS_MAX];
	/* input */
	bool in_flight;
	uint32_t seq;
	struct view_moment queue[VIEW_QUEUE_MAX];
	uint32_t head, count;
};

/* Reads HELLO, waiting, and maps the memory. */
int view_open(struct view *v, int fd, struct err *err);
/* One message: 1, 0 when there is none, or -errno. */
int view_read(struct view *v);
int view_ready(struct view *v);
int view_mode(struct view *v, uint32_t width, uint32_t height);
/* Taken into the queue, and sent as soon as what was before it is. false: there is no room. */
bool view_input(struct view *v, const struct view_moment *m);
/* The first byte of the pixel. */
const uint8_t *view_pixel(const struct view *v, uint32_t x, uint32_t y);
