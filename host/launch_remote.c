/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote layers of a VM that is started or restored: see launch_remote.h. A layer that the cache has whole is used like a file of the
 * store; the monitor gets data, table and a socket for the others. coffer-fetch writes into the VM's log, and ends with the monitor.
 */
#include "host/launch_remote.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/backend/layer_file.h"
#include "devices/backend/lsmt.h"
#include "devices/backend/remote_format.h"
#include "host/fetch_client.h"
#include "host/remote_layers.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "lib/util.h"

bool launch_remote_any(const struct image *image)
{
	for (size_t k = 0; k < image->nlayers; k++)
		if (image->layer[k].url != NULL)
			return true;
	return false;
}

int launch_remote_check(const struct launch_options *o, struct err *err)
{
	if (o->fetch != NULL && strcmp(o->fetch, "background") != 0 && strcmp(o->fetch, "lazy") != 0 && strcmp(o->fetch, "all") != 0)
		return err_set(err, -EINVAL, "--fetch: '%.40s' is none of: background, lazy, all", o->fetch);
	return 0;
}

static int open_log(const struct launch *l, struct err *err)
{
	int fd = openat(l->dir.fd, VMDIR_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_errno(err, -errno, "make '%s/%s'", l->dir.path, VMDIR_LOG) : fd;
}

/* 1: something came from coffer-fetch. */
static int wait_for_message(struct launch *l, int sock, struct err *err)
{
	struct pollfd p[] = { { .fd = sock, .events = POLLIN }, { .fd = l->signal_fd, .events = POLLIN } };

	if (poll(p, ARRAY_SIZE(p), -1) < 0)
		return errno == EINTR ? 0 : err_errno(err, -errno, "wait for coffer-fetch");
	for (int signal; p[1].revents && (signal = signals_next(l->signal_fd)) > 0;)
		if (signals_is_end(signal)) {
			l->signal = signal;
			return err_set(err, -ECANCELED, "interrupted");
		}
	return p[0].revents != 0;
}

/* What coffer-fetch has said last is why. The VM's directory, and its log, go with the failed start. */
static int say_failed(const struct launch *l, int code, const char *what, struct err *err)
{
	_cleanup_close_ int log = openat(l->dir.fd, VMDIR_LOG, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char line[400];

	return fetch_last_line(log, line, sizeof(line)) ? err_set(err, code, "%s: %s", what, line) : err_errno(err, code, "%s", what);
}

/* Until all are whole, or one cannot be. */
static int wait_for_all(struct launch *l, int sock, size_t n, struct err *err)
{
	uint8_t m[REMOTE_MESSAGE_MAX];

	while (n > 0) {
		const struct remote_whole *w = (const void *)m;
		int r = wait_for_message(l, sock, err);
		ssize_t len;

		if (r < 0)
			return r;
		if (r == 0)
			continue;
		len = recv(sock, m, sizeof(m), MSG_DONTWAIT);
		if (len < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (len <= 0)
			return say_failed(l, -EPIPE, "coffer-fetch has ended", err);
		if (len != sizeof(*w) || le32_get(w->type) != REMOTE_WHOLE)
			continue;
		if (le32_get(w->result) != 0)
			return say_failed(l, (int)le32_get(w->result), "a remote layer cannot be fetched", err);
		n--;
	}
	return 0;
}

static int serve(struct launch *l, const struct launch_options *o, const char *mode, int *ret_sock, struct err *err)
{
	_cleanup_close_ int ours = -1, theirs = -1, log = open_log(l, err);
	struct remote_layers_options options = { .cache_size = o->cache_size, .mode = mode, .timeout_ms = (uint64_t)(o->fetch_timeout * 1000),
					  .log_fd = log };
	int fds[2];
	pid_t pid;

	if (log < 0)
		return log;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_errno(err, -errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	pid = remote_layers_serve(l->remote, &options, &theirs, 1, err);
	if (pid < 0)
		return pid;
	*ret_sock = TAKE_FD(ours);
	return 0;
}

int launch_remote_note(struct launch *l, const char *url, const char *sha256, uint64_t size, struct err *err)
{
	struct remote_layers_one *more;

	if (l->remote == NULL)
		l->remote = calloc(1, sizeof(*l->remote));
	more = l->remote != NULL ? realloc(l->remote->l, (l->remote->n + 1) * sizeof(*more)) : NULL;
	if (more == NULL)
		return err_set(err, -ENOMEM, "out of memory");
	l->remote->l = more;
	more[l->remote->n++] = (struct remote_layers_one){ .url = url, .sha256 = sha256, .size = size, .blob = BLOB_NONE, .data_fd = -1,
						      .table_fd = -1 };
	return 0;
}

int launch_remote_open(struct launch *l, const struct launch_options *o, struct vm_disk *d, struct err *err)
{
	int r = remote_layers_open(l->remote, err);

	if (r == 0 && l->remote->served > 0 && o->fetch != NULL && strcmp(o->fetch, "all") == 0) {
		_cleanup_close_ int sock = -1;

		r = remote_layers_check_room(l->remote, o->cache_size, err);
		if (r == 0)
			r = serve(l, o, "all", &sock, err);
		if (r == 0)
			r = wait_for_all(l, sock, l->remote->served, err);
		if (r == 0) {
			remote_layers_finish(l->remote);
			r = remote_layers_open(l->remote, err);
		}
	}
	if (r == 0 && l->remote->served > 0)
		r = serve(l, o, o->fetch, &d->remote_sock, err);
	return r;
}

static int file_of(const struct remote_layers_one *from, char path[PATH_MAX], struct err *err)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", from->data_fd);
	n = readlink(link, path, PATH_MAX - 1);
	if (n < 0)
		return err_errno(err, -errno, "read %s", link);
	path[n] = '\0';
	return 0;
}

static int add_whole(struct vm_disk *d, size_t number, int disk_dir_fd, struct remote_layers_one *from, const char *path,
		     struct snapshot_layer known, struct err *err)
{
	struct lsmt_info info;
	int r = lsmt_inspect(from->data_fd, path, &info, err);

	if (r < 0)
		return r;
	known.index_hash = info.index_hash;
	return vm_disk_add_held_layer(d, number, disk_dir_fd, TAKE_FD(from->data_fd), path, &known, err);
}

int launch_remote_add(struct launch *l, struct vm_disk *d, size_t number, const char *digest, struct err *err)
{
	struct remote_layers_one *from = l->remote->l;
	struct snapshot_layer known = { 0 };
	char path[PATH_MAX];
	int r;

	for (size_t i = 0; i < d->d.nlayers; i++)
		from += d->d.layer[i].url != NULL;
	known.size = from->size;
	known.url = (char *)(uintptr_t)from->url; /* is copied */
	snprintf(known.sha256, sizeof(known.sha256), "%s", from->sha256);
	snprintf(known.digest, sizeof(known.digest), "%s", digest);
	if (!from->whole)
		return vm_disk_add_remote_layer(d, number, TAKE_FD(from->data_fd), TAKE_FD(from->table_fd), &known, err);
	r = file_of(from, path, err);
	return r < 0 ? r : add_whole(d, number, l->dir.disk_dir_fd, from, path, known, err);
}

void launch_remote_finish(struct launch *l)
{
	if (l->remote == NULL)
		return;
	remote_layers_finish(l->remote);
	free(l->remote->l);
	free(l->remote);
	l->remote = NULL;
}
