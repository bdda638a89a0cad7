/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a guest that has been started: its ready line, or the reason why not (see launch.h).
 *
 * The agent announces itself on a Unix socket that was there before the monitor, so nothing is polled; the monitor's
 * death, a signal and the time-out end the wait. When a guest does not come up, the reason is put together from the
 * monitor's status, the last line of its log and what the guest's kernel said last.
 *
 * Trust: the ready line, the console's text and the status come from the guest: bounded, and printable when shown.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/agent_client.h"
#include "host/control_client.h"
#include "host/launch.h"
#include "host/signals.h"
#include "host/sock.h"
#include "host/user_disk.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/text.h"
#include "lib/util.h"

enum { END_WAIT_MS = 2000 };

/* ---- why it did not come up ---- */

static bool has_ended(struct launch *l, int wait_ms)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

	if (l->reaped)
		return true;
	if (l->pid <= 0 || sock_poll(&p, 1, control_deadline((uint64_t)wait_ms)) != 1)
		return false;
	if (l->foreign) {
		l->wait_status = -1;
		l->reaped = true;
	} else if (waitpid(l->pid, &l->wait_status, WNOHANG) == l->pid) {
		l->reaped = true;
	}
	return l->reaped;
}

bool launch_explain_end(struct launch *l, enum vm_end_kind *ret_kind, struct err *err)
{
	if (!has_ended(l, END_WAIT_MS))
		return false;
	*ret_kind = vm_end_explain(l->dir.fd, l->status_fd, l->ready_ns == 0, l->wait_status, err);
	if (l->user_disks)
		user_disk_name_error(l->user_disks, l->first_user_disk, err);
	return true;
}

static int explain_timeout(struct launch *l, double seconds, struct err *err)
{
	char words[300];

	vm_end_last_words(l->dir.fd, VMDIR_CONSOLE, words, sizeof(words));
	if (!*words)
		return err_set(err, -ETIMEDOUT, "the guest is not ready after %.0f s and its console is empty: are '%s' and '%s' a kernel and an initramfs for this? (--boot-timeout gives it longer)",
			       seconds, l->kernel, l->initrd);
	return err_set(err, -ETIMEDOUT, "the guest is not ready after %.0f s; it said last: %s (--boot-timeout gives it longer)",
		       seconds, words);
}

/* ---- the ready line ---- */

static int check_ready(const struct agent_line *line, struct err *err)
{
	char text[ERR_MAX];
	int64_t version = 0;

	if (agent_line_int(line, "version", &version) < 0)
		return err_set(err, -EPROTO, "the guest's first line is no ready line: '%s'", TEXT_CUT(line->text));
	if (version != AGENT_PROTO_VERSION)
		return err_set(err, -EPROTO, "the guest's agent speaks version %lld of the protocol, this is version %d",
			       (long long)version, AGENT_PROTO_VERSION);
	if (agent_line_string(line, "error", text, sizeof(text)) == 0)
		return err_set(err, -EIO, "the guest could not set up its root: %s", text);
	return 0;
}

static int take_ready(struct launch *l, int signal_fd, struct err *err)
{
	struct agent_conn *c;
	struct agent_line line;
	int fd = accept4(l->ready_sock, NULL, NULL, SOCK_CLOEXEC);
	int r;

	if (fd < 0)
		return errno == EAGAIN || errno == ECONNABORTED ? 0 : err_errno(err, -errno, "accept the agent");
	r = agent_conn_new(fd, &c, err);
	if (r < 0)
		return r;
	c->signal_fd = signal_fd;
	r = agent_read_line(c, control_deadline(LAUNCH_READY_MS), &line, err);
	l->signal = c->signal;
	agent_close(c);
	if (r == 0)
		r = check_ready(&line, err);
	return r < 0 ? r : 1;
}

static int wait_ready(struct launch *l, const struct launch_options *o, int signal_fd, struct err *err)
{
	double seconds = o->boot_timeout > 0 ? o->boot_timeout : LAUNCH_BOOT_TIMEOUT_S;
	uint64_t deadline = control_deadline((uint64_t)(seconds * 1000));
	enum vm_end_kind kind;

	for (;;) {
		struct pollfd p[] = { { .fd = l->ready_sock, .events = POLLIN },
				      { .fd = l->pidfd, .events = POLLIN },
				      { .fd = signal_fd, .events = POLLIN } };
		int r = sock_poll(p, ARRAY_SIZE(p), deadline);

		if (r < 0)
			return err_errno(err, r, "wait for the guest");
		if (r == 0)
			return explain_timeout(l, seconds, err);
		for (int signal; p[2].revents && (signal = signals_next(signal_fd)) > 0;)
			if (signals_is_end(signal)) {
				l->signal = signal;
				return err_set(err, -ECANCELED, "interrupted");
			}
		if (p[0].revents) {
			r = take_ready(l, signal_fd, err);
			if (r != 0)
				return r < 0 ? r : 0;
		}
		if (p[1].revents && launch_explain_end(l, &kind, err))
			return -EIO;
	}
}

int launch_wait(struct launch *l, const struct launch_options *o, int signal_fd, struct err *err)
{
	int r = wait_ready(l, o, signal_fd, err);

	if (r < 0)
		return r;
	l->ready_ns = loop_now_ns();
	l->ready_sock = fd_close(l->ready_sock);
	unlinkat(l->dir.fd, LAUNCH_READY_SOCKET, 0);
	l->status_fd = openat(l->dir.fd, VMDIR_STATUS, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	r = launch_configure(l, true, signal_fd, control_deadline(LAUNCH_READY_MS), err);
	if (r == 0)
		r = vmdir_write_file(l->dir.fd, VMDIR_READY, "", 0, err);
	if (r < 0) {
		struct err why = ERR_INIT;
		enum vm_end_kind kind;

		/* A guest that went down meanwhile explains itself better than its connection does. */
		if (r != -ECANCELED && launch_explain_end(l, &kind, &why))
			*err = why;
		return r;
	}
	l->configured_ns = loop_now_ns();
	return 0;
}
