/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VM shows, and where its input comes from: between the devices (virtio_gpu, virtio_input) and the programs on the host
 * that look on (lib/display_proto.h has their messages).
 *
 * The display's memory is one sealed memfd of a fixed size, made at the start: it is all a guest's resources and cursors can ever
 * take, and nothing is mapped or created once the VM runs. The gpu device allocates from it, page aligned, and draws
 * there; clients have the same pages mapped for reading. What is freed goes back to the host and reads as zeros.
 *
 * The gpu device says what is shown where (display_scanout), what has changed (display_damage) and that a frame is whole
 * (display_frame). Damage is gathered per client, in at most DISPLAY_RECTS_MAX rectangles that cover it, until the
 * client says it is ready for it. An idle display costs nothing.
 *
 * Input goes to the device of its kind, one message of a client at a time.
 *
 * Null: without a socket there are no clients and everything else works; that is what the tests of the devices use.
 *
 * Threads: display_alloc, display_free, display_bytes, display_memory_used with the gpu device's lock held; display_scanout, display_wanted,
 * display_cursor_*, display_damage, display_frame, display_leds, display_taken from any thread, also with a device's lock held (the
 * display's mutex comes after it); none of them calls back. Everything else, and all callbacks, in main without locks.
 * Trust: the devices check what the guest says; messages of clients are hostile.
 * Snapshot: nothing; devices say everything again after a restore.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/display_proto.h"
#include "lib/err.h"
#include "lib/log.h"
#include "lib/loop.h"

struct display;

struct display_rect {
	uint32_t x, y, width, height;
};

/* What a scanout shows. */
struct display_surface {
	uint64_t offset; /* in the display's memory */
	uint32_t width, height, stride;
	uint32_t format; /* enum display_format */
};

/* The gpu device. */
struct display_gpu_ops {
	/* A client wants scanout to have this size: DISPLAY_SIZE_MIN to DISPLAY_SIZE_MAX each way. */
	void (*mode)(void *opaque, uint32_t scanout, uint32_t width, uint32_t height);
};

/* An input device. */
struct display_input_ops {
	/* All of n events (1 to DISPLAY_EVENTS_MAX) and a SYN_REPORT after them, or none: 0; -EAGAIN when there is no room before
	 * the driver takes some (ask again after display_taken); -ENODEV when no driver listens; -EINVAL for an event the device
	 * does not have. Once the driver has taken everything the device calls display_taken. */
	int (*inject)(void *opaque, const struct display_input_event *event, size_t n);
};

/* Memory of `size` bytes (a multiple of the page size) and `scanouts` (1 to DISPLAY_SCANOUTS_MAX) that show nothing and prefer
 * width x height; on `socket` (a name in the working directory; NULL: nowhere) it listens. *ret is the
 * caller's to close. 0 or -errno with a text. */
int display_open(struct loop *loop, struct log *log, uint64_t size, uint32_t scanouts, uint32_t width, uint32_t height, const char *socket,
		 struct display **ret, struct err *err);
void display_close(struct display *d); /* accepts NULL */

/* The devices say who they are, in open, and NULL ops before they go. */
void display_set_gpu(struct display *d, const struct display_gpu_ops *ops, void *opaque);
void display_set_input(struct display *d, enum display_input_kind kind, const struct display_input_ops *ops, void *opaque);
void display_set_accelerated(struct display *d, bool yes);

/* `size` bytes, zeroed, page aligned: the offset, or -ENOMEM. At most DISPLAY_BLOCKS_MAX at once. */
enum { DISPLAY_BLOCKS_MAX = 4096 };
int64_t display_alloc(struct display *d, uint64_t size);
void display_free(struct display *d, uint64_t offset); /* of the very block that was allocated */
/* The bytes at [offset, offset + len), which must lie inside one block: else NULL. For the gpu device to draw in. */
uint8_t *display_bytes(const struct display *d, uint64_t offset, uint64_t len);
uint64_t display_memory_size(const struct display *d);
uint64_t display_memory_used(const struct display *d);
/* The memory itself, writable: borrowed, for the process that renders. */
int display_memory_fd(const struct display *d);

/* surface NULL: nothing is shown. Everything of it counts as damaged. */
void display_scanout(struct display *d, uint32_t scanout, const struct display_surface *surface);
/* What the guest was told to prefer, when it changes. */
void display_wanted(struct display *d, uint32_t scanout, uint32_t width, uint32_t height);
/* rect is clipped to the scanout. */
void display_damage(struct display *d, uint32_t scanout, const struct display_rect *rect);
/* The damage since the last frame is one frame: clients hear of it now. Returns its number. */
uint64_t display_frame(struct display *d);
/* A new image, at offset in the display's memory (DISPLAY_CURSOR_SIZE lines of as many B8G8R8A8 pixels). */
void display_cursor_image(struct display *d, uint32_t scanout, uint64_t offset, uint32_t hot_x, uint32_t hot_y);
void display_cursor_hide(struct display *d, uint32_t scanout);
void display_cursor_move(struct display *d, uint32_t scanout, uint32_t x, uint32_t y);
void display_leds(struct display *d, uint32_t leds);
/* The driver has taken all events there were, or they have gone with a reset; also when there is room again after -EAGAIN. */
void display_taken(struct display *d, enum display_input_kind kind);
