/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as a descriptor: see signals.h. */
#include "host/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

/* The ends are first. */
static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT };

enum { ENDS = 4 };

static int open_first(size_t n, sigset_t *ret_old, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < n; i++) {
		struct sigaction sa;

		/* A blocked signal is queued even when it is ignored. */
		if (sigaction(taken[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(&set, taken[i]);
	}
	if (sigprocmask(SIG_BLOCK, &set, ret_old) < 0)
		return err_errno(err, -errno, "sigprocmask");
	int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);

	if (fd < 0) {
		int r = err_errno(err, -errno, "signalfd");

		sigprocmask(SIG_SETMASK, ret_old, NULL);
		return r;
	}
	return fd;
}

int signals_open(sigset_t *ret_old, struct err *err)
{
	return open_first(ARRAY_SIZE(taken), ret_old, err);
}

int signals_open_ends(sigset_t *ret_old, struct err *err)
{
	return open_first(ENDS, ret_old, err);
}

void signals_close(int fd, const sigset_t *old)
{
	if (fd < 0)
		return;
	/* What is still queued was meant for the work that is over. */
	while (signals_next(fd) > 0)
		;
	fd_close(fd);
	sigprocmask(SIG_SETMASK, old, NULL);
}

int signals_next(int fd)
{
	struct signalfd_siginfo si;

	return read(fd, &si, sizeof(si)) == sizeof(si) ? (int)si.ssi_signo : 0;
}

int signals_is_end(int signal)
{
	for (size_t i = 0; i < ENDS; i++)
		if (signal == taken[i])
			return 1;
	return 0;
}

void signals_reset(void)
{
	sigset_t none;

	sigemptyset(&none);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
