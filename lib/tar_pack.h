/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a file or a tree into a tar stream that the caller pulls, piece by piece.
 *
 *   tar_pack_init(p, "/srv/out", "out", false, &st, err);
 *   while ((n = tar_pack_read(p, buf, sizeof(buf), err)) > 0) ...
 *   tar_pack_finish(p);
 *
 * The first entry is the path itself under `name`; a directory's content follows depth first, in directory order. Sockets and devices are
 * left out, and so is the content of directories in kernel file systems (proc, sysfs, devpts, ...) below the start. Hard links come
 * as files of their own. A file that vanishes meanwhile is left out.
 * Never wrong content without an error: where the size in a file's status says nothing (files of kernel file systems, and those of
 * size 0 that have content), the content is read first, at most TAR_PACK_SPOOL_MAX bytes, more is an error. A file that
 * shrinks while it is read is an error at once (-EIO); one that grows is cut to its size when it was opened, and the error comes
 * in place of the stream's end, when all the rest has been given out.
 * Memory is bounded: one directory buffer per level, TAR_PACK_DEPTH levels; deeper is an error (-ELOOP).
 */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/dents.h"
#include "lib/err.h"
#include "lib/tar.h"

enum { TAR_PACK_DEPTH = 128, TAR_PACK_SPOOL_MAX = 16 << 20 };

struct tar_pack_level {
	int fd;
	size_t name_len; /* of its name in `name` */
	struct dents dents;
};

struct tar_pack {
	int state; /* tar_pack.c */
	unsigned depth;
	struct tar_pack_level level[TAR_PACK_DEPTH];
	char name[TAR_PATH_MAX]; /* of the entry being packed */
	size_t name_len;
	const char *path;      /* borrowed: what messages name, in place of the first root_len bytes of `name` */
	size_t path_len, root_len;
	int file;         /* being read, or -1 */
	uint64_t left;    /* bytes of it still promised */
	bool spooled;     /* `file` is a copy of our own */
	char grown[TAR_PATH_MAX]; /* the first file that did, or empty */
	unsigned padding; /* zero bytes to emit after it, or at the end */
	size_t out_pos, out_len;
	char out[TAR_HEADER_MAX];
	struct tar_entry e;
	uint64_t entries, bytes, skipped; /* done so far */
};

/* Open `path` (relative to the current directory or absolute) and stat it. `name` is what the stream calls it. Messages
 * name the path, which must stay valid. follow: if it is
 * a symbolic link, pack what it points to. 0 or -errno, with nothing to finish after a failure. */
int tar_pack_init(struct tar_pack *p, const char *path, const char *name, bool follow, struct stat *ret_st, struct err *err);

/* The next bytes of the stream: between 1 and n, 0 at the end, or -errno. */
ssize_t tar_pack_read(struct tar_pack *p, void *buf, size_t n, struct err *err);
void tar_pack_finish(struct tar_pack *p); /* also after a failure of tar_pack_read */
