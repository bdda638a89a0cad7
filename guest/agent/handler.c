/* SPDX-License-Identifier: Apache-2.0 */
/* One connection, one process: see handler.h. */
#include "guest/agent/handler.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static int dispatch(struct handler *h)
{
	switch (h->request.op) {
	case REQUEST_PING: return control_ping(h);
	case REQUEST_CONFIGURE: return control_configure(h);
	case REQUEST_EXEC: return command_exec(h);
	case REQUEST_ATTACH: return command_attach(h);
	case REQUEST_PS: return command_ps(h);
	case REQUEST_KILL: return command_kill(h);
	case REQUEST_STAT: return files_stat(h);
	case REQUEST_PUT: return files_put(h);
	case REQUEST_GET: return files_get(h);
	case REQUEST_SYNC: return control_sync(h);
	case REQUEST_FREEZE: return control_freeze(h);
	case REQUEST_THAW: return control_thaw(h);
	case REQUEST_SESSION: return session_wait(h);
	case REQUEST_POWEROFF:
	case REQUEST_REBOOT: return control_power(h);
	}
	return err_set(&h->err, -EOPNOTSUPP, "this operation is not known");
}

/* -ECONNRESET: the host is gone; -ECONNABORTED: it has been told why. */
static int serve(struct handler *h)
{
	bool again = false;

	/* After a configure another may follow: the clock is told better to a process that is there already. */
	for (;;) {
		ssize_t n = channel_read_request(&h->channel, &h->err);
		int rc;

		if (n < 0)
			return (int)n;
		rc = request_parse(&h->request, h->channel.text, (size_t)n, &h->err);
		if (rc == 0 && again && h->request.op != REQUEST_CONFIGURE)
			rc = err_set(&h->err, -EPROTO, "after configure only configure can follow on a connection");
		if (rc == 0)
			rc = dispatch(h);
		if (rc < 0 || h->request.op != REQUEST_CONFIGURE)
			return rc;
		again = true;
		rc = channel_next_request(&h->channel, &h->err);
		if (rc < 0)
			return rc;
	}
}

_Noreturn void handler_run(struct agent *a, struct agent_slot *slot, int supervisor, int fd)
{
	struct handler *h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (h == MAP_FAILED)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	h->agent = a;
	h->slot = slot;
	h->supervisor = supervisor;
	channel_init(&h->channel, fd, &slot->progress);
	rc = serve(h);
	if (rc < 0 && rc != -ECONNRESET && rc != -ECONNABORTED && rc != -EPIPE)
		channel_send_error(&h->channel, rc, h->err.text);
	channel_finish(&h->channel);
	_exit(0);
}
