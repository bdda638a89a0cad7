/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a display that display.c, display_memory.c and display_server.c share.
 *
 * Locks: `lock` guards everything that a device's thread may change (scanouts, cursors, damage, what clients have not
 * been told); it is the last one taken and no callback is made under it. The memory's blocks belong to the gpu device,
 * whose own lock guards them. Sockets, loop and the reading of clients are main's alone.
 */
#pragma once
#include <pthread.h>

#include "devices/backend/display.h"
#include "devices/backend/display_region.h"

struct display_block {
	uint64_t offset, size;
};

struct display_memory {
	int fd, readonly_fd;
	uint8_t *map;
	uint64_t size, used;
	uint32_t n;
	struct display_block block[DISPLAY_BLOCKS_MAX]; /* by offset */
};

int display_memory_open(struct display_memory *m, uint64_t size, struct err *err);
void display_memory_finish(struct display_memory *m); /* accepts a zeroed one */

struct display_scanout_state {
	struct display_surface surface; /* width 0: nothing is shown */
	uint32_t wanted_width, wanted_height;
	bool cursor_visible;
	uint32_t cursor_x, cursor_y, hot_x, hot_y, cursor_serial;
	uint64_t cursor_offset;
	struct display_region pending; /* damage of the frame that is not whole yet */
};

enum display_input_stage {
	DISPLAY_INPUT_NONE,
	DISPLAY_INPUT_HELD,  /* the device had no room, or another's is on its way */
	DISPLAY_INPUT_GIVEN, /* the driver has not taken it yet */
};

struct display_client {
	struct display *d;
	struct loop_fd watch;
	/* main's: */
	enum display_input_stage stage;
	struct display_input input; /* valid while HELD or GIVEN */
	uint32_t next_damage;       /* scanout whose turn it is */
	bool answer;                /* TAKEN is to be sent */
	struct display_taken taken;
	/* under the lock: */
	bool active, hello, leds, ready;
	bool scanout[DISPLAY_SCANOUTS_MAX], cursor[DISPLAY_SCANOUTS_MAX];
	struct display_region damage[DISPLAY_SCANOUTS_MAX];
};

/* One device. At most one client's message is on its way, so that what the driver took is never in doubt. */
struct display_input_state {
	const struct display_input_ops *ops;
	void *opaque;
	struct display_client *owner; /* NULL: it has gone */
	uint32_t last;                /* index of the client served last: the others come first */
	/* under the lock: */
	bool busy, waited, taken;
	uint64_t frame;
};

struct display {
	struct loop *loop;
	struct log *log;
	pthread_mutex_t lock;
	uint32_t scanouts;
	uint64_t frame;
	bool changed; /* since the last frame, besides damage */
	bool accelerated;
	uint32_t leds;
	struct display_scanout_state scanout[DISPLAY_SCANOUTS_MAX];
	struct display_memory memory;
	const struct display_gpu_ops *gpu;
	void *gpu_opaque;
	struct display_input_state input[DISPLAY_INPUT_KINDS];
	/* server */
	unsigned uid;
	int kick_fd;
	bool kicked;
	struct loop_fd listener, kick;
	struct loop_timer accept_again;
	struct log_limit limit;
	struct display_client client[DISPLAY_CLIENTS_MAX];
};

int display_server_open(struct display *d, const char *socket, struct err *err);
void display_server_finish(struct display *d);
/* Main is to tell the clients. Under the lock. */
void display_server_kick(struct display *d);
