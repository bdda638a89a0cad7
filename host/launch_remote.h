/* SPDX-License-Identifier: Apache-2.0 */
/* The remote layers of the image that `coffer run` starts: launch_disks.c adds them like others. */
#pragma once
#include "host/launch.h"
#include "host/vm_disks.h"
#include "lib/err.h"

bool launch_remote_any(const struct image *image);
/* Open them all in the cache (l->remote); for those that are not whole there coffer-fetch is started, with a socket for this disk. --fetch all:
 * wait until they are. */
int launch_remote_open(struct launch *l, const struct launch_options *o, struct vm_disk *d, struct err *err);
/* Put layer k of the image on the disk. */
int launch_remote_add(struct launch *l, struct vm_disk *d, size_t number, size_t k, struct err *err);
void launch_remote_finish(struct launch *l);
int launch_remote_check(const struct launch_options *o, struct err *err); /* --fetch */
