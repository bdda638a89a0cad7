/* SPDX-License-Identifier: Apache-2.0 */
/* What both directions of a copy share, and the way in: see copy.h. The way out: copy_out.c. */
#include "host/copy.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/copy_internal.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "lib/tar_pack.h"
#include "lib/util.h"

int copy_guest_path(const char *path, char *out, size_t len, bool *ret_slash, struct err *err)
{
	int n = snprintf(out, len, "%s%s", path[0] == '/' ? "" : "/", path);

	if (n < 0 || (size_t)n >= len)
		return err_set(err, -ENAMETOOLONG, "'%.80s...': a path in the guest has at most %zu bytes", path, len - 1);
	*ret_slash = n > 1 && out[n - 1] == '/';
	while (n > 1 && out[n - 1] == '/')
		out[--n] = 0;
	return 0;
}

void copy_split(const char *path, char *dir, const char **ret_base)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(dir, PATH_MAX, ".");
	else
		snprintf(dir, PATH_MAX, "%.*s", (int)MAX(slash - path, (ptrdiff_t)1), path);
	*ret_base = slash ? slash + 1 : path;
}

int copy_request(struct agent_conn *c, const char *op, const char *path, const char *name, const char *flags,
		 struct agent_line *ret, struct err *err)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return err_set(err, -ENOMEM, "out of memory");
	fprintf(f, "{\"op\":\"%s\",\"path\":", op);
	agent_put_string(f, path);
	if (name) {
		fputs(",\"name\":", f);
		agent_put_string(f, name);
	}
	fprintf(f, "%s}", flags);
	int r = fclose(f) != 0 ? err_set(err, -ENOMEM, "out of memory") :
		agent_request(c, text, len, control_deadline(COPY_REPLY_MS), ret, err);

	free(text);
	return r;
}

int copy_frame_error(const struct agent_received *f, struct err *err)
{
	int r = agent_frame_error(f, err);

	err_prefix(err, "in the guest: ");
	return r;
}

/* "dir", "file", ... or "" when there is nothing at that path. */
static int stat_guest(const struct copy_guest *g, const char *path, char *type, size_t size, struct err *err)
{
	struct agent_conn *c;
	struct agent_line line;
	int r = g->connect(g->arg, &c, err);

	if (r < 0)
		return r;
	type[0] = 0;
	r = copy_request(c, "stat", path, NULL, "", &line, err);
	agent_close(c);
	if (r == -ENOENT)
		return 0;
	if (r == 0 && agent_line_string(&line, "type", type, size) < 0)
		r = err_set(err, -EPROTO, "the agent's answer to stat has no type");
	return r;
}

/* ---- sending ---- */

struct source {
	struct tar_pack *pack; /* or NULL: */
	int fd;                /* a tar stream */
	uint64_t total;        /* bytes, 0: unknown */
	uint64_t done;
	bool ended;            /* the empty frame that ends the stream has been put */
};

static ssize_t read_source(struct source *s, void *buf, size_t n, struct err *err)
{
	ssize_t r;

	if (s->pack)
		r = tar_pack_read(s->pack, buf, n, err);
	else {
		do
			r = read(s->fd, buf, n);
		while (r < 0 && errno == EINTR);
		if (r < 0)
			r = err_errno(err, -errno, "read stdin");
	}
	if (r > 0)
		s->done += (uint64_t)r;
	return r;
}

/* The agent's last word on a put, if it has come: 1 done, 0 not yet, -errno. */
static int take_verdict(struct agent_conn *c, struct err *err)
{
	struct agent_received f;
	int r = agent_fill(c, err);

	if (r >= 0)
		r = agent_frame_next(c, &f, err);
	if (r <= 0)
		return r;
	if (f.type == AGENT_EXIT)
		return 1;
	if (f.type == AGENT_ERROR)
		return copy_frame_error(&f, err);
	return err_set(err, -EPROTO, "the agent sent a frame of type %u during put", f.type);
}

/* Fill the connection's buffer with the next piece; the empty one ends the stream. */
static int put_piece(const struct copy_guest *g, struct agent_conn *c, struct source *s, struct err *err)
{
	ssize_t n = read_source(s, agent_frame_room(c), AGENT_FRAME_MAX, err);

	if (n < 0)
		return (int)n;
	agent_frame_put_filled(c, AGENT_DATA, (size_t)n);
	s->ended = n == 0;
	return progress_bytes(g->progress, s->done, s->total, err);
}

static int check_signals(struct agent_conn *c, struct err *err)
{
	for (int signal; (signal = signals_next(c->signal_fd)) > 0;)
		if (signals_is_end(signal)) {
			c->signal = signal;
			return err_set(err, -ECANCELED, "interrupted");
		}
	return 0;
}

static int send_stream(const struct copy_guest *g, struct agent_conn *c, struct source *s, struct err *err)
{
	for (;;) {
		bool room = !s->ended && agent_frame_room(c);
		struct pollfd p[] = {
			{ .fd = c->fd, .events = (short)(POLLIN | (c->out_len ? POLLOUT : 0)) },
			{ .fd = c->signal_fd, .events = POLLIN },
			{ .fd = room && !s->pack ? s->fd : -1, .events = POLLIN },
		};
		int r = 0;

		if (poll(p, ARRAY_SIZE(p), room && s->pack ? 0 : -1) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		if (p[1].revents)
			r = check_signals(c, err);
		/* The agent speaks once: when all is done, or when something is wrong. */
		if (r == 0 && p[0].revents & (POLLIN | POLLHUP | POLLERR)) {
			r = take_verdict(c, err);
			if (r > 0)
				return 0;
		}
		if (r == 0 && room && (s->pack || p[2].revents))
			r = put_piece(g, c, s, err);
		if (r < 0)
			return r;
		r = agent_flush(c);
		if (r < 0 && r != -EPIPE && r != -ECONNRESET)
			return err_errno(err, r, "send to the agent");
	}
}

static int put(const struct copy_guest *g, const char *dir, struct source *s, struct err *err)
{
	struct agent_conn *c;
	struct agent_line line;
	int r = g->connect(g->arg, &c, err);

	if (r < 0)
		return r;
	r = copy_request(c, "put", dir, NULL, g->keep_owner ? ",\"keep_owner\":true" : "", &line, err);
	if (r == 0)
		r = send_stream(g, c, s, err);
	agent_close(c);
	return r;
}

/* Where in the guest, and under which name: `dir` and `name` have PATH_MAX bytes. */
static int choose_target(const struct copy_guest *g, const char *source, bool is_dir, const char *target, char *dir,
			 char *name, struct err *err)
{
	char path[PATH_MAX], type[16] = "";
	const char *base;
	bool slash = false;
	int r = copy_guest_path(target, path, sizeof(path), &slash, err);

	if (r == 0)
		r = stat_guest(g, path, type, sizeof(type), err);
	if (r < 0)
		return r;
	if (!strcmp(type, "dir")) {
		snprintf(dir, PATH_MAX, "%s", path);
		copy_source_name(source, name);
		return 0;
	}
	if (type[0] && (is_dir || slash))
		return err_set(err, -ENOTDIR, "'%s' in the guest is no directory", path);
	if (!type[0] && slash && !is_dir)
		return err_set(err, -ENOENT, "there is no directory '%s/' in the guest", path);
	copy_split(path, dir, &base);
	snprintf(name, PATH_MAX, "%s", base);
	return 0;
}

static int put_path(const struct copy_guest *g, const char *source, const char *target, struct tar_pack *pack,
		    struct err *err)
{
	char dir[PATH_MAX], name[PATH_MAX];
	struct stat st;

	/* `dir/` and `dir/.` name what is in it; a link is what it points to. */
	if (stat(source, &st) < 0)
		return err_errno(err, -errno, "'%s'", source);
	int r = choose_target(g, source, S_ISDIR(st.st_mode), target, dir, name, err);

	if (r == 0)
		r = tar_pack_init(pack, source, name, true, &st, err);
	if (r < 0)
		return r;
	struct source s = { .pack = pack, .total = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0 };

	r = put(g, dir, &s, err);
	tar_pack_finish(pack);
	return r;
}

void copy_source_name(const char *source, char *name)
{
	char path[PATH_MAX];
	const char *base;
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", source);

	n = MIN(n, sizeof(path) - 1);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	char dir[PATH_MAX];

	copy_split(path, dir, &base);
	/* "." and ".." have no name of their own: their content is meant. */
	snprintf(name, PATH_MAX, "%s", !*base || !strcmp(base, ".") || !strcmp(base, "..") ? "." : base);
}

int copy_in(const struct copy_guest *g, const char *source, const char *target, struct err *err)
{
	if (!strcmp(source, "-")) {
		char path[PATH_MAX];
		bool slash;
		struct source s = { .fd = STDIN_FILENO };
		int r = copy_guest_path(target, path, sizeof(path), &slash, err);

		return r < 0 ? r : put(g, path, &s, err);
	}
	struct tar_pack *pack = malloc(sizeof(*pack));
	int r = pack ? put_path(g, source, target, pack, err) : err_set(err, -ENOMEM, "out of memory");

	free(pack);
	return r;
}
