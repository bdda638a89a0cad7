/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Isolation of the monitor, in stages, each taken as soon as what it forbids is no longer needed.
 *
 *   isolate_init    first thing in main: no descriptors beyond those meant, no core dumps, no new privileges
 *   isolate_jail    once everything is open, while single threaded: namespaces of its own, the VM's directory as the
 *                   whole file system, no capabilities
 *   isolate_thread  last thing before a thread handles guest bytes: its system call filter
 *
 * After isolate_thread a forbidden call ends the process: one line on standard error names the call and the
 * kind of thread, exit status ISOLATE_EXIT.
 */
#pragma once
#include <stdbool.h>

#include "lib/err.h"

enum isolate_role { ISOLATE_MAIN, ISOLATE_VCPU, ISOLATE_WORKER };
enum { ISOLATE_EXIT = 99 };

/* Close every descriptor above 2 that is not in keep[0 .. nkeep). */
int isolate_init(const int *keep, int nkeep, struct err *err);

/* The working directory (the VM's) becomes the root of a mount namespace of its own; new network, IPC and UTS
 * namespaces; all capabilities are dropped. Without privilege a user namespace makes this possible.
 * Returns 1 when done, 0 when this host does not allow it (err says why; the caller logs a warning), -errno when
 * it failed half way and the process must not go on. */
int isolate_jail(struct err *err);

/* Install this thread's filter (per thread, inherited by threads it creates). Call isolate_handler first, once. */
int isolate_thread(enum isolate_role role, struct err *err);
/* The SIGSYS handler that names the call. Once per process, before the first isolate_thread. */
int isolate_handler(struct err *err);
