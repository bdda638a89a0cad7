/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that /proc lists. */
#pragma once
#include <sys/types.h>

struct proc {
	pid_t pid, parent;
	char state; /* proc(5): R, S, D, Z, X ... */
};

/* Calls fn for each process there is, in order of /proc; those that end meanwhile are left out. Nothing when there is no /proc. */
void proc_each(void (*fn)(const struct proc *p, void *arg), void *arg);
