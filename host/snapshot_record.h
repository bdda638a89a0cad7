/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.json in a VM's directory: what the VM is made of, in the form of a manifest (snapshot_manifest.h). Written
 * before its monitor starts and after each snapshot; read to take the next.
 */
#pragma once
#include "host/snapshot_manifest.h"
#include "host/vm_disks.h"
#include "host/vmdir.h"
#include "lib/err.h"

#define VMDIR_MACHINE "machine.json"

/* Let the manifest describe these disks (copies). */
int snapshot_record_set_disks(struct snapshot_manifest *m, const struct vm_disks *v, struct err *err);
int snapshot_record_add_device(struct snapshot_manifest *m, const char *device, struct err *err);

/* `what` is set, `id` and the sums of files are emptied. */
int snapshot_record_write(int dirfd, struct snapshot_manifest *m, struct err *err);
int snapshot_record_read(int dirfd, struct snapshot_manifest *ret, struct err *err);
