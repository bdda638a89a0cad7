/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of shells (`coffer pool`), as the commands that restore use them.
 *
 * A pool is a process with a directory among those of VMs (RUNTIME/POOL-ID, of the snapshot's id, with a lock: one pool
 * for a snapshot) and a socket in it. Whoever connects gets one shell: its name, and the descriptors of its
 * directories, of their locks and of the monitor's process; the pool forgets it and makes another. What follows is the
 * same as for a shell of one's own (restore_run renames its directories).
 */
#pragma once
#include "host/launch.h"
#include "host/restore.h"
#include "lib/err.h"

#define POOL_SOCKET "pool.sock"

/* The name of a snapshot's pool among the directories. */
void pool_name(const struct snapshot *s, char out[64]);

/* A shell from the pool of this snapshot into *l (launch_init has been done): 1; 0 when there is no pool, it has none
 * ready, or the options ask for a monitor that is not like the pool's. */
int pool_take(struct launch *l, const struct restore_source *src, const struct restore_options *o);

/* What goes over the socket. */
enum { POOL_REPLY_VERSION = 1, POOL_FDS = 6 };
struct pool_reply {
	uint32_t version;
	uint32_t pid;
	char id[VMDIR_ID_MAX + 1];
	uint8_t has_disks, has_image;
};
