/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input of a viewer that the display has yet to hear of: it takes one message at a time (host/display_client.h).
 *
 * A guest that takes nothing fills the queue. Then new presses are left out before what lets go of something is, so that nothing stays
 * down; a motion replaces the one before it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/display_client.h"

enum { QUEUE_MAX = 256, QUEUE_PRESS_MAX = 192 /* beyond it only what ends something is taken */ };

struct queue_moment {
	uint32_t kind, n;
	bool motion; /* nothing but the pointer's place: a newer one replaces it */
	struct display_input_event event[8];
};

struct queue {
	struct display_client *display; /* borrowed */
	struct queue_moment moment[QUEUE_MAX];
	uint32_t head, count;
};

/* Taken into the queue, and sent as soon as what was before it is. false: there is no room. */
bool queue_put(struct queue *q, const struct queue_moment *m);
/* The display has taken the last one (DISPLAY_CLIENT_TAKEN): the next. 0 or -errno. */
int queue_go_on(struct queue *q);
