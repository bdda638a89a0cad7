/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-gpu. Mesa loads drivers while it starts and threads go on being made, so it comes in two stages:
 *
 * 1. gpu_jail_enter, before the renderer starts: namespaces of its own (user, mount, network, IPC, and processes: it goes on in a
 *    child, the parent waits for that), a root of its own with nothing but the system's libraries, read-only, and the render node; no
 *    capability, no new privileges.
 * 2. gpu_jail_filter, after it: system calls are filtered for all threads; no file can be opened any more, no process made, no socket.
 */
#pragma once
#include <stdint.h>

#include "lib/err.h"

/* render_node: path or NULL. Where user namespaces are forbidden and this is not root: 0 with the reason in *err and no namespaces; else 1. */
int gpu_jail_enter(const char *render_node, struct err *err);
/* resources: bytes that they may take; the whole process may have 2 GiB more, and ends when it gets no memory. */
int gpu_jail_filter(uint64_t resources, struct err *err);
