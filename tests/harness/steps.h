/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function in a child process that is killed at any one of its system calls, or whose disk is full from one of them on.
 *
 * How it works: ptrace. The child is stopped at each system call that can be seen from outside (STEPS_KILL: those that
 * change files, names, locks or say something to others) or that wants space (STEPS_FULL), and the n-th of them is the one.
 * For functions of one thread, without children.
 */
#pragma once
#include <stdbool.h>

#include "lib/err.h"

enum steps_what { STEPS_KILL, STEPS_FULL };

typedef int steps_fn(void *arg, struct err *err);

struct steps_result {
	bool reached;   /* there was an n-th one */
	int status;     /* of fn, unless it was killed */
	struct err err; /* of fn, too */
};

/* Why it cannot be done on this machine, or NULL. */
const char *steps_impossible(void);
/* n from 0 on. Aborts the test when the child ends in another way. */
void steps_run(enum steps_what what, unsigned n, steps_fn *fn, void *arg, struct steps_result *ret);
