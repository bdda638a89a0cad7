/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What remote layers are together: they are stacked as a monitor stacks them, read-only, and the beginning of the disk is read. So an
 * image whose layers are damaged, or no layers, or not there, is refused when it is pulled.
 *
 * Trust: all of the layers is hostile; it is read by the code that monitors read it with.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/backend/block.h"
#include "devices/backend/remote.h"
#include "host/fetch_client.h"
#include "host/pull.h"
#include "host/remote_layers.h"
#include "lib/fd.h"
#include "lib/util.h"

struct disk {
	struct remote_layers layers;
	struct remote *remote; /* NULL: all of it is in the cache */
	struct block *b;
	struct progress *p;
	pid_t pid;
	int log_fd;
	int interrupted;
};

static void on_want(void *ctx, unsigned layer, uint64_t chunk)
{
	const struct disk *d = ctx;

	remote_ops.want(d->remote, layer, chunk);
}

/* As remote_ops.wait, but the user may want to end. */
static int on_wait(void *ctx)
{
	struct disk *d = ctx;
	struct pollfd f[] = { { .fd = remote_socket(d->remote), .events = POLLIN }, { .fd = d->p->signals, .events = POLLIN } };

	/* What is wanted has to be sent before there is anything to wait for. Answers are left where poll sees them: the last one
	 * may be there already. */
	if (!remote_send(d->remote))
		return -EPIPE;
	if (poll(f, ARRAY_SIZE(f), -1) < 0 && errno != EINTR)
		return -errno;
	if (f[1].revents != 0 && progress_bytes(d->p, 0, 0, NULL) == -EINTR) {
		d->interrupted = -EINTR;
		return -EINTR;
	}
	remote_run(d->remote);
	return 0;
}

static const struct block_remote_ops ops = { .want = on_want, .wait = on_wait };

/* Where a remote layer could not be read, what coffer-fetch said last is why. It is no reason where content is refused. */
static int explain(const struct disk *d, int r, struct err *err)
{
	struct err why = *err;
	char line[400];

	if (d->interrupted)
		return err_set(err, -EINTR, "interrupted");
	if (r == -EINVAL || r == -ENOMEM || !fetch_last_line(d->log_fd, line, sizeof(line)))
		return r;
	return err_set(err, r, "%.300s (%s)", why.text, line);
}

static int connect_layers(struct disk *d, uint64_t cache_size, struct block_remote *table, struct err *err)
{
	_cleanup_close_ int ours = -1, theirs = -1;
	int fds[2], r;

	if (d->layers.served == 0)
		return 0;
	d->log_fd = memfd_create("log", MFD_CLOEXEC);
	if (d->log_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_errno(err, -errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	d->pid = remote_layers_serve(&d->layers, &(struct remote_layers_options){ .cache_size = cache_size, .mode = "lazy", .log_fd = d->log_fd },
				     &theirs, 1, err);
	r = d->pid < 0 ? d->pid : remote_create(ours, &d->remote, err);
	if (r < 0)
		return r;
	TAKE_FD(ours);
	for (size_t i = 0; i < d->layers.n && r == 0; i++) {
		struct remote_layers_one *l = &d->layers.l[i];
		char name[32];

		snprintf(name, sizeof(name), "layer %zu", i + 1);
		if (!l->whole)
			r = remote_add(d->remote, (unsigned)i, l->table_fd, l->size, name, &table[i], err);
	}
	return r;
}

static int attach(struct disk *d, const struct block_remote *table, struct err *err)
{
	int fd[IMAGE_LAYERS_MAX], r = 0;
	struct block_stack stack = { .base_fd = -1, .layer_fd = fd, .nlayers = (int)d->layers.n, .top_data_fd = -1, .top_index_fd = -1,
				     .remote = table, .remote_ops = &ops, .remote_ctx = d };
	int n = 0;

	for (; n < stack.nlayers && r == 0; n++) {
		fd[n] = fcntl(d->layers.l[n].data_fd, F_DUPFD_CLOEXEC, 3);
		r = fd[n] < 0 ? err_errno(err, -errno, "layer %d", n + 1) : 0;
	}
	if (r == 0)
		r = block_layers_attach(d->b, &stack, err);
	for (int i = 0; i < n && r < 0; i++)
		fd_close(fd[i]);
	return r;
}

struct one_read {
	struct block_request r;
	struct iovec iov;
	bool done;
	int result;
};

static void on_done(struct block_request *r, int result)
{
	struct one_read *o = container_of(r, struct one_read, r);

	o->done = true;
	o->result = result;
}

static int read_begin(struct disk *d, uint8_t *buf, struct err *err)
{
	struct one_read o = { .iov = { buf, IMAGE_SNIFF } };

	o.r = (struct block_request){ .op = BLOCK_READ, .len = IMAGE_SNIFF, .iov = &o.iov, .niov = 1, .done = on_done };
	block_submit(d->b, &o.r);
	block_kick(d->b);
	block_drain(d->b);
	if (!o.done || o.result < 0)
		return err_errno(err, o.done ? o.result : -EIO, "read the disk");
	return 0;
}

int pull_inspect_disk(struct image *image, uint64_t cache_size, struct progress *p, struct err *err)
{
	struct disk d = { .p = p, .log_fd = -1 };
	struct block_remote table[IMAGE_LAYERS_MAX + 1] = { 0 };
	uint8_t begin[IMAGE_SNIFF];
	int r;

	d.layers.n = image->nlayers;
	d.layers.l = calloc(image->nlayers, sizeof(*d.layers.l));
	if (d.layers.l == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (size_t i = 0; i < image->nlayers; i++)
		d.layers.l[i] = (struct remote_layers_one){ .url = image->layer[i].url, .sha256 = image->layer[i].sha256,
						       .size = image->layer[i].bytes };
	r = remote_layers_open(&d.layers, err);
	if (r == 0)
		r = connect_layers(&d, cache_size, table, err);
	if (r == 0)
		r = block_layers_open(&(struct block_config){ .ro = true, .aio = "threads" }, &d.b, err);
	if (r == 0) {
		if (d.remote != NULL)
			remote_set_block(d.remote, d.b);
		r = attach(&d, table, err);
	}
	if (r == 0 && d.b->size < IMAGE_SNIFF)
		r = err_set(err, -EINVAL, "the layers are a disk of %llu bytes", (unsigned long long)d.b->size);
	if (r == 0)
		r = read_begin(&d, begin, err);
	if (r == 0) {
		image->size = d.b->size;
		image->format = image_format_sniff(begin);
	}
	block_close(d.b);
	remote_destroy(d.remote);
	remote_layers_finish(&d.layers);
	free(d.layers.l);
	while (d.pid > 0 && waitpid(d.pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		r = explain(&d, r, err);
	fd_close(d.log_fd);
	return r;
}
