/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tar format: a push reader and a header writer, without I/O and without allocation.
 *
 * The reader takes the stream in pieces of any size and calls its sink: `entry` for each member, then `data` for a
 * file's bytes, then `end`. It reads ustar, pax extended headers (path, linkpath, size, mtime, uid, gid, SCHILY.xattr.*, SCHILY.acl.*; other
 * keys and global headers are skipped) and GNU long names and base-256 numbers. The writer makes one ustar header, with a pax header before it
 * where a value does not fit.
 *
 * Trust: the stream is hostile. Checksums, sizes and lengths are checked; names are passed on as they are (not empty, no NUL),
 * it is the sink's business where they lead (tar_extract.h). Members that are neither file, directory, link nor FIFO (nor,
 * where the sink takes them, a device) are an error that names them.
 * Limits: names of TAR_PATH_MAX - 1 bytes, one extended header of TAR_PAX_MAX bytes.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

enum {
	TAR_BLOCK = 512,
	TAR_PATH_MAX = 4096,
	TAR_PAX_MAX = 16 * 1024,
	TAR_HEADER_MAX = 4 * TAR_BLOCK + 2 * TAR_PATH_MAX + 256, /* what tar_header_make may need */
};

enum tar_type { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO };

struct tar_entry {
	enum tar_type type;
	uint32_t mode; /* 07777 */
	uint32_t uid, gid;
	uint64_t size; /* files only, otherwise 0 */
	int64_t mtime_s;
	uint32_t mtime_ns;
	char name[TAR_PATH_MAX]; /* without trailing slashes; "." or "./" is the directory itself */
	char link[TAR_PATH_MAX];
};

#define TAR_ACL "SCHILY.acl." /* before "access" or "default": an attribute whose value is the text of an ACL (host/posix_acl.h) */

/* 0 or -errno; the first failure is what tar_reader_feed returns. */
struct tar_sink {
	int (*entry)(void *arg, const struct tar_entry *e, struct err *err);
	int (*data)(void *arg, const void *data, size_t n, struct err *err); /* files with size > 0 */
	int (*end)(void *arg, struct err *err);                             /* after every entry */

	/* Only who makes whole file systems wants these; NULL: devices are an error, attributes are skipped. `device` comes
	 * in place of `entry` (e->type says nothing); `xattr` comes before the entry that has the attribute. */
	int (*device)(void *arg, const struct tar_entry *e, bool block, uint32_t major, uint32_t minor, struct err *err);
	int (*xattr)(void *arg, const char *name, const void *value, size_t n, struct err *err);
};

enum tar_long { TAR_LONG_PATH = 1, TAR_LONG_LINK = 2, TAR_LONG_SIZE = 4, TAR_LONG_MTIME = 8, TAR_LONG_UID = 16, TAR_LONG_GID = 32 };

struct tar_reader {
	int state;        /* tar.c */
	int special;      /* type flag of an extended header being collected */
	uint64_t left;    /* bytes of the member's content still to come */
	uint32_t padding; /* then so many to skip */
	size_t have;      /* bytes of the block, or of the extended header, collected */
	unsigned zeros;   /* empty blocks in a row */
	unsigned set;     /* enum tar_long: which of `next` came from extended headers */
	struct tar_entry e;
	struct tar_entry next;
	unsigned char block[TAR_BLOCK];
	char pax[TAR_PAX_MAX];
};

void tar_reader_init(struct tar_reader *r);

/* 0, or -errno with a text; after a failure the reader is of no use. What follows the end mark is ignored. */
int tar_reader_feed(struct tar_reader *r, const void *data, size_t n, const struct tar_sink *sink, void *arg, struct err *err);

/* The stream has ended: 0 if between members (the end mark itself may be missing), -EINVAL if in the middle of one. */
int tar_reader_finish(const struct tar_reader *r, struct err *err);

/* Write the header of `e` to buf: a multiple of TAR_BLOCK, at most TAR_HEADER_MAX. The content, padded to TAR_BLOCK,
 * follows it; two empty blocks end the stream. Returns the length, or -ENAMETOOLONG / -ENOSPC. */
ssize_t tar_header_make(const struct tar_entry *e, void *buf, size_t size);
