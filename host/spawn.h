/* SPDX-License-Identifier: Apache-2.0 */
/* Run another program and wait for it. */
#pragma once
#include "host/progress.h"
#include "lib/err.h"

struct spawn {
	const char *const *argv; /* NULL-terminated; argv[0] is looked for in PATH and in the directories for administrators */
	int in, out;             /* descriptors for its stdin and stdout; -1: /dev/null */
	const char *package;     /* what to install when it is missing; may be NULL */
	struct progress *progress; /* shows its lines on stderr; may be NULL */
	bool show_size;          /* show the size of the file `out` instead */
};

/* 0 when it exited with 0; -ENOENT when it is not there; -EINTR when the user wants to end (it was sent SIGTERM and has
 * ended); else -EIO with its status and the last things it said on stderr ("E:" and "W:" lines before others). */
int spawn_run(const struct spawn *s, struct err *err);
