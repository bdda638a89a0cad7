/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory whose children belong to whoever is alive.
 *
 * Each child is a directory with a file `lock` in it. While anybody holds the flock on that file the child is in use; the
 * descriptor is inherited by the processes that use the child (a flock belongs to the open file, so all copies count
 * as one holder). When the last of them is gone, however it ended, the child is stale and the next sweep removes it.
 *
 * Every step that makes, looks at or removes a child happens under an flock on the parent directory itself, so a child
 * that is being made is never taken for a stale one, and two commands at once see one order.
 */
#pragma once
#include "lib/err.h"

#define LOCKDIR_LOCK "lock"

struct lockdir {
	int fd; /* of the parent */
	char path[4096];
};

#define LOCKDIR_NONE ((struct lockdir){ .fd = -1 })

/* Open, and make with mode 0700 when absent. Refuses a directory of somebody else's or one that others can write. */
int lockdir_open(struct lockdir *d, const char *path, struct err *err);
void lockdir_close(struct lockdir *d); /* LOCKDIR_NONE too */

/* Make child `name`, with its lock held. A stale child of that name is removed first; a live one is -EEXIST. */
int lockdir_create(struct lockdir *d, const char *name, int *ret_dirfd, int *ret_lockfd, struct err *err);

/* Whether somebody holds the child: 1, 0 when it is stale, or -errno (-ENOENT: there is no such child). On 0 and 1
 * *ret_dirfd (may be NULL) is the child. */
int lockdir_probe(struct lockdir *d, const char *name, int *ret_dirfd, struct err *err);

/* Called with each child, under the parent's lock; `live` as for lockdir_probe. */
typedef void lockdir_visit_fn(const char *name, int dirfd, int live, void *arg);

/* Visit all children (visit may be NULL), then remove those that were stale. 0 or -errno. */
int lockdir_sweep(struct lockdir *d, lockdir_visit_fn *visit, void *arg, struct err *err);

/* Rename a child whose lock the caller holds. A stale child of the new name is removed first; a live one is -EEXIST. */
int lockdir_rename(struct lockdir *d, const char *from, const char *to, struct err *err);

/* Remove child `name`: when its caller holds `lockfd` (>= 0) or, with -1, when it is stale. */
int lockdir_remove(struct lockdir *d, const char *name, int lockfd, struct err *err);
