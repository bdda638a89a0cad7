/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of keys, and which keys make which characters.
 *
 * Names are those of xdotool: keysyms of X ("Return", "F5", "Page_Down", "plus", "XF86AudioMute", "KP_1"), single characters ("a", "A",
 * "%"), and a few short ones ("ctrl", "super", "esc"). Those of more than one character are the same in any case. A chord is
 * names with '+' between them, pressed from left to right: "ctrl+shift+t"; a '+' itself is "plus", or the last character of a
 * chord ("ctrl++").
 *
 * Characters are of the layout "us", as the guest of a desktop image has it; other guests have to be set to it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum { SCREEN_CHORD_MAX = 8 };

struct screen_chord {
	uint16_t key[SCREEN_CHORD_MAX]; /* KEY_* of Linux, in the order in which they are pressed */
	uint32_t n;
};

/* 0, or -EINVAL with a text that names what is unknown. */
int screen_chord_parse(const char *text, struct screen_chord *ret, struct err *err);

/*
 * How a text is entered: a part is typed, or pasted since the layout lacks what it begins and ends with. A paste reaches from
 * the first such character of a line to the last, so that a text in another script is not torn into words.
 */
struct screen_part {
	const char *text;
	size_t n; /* 0: there is no more */
	bool paste;
};

/* The part at the beginning of the text (UTF-8; -EILSEQ). */
int screen_part_next(const char *text, size_t n, struct screen_part *ret);
