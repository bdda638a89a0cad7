/* SPDX-License-Identifier: Apache-2.0 */
/* What screen.c, screen_type.c and screen_wait.c share. */
#pragma once
#include "host/screen.h"

unsigned long long screen_now_ms(void);
/* -ECANCELED when interrupted. */
int screen_nap(struct screen *s, uint32_t ms, struct err *err);
struct display_input_event screen_event(uint16_t type, uint16_t code, int32_t value);
/* One moment's events, until they are taken. */
int screen_send(struct screen *s, enum display_input_kind kind, const struct display_input_event *event, size_t n, struct err *err);
/* Until a frame that is newer than what was taken last, or settle_ms; a change of the cursor will do where that is what was wanted. */
int screen_settle(struct screen *s, bool cursor_too, struct err *err);
int screen_press_chord(struct screen *s, const struct screen_chord *c, struct err *err); /* lets go of what it pressed on failure */
int screen_release_chord(struct screen *s, const struct screen_chord *c, struct err *err);
