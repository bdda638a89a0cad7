/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a viewer, which are keysyms, as presses of a keyboard with the us layout, which is what the guest has.
 *
 * A keysym says a character, a key of the guest makes one together with its shift: where the guest's shift is not as the
 * character needs it (the viewer's own layout may have it elsewhere), shift is pressed or let go of around the key.
 * A character that no key has is left out.
 *
 * Some viewers also say where the key is (QEMU's extended key event). With that a key whose keysym is not known is found by its place if it
 * makes no character, or one that the layout lacks in a shortcut (ctrl+c on a keyboard with Cyrillic letters); and what is let go of is
 * what that key has pressed, whatever it would make now. For a guest with another layout than us, `positions` takes all keys by their
 * places: what they make is the guest's layout's business then.
 *
 * Trust: keysyms and scancodes are the viewer's; what is not in the tables does nothing. At most KEYS_HELD_MAX keys are down.
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

/* What the viewer says. */
struct key_press {
	uint32_t keysym, scancode; /* 0: not known */
	bool down;
};

struct keys {
	bool positions;
	struct key_held {
		uint16_t code;
		uint32_t scancode; /* of the viewer's key, or 0 */
	} held[KEYS_HELD_MAX];
	size_t n;
};

/* What is to be told the keyboard, in order: 0 to KEYS_EVENTS_MAX, each a moment of its own. caps: the guest's caps lock is lit. */
size_t keys_press(struct keys *k, const struct key_press *p, bool caps, struct key_event out[KEYS_EVENTS_MAX]);

/* One key that is still down: let go of it. False: there is none. */
bool keys_release_one(struct keys *k, struct key_event *ret);

/* KEY_x, or 0; *ret_shift: 1 with shift, 0 without, -1 whatever shift is. */
uint16_t keys_find(uint32_t keysym, int *ret_shift);

/* KEY_x of a place (scancodes.c), or 0. */
uint16_t keys_find_scancode(uint32_t scancode);
