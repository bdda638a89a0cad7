/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process gives up for good before it looks at hostile bytes. A system call filter, which differs from program to
 * program, comes after it.
 */
#pragma once
#include <sys/types.h>

#include "lib/err.h"

/* All capabilities, those that a later exec could bring included. Without any it does nothing and succeeds. */
int privileges_drop_capabilities(struct err *err);

/* The same, and: no new privileges by exec, no core files, no reading of this process by others of the user. */
int privileges_drop(struct err *err);

/* In a new user namespace: this user and group, by the same numbers, and no others. 0 or -errno. */
int privileges_map_ids(uid_t uid, gid_t gid);
