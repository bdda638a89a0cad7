/* SPDX-License-Identifier: Apache-2.0 */
/* The signals a command takes itself while it waits for a guest, as a descriptor. */
#pragma once
#include <signal.h>

#include "lib/err.h"

/* Block INT, TERM, HUP, QUIT, USR1, USR2, WINCH and CONT (but those the caller had us ignore: nohup, background jobs) and
 * return a signalfd for them (non-blocking, close-on-exec). *ret_old is the mask to restore. */
int signals_open(sigset_t *ret_old, struct err *err);
/* The same for those alone that ask for an end. */
int signals_open_ends(sigset_t *ret_old, struct err *err);
void signals_close(int fd, const sigset_t *old);

/* The next signal, 0 when there is none. */
int signals_next(int fd);

/* Whether the user wants this process to end. */
int signals_is_end(int signal);

/* In a child before exec: nothing blocked, nothing ignored. */
void signals_reset(void);
