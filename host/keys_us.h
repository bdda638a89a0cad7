/* SPDX-License-Identifier: Apache-2.0 */
/* The keyboard layout "us", which a desktop image's guest has: which key makes which character. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* KEY_* of Linux, and whether shift is held; -ENOENT when the layout lacks the character. Newline, tab, backspace and escape are keys. */
int keys_us_of_char(uint32_t c, bool *ret_shift);
