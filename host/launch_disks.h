/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of a VM that `coffer run` starts, and the record of what it is made of. */
#pragma once
#include "host/launch.h"
#include "lib/err.h"

/* Is the root of this image one disk, which the guest writes as it is? Otherwise it is two: image and overlay. */
bool launch_disks_direct(const struct image *image);
/* Before the VM's directory is there: put what is made once into the cache. */
int launch_disks_prepare(const struct launch *l, const struct launch_options *o, struct err *err);
/* In the VM's directory: the root, --disk, in l->disks. */
int launch_disks_make(struct launch *l, const struct launch_options *o, struct err *err);
/* machine.json. A path that cannot be written there is no error: such a VM has no snapshots. */
int launch_disks_record(const struct launch *l, const struct launch_options *o, struct err *err);
