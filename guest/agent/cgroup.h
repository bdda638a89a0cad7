/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup (v2) for each command, below one directory for all of them: it makes killing complete, tells of OOM kills, and keeps
 * a reserve of processes for the agent. Everything works without; the callers then fall back on process groups.
 *
 * Only files of the kernel are read and written here, through directory descriptors.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

enum { CGROUP_PROCESS_RESERVE = 128 };

/* Make `path` (its parent must be a cgroup v2 directory), turn on the controllers that are there and limit the number of
 * processes. A directory descriptor or -errno. */
int cgroup_open_base(const char *path, struct err *err);

int cgroup_create(int base_fd, uint64_t id);  /* a directory descriptor or -errno */
int cgroup_procs_fd(int fd);                  /* open cgroup.procs for writing, or -errno */
int cgroup_kill(int fd);                      /* SIGKILL to everything in it; 0 or -errno */
uint64_t cgroup_oom_kills(int fd);            /* how many processes of it the OOM killer has killed */
int cgroup_remove(int base_fd, uint64_t id);  /* 0, -EBUSY: something lives in it, or -errno */
int cgroup_kill_id(int base_fd, uint64_t id); /* by number, for the supervisor */
/* Remove every command's directory that nothing lives in, but those whose command `is_live` (it may be about to enter).
 * Returns how many are left besides. */
int cgroup_remove_empty(int base_fd, bool (*is_live)(const void *arg, uint64_t id), const void *arg);
