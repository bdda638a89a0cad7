/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running another program. Its stderr is a pipe: lines of it are the progress, and the last ones that it marks as errors
 * and warnings the reason of a failure, else the last one.
 * It keeps our process group, so that Ctrl-C on the terminal reaches it too.
 *
 * Trust: what it says is shown with control bytes replaced, and lines are cut.
 */
#include "host/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { TEXT_MAX = 220, SIZE_INTERVAL_MS = 200, CAUSES_MAX = 2 };

struct output {
	char line[TEXT_MAX];
	size_t len;
	char last[TEXT_MAX];
	char cause[CAUSES_MAX][TEXT_MAX]; /* the last lines that are marked, oldest first */
	size_t ncauses;
};

/* "E: apt-get ... failed": what follows from a cause that was told before. */
static bool is_consequence(const char *line)
{
	static const char *const ends[] = { " failed", " failed to run" };
	size_t n = strlen(line);

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (n >= strlen(ends[i]) && strcmp(line + n - strlen(ends[i]), ends[i]) == 0)
			return true;
	return false;
}

static void keep_cause(struct output *o)
{
	static const char *const marks[] = { "E:", "W:", "error:" };
	bool marked = false;

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		marked |= strncmp(o->line, marks[i], strlen(marks[i])) == 0;
	if (!marked || (o->ncauses > 0 && (is_consequence(o->line) || strcmp(o->cause[o->ncauses - 1], o->line) == 0)))
		return;
	if (o->ncauses == CAUSES_MAX)
		memmove(o->cause[0], o->cause[1], sizeof(o->cause) - sizeof(o->cause[0]));
	else
		o->ncauses++;
	memcpy(o->cause[o->ncauses - 1], o->line, sizeof(o->line));
}

static int end_line(struct output *o, const struct spawn *s, struct err *err)
{
	o->line[o->len] = '\0';
	o->len = 0;
	if (o->line[strspn(o->line, " \t")] == '\0')
		return 0;
	memcpy(o->last, o->line, sizeof(o->last));
	keep_cause(o);
	if (s->show_size)
		return 0;
	return progress_text(s->progress, strncmp(o->line, "I: ", 3) == 0 ? o->line + 3 : o->line, err);
}

static int show_size(const struct spawn *s, struct err *err)
{
	struct stat st;

	return progress_bytes(s->progress, fstat(s->out, &st) == 0 ? (uint64_t)st.st_size : 0, 0, err);
}

static int take_output(struct output *o, const char *data, size_t n, const struct spawn *s, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (data[i] == '\n' || data[i] == '\r')
			r = end_line(o, s, err);
		else if (o->len < sizeof(o->line) - 1)
			o->line[o->len++] = data[i];
	}
	return r;
}

/* Read its stderr until it closes; -EINTR when asked to end. */
static int follow(int fd, struct output *o, const struct spawn *s, struct err *err)
{
	int signals = s->progress != NULL ? s->progress->signals : -1;
	char buffer[4096];

	for (;;) {
		struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
		ssize_t n;
		int r;

		if (poll(p, ARRAY_SIZE(p), s->show_size ? SIZE_INTERVAL_MS : -1) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		r = s->show_size || p[1].revents != 0 ? show_size(s, err) : 0;
		if (r < 0)
			return r;
		if (p[0].revents == 0)
			continue;
		n = read(fd, buffer, sizeof(buffer));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, -errno, "read");
		if (n == 0)
			return o->len > 0 ? end_line(o, s, err) : 0;
		r = take_output(o, buffer, (size_t)n, s, err);
		if (r < 0)
			return r;
	}
}

/* The program's path, also in the directories that PATH of ordinary users lacks. */
static int find_program(const char *name, char ret[4096])
{
	const char *path = getenv("PATH");
	char dirs[4096];

	if (strchr(name, '/') != NULL)
		return snprintf(ret, 4096, "%s", name) < 4096 && access(ret, X_OK) == 0 ? 0 : -ENOENT;
	if (snprintf(dirs, sizeof(dirs), "%s:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", path != NULL ? path : "") >=
	    (int)sizeof(dirs))
		return -ENOENT;
	for (char *rest = dirs, *dir; (dir = strsep(&rest, ":")) != NULL;)
		if (*dir == '/' && snprintf(ret, 4096, "%s/%s", dir, name) < 4096 && access(ret, X_OK) == 0)
			return 0;
	return -ENOENT;
}

static int start(const struct spawn *s, const char *path, int stderr_fd, pid_t *ret_pid)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, defaults;
	int r;

	sigemptyset(&none);
	sigemptyset(&defaults);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		sigaddset(&defaults, ends[i]);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &defaults);
	/* dup2 to itself would keep close-on-exec: descriptors below 3 are never ours to pass here. */
	if (s->in >= 0)
		posix_spawn_file_actions_adddup2(&actions, s->in, 0);
	else
		posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (s->out >= 0)
		posix_spawn_file_actions_adddup2(&actions, s->out, 1);
	else
		posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, stderr_fd, 2);
	r = posix_spawn(ret_pid, path, &actions, &attributes, (char *const *)s->argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return -r;
}

int spawn_run(const struct spawn *s, struct err *err)
{
	_cleanup_close_ int read_end = -1, write_end = -1;
	struct output output = { .len = 0 };
	const char *name = s->argv[0];
	char path[4096];
	int fds[2], status, r;
	pid_t pid;

	if (find_program(name, path) < 0)
		return err_set(err, -ENOENT, "%s is not installed%s%s", name, s->package != NULL ? ": apt-get install " : "",
			       s->package != NULL ? s->package : "");
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_errno(err, -errno, "pipe");
	read_end = fds[0];
	write_end = fds[1];
	r = start(s, path, write_end, &pid);
	fd_close(TAKE_FD(write_end));
	if (r < 0)
		return err_errno(err, r, "run %s", path);
	r = follow(read_end, &output, s, err);
	if (r < 0)
		kill(pid, SIGTERM);
	fd_close(TAKE_FD(read_end));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_errno(err, -errno, "wait for %s", name);
	if (r < 0)
		return r;
	if (WIFSIGNALED(status))
		return err_set(err, -EIO, "%s was ended by signal %d (%s)", name, WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) != 0 && output.ncauses > 0)
		return err_set(err, -EIO, "%s failed with status %d: %s%s%s", name, WEXITSTATUS(status), output.cause[0],
			       output.ncauses > 1 ? "; " : "", output.ncauses > 1 ? output.cause[1] : "");
	if (WEXITSTATUS(status) != 0)
		return err_set(err, -EIO, "%s failed with status %d: %s", name, WEXITSTATUS(status),
			       output.last[0] != '\0' ? output.last : "it gave no reason");
	return 0;
}
