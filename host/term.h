/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's terminal. While a guest command has it (run -t, exec -t) it is raw: every key, Ctrl-C too, goes to the
 * guest. term_restore puts it back; when this process dies before that, the guardian does (guardian.h).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "lib/err.h"

struct term {
	int fd; /* borrowed; -1: nothing was changed */
	struct termios saved;
};

#define TERM_NONE ((struct term){ .fd = -1 })

int term_raw(struct term *t, int fd, struct err *err);
void term_raw_again(const struct term *t); /* after a stop: the shell has changed it */
void term_restore(struct term *t);         /* TERM_NONE too */

/* The size of the first of stdout, stdin, stderr that is a terminal; false when none is. */
bool term_size(uint16_t *ret_rows, uint16_t *ret_cols);
