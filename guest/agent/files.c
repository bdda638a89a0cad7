/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: stat, put, get. Trees are packed and unpacked by lib/tar_pack and lib/tar_extract.
 *
 * Paths in requests are the host's and are resolved like any path in the guest. Names inside a stream are hostile and stay
 * below the directory they are unpacked in.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/agent/handler.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { LINK_TARGET_MAX = 512, PATH_BUF = 4096 };

static const char *type_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return "file";
	case S_IFDIR: return "dir";
	case S_IFLNK: return "symlink";
	case S_IFIFO: return "fifo";
	case S_IFSOCK: return "socket";
	case S_IFCHR: return "char";
	case S_IFBLK: return "block";
	default: return "unknown";
	}
}

int files_stat(struct handler *h)
{
	const char *path = h->request.path;
	char buf[AGENT_REPLY_MAX], target[LINK_TARGET_MAX];
	struct json_writer w;
	struct stat st;
	int rc;

	if ((h->request.follow ? stat(path, &st) : lstat(path, &st)) < 0)
		return err_errno(&h->err, -errno, "'%s'", path);
	channel_answer_begin(&w, buf);
	json_write_string(&w, "type", type_name(st.st_mode));
	json_write_uint(&w, "mode", st.st_mode & 07777);
	json_write_int(&w, "size", st.st_size);
	json_write_uint(&w, "uid", st.st_uid);
	json_write_uint(&w, "gid", st.st_gid);
	json_write_uint(&w, "nlink", st.st_nlink);
	json_write_int(&w, "mtime_ns", (int64_t)((uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec));
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(path, target, sizeof(target));

		if (n >= 0)
			json_write_string_n(&w, "target", target, (size_t)n); /* may grow sixfold */
	}
	rc = channel_answer_end(&h->channel, &w);
	return rc < 0 ? err_errno(&h->err, rc, "stat '%s'", path) : 0;
}

/* ---- put ---- */

/* Make a directory and its parents. Those that are new belong to the owner. */
static int make_dirs(const char *path, const struct user *owner, struct err *err)
{
	char part[PATH_BUF];
	size_t n = strlen(path);

	if (n >= sizeof(part))
		return err_errno(err, -ENAMETOOLONG, "'%.100s...'", path);
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0755) == 0) {
			if (geteuid() == 0 && lchown(part, owner->uid, owner->gid) < 0)
				return err_errno(err, -errno, "set owner of '%s'", part);
		} else if (errno != EEXIST && errno != EROFS) { /* on a read-only file system what exists will do */
			return err_errno(err, -errno, "make directory '%s'", part);
		}
	}
	return 0;
}

static bool is_root_dir(int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat("/", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int receive_tree(struct handler *h)
{
	struct frame_reader *f = &h->u.put.frame;
	int rc;

	frame_reader_init(f, 1u << AGENT_DATA);
	while ((rc = channel_wait_frame(&h->channel, f, &h->err)) == 0 && f->length > 0) {
		rc = tar_extract_feed(&h->u.put.extract, f->payload, f->length, &h->err);
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? rc : tar_extract_finish(&h->u.put.extract, &h->err);
}

int files_put(struct handler *h)
{
	const struct request *r = &h->request;
	struct tar_extract_options o = { .keep_owner = r->keep_owner };
	_cleanup_close_ int dir = -1;
	struct user owner = { 0 };
	int rc = 0;

	if (r->owner)
		rc = user_lookup("/etc/passwd", "/etc/group", r->owner, &owner, &h->err);
	if (rc == 0 && r->mkdir)
		rc = make_dirs(r->path, &owner, &h->err);
	if (rc < 0)
		return rc;
	dir = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_errno(&h->err, -errno, "'%s'", r->path);
	o.uid = owner.uid;
	o.gid = owner.gid;
	o.where = r->path;
	o.in_root = is_root_dir(dir);
	rc = channel_answer_ok(&h->channel);
	if (rc < 0)
		return err_errno(&h->err, rc, "put");
	tar_extract_init(&h->u.put.extract, dir, &o);
	rc = receive_tree(h);
	tar_extract_abort(&h->u.put.extract);
	if (rc < 0)
		return rc;
	rc = channel_send_exit(&h->channel, AGENT_EXIT_STATUS, 0);
	return rc < 0 ? err_errno(&h->err, rc, "put") : 0;
}

/* ---- get ---- */

/* The last component of a path, "." for the root. */
static const char *default_name(const char *path, char *buf, size_t size)
{
	size_t end = strlen(path), start;

	while (end > 0 && path[end - 1] == '/')
		end--;
	for (start = end; start > 0 && path[start - 1] != '/'; start--)
		;
	if (end == start || end - start >= size)
		return ".";
	memcpy(buf, path + start, end - start);
	buf[end - start] = '\0';
	return strcmp(buf, "..") == 0 ? "." : buf;
}

static int send_tree(struct handler *h)
{
	for (;;) {
		ssize_t n = tar_pack_read(&h->u.get.pack, h->u.get.data, sizeof(h->u.get.data), &h->err);
		int rc;

		if (n < 0)
			return (int)n;
		rc = channel_send_frame(&h->channel, AGENT_DATA, h->u.get.data, (size_t)n);
		if (rc < 0)
			return err_errno(&h->err, rc, "get");
		if (n == 0) /* the frame of length 0 was the end */
			return 0;
	}
}

int files_get(struct handler *h)
{
	const struct request *r = &h->request;
	char buf[AGENT_REPLY_MAX], component[256];
	struct json_writer w;
	struct stat st;
	int rc;

	rc = tar_pack_init(&h->u.get.pack, r->path, r->name ? r->name : default_name(r->path, component, sizeof(component)), r->follow,
			   &st, &h->err);
	if (rc < 0)
		return rc;
	channel_answer_begin(&w, buf);
	json_write_string(&w, "type", type_name(st.st_mode));
	json_write_uint(&w, "mode", st.st_mode & 07777);
	json_write_int(&w, "size", S_ISDIR(st.st_mode) ? 0 : st.st_size);
	rc = channel_answer_end(&h->channel, &w);
	if (rc < 0)
		err_errno(&h->err, rc, "get");
	else
		rc = send_tree(h);
	tar_pack_finish(&h->u.get.pack);
	if (rc < 0)
		return rc;
	rc = channel_send_exit(&h->channel, AGENT_EXIT_STATUS, 0);
	return rc < 0 ? err_errno(&h->err, rc, "get") : 0;
}
