/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a shell from a pool: see pool.h. Trust: the pool is a process of the same user (the socket says so). */
#include "host/pool.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/paths.h"
#include "host/sock.h"
#include "lib/fd.h"

enum { POOL_MS = 300 };

void pool_name(const struct snapshot *s, char out[64])
{
	snprintf(out, 64, "POOL-%s", s->m.id);
}

static int connect_pool(const struct snapshot *s)
{
	char run[PATH_MAX - 128], path[PATH_MAX], name[64];
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (paths_runtime(run, sizeof(run), NULL) < 0)
		return -ENOENT;
	pool_name(s, name);
	snprintf(path, sizeof(path), "%s/%s/" POOL_SOCKET, run, name);
	int fd = sock_connect_path(path, SOCK_SEQPACKET, NULL);

	if (fd >= 0 && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid()))
		return fd_close(fd);
	return fd;
}

/* The descriptors in the order of the message. */
static void take_over(struct launch *l, const struct pool_reply *r, int *fd)
{
	size_t n = 0;

	l->dir.fd = fd[n++];
	l->dir.lock_fd = fd[n++];
	l->pidfd = fd[n++];
	if (r->has_disks) {
		l->dir.disk_dir_fd = fd[n++];
		l->dir.disk_lock_fd = fd[n++];
	}
	if (r->has_image)
		l->image_fd = fd[n++];
	l->pid = (pid_t)r->pid;
	l->foreign = true;
}

int pool_take(struct launch *l, const struct restore_source *src, const struct restore_options *o)
{
	int fds[POOL_FDS];
	struct pool_reply reply;
	size_t nfds = 0;

	if (o->no_seccomp || o->log_level || !src->snap.m.id[0])
		return 0;
	_cleanup_close_ int sock = connect_pool(&src->snap);

	if (sock < 0)
		return 0;
	struct pollfd p = { .fd = sock, .events = POLLIN };

	if (sock_poll(&p, 1, control_deadline(POOL_MS)) != 1)
		return 0;
	ssize_t n = fd_recv(sock, &reply, sizeof(reply), fds, POOL_FDS, &nfds);

	if (n != sizeof(reply) || reply.version != POOL_REPLY_VERSION ||
	    nfds != 3u + (reply.has_disks ? 2u : 0u) + (reply.has_image ? 1u : 0u)) {
		for (size_t i = 0; n >= 0 && i < nfds; i++)
			fd_close(fds[i]);
		return 0;
	}
	reply.id[sizeof(reply.id) - 1] = 0;
	take_over(l, &reply, fds);
	/* What they were made in, for their new names. */
	if (vmdir_adopt(&l->dir, reply.id, NULL) < 0) {
		launch_end(l, false, NULL);
		launch_init(l);
		return 0;
	}
	l->spawned_ns = l->start_ns;
	return 1;
}
