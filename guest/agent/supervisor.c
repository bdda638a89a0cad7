/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: see supervisor.h. */
#include "guest/agent/supervisor.h"

#include <errno.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/cgroup.h"
#include "guest/agent/handler.h"
#include "guest/agent/power.h"
#include "guest/agent/transport.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { BUTTON_GRACE_MS = 3000, STOP_POLL_MS = 20, REAP_MS = 2000, OUT_OF_FDS_MS = 10 };

struct connection {
	struct supervisor *s;
	struct agent_slot *slot;
	pid_t pid; /* of the handler; 0: free */
	int conn;  /* a copy, to report the handler's death; -1: dropped */
	int sock;
	struct loop_fd watch;
};

struct button {
	struct supervisor *s;
	struct loop_fd watch;
};

struct supervisor {
	struct agent *a;
	struct loop loop;
	struct loop_fd listen, signals;
	struct button button[POWER_BUTTONS_MAX];
	int nbuttons;
	int stop;         /* RB_POWER_OFF or RB_AUTOBOOT; 0: go on */
	bool stop_asked;  /* by the host, not by a signal to this process */
	uint64_t stop_grace_ms;
	bool stale_cgroups; /* some may be left to remove */
	struct connection connection[AGENT_CONNECTIONS_MAX];
	struct {
		struct supervisor_message m;
		struct agent_env env;
	} in;
};

/* ---- messages ---- */

int supervisor_call(int sock, const struct supervisor_message *m, const void *payload, size_t n, int fd)
{
	struct supervisor_message ack;
	ssize_t rc;

	if (fd >= 0) {
		rc = fd_send(sock, m, sizeof(*m), &fd, 1);
	} else {
		struct iovec iov[2] = { { (void *)m, sizeof(*m) }, { (void *)payload, n } };
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

		rc = sendmsg(sock, &msg, MSG_NOSIGNAL);
		rc = rc < 0 ? -errno : rc;
	}
	if (rc < 0)
		return (int)rc;
	rc = fd_recv(sock, &ack, sizeof(ack), NULL, 0, NULL);
	if (rc < 0)
		return (int)rc;
	return rc == sizeof(ack) && ack.type == SUPERVISOR_ACK ? ack.value : -ECONNRESET;
}

void supervisor_tell(int sock, enum supervisor_message_type type)
{
	struct supervisor_message m = { .type = type };

	fd_send(sock, &m, sizeof(m), NULL, 0); /* if it is gone there is nobody to tell */
}

int supervisor_receive(int sock, struct supervisor_message *ret, int *ret_fd)
{
	size_t nfds = 0;
	ssize_t n;

	*ret_fd = -1;
	n = fd_recv(sock, ret, sizeof(*ret), ret_fd, 1, &nfds);
	if (n == -EAGAIN)
		return 0;
	return n == sizeof(*ret) ? 1 : -ECONNRESET;
}

static int post(const struct connection *c, const struct supervisor_message *m, int fd)
{
	ssize_t n = fd_send(c->sock, m, sizeof(*m), &fd, fd >= 0 ? 1 : 0); /* non-blocking */

	return n < 0 ? (int)n : 0;
}

static struct connection *find_command(struct supervisor *s, uint64_t id)
{
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid && atomic_load(&s->connection[i].slot->command.id) == id)
			return &s->connection[i];
	return NULL;
}

/* Room for one more detached command: if need be, the one that ended first is forgotten. */
static int detach(struct supervisor *s, const struct connection *self)
{
	struct supervisor_message quit = { .type = SUPERVISOR_QUIT };
	struct connection *oldest = NULL;
	size_t count = 0;

	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) {
		struct connection *c = &s->connection[i];
		struct agent_command *e = &c->slot->command;

		if (!c->pid || c == self || !atomic_load(&e->id) || !atomic_load(&e->detached))
			continue;
		count++;
		if (atomic_load(&e->ended) && !atomic_load(&e->attached) &&
		    (!oldest || atomic_load(&e->ended_ms) < atomic_load(&oldest->slot->command.ended_ms)))
			oldest = c;
	}
	if (count < AGENT_DETACHED_MAX)
		return 0;
	return oldest ? post(oldest, &quit, -1) : -EUSERS;
}

/* Marked here, one after the other: when a restore breaks all connections, as many as there is room for stay. */
static void orphan(struct supervisor *s, const struct connection *c)
{
	struct supervisor_message quit = { .type = SUPERVISOR_QUIT };

	if (atomic_load(&c->slot->command.attached)) /* again, already */
		return;
	if (detach(s, c) < 0)
		post(c, &quit, -1);
	else
		atomic_store(&c->slot->command.detached, true);
}

static int forward(struct supervisor *s, const struct supervisor_message *m, int fd)
{
	struct supervisor_message out = { .value = m->value, .received = m->received };
	struct connection *c = find_command(s, m->id);

	out.type = fd >= 0 ? SUPERVISOR_CONNECTION : SUPERVISOR_SIGNAL;
	return c ? post(c, &out, fd) : -ESRCH;
}

static int take_env(struct supervisor *s, size_t n)
{
	const struct agent_env *e = &s->in.env;

	if (n < offsetof(struct agent_env, text) || e->bytes != n - offsetof(struct agent_env, text) || e->bytes > sizeof(e->text) ||
	    (e->bytes > 0 && e->text[e->bytes - 1] != '\0'))
		return -EINVAL;
	s->a->env = *e;
	return 0;
}

static void on_message(struct loop_fd *w, uint32_t events)
{
	struct connection *c = container_of(w, struct connection, watch);
	struct supervisor *s = c->s;
	struct supervisor_message ack = { .type = SUPERVISOR_ACK };
	_cleanup_close_ int fd = -1;
	size_t nfds = 0;
	ssize_t n = fd_recv(c->sock, &s->in, sizeof(s->in), &fd, 1, &nfds);

	(void)events;
	if (n == -EAGAIN)
		return;
	if (n < (ssize_t)sizeof(s->in.m)) { /* the handler ends; SIGCHLD tells the rest */
		loop_remove(&s->loop, &c->watch);
		return;
	}
	switch ((enum supervisor_message_type)s->in.m.type) {
	case SUPERVISOR_ENV: ack.value = take_env(s, (size_t)n - sizeof(s->in.m)); break;
	case SUPERVISOR_DETACH: ack.value = detach(s, c); break;
	case SUPERVISOR_ATTACH: ack.value = fd >= 0 ? forward(s, &s->in.m, fd) : -EINVAL; break;
	case SUPERVISOR_SIGNAL: ack.value = forward(s, &s->in.m, -1); break;
	case SUPERVISOR_POWER:
		s->stop = s->in.m.value == RB_AUTOBOOT ? RB_AUTOBOOT : RB_POWER_OFF;
		s->stop_grace_ms = s->in.m.id;
		s->stop_asked = true;
		break;
	case SUPERVISOR_DROP: c->conn = fd_close(c->conn); return;
	case SUPERVISOR_ORPHAN:
		c->conn = fd_close(c->conn);
		orphan(s, c);
		return;
	case SUPERVISOR_ACK:
	case SUPERVISOR_CONNECTION:
	case SUPERVISOR_QUIT: return;
	}
	post(c, &ack, -1);
}

/* ---- the end of a handler ---- */

static bool is_live(const void *arg, uint64_t id)
{
	const struct supervisor *s = arg;

	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid && atomic_load(&s->connection[i].slot->command.id) == id)
			return true;
	return false;
}

/* The handler died under its operation: say so where a line or frame may still be said. */
static void report_death(const struct connection *c, int status)
{
	const struct channel_progress *p = &c->slot->progress;
	char buf[AGENT_REPLY_MAX], text[160];
	size_t n;

	if (c->conn < 0 || atomic_load(&p->finished) || atomic_load(&p->torn))
		return;
	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "the agent's process for this operation was killed by signal %d%s", WTERMSIG(status),
			 WTERMSIG(status) == SIGKILL ? ": by somebody in the guest, or it was out of memory" : "");
	else
		snprintf(text, sizeof(text), "the agent's process for this operation failed with status %d", WEXITSTATUS(status));
	n = atomic_load(&p->answered) ? channel_format_error_frame(buf, -EIO, text) : channel_format_error(buf, -EIO, text);
	if (send(c->conn, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0; /* the host is gone, or reads nothing */
}

static void handler_ended(struct supervisor *s, struct connection *c, int status)
{
	struct agent_command *e = &c->slot->command;
	uint64_t id = atomic_load(&e->id);
	pid_t group = atomic_load(&e->pid);

	if (id && group > 0) { /* it did not get to its own clean-up */
		kill(-group, SIGKILL);
		if (s->a->cgroup_fd >= 0)
			cgroup_kill_id(s->a->cgroup_fd, id);
	}
	if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0)
		report_death(c, status);
	c->conn = fd_close(c->conn); /* no shutdown: after an attach it is another handler's */
	loop_remove(&s->loop, &c->watch);
	c->sock = fd_close(c->sock);
	c->pid = 0;
	s->stale_cgroups |= atomic_load(&c->slot->has_cgroup);
	atomic_store(&e->id, 0);
	if (atomic_exchange(&c->slot->froze, false) && ioctl(s->a->writable_fd, FITHAW, 0) < 0 && errno != EINVAL)
		agent_say(s->a, "thaw: %s", strerror(errno)); /* EINVAL: not frozen */
	control_return_machine_id(s->a, c->slot);
	uint32_t self = 1 + (uint32_t)(c->slot - s->a->shared->slot);

	atomic_compare_exchange_strong(&s->a->shared->freezer, &self, 0);
	atomic_store(&c->slot->used, false);
}

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
			if (s->connection[i].pid == pid) {
				handler_ended(s, &s->connection[i], status);
				break;
			}
	if (s->stale_cgroups && s->a->cgroup_fd >= 0)
		s->stale_cgroups = cgroup_remove_empty(s->a->cgroup_fd, is_live, s) > 0;
}

/* ---- connections ---- */

static void refuse(int fd, int code, const char *text)
{
	char buf[AGENT_REPLY_MAX];
	size_t n = channel_format_error(buf, code, text);

	if (send(fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0;
	shutdown(fd, SHUT_WR);
	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0) /* unread bytes would make the close a reset */
		;
	close(fd);
}

/* In the child: nothing of the supervisor's but its own two descriptors and what every operation may need. */
static _Noreturn void become_handler(struct supervisor *s, struct connection *c, int sock, int fd)
{
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid) {
			fd_close(s->connection[i].conn);
			fd_close(s->connection[i].sock);
		}
	for (int i = 0; i < s->nbuttons; i++)
		fd_close(s->button[i].watch.fd);
	fd_close(s->listen.fd);
	fd_close(s->signals.fd);
	loop_finish(&s->loop);
	handler_run(s->a, c->slot, sock, fd);
}

static void start_handler(struct supervisor *s, int fd)
{
	struct connection *c = NULL;
	int pair[2];
	pid_t pid;

	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX && !c; i++)
		if (!s->connection[i].pid)
			c = &s->connection[i];
	if (!c) {
		refuse(fd, -EUSERS, "the agent serves 256 connections already");
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		refuse(fd, -EMFILE, "the agent has no descriptors left");
		return;
	}
	memset(c->slot, 0, sizeof(*c->slot));
	atomic_store(&c->slot->used, true);
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		become_handler(s, c, pair[1], fd);
	}
	close(pair[1]);
	if (pid < 0 || fd_set_nonblock(pair[0], 1) < 0 || loop_add(&s->loop, &c->watch, pair[0], EPOLLIN, on_message) < 0) {
		if (pid > 0)
			kill(pid, SIGKILL);
		close(pair[0]);
		atomic_store(&c->slot->used, false);
		refuse(fd, -ENOMEM, "the guest cannot make another process for the agent: out of memory or of process numbers");
		return;
	}
	c->pid = pid;
	c->conn = fd;
	c->sock = pair[0];
}

static void on_accept(struct loop_fd *w, uint32_t events)
{
	struct supervisor *s = container_of(w, struct supervisor, listen);
	struct timespec pause = { .tv_nsec = OUT_OF_FDS_MS * 1000000l };
	int fd;

	(void)events;
	while ((fd = transport_accept(s->a, w->fd)) >= 0 || fd == -EACCES)
		if (fd >= 0)
			start_handler(s, fd);
	if (fd != -EAGAIN) /* no descriptors or memory: the connection stays in the backlog, and this must not spin */
		nanosleep(&pause, NULL);
}

/* ---- signals and the button ---- */

/* What programs send to PID 1: busybox and sysvinit (TERM, USR1, USR2, INT, PWR), systemd (RTMIN+4, +5). */
static int wish_of(const struct supervisor *s, int signal)
{
	if (s->a->mode != AGENT_INIT)
		return signal == SIGTERM || signal == SIGINT ? RB_POWER_OFF : 0;
	if (signal == SIGTERM || signal == SIGINT || signal == SIGRTMIN + 5)
		return RB_AUTOBOOT;
	return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGPWR || signal == SIGRTMIN + 4 ? RB_POWER_OFF : 0;
}

static void on_signal(struct loop_fd *w, uint32_t events)
{
	struct supervisor *s = container_of(w, struct supervisor, signals);
	struct signalfd_siginfo si;

	(void)events;
	while (read(w->fd, &si, sizeof(si)) == sizeof(si)) {
		int wish = wish_of(s, (int)si.ssi_signo);

		if (wish) {
			s->stop = wish;
			s->stop_grace_ms = BUTTON_GRACE_MS;
		}
	}
	reap(s);
}

static void on_button(struct loop_fd *w, uint32_t events)
{
	struct button *b = container_of(w, struct button, watch);

	(void)events;
	if (power_button_pressed(w->fd)) {
		b->s->stop = RB_POWER_OFF;
		b->s->stop_grace_ms = BUTTON_GRACE_MS;
	}
}

/* ---- the end ---- */

/* Commands end, their handlers tell the host, and are gone: is there any left to wait for? */
static bool handlers_busy(const struct supervisor *s)
{
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) {
		const struct connection *c = &s->connection[i];

		const struct agent_command *e = &c->slot->command;

		if (c->pid && atomic_load(&e->id) && !atomic_load(&c->slot->progress.finished) &&
		    !(atomic_load(&e->ended) && !atomic_load(&e->attached)))
			return true;
	}
	return false;
}

static bool others_alive(const struct supervisor *s)
{
	pid_t handlers[AGENT_CONNECTIONS_MAX];
	size_t n = 0;

	if (s->a->mode != AGENT_INIT)
		return false;
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid)
			handlers[n++] = s->connection[i].pid;
	return power_count_processes(handlers, n) > 0;
}

static void terminate_commands(struct supervisor *s)
{
	struct supervisor_message m = { .type = SUPERVISOR_SIGNAL, .value = SIGTERM };

	if (s->a->mode == AGENT_INIT) {
		kill(-1, SIGTERM); /* handlers have it blocked */
		kill(-1, SIGCONT);
		return;
	}
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid && atomic_load(&s->connection[i].slot->command.pid))
			post(&s->connection[i], &m, -1);
}

/* Wait for SIGCHLD or STOP_POLL_MS, and reap. */
static void wait_a_little(struct supervisor *s)
{
	struct pollfd p = { .fd = s->signals.fd, .events = POLLIN };
	struct signalfd_siginfo si;

	if (poll(&p, 1, STOP_POLL_MS) > 0)
		while (read(s->signals.fd, &si, sizeof(si)) > 0)
			;
	reap(s);
}

static bool any_handler(const struct supervisor *s)
{
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid)
			return true;
	return false;
}

static void stop_everything(struct supervisor *s)
{
	uint64_t deadline = agent_now_ms() + s->stop_grace_ms;

	loop_remove(&s->loop, &s->listen);
	s->listen.fd = fd_close(s->listen.fd);
	terminate_commands(s);
	while (agent_now_ms() < deadline && (others_alive(s) || handlers_busy(s)))
		wait_a_little(s);
	if (s->a->mode == AGENT_INIT)
		kill(-1, SIGKILL);
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) /* the end of its socket tells a handler to kill its command */
		if (s->connection[i].pid)
			shutdown(s->connection[i].sock, SHUT_RDWR);
	deadline = agent_now_ms() + REAP_MS;
	while (agent_now_ms() < deadline && any_handler(s))
		wait_a_little(s);
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++)
		if (s->connection[i].pid)
			kill(s->connection[i].pid, SIGKILL);
	deadline = agent_now_ms() + REAP_MS;
	while (agent_now_ms() < deadline && any_handler(s))
		wait_a_little(s);
}

/* ---- start ---- */

static int open_signals(struct err *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGPWR);
	sigaddset(&set, SIGRTMIN + 4);
	sigaddset(&set, SIGRTMIN + 5);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_errno(err, -errno, "signalfd") : fd;
}

static int start(struct supervisor *s, int listen_fd, struct err *err)
{
	int buttons[POWER_BUTTONS_MAX], signals, rc = loop_init(&s->loop, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) {
		s->connection[i].s = s;
		s->connection[i].conn = s->connection[i].sock = -1;
		s->connection[i].slot = &s->a->shared->slot[i];
	}
	signals = open_signals(err);
	if (signals < 0)
		return signals;
	rc = loop_add(&s->loop, &s->signals, signals, EPOLLIN, on_signal);
	if (rc == 0)
		rc = loop_add(&s->loop, &s->listen, listen_fd, EPOLLIN, on_accept);
	if (rc < 0)
		return err_errno(err, rc, "epoll");
	if (s->a->mode == AGENT_INIT)
		s->nbuttons = power_open_buttons(buttons);
	for (int i = 0; i < s->nbuttons; i++) {
		s->button[i].s = s;
		loop_add(&s->loop, &s->button[i].watch, buttons[i], EPOLLIN, on_button);
	}
	return 0;
}

static int make_shared(struct agent *a, struct err *err)
{
	a->shared = mmap(NULL, sizeof(*a->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (a->shared == MAP_FAILED)
		return err_errno(err, -errno, "memory for the list of commands");
	atomic_store(&a->shared->next_id, 1);

	int rc = clock_lock_init(&a->shared->clock);

	return rc < 0 ? err_errno(err, rc, "the lock of the clock") : 0;
}

static void serve(struct supervisor *s)
{
	int rc = 0;

	transport_announce(s->a);
	while (!s->stop && (rc = loop_step(&s->loop, -1)) >= 0)
		if (s->stop && s->stop_asked && s->a->mode == AGENT_SERVICE) { /* go on until the guest's init stops us */
			power_ask_init(s->a, s->stop);
			s->stop = 0;
		}
	if (rc < 0)
		agent_say(s->a, "the agent's loop failed: %s", strerror(-rc));
	stop_everything(s);
	if (s->a->mode == AGENT_INIT)
		power_finish(s->a, s->stop ? s->stop : RB_POWER_OFF);
}

int supervisor_run(struct agent *a)
{
	struct supervisor *s = calloc(1, sizeof(*s));
	struct err err = ERR_INIT;
	int rc;

	if (!s) {
		agent_say(a, "no memory for the agent");
		return 1;
	}
	rc = make_shared(a, &err);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (rc == 0)
		rc = transport_listen(a, &err);
	if (rc >= 0) {
		s->a = a;
		rc = start(s, rc, &err);
	}
	if (rc < 0)
		agent_say(a, "%s", err.text);
	else
		serve(s);
	loop_finish(&s->loop);
	free(s);
	return rc < 0;
}
