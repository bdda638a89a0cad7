/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that are fetched whole, by the fetcher that VMs use, into the cache, where an interrupted pull goes on. What it says while it
 * does so is kept: the last of it is the reason when it fails, and a server that is waited for is told of.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/fetch_client.h"
#include "host/pull.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SHOW_MS = 200 };

int pull_path_of(int fd, char ret[PATH_MAX], struct err *err)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	if (n < 0)
		return err_errno(err, -errno, "read %s", link);
	ret[n] = '\0';
	return 0;
}

/* ---- all of each ---- */

struct fetching {
	struct remote_layers *r;
	struct progress *p;
	int sock, log_fd;
	bool told; /* that it waits */
};

static uint64_t bytes_present(const struct remote_layers *r)
{
	uint64_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += MIN((uint64_t)blob_count_present(&r->l[i].blob) << r->l[i].blob.shift, r->l[i].size);
	return n;
}

static int failed(const struct fetching *f, int code, const char *what, struct err *err)
{
	char line[400];

	return fetch_last_line(f->log_fd, line, sizeof(line)) ? err_set(err, code, "%s: %s", what, line) : err_errno(err, code, "%s", what);
}

static void tell_waiting(struct fetching *f)
{
	char line[400], text[500];

	if (f->told || !fetch_last_line(f->log_fd, line, sizeof(line)))
		return;
	f->told = true;
	snprintf(text, sizeof(text), "%s (it is tried again)", line);
	progress_say(f->p, text);
}

/* 1: one more is whole. */
static int take_message(struct fetching *f, struct err *err)
{
	uint8_t m[REMOTE_MESSAGE_MAX];
	const struct remote_whole *w = (const void *)m;
	ssize_t n = recv(f->sock, m, sizeof(m), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return failed(f, -EPIPE, "coffer-fetch has ended", err);
	if (n == sizeof(struct remote_note) && le32_get(w->type) == REMOTE_NOTE)
		tell_waiting(f);
	if (n != sizeof(*w) || le32_get(w->type) != REMOTE_WHOLE)
		return 0;
	return le32_get(w->result) == 0 ? 1 : failed(f, (int)le32_get(w->result), "a layer cannot be fetched", err);
}

static int wait_for_all(struct fetching *f, struct err *err)
{
	uint64_t total = 0;

	for (size_t i = 0; i < f->r->n; i++)
		total += f->r->l[i].size;
	for (size_t left = f->r->served; left > 0;) {
		struct pollfd p[] = { { .fd = f->sock, .events = POLLIN }, { .fd = f->p->signals, .events = POLLIN } };
		int r;

		if (poll(p, ARRAY_SIZE(p), SHOW_MS) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		r = progress_bytes(f->p, bytes_present(f->r), total, err);
		if (r == 0)
			r = take_message(f, err);
		if (r < 0)
			return r;
		left -= (size_t)r;
	}
	return 0;
}

static int fetch_all(struct remote_layers *r, uint64_t cache_size, struct progress *p, struct err *err)
{
	_cleanup_close_ int ours = -1, theirs = -1, log = -1;
	int fds[2], e;
	pid_t pid;

	if (r->served == 0)
		return 0;
	e = remote_layers_check_room(r, cache_size, err);
	if (e < 0)
		return e;
	log = memfd_create("log", MFD_CLOEXEC);
	if (log < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_errno(err, -errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	pid = remote_layers_serve(r, &(struct remote_layers_options){ .cache_size = cache_size, .mode = "all", .log_fd = log }, &theirs, 1,
				  err);
	if (pid < 0)
		return pid;
	theirs = fd_close(theirs);
	e = wait_for_all(&(struct fetching){ .r = r, .p = p, .sock = ours, .log_fd = log }, err);
	fd_close(TAKE_FD(ours));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return e;
}

/* Each once: images often have the same empty layer several times. */
static int list_layers(const struct image *image, struct remote_layers *r, struct err *err)
{
	*r = (struct remote_layers){ .l = calloc(image->nlayers + 1, sizeof(*r->l)) };
	if (r->l == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (size_t i = 0; i < image->nlayers; i++) {
		const struct image_layer *l = &image->layer[i];
		size_t k = 0;

		if (l->url == NULL)
			continue;
		while (k < r->n && strcmp(r->l[k].sha256, l->sha256) != 0)
			k++;
		if (k == r->n)
			r->l[r->n++] = (struct remote_layers_one){ .url = l->url, .sha256 = l->sha256, .size = l->bytes };
	}
	return 0;
}

int pull_fetch_layers(const struct image *image, uint64_t cache_size, struct remote_layers *ret, struct progress *p, struct err *err)
{
	int r = list_layers(image, ret, err);

	if (r < 0)
		return r;
	progress_stage(p, "fetching the layers");
	r = remote_layers_open(ret, err);
	if (r == 0) {
		r = fetch_all(ret, cache_size, p, err);
		if (r < 0)
			remote_layers_finish(ret);
	}
	if (r < 0)
		free(ret->l);
	return r;
}
