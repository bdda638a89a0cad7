/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images whose layers are tars: they are fetched whole, by the fetcher that VMs use, into the cache, where an interrupted pull goes on; then an
 * OCI layout of links to them is imported as `coffer image import` imports any.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/file.h"
#include "host/image_import.h"
#include "host/pull.h"
#include "host/pull_ref.h"
#include "host/remote_layers.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SHOW_MS = 200 };

#define LAYOUT "layout"
#define BLOBS LAYOUT "/blobs/sha256"

/* ---- fetching ---- */

static uint64_t bytes_present(const struct remote_layers *r)
{
	uint64_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += MIN((uint64_t)blob_count_present(&r->l[i].blob) << r->l[i].blob.shift, r->l[i].size);
	return n;
}

static int wait_for_all(int sock, const struct remote_layers *r, struct progress *p, struct err *err)
{
	uint8_t m[REMOTE_MESSAGE_MAX];
	uint64_t total = 0;
	size_t left = r->served;

	for (size_t i = 0; i < r->n; i++)
		total += r->l[i].size;
	while (left > 0) {
		struct pollfd f[] = { { .fd = sock, .events = POLLIN }, { .fd = p->signals, .events = POLLIN } };
		const struct remote_whole *w = (const void *)m;
		ssize_t n;
		int e;

		if (poll(f, ARRAY_SIZE(f), SHOW_MS) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		e = progress_bytes(p, bytes_present(r), total, err);
		if (e < 0)
			return e;
		if (f[0].revents == 0)
			continue;
		n = recv(sock, m, sizeof(m), 0);
		if (n <= 0)
			return err_set(err, -EPIPE, "coffer-fetch has ended");
		if (n != sizeof(*w) || le32_get(w->type) != REMOTE_WHOLE)
			continue;
		if (le32_get(w->result) != 0)
			return err_errno(err, (int)le32_get(w->result), "a layer cannot be fetched");
		left--;
	}
	return 0;
}

static int fetch_all(struct remote_layers *r, uint64_t cache_size, struct progress *p, struct err *err)
{
	_cleanup_close_ int ours = -1, theirs = -1;
	int fds[2], e;
	pid_t pid;

	if (r->served == 0)
		return 0;
	e = remote_layers_check_room(r, cache_size, err);
	if (e < 0)
		return e;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_errno(err, -errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	pid = remote_layers_serve(r, &(struct remote_layers_options){ .cache_size = cache_size, .mode = "all", .log_fd = -1 },
				  &theirs, 1, err);
	if (pid < 0)
		return pid;
	theirs = fd_close(theirs);
	e = wait_for_all(ours, r, p, err);
	fd_close(TAKE_FD(ours));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return e;
}

/* Each once: images often have the same empty layer several times. */
static int list_layers(const struct image *image, struct remote_layers *r, struct err *err)
{
	*r = (struct remote_layers){ .l = calloc(image->nlayers, sizeof(*r->l)) };
	if (r->l == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (size_t i = 0; i < image->nlayers; i++) {
		const struct image_layer *l = &image->layer[i];
		size_t k = 0;

		while (k < r->n && strcmp(r->l[k].sha256, l->sha256) != 0)
			k++;
		if (k == r->n)
			r->l[r->n++] = (struct remote_layers_one){ .url = l->url, .sha256 = l->sha256, .size = l->bytes };
	}
	return 0;
}

/* ---- the layout ---- */

static int write_file(const struct image_draft *d, const char *name, const char *text, size_t len, struct err *err)
{
	_cleanup_close_ int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fd_write_full(fd, text, len);

	return r < 0 ? err_errno(err, r, "write '%s/%s'", d->path, name) : 0;
}

static int put_layer(const struct image_draft *d, const struct remote_layers_one *l, struct err *err)
{
	char link[64], path[PATH_MAX], name[sizeof(BLOBS) + 1 + IMAGE_SHA256_LEN];
	ssize_t n;
	int r;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", l->data_fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return err_errno(err, -errno, "read %s", link);
	path[n] = '\0';
	snprintf(name, sizeof(name), BLOBS "/%s", l->sha256);
	r = vm_disk_link(l->data_fd, path, d->fd, name, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = vm_disk_copy(l->data_fd, d->fd, name, err);
	return r < 0 ? r : (fd_close(r), 0);
}

static int put_index(const struct image_draft *d, const struct pull_documents *t, struct err *err)
{
	json_t *o = json_pack("{s:i, s:[{s:s, s:s, s:I}]}", "schemaVersion", 2, "manifests", "mediaType", t->manifest_type, "digest",
			      t->manifest_digest, "size", (json_int_t)t->manifest_len);
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text == NULL ? err_set(err, -ENOMEM, "no memory") :
			       write_file(d, LAYOUT "/index.json", text, strlen(text), err);

	json_decref(o);
	free(text);
	return r;
}

static int make_layout(const struct image_draft *d, const struct pull_documents *t, const struct remote_layers *r, struct err *err)
{
	static const char version[] = "{\"imageLayoutVersion\": \"1.0.0\"}";
	char name[sizeof(BLOBS) + 1 + IMAGE_SHA256_LEN];
	int e = 0;

	if (mkdirat(d->fd, LAYOUT, 0700) < 0 || mkdirat(d->fd, LAYOUT "/blobs", 0700) < 0 || mkdirat(d->fd, BLOBS, 0700) < 0)
		return err_errno(err, -errno, "make '%s/" LAYOUT "'", d->path);
	for (size_t i = 0; i < r->n && e == 0; i++)
		e = put_layer(d, &r->l[i], err);
	snprintf(name, sizeof(name), BLOBS "/%.64s", t->manifest_digest + 7);
	if (e == 0)
		e = write_file(d, name, t->manifest, t->manifest_len, err);
	snprintf(name, sizeof(name), BLOBS "/%.64s", t->config_digest + 7);
	if (e == 0)
		e = write_file(d, name, t->config, t->config_len, err);
	if (e == 0)
		e = write_file(d, LAYOUT "/oci-layout", version, sizeof(version) - 1, err);
	return e < 0 ? e : put_index(d, t, err);
}

int pull_tars(const struct image_store *s, const struct image *image, const struct pull_documents *t, const struct pull_options *o,
	      struct progress *p, struct err *note, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct remote_layers layers;
	char path[PATH_MAX];
	int r = list_layers(image, &layers, err);

	if (r == 0)
		r = remote_layers_open(&layers, err);
	if (r < 0) {
		free(layers.l);
		return r;
	}
	progress_stage(p, "fetching the layers");
	r = fetch_all(&layers, o->cache_size, p, err);
	if (r == 0)
		r = image_draft_begin(s, &d, err);
	if (r == 0) {
		r = make_layout(&d, t, &layers, err);
		snprintf(path, sizeof(path), "%s/" LAYOUT, d.path);
		if (r == 0)
			r = image_import(s,
					 &(struct image_import_options){ .path = path, .source = o->url, .name = image->name,
									 .platform = o->platform, .replace = o->replace },
					 p, note, err);
		image_draft_end(&d);
	}
	remote_layers_finish(&layers);
	free(layers.l);
	return r;
}
