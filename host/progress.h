/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of something long: one line on a terminal that is redrawn, nothing elsewhere; and the place where such work
 * notices that the user wants it to end.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

struct progress {
	int fd;             /* the terminal, or -1: show nothing */
	int signals;        /* descriptor of signals_open, or -1 */
	const char *stage;  /* static text */
	uint64_t shown_ms;  /* when the line was last drawn */
	bool drawn;
	void (*say)(const char *line); /* how a line is said that is not progress; NULL: not at all */
};

/* `fd` -1: show nothing. */
void progress_init(struct progress *p, int fd, int signals);

/* Begin a stage; `stage` is static text such as "reading the source". */
void progress_stage(struct progress *p, const char *stage);

/* So many bytes are done, of `total` (0: unknown); redraws at most ten times a second. 0, or -EINTR with a text when
 * a signal asks for the end. NULL for p is accepted and does nothing. */
int progress_bytes(struct progress *p, uint64_t done, uint64_t total, struct err *err);

/* Show a line of some program's own as the stage's detail; as above. */
int progress_text(struct progress *p, const char *text, struct err *err);

/* Something that whoever waits should know, once: a line of its own, on a terminal or not. */
void progress_say(struct progress *p, const char *line);

/* Remove the line. */
void progress_end(struct progress *p);
