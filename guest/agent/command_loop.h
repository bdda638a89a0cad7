/* SPDX-License-Identifier: Apache-2.0 */
/* Between the operations on commands (command_ops.c) and the loop that serves one (command.c). */
#pragma once
#include "guest/agent/handler.h"

void command_connected(struct handler *h);  /* the channel is answered: frames from here on */
void command_disconnect(struct handler *h); /* close the channel and go on without */

/* Serve the running command until its EXIT is delivered (0) or there is nobody to deliver it to (-errno: -ECONNABORTED when the
 * host has been told why, otherwise the host is gone). */
int command_loop(struct handler *h);
