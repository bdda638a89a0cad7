/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's end of vsock connections, for shell scripts in boot tests.
 *
 *   vsock_pipe listen PORT COMMAND   each connection gets `sh -c COMMAND` with the socket as standard input and output
 *   vsock_pipe connect PORT          standard input goes to the host's port, then half-close; what comes back goes to
 *                                    standard output. Exit status 1 with the reason when it cannot connect.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

static char buf[65536];

static int fail(const char *what)
{
	fprintf(stderr, "vsock_pipe: %s: %s\n", what, strerror(errno));
	return 1;
}

static int do_listen(unsigned int port, const char *command)
{
	struct sockaddr_vm a = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = port };
	int l = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	signal(SIGCHLD, SIG_IGN); /* no zombies */
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l, 1024) < 0)
		return fail("listen");
	if (fork() != 0) /* back to the script once connections are possible */
		return 0;
	for (;;) {
		int s = accept(l, NULL, NULL);

		if (s < 0)
			return fail("accept");
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			dup2(s, 0);
			dup2(s, 1);
			close(s);
			execl("/bin/sh", "sh", "-c", command, NULL);
			_exit(127);
		}
		close(s);
	}
}

static int write_all(int fd, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = write(fd, buf + done, n - done);

		if (r <= 0)
			return -1;
		done += (size_t)r;
	}
	return 0;
}

static int do_connect(unsigned int port)
{
	struct sockaddr_vm a = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = port };
	int s = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd p[2] = { { s, POLLIN, 0 }, { 0, POLLIN, 0 } };

	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		return fail("connect");
	for (;;) {
		ssize_t n;

		if (poll(p, 2, -1) < 0)
			return fail("poll");
		if (p[1].revents) {
			n = read(0, buf, sizeof(buf));
			if (n <= 0) {
				shutdown(s, SHUT_WR);
				p[1].fd = -1;
				p[1].revents = 0;
			} else if (write_all(s, (size_t)n) < 0) {
				return fail("write");
			}
		}
		if (p[0].revents) {
			n = read(s, buf, sizeof(buf));
			if (n < 0)
				return fail("read");
			if (n == 0)
				return 0;
			if (write_all(1, (size_t)n) < 0)
				return fail("standard output");
		}
	}
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && strcmp(argv[1], "listen") == 0)
		return do_listen((unsigned int)strtoul(argv[2], NULL, 10), argv[3]);
	if (argc == 3 && strcmp(argv[1], "connect") == 0)
		return do_connect((unsigned int)strtoul(argv[2], NULL, 10));
	fprintf(stderr, "usage: vsock_pipe listen PORT COMMAND | connect PORT\n");
	return 2;
}
