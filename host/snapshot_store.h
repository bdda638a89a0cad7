/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where snapshots are: directories, by name in the store ($XDG_DATA_HOME/coffer/snapshots, as root
 * /var/lib/coffer/snapshots) or anywhere by path (an argument with a '/').
 *
 * A snapshot is made in a directory beside its place, .coffer-snapshot-RANDOM, whose maker holds the flock of the
 * directory itself; when all is written and synced it is renamed. What a crash leaves is a directory of that name that
 * nobody holds: the next snapshot there removes it. Removing renames the other way first.
 *
 * Trust: a snapshot's directory may be somebody else's. Files in it are opened by plain names, never through links, and
 * must be regular files of the size that the manifest says.
 */
#pragma once
#include <limits.h>

#include "host/snapshot_manifest.h"
#include "lib/err.h"

enum { SNAPSHOT_NAME_MAX = 100 };

struct snapshot {
	char name[NAME_MAX + 1]; /* of its directory */
	char path[PATH_MAX];     /* of its directory, absolute */
	int fd;                  /* of its directory */
	struct snapshot_manifest m;
};

#define SNAPSHOT_NONE ((struct snapshot){ .fd = -1 })

/* [a-z0-9][a-z0-9_.-]*, at most SNAPSHOT_NAME_MAX: 0 or -EINVAL with a text. */
int snapshot_name_check(const char *name, struct err *err);
/* The store's directory; nothing is made. */
int snapshot_store_path(char *out, size_t len, struct err *err);

/* NAME, or a path with a '/'. -ENOENT says where it was looked for. */
int snapshot_open(const char *name_or_path, struct snapshot *ret, struct err *err);
/* Only to remove it: its manifest is not read, but there has to be one. */
int snapshot_open_damaged(const char *name_or_path, struct snapshot *ret, struct err *err);
/* The parent that its manifest names: where it says, else in the store by its id. */
int snapshot_open_parent(const struct snapshot *s, struct snapshot *ret, struct err *err);
void snapshot_close(struct snapshot *s); /* SNAPSHOT_NONE too */

/* A file of it, read-only, that has `size` bytes. */
int snapshot_open_file(const struct snapshot *s, const char *name, uint64_t size, struct err *err);

/* Visit the snapshots of the store in alphabetical order. `problem` is not NULL when it cannot be used; only its name
 * and path are valid then. A visit that returns other than 0 ends it with that. */
typedef int snapshot_visit_fn(struct snapshot *s, const struct err *problem, void *arg);
int snapshot_store_visit(snapshot_visit_fn *fn, void *arg, struct err *err);

struct snapshot_draft {
	char dir[PATH_MAX - NAME_MAX - 2]; /* the directory it will be in */
	char name[NAME_MAX + 1];
	char temp[64];
	int dir_fd, fd;       /* of that and of the temporary one, whose flock it holds */
};

#define SNAPSHOT_DRAFT_NONE ((struct snapshot_draft){ .dir_fd = -1, .fd = -1 })

/* `to`: a name, or a path with a '/'. -EEXIST when it is there already, unless `replace`. NULL: a place without a name,
 * in the store. */
int snapshot_draft_begin(const char *to, bool replace, struct snapshot_draft *ret, struct err *err);
/* A new file in it, for reading and writing. */
int snapshot_draft_create(const struct snapshot_draft *d, const char *name, struct err *err);
/* Write the manifest, sync files and directory, put it in its place; `replace`: that of the one there now, which is
 * removed. */
int snapshot_draft_publish(struct snapshot_draft *d, const struct snapshot_manifest *m, bool replace, struct err *err);
/* Remove what was not published. SNAPSHOT_DRAFT_NONE too. */
void snapshot_draft_end(struct snapshot_draft *d);
/* What parent_path is for a parent at `path`. */
const char *snapshot_draft_parent_path(const struct snapshot_draft *d, const char *path);

/* Remove it, whole. */
int snapshot_remove(const struct snapshot *s, struct err *err);
