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
#include "lib/util.h"

void pool_name(const struct snapshot *s, char out[64])
{
	snprintf(out, 64, "POOL-%s", s->m.id);
}

int pool_request_make(const struct snapshot *s, struct pool_request *ret)
{
	_cleanup_free_ char *text = snapshot_manifest_format(&s->m);
	struct sha256_ctx hash;

	if (!text)
		return -ENOMEM;
	*ret = (struct pool_request){ .version = POOL_VERSION };
	sha256_init(&hash);
	sha256_update(&hash, strlen(text), (const uint8_t *)text);
	sha256_end_hex(&hash, ret->manifest);
	return 0;
}

bool pool_request_receive(int sock, const struct pool_request *own)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct pool_request q;

	return sock_poll(&p, 1, control_deadline(POOL_MS)) == 1 && recv(sock, &q, sizeof(q), MSG_DONTWAIT) == sizeof(q) &&
	       q.version == own->version && !memcmp(q.manifest, own->manifest, sizeof(q.manifest));
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
	struct pool_request request;
	struct pool_reply reply;
	size_t nfds = 0;

	if (o->no_seccomp || o->log_level || !src->snap.m.id[0])
		return 0;
	_cleanup_close_ int sock = connect_pool(&src->snap);

	if (sock < 0 || pool_request_make(&src->snap, &request) < 0 ||
	    fd_send(sock, &request, sizeof(request), NULL, 0) < 0)
		return 0;
	struct pollfd p = { .fd = sock, .events = POLLIN };

	if (sock_poll(&p, 1, control_deadline(POOL_MS)) != 1)
		return 0;
	ssize_t n = fd_recv(sock, &reply, sizeof(reply), fds, POOL_FDS, &nfds);

	if (n != sizeof(reply) || reply.version != POOL_VERSION ||
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
