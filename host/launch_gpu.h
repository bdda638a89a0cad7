/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer of a VM with 3D: coffer-gpu, one for each monitor, started before it. */
#pragma once
#include "host/launch.h"
#include "host/vmargs.h"
#include "lib/err.h"

/* Add a --device to the monitor's words. For a display with 3D the renderer is started first, with the VM's log for what it has
 * to say; it lives as long as the monitor does. 0 or -errno with a text. */
int launch_gpu_add_device(struct launch *l, struct vmargs *a, const char *device, struct err *err);
/* The monitor has its end of the socket. */
void launch_gpu_finish(struct launch *l);
