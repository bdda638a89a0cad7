/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the parts of a container image are: a directory (an OCI layout), or a tar of one that is not unpacked but
 * looked into.
 *
 * Trust: hostile. In a directory nothing outside it is ever opened, whatever links it has; in a tar a part is a range
 * of the file.
 */
#pragma once
#include "host/fstree.h"
#include "host/import_tree.h"
#include "host/progress.h"

struct import_source {
	int fd; /* borrowed: the directory or the tar */
	bool is_tar;
	struct fstree tree; /* of a tar: what it has */
};

/* fd stays the caller's and open. */
int import_source_open_dir(int fd, struct import_source *ret);
int import_source_open_tar(int fd, struct import_source *ret, struct progress *p, struct err *err);
void import_source_close(struct import_source *s); /* zeroed ones too */

bool import_source_has(const struct import_source *s, const char *path);

/* A part: -ENOENT with a text when it is not there or no regular file. To be closed. */
int import_source_open(const struct import_source *s, const char *path, struct import_blob *ret, struct err *err);
void import_blob_close(struct import_blob *blob);

/* All of a small part, with a zero behind it; to be freed. */
int import_source_read(const struct import_source *s, const char *path, size_t max, char **ret, size_t *ret_len,
		       struct err *err);

/* The SHA-256 of a blob. */
int import_blob_digest(const struct import_blob *blob, char ret_hex[65], struct progress *p, struct err *err);
