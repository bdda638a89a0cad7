/* SPDX-License-Identifier: Apache-2.0 */
/* Records of coffer-import into a tree: see import_tree.h. */
#include "host/import_tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/import/record.h"
#include "host/import_reader.h"
#include "host/posix_acl.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BUFFER_SIZE = 256 << 10, SHA256_TEXT = 64 };

struct stream {
	int fd;
	uint64_t total; /* bytes of the input */
	struct progress *progress;
	size_t at, have;
	uint8_t buffer[BUFFER_SIZE];
	char name[IMPORT_NAME_MAX + 1], target[IMPORT_NAME_MAX + 1], path[FSTREE_PATH_MAX];
};

/* ---- its records ---- */

static int bad(struct err *err, const char *what)
{
	return err_set(err, -EPROTO, "coffer-import sent a wrong record: %s", what);
}

static int take(struct stream *s, void *ret, size_t n, struct err *err)
{
	uint8_t *p = ret;

	while (n > 0) {
		size_t now = MIN(n, s->have - s->at);

		if (now == 0) {
			ssize_t got = read(s->fd, s->buffer, sizeof(s->buffer));

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return got < 0 ? err_errno(err, -errno, "read from coffer-import") : -EPIPE;
			s->at = 0;
			s->have = (size_t)got;
			continue;
		}
		memcpy(p, s->buffer + s->at, now);
		s->at += now;
		p += now;
		n -= now;
	}
	return 0;
}

static int take_text(struct stream *s, char ret[IMPORT_NAME_MAX + 1], uint32_t len, struct err *err)
{
	int r = len > IMPORT_NAME_MAX ? bad(err, "a long name") : take(s, ret, len, err);

	if (r < 0)
		return r;
	ret[len] = '\0';
	return strlen(ret) != len ? bad(err, "a zero in a name") : 0;
}

static int take_error(struct stream *s, const struct import_record *rec, struct err *err)
{
	int code = rec->mode > 0 && rec->mode < 4096 ? -(int)rec->mode : -EIO;

	return err_set(err, code, "%s", *s->name != '\0' ? s->name : "coffer-import gave no reason");
}

/* ---- applying them ---- */

static bool leads_up(const char *path)
{
	for (const char *p = path; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
			return true;
	}
	return false;
}

static int resolve(const struct import_tree *t, const char *name, char ret[FSTREE_PATH_MAX], struct err *err)
{
	if (leads_up(name))
		return err_set(err, -EINVAL, "'%.200s' leads out of the archive (\"..\")", name);
	return fstree_resolve(t->tree, name, ret, err);
}

/* 1: the member was a whiteout and has been done. `path` is changed. */
static int apply_whiteout(struct import_tree *t, char *path, struct err *err)
{
	char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
	const char *rest = base + 4;

	if (strncmp(base, ".wh.", 4) != 0)
		return 0;
	if (strcmp(rest, ".wh..opq") == 0) {
		*base = '\0';
		/* A directory that lower layers lack has nothing to be hidden. */
		(void)fstree_remove_lower(t->tree, path, true, NULL);
		return 1;
	}
	if (strncmp(rest, ".wh.", 4) == 0)
		return 1; /* notes of AUFS for itself */
	if (*rest == '\0' || strcmp(rest, ".") == 0 || strcmp(rest, "..") == 0)
		return err_set(err, -EINVAL, "'%.200s' is a whiteout of '%s'", path, rest);
	memmove(base, rest, strlen(rest) + 1);
	(void)fstree_remove_lower(t->tree, path, false, NULL);
	return 1;
}

/* What cannot become the new member by itself goes. */
static int make_way(struct import_tree *t, const char *path, bool is_dir, struct err *err)
{
	const struct fstree_inode *old = fstree_lookup(t->tree, path);

	return old != NULL && !is_dir && S_ISDIR(old->mode) ? fstree_remove(t->tree, path, err) : 0;
}

static int apply_xattrs(struct stream *s, struct import_tree *t, struct fstree_inode *inode, uint32_t n,
			struct err *err)
{
	if (n > IMPORT_XATTRS_MAX)
		return bad(err, "many attributes");
	for (uint32_t i = 0; i < n; i++) {
		char name[IMPORT_XATTR_NAME_MAX + 1];
		uint8_t value[IMPORT_XATTR_VALUE_MAX];
		struct import_xattr x;
		int r = take(s, &x, sizeof(x), err);

		if (r == 0 && (x.name_len > IMPORT_XATTR_NAME_MAX || x.value_len > sizeof(value)))
			r = bad(err, "a long attribute");
		if (r == 0)
			r = take(s, name, x.name_len, err);
		if (r == 0)
			r = take(s, value, x.value_len, err);
		if (r < 0)
			return r;
		name[x.name_len] = '\0';
		t->meta_left -= MIN(t->meta_left, (uint64_t)x.name_len + x.value_len);
		if (inode != NULL && !fstree_xattr_is_kept(name) && posix_acl_attribute(name) == NULL) {
			fstree_leave_out(t->tree, name);
		} else if (inode != NULL) {
			r = fstree_set_xattr(t->tree, inode, name, value, x.value_len, err);
			if (r < 0)
				return err_prefix(err, "'%.200s': ", s->name), r;
		}
	}
	return 0;
}

static int add_entry(struct stream *s, struct import_tree *t, const struct import_record *rec,
		     struct fstree_inode **ret, struct err *err)
{
	struct fstree_inode like = {
		.mode = rec->mode, .uid = rec->uid, .gid = rec->gid, .mtime_s = rec->mtime_s, .mtime_ns = rec->mtime_ns
	};
	int r;

	switch (rec->mode & S_IFMT) {
	case S_IFREG:
		if (rec->offset % IMPORT_ALIGN != 0 || rec->size > IMPORT_FILE_MAX || rec->offset > IMPORT_SPOOL_MAX)
			return bad(err, "the place of contents");
		like.size = rec->size;
		like.file.offset = rec->offset;
		like.file.holes = rec->holes;
		break;
	case S_IFLNK:
		like.target = s->target;
		break;
	case S_IFCHR:
	case S_IFBLK:
		like.device.major = rec->major;
		like.device.minor = rec->minor;
		break;
	case S_IFDIR:
	case S_IFIFO:
		break;
	default:
		return err_set(err, -EINVAL, "'%.200s' is of a kind (0%o) that no archive should have", s->name,
			       rec->mode & S_IFMT);
	}
	r = make_way(t, s->path, S_ISDIR(rec->mode), err);
	return r < 0 ? r : fstree_add(t->tree, s->path, &like, ret, err);
}

static int apply(struct stream *s, struct import_tree *t, const struct import_record *rec, bool whiteouts,
		 struct err *err)
{
	uint64_t meta = 64 + rec->name_len + rec->target_len;
	struct fstree_inode *inode = NULL;
	int r, done = 0;

	if (t->entries_left == 0 || t->meta_left < meta)
		return err_set(err, -EFBIG,
			       "it has more than %d members, or more than %llu MiB of names and attributes",
			       IMPORT_ENTRIES_MAX, IMPORT_META_MAX >> 20);
	t->entries_left--;
	t->meta_left -= meta;
	r = resolve(t, s->name, s->path, err);
	if (r == 0 && whiteouts)
		r = done = apply_whiteout(t, s->path, err);
	if (r < 0)
		return r;
	if (done > 0)
		return apply_xattrs(s, t, NULL, rec->nxattrs, err);
	if (rec->type == IMPORT_LINK) {
		char target[FSTREE_PATH_MAX];

		r = resolve(t, s->target, target, err);
		if (r == 0)
			r = make_way(t, s->path, false, err);
		return r < 0 ? r : fstree_add_link(t->tree, s->path, target, err);
	}
	r = add_entry(s, t, rec, &inode, err);
	return r < 0 ? r : apply_xattrs(s, t, inode, rec->nxattrs, err);
}

/* Until IMPORT_END (0), or an error. `t` NULL: members are not expected. */
static int follow(struct stream *s, struct import_tree *t, bool whiteouts, struct import_record *ret_end,
		  struct err *err)
{
	for (;;) {
		struct import_record rec = { 0 };
		int r = take(s, &rec, sizeof(rec), err);

		if (r == 0)
			r = take_text(s, s->name, rec.name_len, err);
		if (r == 0)
			r = take_text(s, s->target, rec.target_len, err);
		if (r < 0)
			return r;
		switch (rec.type) {
		case IMPORT_ENTRY:
		case IMPORT_LINK:
			r = t == NULL ? bad(err, "a member") : apply(s, t, &rec, whiteouts, err);
			break;
		case IMPORT_PROGRESS:
			r = progress_bytes(s->progress, MIN(rec.size, s->total), s->total, err);
			break;
		case IMPORT_END:
			*ret_end = rec;
			return strlen(s->name) != SHA256_TEXT ? bad(err, "the digest") : 0;
		case IMPORT_ERROR:
			return take_error(s, &rec, err);
		default:
			return bad(err, "its type");
		}
		if (r < 0)
			return r;
	}
}

static int take_sums(const struct stream *s, struct import_tree *t, const struct import_record *end, char *ret_sha256, struct err *err)
{
	struct stat st;

	if (end->offset < t->spool || end->offset > 2 * IMPORT_SPOOL_MAX || end->size > t->bytes_left ||
	    end->offset % IMPORT_ALIGN != 0)
		return bad(err, "its sums");
	t->spool = end->offset;
	t->bytes_left -= end->size;
	/* The holes at the end. */
	if (fstat(t->spool_fd, &st) < 0 ||
	    ((uint64_t)st.st_size < t->spool && ftruncate(t->spool_fd, (off_t)t->spool) < 0))
		return err_errno(err, -errno, "the work file");
	if (ret_sha256 != NULL)
		memcpy(ret_sha256, s->name, SHA256_TEXT + 1);
	return 0;
}

static struct stream *new_stream(int fd, uint64_t total, struct progress *p, struct err *err)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		err_set(err, -ENOMEM, "no memory");
		return NULL;
	}
	s->fd = fd;
	s->total = total;
	s->progress = p;
	return s;
}

int import_tree_follow(struct import_tree *t, int records, bool whiteouts, char *ret_sha256, struct err *err)
{
	_cleanup_free_ struct stream *s = new_stream(records, 0, NULL, err);
	struct import_record end = { 0 };
	int r;

	if (s == NULL)
		return -ENOMEM;
	t->tree->layer++;
	r = follow(s, t, whiteouts, &end, err);
	return r < 0 ? r : take_sums(s, t, &end, ret_sha256, err);
}

/* One archive, from the beginning of its process to its end. `t` NULL: members are not expected. */
static int read_archive(struct import_reader *reader, const struct import_job *job, const struct import_blob *blob, int spool,
			struct import_tree *t, bool whiteouts, struct stream *s, struct import_record *ret_end, struct err *err)
{
	int r;

	s->fd = import_reader_begin(reader, job, blob->fd, spool, err);
	if (s->fd < 0)
		return s->fd;
	r = follow(s, t, whiteouts, ret_end, err);
	s->fd = fd_close(s->fd);
	return import_reader_end(reader, r, err);
}

int import_tree_add(struct import_tree *t, const struct import_blob *blob, bool whiteouts, char *ret_sha256,
		    struct progress *p, struct err *err)
{
	_cleanup_free_ struct stream *s = new_stream(-1, blob->size, p, err);
	const struct import_job job = { IMPORT_MEMBERS, blob->offset, blob->size, t->spool, t->bytes_left, t->entries_left };
	struct import_record end = { 0 };
	int r;

	if (s == NULL)
		return -ENOMEM;
	t->tree->layer++;
	r = read_archive(&t->reader, &job, blob, t->spool_fd, t, whiteouts, s, &end, err);
	return r < 0 ? r : take_sums(s, t, &end, ret_sha256, err);
}

void import_tree_finish(struct import_tree *t)
{
	import_reader_close(&t->reader);
}

int import_decompress_to(const struct import_blob *blob, int out, uint64_t bytes_max, struct progress *p,
			 struct err *err)
{
	_cleanup_free_ struct stream *s = new_stream(-1, blob->size, p, err);
	const struct import_job job = { IMPORT_DECOMPRESS, blob->offset, blob->size, 0, bytes_max, 0 };
	struct import_reader reader = IMPORT_READER_NONE;
	struct import_record end = { 0 };
	int r;

	if (s == NULL)
		return -ENOMEM;
	r = read_archive(&reader, &job, blob, out, NULL, false, s, &end, err);
	import_reader_close(&reader);
	return r;
}
