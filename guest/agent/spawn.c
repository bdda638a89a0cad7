/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a command: see spawn.h.
 *
 * The child is made by fork, not vfork: between it and execve there is real work, and a failure of any step is reported by
 * name. It uses nothing but system calls and its own stack.
 */
#include "guest/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "guest/agent/cgroup.h"
#include "lib/fd.h"
#include "lib/util.h"

enum stage { STAGE_CGROUP, STAGE_TERMINAL, STAGE_STREAMS, STAGE_USER, STAGE_CWD, STAGE_EXEC };

struct failure {
	int32_t stage, code;
};

struct child_fds {
	int in, out, err;      /* what becomes 0, 1, 2 */
	int procs, status;
};

enum { COMMAND_FILES = 1024, COMMAND_FILES_MAX = 1048576 };

static void set_limits(void)
{
	struct rlimit files = { COMMAND_FILES, COMMAND_FILES_MAX }, core = { 0, RLIM_INFINITY };

	/* Without the right to raise them the command keeps what the agent has. */
	if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &core) < 0)
		errno = 0;
}

/* By the system call: the C library keeps two real-time signals for itself, and whoever started the agent may have left
 * those ignored too. */
static void reset_signals(void)
{
	const struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } def = { 0 };
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		syscall(SYS_rt_sigaction, i, &def, NULL, sizeof(def.mask)); /* SIGKILL and SIGSTOP refuse, and have it */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void leave_protection(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "0", 1) < 0)
		errno = 0;
	fd_close(fd);
}

static int become(const struct user *u)
{
	bool root = geteuid() == 0;

	if (!root && u->uid == geteuid()) /* tests without root */
		return 0;
	if (setgroups(u->ngroups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 || setresuid(u->uid, u->uid, u->uid) < 0)
		return -errno;
	return 0;
}

/* As execvpe, without falling back on a shell. Returns the errno that says most. */
static int exec_by_path(const struct spawn *s)
{
	const char *name = s->argv[0], *path = environment_get(s->env, "PATH");
	size_t name_n = strlen(name);
	int result = ENOENT;
	char full[4096];

	if (strchr(name, '/')) {
		execve(name, (char *const *)s->argv, (char *const *)s->env->v);
		return errno;
	}
	for (const char *p = path ? path : ENVIRONMENT_PATH; p;) {
		const char *end = strchrnul(p, ':');
		size_t n = (size_t)(end - p);

		if (n + name_n + 2 <= sizeof(full)) {
			memcpy(full, p, n);
			if (n > 0)
				full[n++] = '/'; /* an empty entry is the working directory */
			memcpy(full + n, name, name_n + 1);
			execve(full, (char *const *)s->argv, (char *const *)s->env->v);
			if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
				return errno;
			if (errno == EACCES)
				result = EACCES;
		}
		p = *end ? end + 1 : NULL;
	}
	return result;
}

static _Noreturn void child(const struct spawn *s, const struct child_fds *f)
{
	struct failure failure = { 0 };
	const int from[3] = { f->in, f->out, f->err };

	setsid();
	reset_signals();
	failure.stage = STAGE_CGROUP;
	if (f->procs >= 0 && write(f->procs, "0", 1) < 0)
		goto failed;
	leave_protection();
	set_limits();
	umask(022);
	failure.stage = STAGE_TERMINAL;
	if (s->tty && ioctl(f->in, TIOCSCTTY, 0) < 0)
		goto failed;
	failure.stage = STAGE_STREAMS;
	for (int i = 0; i < 3; i++) /* the sources are all above 2: the supervisor keeps these open */
		if (dup2(from[i], i) < 0)
			goto failed;
	syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
	failure.stage = STAGE_USER;
	errno = -become(s->user);
	if (errno)
		goto failed;
	failure.stage = STAGE_CWD;
	if (chdir(s->cwd) < 0)
		goto failed;
	failure.stage = STAGE_EXEC;
	errno = exec_by_path(s);
failed:
	failure.code = errno;
	if (write(f->status, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

/* A pseudo-terminal by hand: no grantpt, no names. */
static int open_terminal(const struct spawn *s, int *ret_master, int *ret_slave)
{
	_cleanup_close_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave = -1;
	int unlock = 0;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	spawn_resize(master, s->rows, s->cols, 0, 0);
	/* Programs open /dev/tty or their terminal's name again as the user. */
	if (geteuid() == 0 && fchown(slave, s->user->uid, (gid_t)-1) < 0)
		return -errno;
	*ret_master = TAKE_FD(master);
	*ret_slave = TAKE_FD(slave);
	return 0;
}

static int make_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

static int open_streams(const struct spawn *s, struct spawned *ours, struct child_fds *theirs)
{
	int rc;

	if (s->tty) {
		rc = open_terminal(s, &ours->out, &theirs->in);
		if (rc < 0)
			return rc;
		ours->in = fcntl(ours->out, F_DUPFD_CLOEXEC, 3);
		theirs->out = fcntl(theirs->in, F_DUPFD_CLOEXEC, 3);
		theirs->err = fcntl(theirs->in, F_DUPFD_CLOEXEC, 3);
		return ours->in < 0 || theirs->out < 0 || theirs->err < 0 ? -errno : 0;
	}
	if (s->stdin_open) {
		rc = make_pipe(&theirs->in, &ours->in);
		if (rc < 0)
			return rc;
	} else {
		theirs->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (theirs->in < 0)
			return -errno;
	}
	rc = make_pipe(&ours->out, &theirs->out);
	return rc < 0 ? rc : make_pipe(&ours->err, &theirs->err);
}

static int explain(const struct spawn *s, const struct failure *f, struct err *err)
{
	int code = -f->code;

	switch ((enum stage)f->stage) {
	case STAGE_CGROUP: return err_errno(err, code, "enter the command's control group");
	case STAGE_TERMINAL: return err_errno(err, code, "make the terminal the controlling one");
	case STAGE_STREAMS: return err_errno(err, code, "connect stdin, stdout and stderr");
	case STAGE_USER: return err_errno(err, code, "become user %u, group %u", s->user->uid, s->user->gid);
	case STAGE_CWD: return err_errno(err, code, "cwd '%s'", s->cwd);
	case STAGE_EXEC: break;
	}
	return code;
}

static void close_child_fds(struct child_fds *f)
{
	fd_close(f->in);
	fd_close(f->out);
	fd_close(f->err);
	fd_close(f->procs);
	fd_close(f->status);
}

static void close_ours(struct spawned *o)
{
	o->in = fd_close(o->in);
	o->out = fd_close(o->out);
	o->err = fd_close(o->err);
	o->pid = 0;
}

/* Fork and learn how it went. */
static int start(const struct spawn *s, struct spawned *ours, struct child_fds *theirs, struct err *err)
{
	_cleanup_close_ int status = -1;
	struct failure f = { 0 };
	ssize_t n;
	int rc = make_pipe(&status, &theirs->status);

	if (rc < 0)
		return err_errno(err, rc, "make a pipe");
	if (s->cgroup_fd >= 0) {
		theirs->procs = cgroup_procs_fd(s->cgroup_fd);
		if (theirs->procs < 0)
			return err_errno(err, theirs->procs, "open the command's control group");
	}
	ours->pid = fork();
	if (ours->pid == 0)
		child(s, theirs);
	if (ours->pid < 0)
		return err_errno(err, -errno, "make a process for the command");
	theirs->status = fd_close(theirs->status);
	n = fd_read_full(status, &f, sizeof(f));
	if (n == 0)
		return 0;
	waitpid(ours->pid, NULL, 0);
	if (n != sizeof(f))
		return err_set(err, -EIO, "the command's process died before it could start");
	if (f.stage == STAGE_EXEC) {
		ours->exec_errno = f.code;
		close_ours(ours);
		return 0;
	}
	return explain(s, &f, err);
}

int spawn_command(const struct spawn *s, struct spawned *ret, struct err *err)
{
	struct child_fds theirs = { -1, -1, -1, -1, -1 };
	struct spawned ours = { .in = -1, .out = -1, .err = -1 };
	int rc = open_streams(s, &ours, &theirs);

	if (rc < 0)
		err_errno(err, rc, s->tty ? "open a terminal" : "make pipes for the command");
	else
		rc = start(s, &ours, &theirs, err);
	close_child_fds(&theirs);
	if (rc < 0) {
		close_ours(&ours);
		return rc;
	}
	if (ours.pid > 0) {
		fd_set_nonblock(ours.out, 1); /* with tty also `in`: both are one open file */
		if (ours.in >= 0)
			fd_set_nonblock(ours.in, 1);
		if (ours.err >= 0)
			fd_set_nonblock(ours.err, 1);
	}
	*ret = ours;
	return 0;
}

int spawn_resize(int master, uint16_t rows, uint16_t cols, uint16_t xpixel, uint16_t ypixel)
{
	struct winsize w = { .ws_row = rows, .ws_col = cols, .ws_xpixel = xpixel, .ws_ypixel = ypixel };

	return ioctl(master, TIOCSWINSZ, &w) < 0 ? -errno : 0;
}
