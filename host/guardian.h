/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What puts things right when this process is killed.
 *
 * A small child process waits for the end of a socket whose other end only we hold. When we end without having said
 * goodbye (SIGKILL, a crash), it puts the terminal back, ends the monitors it was told of, and when they
 * are gone removes what they used (vmdir_sweep). It is in a session of its own and takes no signals, so that what kills us does not hit it.
 */
#pragma once
#include <sys/types.h>

#include "host/term.h"
#include "lib/err.h"

struct guardian {
	pid_t pid;
	int fd; /* -1: none */
};

#define GUARDIAN_NONE ((struct guardian){ .fd = -1 })

/* terminal: a descriptor of the terminal it may have to restore, or -1. Call it before descriptors are opened that
 * others wait on. */
int guardian_start(struct guardian *g, int terminal, struct err *err);
void guardian_watch_terminal(const struct guardian *g, const struct term *t);
/* One more of at most GUARDIAN_MONITORS_MAX. */
enum { GUARDIAN_MONITORS_MAX = 4096 };
void guardian_watch_monitor(const struct guardian *g, pid_t pid, int pidfd);
/* That one, or with 0 all of them. */
void guardian_forget_monitor(const struct guardian *g, pid_t pid);
/* Goodbye: all is in order. */
void guardian_finish(struct guardian *g);
