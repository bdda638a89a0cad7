/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets for virtio-vsock: see vsock_unix.h. Every socket is non-blocking.
 * Trust: clients are of the VM's owner (the directory is 0700); their bytes are checked all the same.
 */
/* syscalls(main): socket(0=AF_UNIX) connect accept4 sendto close
 * syscalls(vcpu): close */
#include "devices/backend/vsock_unix.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

int vsock_unix_listen(const char *name, struct err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!*name || strlen(name) >= VSOCK_UNIX_NAME_MAX || strchr(name, '/'))
		return err_set(err, -EINVAL, "socket '%s': give a name of 1 to %d characters without '/'; it is made in the VM's directory",
			       name, VSOCK_UNIX_NAME_MAX - 1);
	if (lstat(name, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return err_set(err, -EEXIST, "'%s' is there already and is no socket: remove it", name);
		unlink(name);
	}
	fd = open_socket();
	if (fd < 0)
		return err_errno(err, fd, "socket");
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", name);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return err_errno(err, -errno, "bind '%s'", name);
	if (listen(fd, VSOCK_UNIX_BACKLOG) < 0)
		return err_errno(err, -errno, "listen on '%s'", name);
	return TAKE_FD(fd);
}

int vsock_unix_connect(const char *name, uint32_t port)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = open_socket();

	if (fd < 0)
		return fd;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.*s_%u", VSOCK_UNIX_NAME_MAX - 1, name, port);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int vsock_unix_accept(int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int vsock_unix_parse(const char *line, uint32_t n, uint32_t *ret_port)
{
	static const char word[] = "CONNECT ";
	uint32_t at = sizeof(word) - 1;
	uint64_t port = 0;

	if (n < at + 2 || memcmp(line, word, at) != 0 || line[n - 1] != '\n')
		return -EINVAL;
	for (; at < n - 1; at++) {
		if (line[at] < '0' || line[at] > '9')
			return -EINVAL;
		port = port * 10 + (uint64_t)(line[at] - '0');
		if (port >= UINT32_MAX) /* the last one means "any" */
			return -EINVAL;
	}
	*ret_port = (uint32_t)port;
	return 0;
}

int vsock_unix_welcome(int fd, uint32_t host_port)
{
	char line[VSOCK_UNIX_LINE_MAX];
	int n = snprintf(line, sizeof(line), "OK %u\n", host_port);
	ssize_t r = send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);

	return r == n ? 0 : r < 0 ? -errno : -EPIPE;
}

uint32_t vsock_unix_raise_limit(uint32_t want)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 1024;
	if (l.rlim_cur < want) {
		struct rlimit more = { .rlim_cur = MIN(l.rlim_max, (rlim_t)want), .rlim_max = l.rlim_max };

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			l = more;
	}
	return (uint32_t)MIN(l.rlim_cur, (rlim_t)UINT32_MAX);
}
