/* SPDX-License-Identifier: Apache-2.0 */
/* What a tree is read from: an archive or a directory. Both say afterwards where a file's contents are. */
#pragma once
#include <sys/types.h>

#include "host/fstree.h"
#include "host/progress.h"

enum { FSTREE_SOURCE_DEPTH_MAX = 512 }; /* nested directories in a source directory */

/* Read an uncompressed tar from the start of `fd`, a regular file. Sockets and whiteouts mean nothing here; sparse
 * members are refused. */
int fstree_read_tar(struct fstree *t, int fd, struct progress *p, struct err *err);

/* Read the directory `fd` with everything below it on the same file system. Sockets are left out. */
int fstree_read_dir(struct fstree *t, int fd, struct progress *p, struct err *err);

/* Where the contents of files are. */
struct fstree_source {
	int fd; /* the archive or the directory */
};

/* ACLs whose texts are still attributes, since they have names, become what a file system has. To be called when the tree is whole; of
 * names that are not in its /etc/passwd or /etc/group the ACL is left out. */
int fstree_name_acls(struct fstree *t, const struct fstree_source *s, struct err *err);

/* Open a file's contents: *ret_fd at *ret_offset. *ret_owned says whether to close it. -ESTALE with a text when the
 * file has been replaced since by something else. */
int fstree_source_open(const struct fstree_source *s, const struct fstree_inode *inode, int *ret_fd, off_t *ret_offset,
		       bool *ret_owned, struct err *err);
