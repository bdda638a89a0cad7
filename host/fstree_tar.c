/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar into a tree. The reader is fed one block at a time, so that when it reports a member the position in the
 * file is where the contents begin.
 *
 * Trust: the archive is hostile. lib/tar checks the format, fstree the paths; here sizes are checked against the file's own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/fstree_source.h"
#include "host/posix_acl.h"
#include "lib/fd.h"
#include "lib/tar.h"
#include "lib/text.h"
#include "lib/util.h"

enum { XATTRS_PENDING = 32, BUFFER_SIZE = 256 << 10 };

struct tar_source {
	struct fstree *tree;
	uint64_t position; /* in the file, after the block being fed */
	uint64_t file_size;
	struct tar_reader reader;

	/* Attributes of the member to come. */
	struct {
		char name[FSTREE_NAME_MAX + 1];
		uint8_t value[FSTREE_XATTRS_MAX];
		size_t size;
	} xattr[XATTRS_PENDING];
	size_t nxattrs;
};

static int add(struct tar_source *s, const struct tar_entry *e, struct fstree_inode *like, struct err *err)
{
	struct fstree_inode *inode = NULL;
	int r;

	like->mode |= e->mode & 07777;
	like->uid = e->uid;
	like->gid = e->gid;
	like->mtime_s = e->mtime_s;
	like->mtime_ns = e->mtime_ns;
	r = fstree_add(s->tree, e->name, like, &inode, err);
	for (size_t i = 0; r == 0 && i < s->nxattrs; i++) {
		r = fstree_set_xattr(s->tree, inode, s->xattr[i].name, s->xattr[i].value, s->xattr[i].size, err);
		if (r < 0)
			err_prefix(err, "'%s': ", TEXT_CUT(e->name));
	}
	s->nxattrs = 0;
	return r;
}

static int on_entry(void *arg, const struct tar_entry *e, struct err *err)
{
	struct tar_source *s = arg;
	struct fstree_inode like = { 0 };

	switch (e->type) {
	case TAR_FILE:
		if (e->size > s->file_size || s->position > s->file_size - e->size)
			return err_set(err, -EINVAL, "'%s' has %llu bytes, more than the archive: it is cut off", TEXT_CUT(e->name),
				       (unsigned long long)e->size);
		like.mode = S_IFREG;
		like.size = e->size;
		like.file.offset = s->position;
		break;
	case TAR_DIR:
		like.mode = S_IFDIR;
		break;
	case TAR_SYMLINK:
		like.mode = S_IFLNK;
		like.target = e->link;
		break;
	case TAR_FIFO:
		like.mode = S_IFIFO;
		break;
	case TAR_HARDLINK:
		s->nxattrs = 0; /* those of the file itself hold */
		return fstree_add_link(s->tree, e->name, e->link, err);
	}
	return add(s, e, &like, err);
}

static int on_device(void *arg, const struct tar_entry *e, bool block, uint32_t major, uint32_t minor, struct err *err)
{
	struct fstree_inode like = { .mode = block ? S_IFBLK : S_IFCHR };

	like.device.major = major;
	like.device.minor = minor;
	return add(arg, e, &like, err);
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
	(void)arg, (void)data, (void)n, (void)err;
	return 0;
}

static int on_end(void *arg, struct err *err)
{
	(void)arg, (void)err;
	return 0;
}

static int on_xattr(void *arg, const char *name, const void *value, size_t n, struct err *err)
{
	struct tar_source *s = arg;
	uint8_t acl[POSIX_ACL_SIZE_MAX];

	if (posix_acl_attribute(name) != NULL) {
		int r = posix_acl_from_text(value, n, NULL, NULL, acl);

		if (r == -EINVAL)
			return err_set(err, r, "%s: that is no ACL", name);
		if (r == 0)
			return 0;
		if (r > 0) {
			name = posix_acl_attribute(name);
			value = acl;
			n = (size_t)r;
		}
	} else if (!fstree_xattr_is_kept(name)) {
		fstree_leave_out(s->tree, name);
		return 0;
	}
	if (s->nxattrs == XATTRS_PENDING || n > sizeof(s->xattr[0].value) || strlen(name) > FSTREE_NAME_MAX)
		return err_set(err, -E2BIG, "attribute '%s': too many attributes, or too long", TEXT_CUT(name));
	snprintf(s->xattr[s->nxattrs].name, sizeof(s->xattr[0].name), "%s", name);
	memcpy(s->xattr[s->nxattrs].value, value, n);
	s->xattr[s->nxattrs++].size = n;
	return 0;
}

int fstree_read_tar(struct fstree *t, int fd, struct progress *p, struct err *err)
{
	static const struct tar_sink sink = { .entry = on_entry, .data = on_data, .end = on_end, .device = on_device,
					      .xattr = on_xattr };
	_cleanup_free_ struct tar_source *s = calloc(1, sizeof(*s));
	_cleanup_free_ uint8_t *buffer = malloc(BUFFER_SIZE);
	struct stat st;
	size_t have = 0, at = 0;
	int r;

	if (s == NULL || buffer == NULL)
		return err_set(err, -ENOMEM, "no memory for reading the archive");
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "stat the archive");
	s->tree = t;
	s->file_size = (uint64_t)st.st_size;
	tar_reader_init(&s->reader);
	for (;;) {
		if (at == have) {
			ssize_t n = fd_pread_full(fd, buffer, BUFFER_SIZE, (off_t)s->position);

			if (n < 0)
				return err_errno(err, (int)n, "read the archive");
			if (n == 0)
				break;
			have = (size_t)n;
			at = 0;
			r = progress_bytes(p, s->position, s->file_size, err);
			if (r < 0)
				return r;
		}
		size_t n = MIN(have - at, (size_t)TAR_BLOCK);

		s->position += n;
		r = tar_reader_feed(&s->reader, buffer + at, n, &sink, s, err);
		if (r < 0)
			return err_prefix(err, "in the archive, before byte %llu: ", (unsigned long long)s->position), r;
		at += n;
	}
	return tar_reader_finish(&s->reader, err);
}
