/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets by directory descriptor: see sock.h. */
#include "host/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

static int make_address(int dirfd, const char *name, struct sockaddr_un *ret, struct err *err)
{
	int n;

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dirfd, name);
	if (n < 0 || (size_t)n >= sizeof(ret->sun_path))
		return err_set(err, -ENAMETOOLONG, "socket '%.80s...': the name is too long", name);
	return 0;
}

/* A new socket, and the address of that name. */
static int make_socket(int dirfd, const char *name, int type, struct sockaddr_un *ret, struct err *err)
{
	int r = make_address(dirfd, name, ret, err);

	if (r < 0)
		return r;
	r = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	return r < 0 ? err_errno(err, -errno, "socket") : r;
}

int sock_listen_at(int dirfd, const char *name, int type, struct err *err)
{
	struct sockaddr_un sa;
	_cleanup_close_ int fd = make_socket(dirfd, name, type, &sa, err);

	if (fd < 0)
		return fd;
	/* The mode of the inode follows the socket's; the directory is private anyway. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return err_errno(err, -errno, "bind '%s'", name);
	if (listen(fd, 16) < 0)
		return err_errno(err, -errno, "listen on '%s'", name);
	return TAKE_FD(fd);
}

int sock_connect_at(int dirfd, const char *name, int type, struct err *err)
{
	struct sockaddr_un sa;
	_cleanup_close_ int fd = make_socket(dirfd, name, type, &sa, err);
	int r;

	if (fd < 0)
		return fd;
	do
		r = connect(fd, (struct sockaddr *)&sa, sizeof(sa));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_errno(err, -errno, "connect to '%s'", name);
	return TAKE_FD(fd);
}

int sock_connect_path(const char *path, int type, struct err *err)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	_cleanup_close_ int dirfd = -1;

	if (slash && (size_t)(slash - path) >= sizeof(dir))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", path);
	if (!slash)
		strcpy(dir, ".");
	else
		snprintf(dir, sizeof(dir), "%.*s", (int)MAX(slash - path, 1), path);
	dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return err_errno(err, -errno, "open '%s'", dir);
	return sock_connect_at(dirfd, slash ? slash + 1 : path, type, err);
}

int sock_poll(struct pollfd *p, unsigned n, unsigned long long deadline_ms)
{
	for (;;) {
		int timeout = -1;

		if (deadline_ms) {
			unsigned long long now = loop_now_ns() / 1000000;

			timeout = deadline_ms <= now ? 0 : (int)MIN(deadline_ms - now, 3600000ull);
		}
		int r = poll(p, n, timeout);

		if (r > 0 || (r == 0 && timeout < 3600000))
			return r;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}
