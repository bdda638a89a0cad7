/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: see transport.h. */
#include "guest/agent/transport.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "lib/fd.h"

enum { BACKLOG = 128, ANNOUNCE_TRIES = 50, ANNOUNCE_WAIT_MS = 20, ANNOUNCE_SEND_S = 10 };

static int unix_address(const char *path, struct sockaddr_un *ret)
{
	size_t n = strlen(path);

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (n >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	memcpy(ret->sun_path, path, n + 1);
	return 0;
}

static int listen_unix(const char *path, struct err *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;
	struct stat st;
	int rc = unix_address(path, &a);

	if (rc < 0)
		return err_set(err, rc, "listen on '%s': the path of a socket has at most %zu bytes", path, sizeof(a.sun_path) - 1);
	if (fd < 0)
		return err_errno(err, -errno, "listen on '%s'", path);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) /* left over */
		unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, 0600) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(err, -errno, "listen on '%s'", path);
	return TAKE_FD(fd);
}

int transport_listen(const struct agent *a, struct err *err)
{
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = AGENT_PORT };
	_cleanup_close_ int fd = -1;

	if (a->listen_path)
		return listen_unix(a->listen_path, err);
	fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(err, -errno, "vsock: the kernel has no vsock socket; load vmw_vsock_virtio_transport");
	if (bind(fd, (struct sockaddr *)&vm, sizeof(vm)) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(err, -errno, "vsock: listen on port %d", AGENT_PORT);
	return TAKE_FD(fd);
}

int transport_accept(const struct agent *a, int listen_fd)
{
	struct sockaddr_vm vm = { 0 };
	socklen_t len = sizeof(vm);
	int fd;

	do
		fd = a->listen_path ? accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) :
				      accept4(listen_fd, (struct sockaddr *)&vm, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (fd < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (!a->listen_path && vm.svm_cid != VMADDR_CID_HOST) { /* a process of the guest, over the loopback */
		close(fd);
		return -EACCES;
	}
	return fd;
}

static int connect_host(const struct agent *a)
{
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = AGENT_READY_PORT };
	_cleanup_close_ int fd = socket(a->ready_path ? AF_UNIX : AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = ANNOUNCE_SEND_S };
	struct sockaddr_un un;
	int rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (a->ready_path) {
		rc = unix_address(a->ready_path, &un);
		if (rc < 0)
			return rc;
		rc = connect(fd, (struct sockaddr *)&un, sizeof(un));
	} else {
		rc = connect(fd, (struct sockaddr *)&vm, sizeof(vm));
	}
	return rc < 0 ? -errno : TAKE_FD(fd);
}

/* The transport may be there a moment later than the socket family; a host that does not listen says so at once. */
static int connect_patiently(const struct agent *a)
{
	struct timespec pause = { .tv_nsec = ANNOUNCE_WAIT_MS * 1000000l };
	int rc = -EAGAIN;

	for (int i = 0; i < ANNOUNCE_TRIES; i++) {
		rc = connect_host(a);
		if (rc != -ENODEV && rc != -ENETUNREACH && rc != -EADDRNOTAVAIL && rc != -EHOSTUNREACH)
			break;
		nanosleep(&pause, NULL);
	}
	return rc;
}

static void announce(const struct agent *a)
{
	_cleanup_close_ int fd = connect_patiently(a);
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;
	int n;

	if (fd < 0) {
		agent_say(a, "cannot tell the host that the agent is ready: %s", strerror(-fd));
		return;
	}
	json_writer_init(&w, buf, sizeof(buf) - 1);
	json_write_object(&w, NULL);
	json_write_bool(&w, "ready", true);
	json_write_int(&w, "version", AGENT_PROTO_VERSION);
	json_write_string(&w, "agent", COFFER_VERSION);
	json_write_string(&w, "root", a->root);
	json_write_string(&w, "overlay", a->overlay);
	json_write_uint(&w, "uptime_ms", agent_now_ms());
	if (a->root_error[0])
		json_write_string(&w, "error", a->root_error);
	json_write_object_end(&w);
	n = json_writer_finish(&w);
	if (n < 0)
		return;
	buf[n] = '\n';
	if (send(fd, buf, (size_t)n + 1, MSG_NOSIGNAL) < 0)
		agent_say(a, "cannot tell the host that the agent is ready: %s", strerror(errno));
	shutdown(fd, SHUT_WR);
	/* Until the host has closed: a socket closed at once may take the line with it. */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = ANNOUNCE_SEND_S }, sizeof(struct timeval));
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
}

void transport_announce(const struct agent *a)
{
	pid_t pid;

	if (a->mode == AGENT_UNIX && !a->ready_path)
		return;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		announce(a);
		_exit(0);
	}
	if (pid < 0)
		agent_say(a, "cannot tell the host that the agent is ready: %s", strerror(errno));
}
