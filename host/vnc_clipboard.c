/* SPDX-License-Identifier: Apache-2.0 */
/* Between viewers and the guest's clipboard: see vnc_clipboard.h. */
#include "host/vnc_clipboard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clipboard.h"
#include "host/vm_open.h"
#include "host/vnc/control.h"
#include "lib/fd.h"

enum { AGAIN_MS = 10000 };

struct bridge {
	int sock;
	struct vm_handle *vm; /* NULL: one that does not end */
	const struct clipboard_guest *guest;
	struct clipboard_watch *watch;
	size_t n; /* of the text that both sides have */
	char text[VNC_CLIPBOARD_MAX];
	char message[VNC_CLIPBOARD_MAX];
};

static bool is_known(const struct bridge *b, const char *text, size_t n)
{
	return n == b->n && memcmp(text, b->text, n) == 0;
}

static void remember(struct bridge *b, const char *text, size_t n)
{
	memcpy(b->text, text, n);
	b->n = n;
}

/* 0, or -errno when the socket has closed. Only the newest text counts. */
static int from_viewers(struct bridge *b)
{
	ssize_t n, last = -1;
	int why;

	while ((n = recv(b->sock, b->message, sizeof(b->message), MSG_DONTWAIT)) > 0) {
		if (clipboard_is_text(b->message, (size_t)n) && !is_known(b, b->message, (size_t)n)) {
			remember(b, b->message, (size_t)n);
			last = n;
		}
	}
	why = errno;
	if (n == 0)
		return -ECONNRESET;
	if (last >= 0)
		clipboard_set(b->guest, b->text, b->n, NULL); /* a session that does not run has no clipboard */
	return why == EAGAIN || why == EINTR ? 0 : -why;
}

/* -errno when the watch is over. */
static int from_guest(struct bridge *b)
{
	const char *text;
	size_t n;
	int r;

	while ((r = clipboard_watch_next(b->watch, &text, &n, NULL)) > 0) {
		if (n == 0 || n > VNC_CLIPBOARD_MAX || is_known(b, text, n))
			continue;
		remember(b, text, n);
		send(b->sock, b->text, n, MSG_NOSIGNAL);
	}
	return r;
}

static int pass_on(struct bridge *b)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = b->sock, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
		int r = 0;

		if (!b->watch) {
			r = clipboard_watch_start(b->guest, &b->watch, NULL);
			if (r == -ENOENT || (b->vm && vm_has_ended(b->vm)))
				return r;
		}
		/* Before waiting: a text that came with the answer to the start is not seen by poll any more. */
		if (b->watch && from_guest(b) < 0) {
			clipboard_watch_close(b->watch);
			b->watch = NULL;
		}
		if (b->watch)
			p[1].fd = clipboard_watch_fd(b->watch);
		if (poll(p, 2, b->watch ? -1 : AGAIN_MS) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents) {
			r = from_viewers(b);
			if (r < 0)
				return r;
		}
	}
}

int vnc_clipboard_run(int sock, const struct clipboard_guest *guest, struct vm_handle *vm)
{
	struct bridge *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->sock = sock;
	b->guest = guest;
	b->vm = vm;
	r = pass_on(b);
	clipboard_watch_close(b->watch);
	free(b);
	return r;
}

int vnc_clipboard_start(const char *id, struct err *err)
{
	struct vm_handle vm;
	pid_t pid, parent = getpid();
	int pair[2], r;

	r = vm_open(id, &vm, err);
	if (r < 0)
		return r;
	r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
	pid = r == 0 ? fork() : -1;
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		signal(SIGCHLD, SIG_DFL);
		close(pair[0]);
		_exit(vnc_clipboard_run(pair[1], &(struct clipboard_guest){ .connect = clipboard_connect_vm, .arg = &vm }, &vm) < 0);
	}
	if (r == 0) {
		close(pair[1]);
		if (pid < 0) {
			r = -errno;
			close(pair[0]);
		}
	}
	vm_close(&vm);
	return r < 0 ? err_errno(err, r, "clipboard") : pair[0];
}
