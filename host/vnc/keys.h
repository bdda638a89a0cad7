/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a viewer, which are keysyms, as presses of a keyboard with the us layout, which is what the guest has.
 *
 * A keysym says a character, a key of the guest makes one together with its shift: where the guest's shift is not as the
 * character needs it (the viewer's own layout may have it elsewhere), shift is pressed or let go of around the key.
 * A character that no key has is left out.
 *
 * Trust: keysyms are the viewer's; what is not in the table does nothing. At most KEYS_HELD_MAX keys are down.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEYS_HELD_MAX = 32, KEYS_EVENTS_MAX = 8 };

struct key_event {
	uint16_t code; /* KEY_x */
	bool down;
};

struct keys {
	uint16_t held[KEYS_HELD_MAX];
	size_t n;
};

/* What is to be told the keyboard, in order: 0 to KEYS_EVENTS_MAX, each a moment of its own. caps: the guest's caps lock is lit. */
size_t keys_press(struct keys *k, uint32_t keysym, bool down, bool caps, struct key_event out[KEYS_EVENTS_MAX]);

/* One key that is still down: let go of it. False: there is none. */
bool keys_release_one(struct keys *k, struct key_event *ret);

/* KEY_x, or 0; *ret_shift: 1 with shift, 0 without, -1 whatever shift is. */
uint16_t keys_find(uint32_t keysym, int *ret_shift);
