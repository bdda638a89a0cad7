/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system's metadata in memory: what an image is made from. A source (a tar, a directory) fills it, a writer
 * (ext4) reads it; contents of files stay where they are and are only referred to.
 *
 * Paths are those of an archive: relative to the root, whatever they begin with. Nothing of the host's file system is
 * touched, so a hostile path can do no more than be refused.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum {
	FSTREE_NAME_MAX = 255,
	FSTREE_PATH_MAX = 4096,        /* with the final zero; of symbolic links' targets too */
	FSTREE_INODES_MAX = 4 << 20,
	FSTREE_XATTRS_MAX = 2048,      /* bytes of names and values per inode */
	FSTREE_LINKS_MAX = 65000,      /* hard links to one file */
};

struct fstree_xattr {
	struct fstree_xattr *next;
	const char *name; /* with its namespace: "security.capability" */
	const void *value;
	size_t size;
};

struct fstree_dirent {
	struct fstree_dirent *next, *prev; /* in the same directory, in order of arrival */
	struct fstree_dirent *hash_next;
	struct fstree_inode *dir, *inode;
	uint32_t hash;
	uint16_t layer; /* the one that added it last: fstree.layer of then */
	uint8_t name_len;
	char name[]; /* with a final zero */
};

struct fstree_inode {
	struct fstree_inode *next;  /* all of the tree, in order of creation; root first */
	uint32_t mode;              /* with the S_IFMT bits */
	uint32_t uid, gid;
	uint32_t nlink;             /* names of it; 0: replaced by something else, to be skipped */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t number;            /* for the writer's use */
	uint64_t size;              /* of a file's contents, of a link's target */
	struct fstree_xattr *xattrs;
	union {
		struct {
			const char *path; /* in the source directory, or NULL: */
			uint64_t offset;  /* in the archive, where the contents begin */
			uint64_t holes;   /* bytes of it that are known to be holes */
		} file;
		const char *target; /* symbolic link */
		struct {
			uint32_t major, minor;
		} device;
		struct {
			struct fstree_inode *parent;
			struct fstree_dirent *first, *last;
			uint32_t subdirs;
		} dir;
	};
};

struct fstree {
	struct fstree_inode *root, *last;
	size_t inodes; /* ever created */
	struct fstree_dirent **buckets;
	size_t nbuckets, ndirents;
	uint16_t layer; /* what entries are marked with; the caller counts it up where layers matter */
	uint64_t left_out; /* attributes that are not kept, and the name of the first */
	char left_out_name[128];
	struct fstree_chunk *chunks; /* all of the above is in these */
};

/* The root is there from the start: 0755, owned by 0:0, time 0. */
int fstree_init(struct fstree *t, struct err *err);
void fstree_finish(struct fstree *t); /* zeroed ones too */

/* Add `path` with the mode, owner, time, size and (by type) file, target or device of `like`; strings are
 * copied. Missing directories on the way are made (0755, 0:0). What has the name already is replaced as
 * by a second member in a tar: a directory keeps its contents and takes the new attributes, anything else goes. Fails
 * with -EINVAL for "..", an empty or overlong name, a way through something that is no directory, and for
 * replacing a directory with something else while it has contents. */
int fstree_add(struct fstree *t, const char *path, const struct fstree_inode *like, struct fstree_inode **ret,
	       struct err *err);

/* Another name for what `target` is, which has to be there and no directory. */
int fstree_add_link(struct fstree *t, const char *path, const char *target, struct err *err);

/* Remove what `path` names, with everything in it, but nothing that the current layer has added nor the directories that lead to
 * such. contents_only: a directory itself stays; anything else is left alone. What is not there is no error. */
int fstree_remove_lower(struct fstree *t, const char *path, bool contents_only, struct err *err);

/* The same of everything, whichever layer it is from. */
int fstree_remove(struct fstree *t, const char *path, struct err *err);

/* Follow the symbolic links on the way to the last component of `path`, as if the tree's root were that of a machine; ".." leads
 * up, from the root to itself. What is not there is kept as it is. -ELOOP, -ENAMETOOLONG with a text. */
int fstree_resolve(const struct fstree *t, const char *path, char ret[FSTREE_PATH_MAX], struct err *err);

/* Give the inode an attribute; an earlier one of that name is replaced. An access ACL sets the mode's nine bits. */
int fstree_set_xattr(struct fstree *t, struct fstree_inode *inode, const char *name, const void *value, size_t size,
		     struct err *err);

/* Whether sources take this attribute: "user.*", file capabilities and ACLs. Labels of the machine that a source was made on
 * mean nothing in a guest. Of others the source says that it has left them out. */
bool fstree_xattr_is_kept(const char *name);
void fstree_leave_out(struct fstree *t, const char *name);
/* One line about them, if there are any. */
void fstree_note_left_out(const struct fstree *t, struct err *note);

/* What `path` is, or NULL. */
struct fstree_inode *fstree_lookup(const struct fstree *t, const char *path);

/* The same with all symbolic links followed, that of the last component too: never a link. */
const struct fstree_inode *fstree_lookup_followed(const struct fstree *t, const char *path);
