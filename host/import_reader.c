/* SPDX-License-Identifier: Apache-2.0 */
/* Starting coffer-import and giving it jobs: see import_reader.h; what is said is in host/import/record.h. */
#include "host/import_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/helper.h"
#include "lib/fd.h"

static int start(struct import_reader *r, struct err *err)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, -errno, "socketpair");
	pid = helper_spawn(&(struct helper){ .program = "coffer-import", .env = "COFFER_IMPORT", .in = pair[1], .err_fd = -1 }, err);
	fd_close(pair[1]);
	if (pid < 0) {
		fd_close(pair[0]);
		return (int)pid;
	}
	*r = (struct import_reader){ .sock = pair[0], .pid = pid };
	return 0;
}

int import_reader_begin(struct import_reader *r, const struct import_job *job, int input, int spool, struct err *err)
{
	int fds[2], e = r->pid > 0 ? 0 : start(r, err);

	if (e < 0)
		return e;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_errno(err, -errno, "pipe");
	e = (int)fd_send(r->sock, job, sizeof(*job), (const int[IMPORT_JOB_FDS]){ input, fds[1], spool }, IMPORT_JOB_FDS);
	fd_close(fds[1]);
	if (e >= 0)
		return fds[0];
	fd_close(fds[0]);
	return err_errno(err, e, "speak to coffer-import");
}

int import_reader_end(struct import_reader *r, int status, struct err *err)
{
	int ended = 0;

	if (status < 0 && status != -EPIPE) {
		import_reader_close(r); /* it may go on with the archive for long */
		return status;
	}
	if (fd_recv(r->sock, &ended, sizeof(ended), NULL, 0, NULL) != (ssize_t)sizeof(ended)) {
		import_reader_close(r);
		return err_set(err, -EIO, "coffer-import has ended without a word");
	}
	if (status == 0)
		return 0;
	/* It ended in the middle. */
	if (WIFSIGNALED(ended) && WTERMSIG(ended) != SIGKILL)
		return err_set(err, -EIO,
			       "coffer-import was ended by signal %d (%s): the archive is damaged in a way it does not "
			       "survive",
			       WTERMSIG(ended), strsignal(WTERMSIG(ended)));
	return err_set(err, -EIO, "coffer-import has ended without a word");
}

/* What it reads ends with it. */
void import_reader_close(struct import_reader *r)
{
	r->sock = fd_close(r->sock);
	if (r->pid <= 0)
		return;
	kill(r->pid, SIGKILL);
	while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	r->pid = 0;
}
