/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-import: reads archives for `coffer image import`, in a jail.
 *
 * It is a program of its own because libarchive and the decompressors it loads are large, old and read hostile bytes: here
 * a mistake in them can do no more than write wrong records and contents.
 *
 * How it works: the first process loads what takes long, reads nothing but jobs (record.h), and forks for each. The fork
 * enters the jail before it reads the first byte, so what an archive does to it ends with that archive.
 */
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <langinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/import/archive.h"
#include "host/import/jail.h"
#include "host/import/record.h"
#include "lib/fd.h"

enum { ABOVE_OURS = 16 };

/*
 * The locale stays "C": in any other, libarchive would change the names in PAX headers, which are UTF-8, into what Unicode calls
 * normal. In this one it asks for a conversion, which fails for names that are not ASCII, and keeps them as they are. The C library
 * reads its table of conversions at the first time it is asked, and in the jail it could not.
 */
static void load_conversions(void)
{
	iconv_t c = iconv_open(nl_langinfo(CODESET), "UTF-8");

	if (c != (iconv_t)-1)
		iconv_close(c);
}

/* The descriptors get the numbers that the reader knows; all others are closed. */
static int place(const int fds[IMPORT_JOB_FDS])
{
	int copy[IMPORT_JOB_FDS];

	for (int i = 0; i < IMPORT_JOB_FDS; i++) {
		copy[i] = fcntl(fds[i], F_DUPFD, ABOVE_OURS);
		if (copy[i] < 0)
			return -errno;
	}
	for (int i = 0; i < IMPORT_JOB_FDS; i++)
		if (dup2(copy[i], IMPORT_INPUT_FD + i) < 0)
			return -errno;
	close(STDIN_FILENO);
	return close_range(IMPORT_SPOOL_FD + 1, ~0u, 0) < 0 ? -errno : 0;
}

static _Noreturn void read_one(const struct import_job *job, const int fds[IMPORT_JOB_FDS], pid_t parent)
{
	struct err err = ERR_INIT;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would read what it says */
	if (getppid() != parent || place(fds) < 0)
		_exit(1);
	r = import_jail_enter(&err);
	if (r == 0)
		r = import_archive(job, &err);
	if (r < 0)
		import_send_error(&err);
	_exit(r < 0 ? 1 : 0);
}

static int serve(void)
{
	const pid_t self = getpid();

	for (;;) {
		struct import_job job;
		int fds[IMPORT_JOB_FDS], status = 0;
		size_t nfds;
		ssize_t n = fd_recv(STDIN_FILENO, &job, sizeof(job), fds, IMPORT_JOB_FDS, &nfds);
		pid_t pid;

		if (n == 0)
			return 0;
		if (n != (ssize_t)sizeof(job) || nfds != IMPORT_JOB_FDS)
			return 1;
		pid = fork();
		if (pid == 0)
			read_one(&job, fds, self);
		for (int i = 0; i < IMPORT_JOB_FDS; i++)
			close(fds[i]);
		if (pid < 0)
			return 1;
		while (waitpid(pid, &status, 0) < 0)
			if (errno != EINTR)
				return 1;
		if (fd_send(STDIN_FILENO, &status, sizeof(status), NULL, 0) < 0)
			return 1;
	}
}

int main(void)
{
	int type = 0;
	socklen_t len = sizeof(type);

	if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
		fputs("coffer-import is run by 'coffer image import'\n", stderr);
		return 125;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	load_conversions();
	return serve();
}
