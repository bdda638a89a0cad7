/* SPDX-License-Identifier: Apache-2.0 */
/* A copy out of the guest: see copy.h, which also says what is trusted. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/copy.h"
#include "host/copy_internal.h"
#include "host/file.h"
#include "lib/fd.h"
#include "lib/tar_extract.h"
#include "lib/text.h"
#include "lib/util.h"

/* Where it goes: in a directory, under a name. */
struct target {
	char dir[PATH_MAX];
	char name[PATH_MAX];
};

/* What the guest says the source is. */
struct source {
	bool is_dir;
	uint64_t size;
	mode_t mode;
	int64_t mtime_ns;
};

/* What the stream's bytes go to: returns 0 or -errno. */
typedef int feed_fn(void *arg, const void *data, size_t n, struct err *err);

static int receive(const struct copy_guest *g, struct agent_conn *c, uint64_t total, feed_fn *feed, void *arg,
		   struct err *err)
{
	uint64_t done = 0;
	bool ended = false;

	for (;;) {
		struct agent_received f;
		int r = agent_frame_wait(c, 0, &f, err);

		if (r < 0)
			return r;
		if (f.type == AGENT_ERROR)
			return copy_frame_error(&f, err);
		if (f.type == AGENT_EXIT)
			return ended ? 0 : err_set(err, -EPROTO, "the agent ended a copy in the middle");
		if (f.type != AGENT_DATA || ended)
			return err_set(err, -EPROTO, "the agent sent a frame of type %u during get", f.type);
		ended = f.length == 0;
		r = f.length ? feed(arg, f.payload, f.length, err) : 0;
		done += f.length;
		if (r == 0)
			r = progress_bytes(g->progress, done, total, err);
		if (r < 0)
			return r;
	}
}

static int feed_extract(void *arg, const void *data, size_t n, struct err *err)
{
	return tar_extract_feed(arg, data, n, err);
}

static int feed_stdout(void *arg, const void *data, size_t n, struct err *err)
{
	(void)arg;
	int r = fd_write_full(STDOUT_FILENO, data, n);

	return r < 0 ? err_errno(err, r, "write to stdout") : 0;
}

/* `where`: what messages call the directory, or NULL. */
static int extract(const struct copy_guest *g, struct agent_conn *c, int dirfd, const char *where, uint64_t total, struct err *err)
{
	const struct tar_extract_options o = { .where = where, .no_links = true, .keep_owner = g->keep_owner, .uid = geteuid(), .gid = getegid() };
	struct tar_extract *x = malloc(sizeof(*x));

	if (!x)
		return err_set(err, -ENOMEM, "out of memory");
	tar_extract_init(x, dirfd, &o);
	int r = receive(g, c, total, feed_extract, x, err);

	if (r == 0)
		r = tar_extract_finish(x, err);
	if (r < 0)
		tar_extract_abort(x);
	free(x);
	return r;
}

/* What is at the target decides: a directory takes it in, a file is replaced. */
static int choose_target(const char *source, const char *given, bool source_is_dir, struct target *t, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;
	const char *base;
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", given);
	bool slash = n > 1 && n < sizeof(path) && path[n - 1] == '/';

	if (n == 0 || n >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "'%s': no usable path", TEXT_CUT(given));
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	if (stat(path, &st) < 0) {
		if (errno != ENOENT)
			return err_errno(err, -errno, "'%s'", path);
		if (slash && !source_is_dir)
			return err_set(err, -ENOENT, "there is no directory '%s/'", path);
		copy_split(path, t->dir, &base);
		snprintf(t->name, sizeof(t->name), "%s", base);
		return 0;
	}
	if (S_ISDIR(st.st_mode)) {
		snprintf(t->dir, sizeof(t->dir), "%s", path);
		copy_source_name(source, t->name);
		return 0;
	}
	if (source_is_dir || slash)
		return err_set(err, -ENOTDIR, "'%s' is no directory", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is neither a file nor a directory, and is not replaced", path);
	char real[PATH_MAX];

	if (!realpath(path, real))
		return err_errno(err, -errno, "'%s'", path);
	copy_split(real, t->dir, &base);
	snprintf(t->name, sizeof(t->name), "%s", base);
	return 0;
}

/* Never through a link: the name may be the source's, and the link one that an earlier copy brought from the guest. */
static int open_directory(int parent, const struct target *t, struct err *err)
{
	struct stat st;
	int fd = openat(parent, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	int r = -errno;

	if (fstatat(parent, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return err_set(err, -ENOTDIR, "'%s/%s' is a symbolic link and not a directory: remove it first", t->dir, t->name);
	return err_errno(err, r, "'%s/%s'", t->dir, t->name);
}

static int take_directory(const struct copy_guest *g, struct agent_conn *c, const struct source *s, const struct target *t,
			  struct err *err)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
					   { s->mtime_ns / 1000000000, (long)(s->mtime_ns % 1000000000) } };
	char where[2 * PATH_MAX];
	bool made = false;
	_cleanup_close_ int parent = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		return err_errno(err, -errno, "'%s'", t->dir);
	if (strcmp(t->name, ".") != 0) {
		made = mkdirat(parent, t->name, 0700) == 0;
		if (!made && errno != EEXIST)
			return err_errno(err, -errno, "make '%s/%s'", t->dir, t->name);
	}
	_cleanup_close_ int dir = open_directory(parent, t, err);

	if (dir < 0)
		return dir;
	bool below = strcmp(t->name, ".") != 0;

	snprintf(where, sizeof(where), "%s%s%s", t->dir, below ? "/" : "", below ? t->name : "");
	int r = extract(g, c, dir, where, 0, err);

	/* The stream's "." says nothing about a directory that was here; a new one is as it was there. */
	if (r == 0 && made && (fchmod(dir, s->mode) < 0 || futimens(dir, times) < 0))
		return err_errno(err, -errno, "'%s/%s'", t->dir, t->name);
	return r;
}

static int place_file(int temp, int parent, const struct target *t, struct err *err)
{
	struct stat st;

	if (fstatat(temp, "file", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(err, -EPROTO, "the guest sent something else than the file that was asked for");
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return err_set(err, -EPROTO, "the guest said file and sent something else");
	if (renameat(temp, "file", parent, t->name) < 0)
		return err_errno(err, -errno, "'%s/%s'", t->dir, t->name);
	return 0;
}

static int take_file(const struct copy_guest *g, struct agent_conn *c, const struct target *t, uint64_t size, struct err *err)
{
	char name[COPY_TEMP_NAME], path[PATH_MAX + COPY_TEMP_NAME];
	_cleanup_close_ int parent = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		return err_errno(err, -errno, "'%s'", t->dir);
	copy_temp_sweep(parent);
	_cleanup_close_ int temp = copy_temp_make(parent, t->dir, name, err);

	if (temp < 0)
		return temp;
	snprintf(path, sizeof(path), "%s/%s", t->dir, name);
	int r = extract(g, c, temp, path, size, err);

	if (r == 0)
		r = place_file(temp, parent, t, err);
	file_remove_tree(parent, name);
	return r;
}

/* The agent's word for a type, as a person says it. */
static const char *type_text(const char *type)
{
	static const char *const texts[][2] = {
		{ "char", "a character device" }, { "block", "a block device" }, { "socket", "a socket" }, { "symlink", "a symbolic link" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(type, texts[i][0]))
			return texts[i][1];
	return "neither a file nor a directory";
}

static int stat_source(const struct copy_guest *g, const char *path, struct source *ret, struct err *err)
{
	struct agent_conn *c;
	struct agent_line line;
	char type[16] = "";
	int64_t size = 0, mode = 0600, mtime_ns = 0;
	int r = g->connect(g->arg, &c, err);

	if (r < 0)
		return r;
	r = copy_request(c, "stat", path, NULL, "", &line, err);
	agent_close(c);
	if (r < 0)
		return r;
	agent_line_string(&line, "type", type, sizeof(type));
	agent_line_int(&line, "size", &size);
	agent_line_int(&line, "mode", &mode);
	agent_line_int(&line, "mtime_ns", &mtime_ns);
	*ret = (struct source){ .is_dir = !strcmp(type, "dir"), .size = (uint64_t)MAX(size, (int64_t)0), .mode = (mode_t)mode & 07777,
				.mtime_ns = MAX(mtime_ns, (int64_t)0) };
	if (ret->is_dir || !strcmp(type, "file") || !strcmp(type, "fifo"))
		return 0;
	return err_set(err, -EINVAL, "'%s' in the guest is %s and is not copied", path, type_text(type));
}

int copy_out(const struct copy_guest *g, const char *source, const char *target, struct err *err)
{
	char path[PATH_MAX];
	struct target t = { 0 };
	struct source s = { 0 };
	struct agent_conn *c = NULL;
	struct agent_line line;
	bool slash, to_stdout = !strcmp(target, "-");
	int r = copy_guest_path(source, path, sizeof(path), &slash, err);

	if (r == 0)
		r = stat_source(g, path, &s, err);
	if (r == 0 && slash && !s.is_dir)
		r = err_set(err, -ENOTDIR, "'%s' in the guest is no directory", path);
	if (r == 0 && !to_stdout)
		r = choose_target(source, target, s.is_dir, &t, err);
	if (r == 0)
		r = g->connect(g->arg, &c, err);
	if (r < 0)
		return r;
	r = copy_request(c, "get", path, to_stdout ? NULL : s.is_dir ? "." : "file", ",\"follow\":true", &line, err);
	if (r == 0 && to_stdout)
		r = receive(g, c, s.size, feed_stdout, NULL, err);
	else if (r == 0 && s.is_dir)
		r = take_directory(g, c, &s, &t, err);
	else if (r == 0)
		r = take_file(g, c, &t, s.size, err);
	agent_close(c);
	return r;
}
