/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of DIR/display.sock (lib/display_proto.h): what a VM shows, and input for it.
 *
 * One struct holds what the monitor has said last; nothing is allocated. The descriptor becomes readable when there is more;
 * display_client_read takes all of it, never waits, and says what changed. Damage is gathered in the struct until it is
 * taken; the next one comes only after display_client_ready.
 *
 *   display_client_connect(dirfd, &c, err)
 *   while ((r = display_client_wait(&c, deadline, err)) >= 0)
 *           if (r & DISPLAY_CLIENT_DAMAGE) { draw c.scanout[i].damage; display_client_clear(&c, i); display_client_ready(&c, err); }
 *
 * Input is one message at a time: after display_client_input nothing more can be sent before DISPLAY_CLIENT_TAKEN, whose answer is
 * in `taken_status` and `taken_frame`. display_client_send does both.
 *
 * Trust: the monitor may be taken over by its guest. Its messages are checked, so that every surface and every cursor image that is
 * shown here lies inside the memory that is mapped, which can neither shrink nor be written by us. Pixels may change at any moment.
 *
 * Threads: one at a time.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/display_proto.h"
#include "lib/err.h"

/* What display_client_read found. */
enum {
	DISPLAY_CLIENT_SCANOUT = 1, /* sizes, formats, places; all of it counts as damaged if it is another picture */
	DISPLAY_CLIENT_CURSOR = 2,
	DISPLAY_CLIENT_DAMAGE = 4,
	DISPLAY_CLIENT_LEDS = 8,
	DISPLAY_CLIENT_TAKEN = 16,
};

struct display_client_rect {
	uint32_t x, y, width, height;
};

struct display_client_cursor {
	bool visible;
	int32_t x, y;        /* of the hot spot on the scanout */
	uint32_t hot_x, hot_y;
	uint32_t serial;     /* another one with every image */
	const uint8_t *image; /* DISPLAY_CURSOR_SIZE lines of as many B8G8R8A8 pixels, premultiplied; NULL: none */
};

struct display_client_scanout {
	uint32_t width, height; /* 0: nothing is shown */
	uint32_t stride, format;
	const uint8_t *pixels;
	uint32_t wanted_width, wanted_height;
	struct display_client_cursor cursor;
	struct display_client_rect damage[DISPLAY_RECTS_MAX]; /* inside the scanout */
	uint32_t ndamage;
	uint64_t frame; /* the newest that damage was of */
};

struct display_client {
	int fd; /* poll for POLLIN; -1: closed */
	const uint8_t *memory;
	uint64_t memory_size;
	uint32_t scanouts, inputs; /* as in DISPLAY_HELLO */
	bool accelerated;
	struct display_client_scanout scanout[DISPLAY_SCANOUTS_MAX];
	uint32_t leds;
	bool complete;  /* everything that is known at the start has come */
	bool ready;     /* damage was asked for, and none has come */
	bool waiting;   /* input is not answered yet */
	uint32_t seq;
	int taken_status; /* of the last answer: 0 or -errno */
	uint64_t taken_frame;
};

enum { DISPLAY_CLIENT_OPEN_MS = 10000 }; /* for a monitor to say hello */

/* Connect in a VM's directory, and wait until all is known. -ENOENT: this VM has no display. */
int display_client_connect(int dirfd, struct display_client *ret, struct err *err);
/* The same over a connected socket; fd is the client's from now on, also on failure. */
int display_client_start(int fd, struct display_client *ret, struct err *err);
void display_client_close(struct display_client *c); /* accepts a closed one */

/* DISPLAY_CLIENT_* of what came, 0 for nothing; -ECONNRESET when the monitor has gone, -EPROTO when it said what cannot be. */
int display_client_read(struct display_client *c, struct err *err);
/* Wait for at least something first, until deadline_ms (CLOCK_MONOTONIC; 0: for ever): 0 when it passed. */
int display_client_wait(struct display_client *c, unsigned long long deadline_ms, struct err *err);

/* Damage may come. Again without effect. */
int display_client_ready(struct display_client *c, struct err *err);
/* What is damaged on this scanout has been seen to. */
void display_client_clear(struct display_client *c, uint32_t scanout);

/* n events (1 to DISPLAY_EVENTS_MAX); SYN_REPORT is between those of two moments. -EBUSY: the last ones are not answered yet. */
int display_client_input(struct display_client *c, enum display_input_kind kind, const struct display_input_event *event, size_t n,
			 struct err *err);
/* And wait for the answer. -ETIMEDOUT: the guest takes nothing; -ENODEV: nobody in it listens (yet). */
int display_client_send(struct display_client *c, enum display_input_kind kind, const struct display_input_event *event, size_t n,
			unsigned long long deadline_ms, struct err *err);
/* The guest is told to prefer this size. */
int display_client_mode(struct display_client *c, uint32_t scanout, uint32_t width, uint32_t height, struct err *err);

/* A pixel's colours in the order of bytes in memory: where in the 4 bytes red, green and blue are. */
struct display_client_layout {
	uint8_t red, green, blue;
};
struct display_client_layout display_client_layout(uint32_t format);
/* The value of an absolute axis for a pixel of `size` of them: its middle. */
uint32_t display_client_axis(uint32_t pixel, uint32_t size);
