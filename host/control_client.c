/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a running monitor: see control_client.h.
 *
 * Trust: a guest may have taken over the monitor, so replies have one size, texts are ended here, and the
 * process to kill is the one that the kernel says made the socket, not one that a file names.
 */
#include "host/control_client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/sock.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { KILL_REPLY_MS = 3000, KILL_WAIT_MS = 10000, TICK_MS = 200 };

uint64_t control_deadline(uint64_t ms)
{
	return loop_now_ns() / 1000000 + ms;
}

/* Until the reply is there: 0 or -errno. */
static int wait_reply(int fd, const struct control_message *m, uint64_t deadline_ms, struct err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		uint64_t at = m->tick ? control_deadline(TICK_MS) : deadline_ms;
		bool last = deadline_ms && (!at || deadline_ms <= at);
		int r = sock_poll(&p, 1, last ? deadline_ms : at);

		if (r != 0)
			return r < 0 ? err_errno(err, r, "wait for the monitor") : 0;
		if (last || !m->tick)
			return err_set(err, -ETIMEDOUT, "the monitor does not answer");
		r = m->tick(m->opaque, err);
		if (r < 0)
			return r;
	}
}

static int send_request(int fd, enum control_op op, const uint64_t arg[4], const int *fds, size_t nfds, struct err *err)
{
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make((uint16_t)op),
				     .seq = le32_make(1) };

	for (size_t i = 0; arg && i < ARRAY_SIZE(q.arg); i++)
		q.arg[i] = le64_make(arg[i]);
	ssize_t n = fd_send(fd, &q, sizeof(q), fds, nfds);

	return n < 0 ? err_errno(err, (int)n, "send to the monitor") : 0;
}

/* The next reply: its status, positive for a stage. */
static int take_reply(int fd, const struct control_message *m, uint64_t deadline_ms, struct control_reply *ret,
		      struct err *err)
{
	int r = wait_reply(fd, m, deadline_ms, err);

	if (r < 0)
		return r;
	ssize_t n = fd_recv(fd, ret, sizeof(*ret), NULL, 0, NULL);
	if (n == 0)
		return err_set(err, -ECONNRESET, "the monitor closed the connection");
	if (n < 0)
		return err_errno(err, (int)n, "receive from the monitor");
	if (n != sizeof(*ret) || le32_get(ret->seq) != 1)
		return err_set(err, -EPROTO, "the monitor's answer makes no sense (%zd bytes)", n);
	ret->text[sizeof(ret->text) - 1] = 0;
	int status = (int)le32_get(ret->status);

	if (status == 0 || (status > 0 && m->stage))
		return status;
	if (status > 0 || status < -4095)
		status = -EIO;
	return ret->text[0] ? err_set(err, status, "%s", ret->text) : err_errno(err, status, "the monitor refused");
}

static int exchange(int fd, const struct control_message *m, uint64_t deadline_ms, struct control_reply *ret,
		    struct err *err)
{
	int r = send_request(fd, m->op, m->arg, m->fd, m->nfds, err), last = 0;

	while (r == 0 && (r = take_reply(fd, m, deadline_ms, ret, err)) > 0) {
		if (r <= last || r > CONTROL_STAGE_CUT || !m->stage)
			return err_set(err, -EPROTO, "the monitor's answer makes no sense (stage %d after %d)", r, last);
		last = r;
		r = m->stage(m->opaque, (enum control_stage)last, err);
		if (r == 0 && last == CONTROL_STAGE_READY)
			r = send_request(fd, CONTROL_SNAPSHOT_CUT, NULL, NULL, 0, err);
	}
	return r;
}

int control_call_message(int dirfd, const struct control_message *m, uint64_t deadline_ms, struct control_reply *ret,
			 struct err *err)
{
	_cleanup_close_ int fd = sock_connect_at(dirfd, CONTROL_SOCKET, SOCK_SEQPACKET, err);

	return fd < 0 ? fd : exchange(fd, m, deadline_ms, ret, err);
}

int control_call(int dirfd, enum control_op op, uint64_t arg, uint64_t deadline_ms, struct control_reply *ret,
		 struct err *err)
{
	const struct control_message m = { .op = op, .arg = { arg } };

	return control_call_message(dirfd, &m, deadline_ms, ret, err);
}

static int peer_pidfd(int sock, pid_t *ret_pid, struct err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_errno(err, -errno, "SO_PEERCRED");
	if (peer.pid <= 0)
		return err_set(err, -ESRCH, "the monitor is in another PID namespace");
	int fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);

	if (fd < 0)
		return err_errno(err, -errno, "pidfd_open");
	*ret_pid = peer.pid;
	return fd;
}

int control_monitor_pidfd(int dirfd, pid_t *ret_pid, struct err *err)
{
	_cleanup_close_ int sock = sock_connect_at(dirfd, CONTROL_SOCKET, SOCK_SEQPACKET, err);

	return sock < 0 ? sock : peer_pidfd(sock, ret_pid, err);
}

static int end_monitor(int dirfd, uint64_t why, struct err *err)
{
	_cleanup_close_ int sock = sock_connect_at(dirfd, CONTROL_SOCKET, SOCK_SEQPACKET, err);
	_cleanup_close_ int pidfd = -1;
	struct control_reply reply;
	pid_t pid = 0;

	if (sock == -ENOENT || sock == -ECONNREFUSED)
		return 0;
	if (sock < 0)
		return sock;
	pidfd = peer_pidfd(sock, &pid, err);
	if (pidfd < 0)
		return pidfd == -ESRCH ? 0 : pidfd;
	int r = exchange(sock, &(struct control_message){.op = CONTROL_KILL, .arg = {why}},
			 control_deadline(KILL_REPLY_MS), &reply, err);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (r == 0)
		r = sock_poll(&p, 1, control_deadline(KILL_REPLY_MS));
	if (r == 1)
		return 0;
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	r = sock_poll(&p, 1, control_deadline(KILL_WAIT_MS));
	if (r < 0)
		return err_errno(err, r, "wait for the monitor");
	return r > 0 ? 0 : err_set(err, -ETIMEDOUT, "the monitor (process %d) does not end", (int)pid);
}

int control_end_monitor(int dirfd, struct err *err)
{
	return end_monitor(dirfd, 0, err);
}

int control_end_saved(int dirfd, struct err *err)
{
	return end_monitor(dirfd, 1, err);
}
