/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks a hostile tar stream into one directory, and never outside it.
 *
 *   struct tar_extract *x = ...;            (16 KiB and more: static or heap)
 *   tar_extract_init(x, dirfd, &options);
 *   for each piece: tar_extract_feed(x, data, n, err)
 *   tar_extract_finish(x, err);
 *
 * Names are resolved by openat2 below `dirfd`: RESOLVE_BENEATH, so that a symbolic link that leads out, made by the
 * stream or there before, is an error; with `in_root` RESOLVE_IN_ROOT, for a directory that is the file system's root; with
 * `no_links` any link in the way is an error, also one that an earlier stream made. Names with ".." or a leading "/" are refused. A file is written under a temporary name and renamed when it is whole; tar_extract_abort removes the
 * temporary one. A directory that exists keeps its mode, owner and time; those of new ones are
 * set when the stream leaves them, so times are right for depth-first streams and TAR_EXTRACT_DEPTH levels.
 * Directories that the stream does not mention are made with mode 0755. Without root ownership is left alone.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "lib/err.h"
#include "lib/tar.h"

enum { TAR_EXTRACT_DEPTH = 128, TAR_EXTRACT_TEMP = 40 };

struct tar_extract_options {
	const char *where; /* the path of dirfd for messages, borrowed; or NULL: they have the names in the stream */
	bool in_root;    /* dirfd is "/": absolute symbolic links in the way are followed inside it */
	bool no_links;   /* a symbolic link in the place of a directory is an error wherever it leads */
	bool keep_owner; /* uid and gid from the stream, otherwise the two below */
	uid_t uid;
	gid_t gid;
};

struct tar_extract_dir { /* a new directory whose mode and time are to be set when the stream leaves it */
	int fd;
	size_t len; /* of its name, a prefix of `path` */
	uint32_t mode;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

struct tar_extract {
	int dirfd; /* borrowed */
	struct tar_extract_options o;
	bool chown;
	struct tar_reader reader;
	int parent;       /* directory of the entry being made, or -1 */
	int file;         /* the file being written, or -1 */
	char temp[TAR_EXTRACT_TEMP]; /* its name in `parent` until it is whole; empty: none */
	unsigned counter; /* for the next temporary name */
	struct tar_entry e;          /* name and link cleaned of "." and "//" */
	const char *base; /* last component of e.name */
	struct tar_extract_dir dirs[TAR_EXTRACT_DEPTH];
	unsigned ndirs;
	char path[TAR_PATH_MAX]; /* of the innermost of `dirs` */
	uint64_t entries, bytes; /* done so far */
};

void tar_extract_init(struct tar_extract *x, int dirfd, const struct tar_extract_options *o);
int tar_extract_feed(struct tar_extract *x, const void *data, size_t n, struct err *err); /* 0 or -errno */
int tar_extract_finish(struct tar_extract *x, struct err *err);                           /* 0 or -errno */
void tar_extract_abort(struct tar_extract *x); /* close and remove what is half done; also needed after a failure */
