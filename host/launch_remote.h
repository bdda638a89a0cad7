/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote layers of a VM's root disk: those of the image that `coffer run` starts (launch_disks.c), or of the snapshot that is
 * restored (restore_shell.c), which add them like others:
 *
 *   launch_remote_note for each, lowest first; launch_remote_open; launch_remote_add for each when it is its turn
 */
#pragma once
#include "host/launch.h"
#include "host/vm_disks.h"
#include "lib/err.h"

bool launch_remote_any(const struct image *image);
/* The strings are borrowed until launch_remote_finish. */
int launch_remote_note(struct launch *l, const char *url, const char *sha256, uint64_t size, struct err *err);
/* Open them all in the cache (l->remote); for those that are not whole there coffer-fetch is started, with a socket for this disk. --fetch all:
 * wait until they are. */
int launch_remote_open(struct launch *l, const struct launch_options *o, struct vm_disk *d, struct err *err);
/* Put the next one on the disk; digest: what is known of it, or "". */
int launch_remote_add(struct launch *l, struct vm_disk *d, size_t number, const char *digest, struct err *err);
void launch_remote_finish(struct launch *l);
int launch_remote_check(const struct launch_options *o, struct err *err); /* --fetch */
