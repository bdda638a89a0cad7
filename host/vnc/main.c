/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-vnc: one VNC connection. Not for users: `coffer vnc` starts one for each (control.h is what it says on stdin).
 *
 *   coffer-vnc          serves the connection that it is given
 *   coffer-vnc --cert   a new self-signed certificate and its key, PEM, on descriptors 3 and 4, its fingerprint on stdout
 *   coffer-vnc --check  are descriptors 3 and 4 a certificate and its key? The exit status is enum vnc_cert_fault, the reason on stdout
 *
 * Two processes: the front (front.h), which meets whoever connects, and the viewer's (viewer.h), which has the display. Both are in the
 * jail (jail.h) before they read a byte of the connection.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vnc/cert.h"
#include "host/vnc/front.h"
#include "host/vnc/jail.h"
#include "host/vnc/viewer.h"
#include "lib/fd.h"
#include "lib/log.h"
#include "lib/util.h"

enum { FDS_MAX = 4 };

static const char usage[] = "Usage: coffer-vnc [--cert | --check]\n\n"
			    "Serves one VNC connection for 'coffer vnc', which starts it and says on stdin what\n"
			    "to do; see docs/display.md.\n";

static int receive_start(struct vnc_start *start, struct front_fds *fds, struct err *err)
{
	int fd[FDS_MAX];
	size_t nfds = 0, next = 1;
	ssize_t n = fd_recv(STDIN_FILENO, start, sizeof(*start), fd, FDS_MAX, &nfds);

	if (n != (ssize_t)sizeof(*start) || start->h.op != VNC_START || nfds < 1)
		return err_set(err, n < 0 ? (int)n : -EPROTO, "stdin does not say what to do: 'coffer vnc' starts this program");
	start->name[VNC_NAME_MAX] = 0;
	*fds = (struct front_fds){ .connection = fd[0], .stream = -1, .certificate = -1, .key = -1, .pages = -1 };
	if (start->flags & VNC_TLS && next + 1 < nfds) {
		fds->certificate = fd[next++];
		fds->key = fd[next++];
	}
	if (start->flags & VNC_WEB && next < nfds)
		fds->pages = fd[next++];
	if ((start->flags & VNC_TLS && fds->certificate < 0) || (start->flags & VNC_WEB && fds->pages < 0) || next != nfds)
		return err_set(err, -EPROTO, "stdin does not bring the descriptors that it names");
	return 0;
}

static int run_viewer(const struct vnc_start *start, const struct front_fds *f, int stream, struct err *err)
{
	const struct viewer_fds fds = { f->connection, STDIN_FILENO, stream };
	int r;

	fd_close(f->certificate);
	fd_close(f->key);
	fd_close(f->pages);
	r = vnc_jail_enter(err);
	return r < 0 ? r : viewer_run(start, &fds, err);
}

static int serve(struct err *err)
{
	struct vnc_start start;
	struct front_fds fds = { -1, -1, -1, -1, -1 };
	int pair[2];
	pid_t pid, parent = getpid();
	int r = receive_start(&start, &fds, err);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, -errno, "socketpair");
	signal(SIGCHLD, SIG_IGN); /* the front of a plain connection ends early */
	pid = fork();
	if (pid < 0)
		return err_errno(err, -errno, "fork");
	if (pid == 0) {
		close(pair[0]);
		close(STDIN_FILENO);
		fds.stream = pair[1];
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			return 0;
		return front_run(&start, &fds, err);
	}
	close(pair[1]);
	/* The front has the passwords, this one has no use for them. */
	explicit_bzero(start.password, sizeof(start.password));
	explicit_bzero(start.view_password, sizeof(start.view_password));
	return run_viewer(&start, &fds, pair[0], err);
}

static int check(void)
{
	gnutls_certificate_credentials_t credentials = NULL;
	struct err err = ERR_INIT;
	enum vnc_cert_fault fault;
	int r = cert_load(3, 4, &credentials, &fault, &err);

	if (r < 0)
		return printf("%s\n", err.text) < 0 || fault == VNC_CERT_FINE ? 1 : (int)fault;
	gnutls_certificate_free_credentials(credentials);
	return 0;
}

int main(int argc, char **argv)
{
	const struct log log = { .fd = STDERR_FILENO, .level = LOG_INFO, .prefix = "coffer-vnc" };
	struct err err = ERR_INIT;
	int r;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return fputs(usage, stdout) == EOF;
	if (argc == 2 && strcmp(argv[1], "--check") == 0)
		return check();
	if (argc > 2 || (argc == 2 && strcmp(argv[1], "--cert") != 0)) {
		fputs(usage, stderr);
		return 2;
	}
	r = argc == 2 ? cert_make(3, 4, stdout, &err) : serve(&err);
	if (r < 0)
		log_line(&log, LOG_ERROR, "%s", err.code != 0 ? err.text : strerror(-r));
	return r < 0;
}
