/* SPDX-License-Identifier: Apache-2.0 */
/* The us layout: see keys_us.h. */
#include "host/keys_us.h"

#include <errno.h>
#include <linux/input-event-codes.h>
#include <stddef.h>

#include "lib/util.h"

/* Each key, what it makes, and what it makes with shift. */
static const struct {
	uint8_t key;
	char plain, shifted;
} us[] = {
	{ KEY_1, '1', '!' }, { KEY_2, '2', '@' }, { KEY_3, '3', '#' }, { KEY_4, '4', '$' }, { KEY_5, '5', '%' }, { KEY_6, '6', '^' },
	{ KEY_7, '7', '&' }, { KEY_8, '8', '*' }, { KEY_9, '9', '(' }, { KEY_0, '0', ')' }, { KEY_MINUS, '-', '_' },
	{ KEY_EQUAL, '=', '+' }, { KEY_TAB, '\t', 0 }, { KEY_Q, 'q', 'Q' }, { KEY_W, 'w', 'W' }, { KEY_E, 'e', 'E' },
	{ KEY_R, 'r', 'R' }, { KEY_T, 't', 'T' }, { KEY_Y, 'y', 'Y' }, { KEY_U, 'u', 'U' }, { KEY_I, 'i', 'I' }, { KEY_O, 'o', 'O' },
	{ KEY_P, 'p', 'P' }, { KEY_LEFTBRACE, '[', '{' }, { KEY_RIGHTBRACE, ']', '}' }, { KEY_ENTER, '\n', 0 }, { KEY_ENTER, '\r', 0 },
	{ KEY_A, 'a', 'A' }, { KEY_S, 's', 'S' }, { KEY_D, 'd', 'D' }, { KEY_F, 'f', 'F' }, { KEY_G, 'g', 'G' }, { KEY_H, 'h', 'H' },
	{ KEY_J, 'j', 'J' }, { KEY_K, 'k', 'K' }, { KEY_L, 'l', 'L' }, { KEY_SEMICOLON, ';', ':' }, { KEY_APOSTROPHE, '\'', '"' },
	{ KEY_GRAVE, '`', '~' }, { KEY_BACKSLASH, '\\', '|' }, { KEY_Z, 'z', 'Z' }, { KEY_X, 'x', 'X' }, { KEY_C, 'c', 'C' },
	{ KEY_V, 'v', 'V' }, { KEY_B, 'b', 'B' }, { KEY_N, 'n', 'N' }, { KEY_M, 'm', 'M' }, { KEY_COMMA, ',', '<' },
	{ KEY_DOT, '.', '>' }, { KEY_SLASH, '/', '?' }, { KEY_SPACE, ' ', 0 }, { KEY_BACKSPACE, '\b', 0 }, { KEY_ESC, '\033', 0 },
};

int keys_us_of_char(uint32_t c, bool *ret_shift)
{
	for (size_t i = 0; c && i < ARRAY_SIZE(us); i++) {
		if (c == (uint32_t)us[i].plain || c == (uint32_t)us[i].shifted) {
			*ret_shift = c == (uint32_t)us[i].shifted;
			return us[i].key;
		}
	}
	return -ENOENT;
}
