/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting viewers: see vnc_serve.h. */
#include "host/vnc_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clipboard.h"
#include "host/helper.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { POLL_LISTENER, POLL_SIGNAL, POLL_DISPLAY, POLL_CLIPBOARD, POLL_CONNECTIONS };
enum { ACCEPT_AGAIN_MS = 200 };
enum { ALIVE_IDLE_S = 60, ALIVE_EACH_S = 15, ALIVE_PROBES = 4 }; /* nothing is sent to an idle viewer, so nothing else tells that it is gone */

void vnc_serve_init(struct vnc_serve *s)
{
	memset(s, 0, sizeof(*s));
	s->listener = s->certificate = s->key = s->pages = s->clipboard = s->display = s->signal_fd = -1;
	s->start.h = (struct vnc_header){ VNC_START, sizeof(s->start) - sizeof(s->start.h) };
	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
		s->connection[i].control = s->connection[i].pidfd = -1;
}

pid_t vnc_spawn(const char *program, const char *arg, const int *fds, int nfds, struct err *err)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char *argv[] = { (char *)"coffer-vnc", (char *)(uintptr_t)arg, NULL };
	pid_t pid;
	int r;

	posix_spawn_file_actions_init(&actions);
	helper_attributes(&attributes);
	for (int i = 0; i < nfds; i++)
		if (fds[i] >= 0)
			posix_spawn_file_actions_adddup2(&actions, fds[i], i);
	if (nfds < 2)
		posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	r = posix_spawn(&pid, program, &actions, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return r != 0 ? err_errno(err, -r, "run %s", program) : pid;
}

static void connection_close(struct vnc_connection *c, bool kill)
{
	if (kill && c->pidfd >= 0)
		pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0);
	c->control = fd_close(c->control);
	c->pidfd = fd_close(c->pidfd);
	c->let_in = false;
}

/* How many from there wait to be let in. */
static unsigned waiting_from(const struct vnc_serve *s, const struct in6_addr *from)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++) {
		const struct vnc_connection *c = &s->connection[i];

		n += c->control >= 0 && !c->let_in && memcmp(&c->from, from, sizeof(*from)) == 0;
	}
	return n;
}

/* A free one, if need be that of the oldest who was not let in, of the address that has most of those: who floods loses its own. NULL: all
 * are viewers. */
static struct vnc_connection *make_room(struct vnc_serve *s)
{
	struct vnc_connection *victim = NULL;
	unsigned most = 0;

	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++) {
		struct vnc_connection *c = &s->connection[i];
		unsigned n;

		if (c->control < 0)
			return c;
		if (c->let_in)
			continue;
		n = waiting_from(s, &c->from);
		if (!victim || n > most || (n == most && c->since_ns < victim->since_ns)) {
			victim = c;
			most = n;
		}
	}
	if (victim)
		connection_close(victim, true);
	return victim;
}

static void set_up(int sock)
{
	const int one = 1, idle = ALIVE_IDLE_S, each = ALIVE_EACH_S, probes = ALIVE_PROBES;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof(each));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* A connection and its process. What fails here fails for this connection only. */
static void start(struct vnc_serve *s, int sock, const struct in6_addr *from)
{
	const uint32_t refused = vnc_guard_refuses(&s->guard, from, loop_now_ns()) ? VNC_REFUSED : 0;
	struct vnc_connection *c = make_room(s);
	_cleanup_close_ int ours = -1, theirs = -1;
	int pair[2], fds[4], nfds = 0;
	ssize_t sent;
	pid_t pid;

	if (!c || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	ours = pair[0];
	theirs = pair[1];
	set_up(sock);
	fds[nfds++] = sock;
	if (s->start.flags & VNC_TLS) {
		fds[nfds++] = s->certificate;
		fds[nfds++] = s->key;
	}
	if (s->start.flags & VNC_WEB)
		fds[nfds++] = s->pages;
	s->start.flags |= refused;
	sent = fd_send(ours, &s->start, sizeof(s->start), fds, (size_t)nfds);
	s->start.flags &= ~refused;
	if (sent < 0)
		return;
	pid = vnc_spawn(s->program, NULL, &theirs, 1, NULL);
	if (pid < 0)
		return;
	c->pidfd = pidfd_open(pid, 0);
	fd_set_nonblock(ours, 1);
	c->control = TAKE_FD(ours);
	c->let_in = false;
	c->since_ns = loop_now_ns();
	c->from = *from;
}

static void on_listener(struct vnc_serve *s)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t n = sizeof(sa);
	_cleanup_close_ int sock = accept4(s->listener, (struct sockaddr *)&sa, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
	const struct in6_addr from = vnc_guard_from(&sa);

	if (sock >= 0)
		start(s, sock, &from);
	else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
		poll(NULL, 0, ACCEPT_AGAIN_MS); /* it stays readable */
}

static void send_text(struct vnc_serve *s, const struct vnc_connection *c)
{
	if (s->newest.h.n > 0)
		send(c->control, &s->newest, sizeof(s->newest.h) + s->newest.h.n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* s->message has a text of n bytes: for all viewers but the one that it is from. */
static void spread_text(struct vnc_serve *s, uint32_t n, const struct vnc_connection *from)
{
	s->newest.h = (struct vnc_header){ VNC_CLIPBOARD, n };
	memcpy(s->newest.text, s->message.text, n);
	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
		if (s->connection[i].let_in && &s->connection[i] != from)
			send_text(s, &s->connection[i]);
}

static bool let_in(struct vnc_serve *s, struct vnc_connection *c)
{
	const struct vnc_header m = { VNC_DISPLAY, 0 };
	_cleanup_close_ int display = -1;
	unsigned viewers = 0;

	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
		viewers += s->connection[i].let_in;
	if (viewers >= VNC_VIEWERS_MAX)
		return false;
	display = s->connect(s->opaque, NULL);
	if (display < 0 || fd_send(c->control, &m, sizeof(m), &display, 1) < 0)
		return false;
	c->let_in = true;
	send_text(s, c);
	return true;
}

/* False: the connection is over. */
static bool on_connection(struct vnc_serve *s, struct vnc_connection *c)
{
	ssize_t n = recv(c->control, &s->message, sizeof(s->message), MSG_DONTWAIT);
	const struct vnc_header h = s->message.h;
	uint32_t state;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < (ssize_t)sizeof(h) || h.n != (size_t)n - sizeof(h))
		return false;
	switch (h.op) {
	case VNC_STATE:
		if (h.n != sizeof(state) || c->let_in)
			return false;
		memcpy(&state, s->message.text, sizeof(state));
		if (state == VNC_WRONG_PASSWORD) {
			vnc_guard_wrong(&s->guard, &c->from, loop_now_ns());
			return true;
		}
		if (state != VNC_LET_IN)
			return false;
		vnc_guard_right(&s->guard, &c->from);
		return let_in(s, c);
	case VNC_CLIPBOARD:
		if (!c->let_in)
			return false;
		if (h.n == 0 || !clipboard_is_text(s->message.text, h.n))
			return true;
		if (s->clipboard >= 0)
			send(s->clipboard, s->message.text, h.n, MSG_DONTWAIT | MSG_NOSIGNAL);
		spread_text(s, h.n, c);
		return true;
	default:
		return false;
	}
}

static void on_clipboard(struct vnc_serve *s)
{
	ssize_t n = recv(s->clipboard, s->message.text, sizeof(s->message.text), MSG_DONTWAIT);

	if (n > 0)
		spread_text(s, (uint32_t)n, NULL);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		s->clipboard = fd_close(s->clipboard);
}

int vnc_serve_run(struct vnc_serve *s, struct err *err)
{
	struct pollfd p[POLL_CONNECTIONS + VNC_CONNECTIONS_MAX];

	for (;;) {
		p[POLL_LISTENER] = (struct pollfd){ .fd = s->listener, .events = POLLIN };
		p[POLL_SIGNAL] = (struct pollfd){ .fd = s->signal_fd, .events = POLLIN };
		p[POLL_DISPLAY] = (struct pollfd){ .fd = s->display };
		p[POLL_CLIPBOARD] = (struct pollfd){ .fd = s->clipboard, .events = POLLIN };
		for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
			p[POLL_CONNECTIONS + i] = (struct pollfd){ .fd = s->connection[i].control, .events = POLLIN };
		if (poll(p, ARRAY_SIZE(p), -1) < 0) {
			if (errno == EINTR)
				continue;
			return err_errno(err, -errno, "vnc: poll");
		}
		for (int sig; p[POLL_SIGNAL].revents && (sig = signals_next(s->signal_fd)) != 0;)
			if (signals_is_end(sig))
				return sig;
		if (p[POLL_DISPLAY].revents)
			return 0;
		if (p[POLL_CLIPBOARD].revents)
			on_clipboard(s);
		for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
			if (p[POLL_CONNECTIONS + i].revents && !on_connection(s, &s->connection[i]))
				connection_close(&s->connection[i], !s->connection[i].let_in);
		if (p[POLL_LISTENER].revents)
			on_listener(s);
	}
}

void vnc_serve_finish(struct vnc_serve *s)
{
	/* Viewers let go of what they hold and end by themselves. */
	for (size_t i = 0; i < ARRAY_SIZE(s->connection); i++)
		connection_close(&s->connection[i], !s->connection[i].let_in);
	s->listener = fd_close(s->listener);
	s->certificate = fd_close(s->certificate);
	s->key = fd_close(s->key);
	s->pages = fd_close(s->pages);
	s->clipboard = fd_close(s->clipboard);
	s->display = fd_close(s->display);
	explicit_bzero(&s->start, sizeof(s->start));
}
