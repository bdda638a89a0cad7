/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of shells (`coffer pool`), as the commands that restore use them.
 *
 * A pool is a process with a directory among those of VMs (RUNTIME/POOL-ID, of the snapshot's id, with a lock: one pool
 * for a snapshot) and a socket in it. Whoever connects and names the same manifest (an id may be a copy in a stranger's
 * snapshot, whose shells would have other disks) gets one shell: its name, and the descriptors of its
 * directories, of their locks and of the monitor's process; the pool forgets it and makes another. What follows is the
 * same as for a shell of one's own (restore_run renames its directories).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/launch.h"
#include "host/restore.h"
#include "host/sha256.h"
#include "lib/err.h"

#define POOL_SOCKET "pool.sock"

/* The name of a snapshot's pool among the directories. */
void pool_name(const struct snapshot *s, char out[64]);

/* A shell from the pool of this snapshot into *l (launch_init has been done): 1; 0 when there is no pool, it has none
 * ready, or the options ask for a monitor that is not like the pool's. */
int pool_take(struct launch *l, const struct restore_source *src, const struct restore_options *o);

/* What goes over the socket. */
enum { POOL_VERSION = 2, POOL_FDS = 6, POOL_MS = 300 };
struct pool_request {
	uint32_t version;
	char manifest[SHA256_HEX_SIZE]; /* SHA-256 of its text */
};
/* 0 or -ENOMEM. */
int pool_request_make(const struct snapshot *s, struct pool_request *ret);
/* Whether what comes from a client that has connected is this request, in POOL_MS. */
bool pool_request_receive(int sock, const struct pool_request *own);

struct pool_reply {
	uint32_t version;
	uint32_t pid;
	char id[VMDIR_ID_MAX + 1];
	uint8_t has_disks, has_image;
};
