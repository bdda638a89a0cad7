/* SPDX-License-Identifier: Apache-2.0 */
/* Where connections come from: vsock in a VM, a Unix socket elsewhere. */
#pragma once
#include <stdbool.h>

#include "guest/agent/agent.h"
#include "lib/err.h"

int transport_listen(const struct agent *a, struct err *err); /* a non-blocking listening socket, or -errno */

/* The next connection: a descriptor, -EAGAIN: none now, -EACCES: one was refused because it does not come from the host. */
int transport_accept(const struct agent *a, int listen_fd);

/* Connect to the host and send the ready line; a process of its own does it, so nothing waits. */
void transport_announce(const struct agent *a);
