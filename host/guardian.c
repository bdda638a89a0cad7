/* SPDX-License-Identifier: Apache-2.0 */
/* The process that cleans up after a killed one: see guardian.h. */
#include "host/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/vmdir.h"
#include "lib/fd.h"

enum message_type { MSG_TERMINAL, MSG_MONITOR, MSG_FORGET_MONITOR, MSG_GOODBYE };

struct message {
	enum message_type type;
	pid_t pid;
	struct termios termios;
};

enum { FD_SOCKET = 0, FD_TERMINAL = 1, MONITOR_WAIT_MS = 10000 };

/* Only the socket and the terminal stay open: whoever waits for the end of our stdout must not wait for this process. */
static void keep_only(int sock, int terminal)
{
	int s = fcntl(sock, F_DUPFD, 3), t = terminal >= 0 ? fcntl(terminal, F_DUPFD, 3) : -1;

	dup2(s, FD_SOCKET);
	if (t >= 0)
		dup2(t, FD_TERMINAL);
	else
		close(FD_TERMINAL);
	close_range(2, ~0u, 0);
}

static void await(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, MONITOR_WAIT_MS) < 0 && errno == EINTR)
		;
}

struct monitors {
	struct {
		pid_t pid;
		int pidfd;
	} one[GUARDIAN_MONITORS_MAX];
	size_t n;
};

static void watch(struct monitors *m, pid_t pid, int pidfd)
{
	if (m->n == GUARDIAN_MONITORS_MAX) {
		fd_close(pidfd);
		return;
	}
	m->one[m->n].pid = pid;
	m->one[m->n++].pidfd = pidfd;
}

static void forget(struct monitors *m, pid_t pid)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->n; i++)
		if (pid && m->one[i].pid != pid)
			m->one[kept++] = m->one[i];
		else
			fd_close(m->one[i].pidfd);
	m->n = kept;
}

static void __attribute__((noreturn)) guard(bool terminal)
{
	struct monitors *all = calloc(1, sizeof(*all));
	struct message m, saved = { .type = MSG_GOODBYE };

	if (!all)
		_exit(1);

	for (;;) {
		int fd;
		size_t nfds = 0;
		ssize_t n = fd_recv(FD_SOCKET, &m, sizeof(m), &fd, 1, &nfds);

		if (n != sizeof(m))
			break;
		switch (m.type) {
		case MSG_TERMINAL:
			saved = m;
			break;
		case MSG_MONITOR:
			if (nfds == 1)
				watch(all, m.pid, fd);
			break;
		case MSG_FORGET_MONITOR:
			forget(all, m.pid);
			break;
		case MSG_GOODBYE:
			_exit(0);
		}
	}
	if (terminal && saved.type == MSG_TERMINAL)
		tcsetattr(FD_TERMINAL, TCSANOW, &saved.termios);
	for (size_t i = 0; i < all->n; i++)
		syscall(SYS_pidfd_send_signal, all->one[i].pidfd, SIGKILL, NULL, 0);
	for (size_t i = 0; i < all->n; i++)
		await(all->one[i].pidfd);
	vmdir_sweep(NULL, NULL, NULL);
	_exit(0);
}

int guardian_start(struct guardian *g, int terminal, struct err *err)
{
	int pair[2];

	*g = GUARDIAN_NONE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, -errno, "socketpair");
	g->pid = fork();
	if (g->pid < 0) {
		int r = err_errno(err, -errno, "fork");

		fd_close(pair[0]);
		fd_close(pair[1]);
		return r;
	}
	if (g->pid == 0) {
		sigset_t all;

		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		setsid();
		prctl(PR_SET_NAME, "coffer-guardian");
		keep_only(pair[1], terminal);
		if (chdir("/") < 0)
			_exit(1);
		guard(terminal >= 0);
	}
	fd_close(pair[1]);
	g->fd = pair[0];
	return 0;
}

static void tell(const struct guardian *g, const struct message *m, int fd)
{
	/* A guardian that is gone is missed only if we are killed as well. */
	if (g->fd >= 0)
		fd_send(g->fd, m, sizeof(*m), &fd, fd >= 0 ? 1 : 0);
}

void guardian_watch_terminal(const struct guardian *g, const struct term *t)
{
	struct message m = { .type = MSG_TERMINAL, .termios = t->saved };

	if (t->fd >= 0)
		tell(g, &m, -1);
}

void guardian_watch_monitor(const struct guardian *g, pid_t pid, int pidfd)
{
	struct message m = { .type = MSG_MONITOR, .pid = pid };

	tell(g, &m, pidfd);
}

void guardian_forget_monitor(const struct guardian *g, pid_t pid)
{
	struct message m = { .type = MSG_FORGET_MONITOR, .pid = pid };

	tell(g, &m, -1);
}

void guardian_finish(struct guardian *g)
{
	struct message m = { .type = MSG_GOODBYE };

	if (g->fd < 0)
		return;
	tell(g, &m, -1);
	g->fd = fd_close(g->fd);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
