/* SPDX-License-Identifier: Apache-2.0 */
/* Killing without cgroups: this process is a child subreaper, so orphans of what it started become its own children. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

enum { KILL_ROUNDS = 1000 };

/* SIGKILL every child, reap, and again with those that then come to us, until none is left. Returns whether `watch` was reaped
 * and stores its wait status. */
bool kill_descendants(pid_t watch, int *ret_status);

/* How many children this process has; each is sent `signal` unless that is 0. */
int kill_children(int signal);
