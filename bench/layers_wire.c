/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a remote image as a guest makes them, without a guest: runs of 1 MiB here and there, in requests of 128 KiB, two of them
 * ahead, through the "layers" backend and coffer-fetch. Prints how many bytes were read and how long it took; the server counts
 * what went over the wire (layers_wire.py).
 *
 *   layers_wire IMAGE FIRST_MIB LAST_MIB RUNS
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "bench/measure.h"
#include "devices/backend/remote.h"
#include "host/image.h"
#include "host/remote_layers.h"
#include "lib/util.h"

enum { REQUEST = 128 << 10, RUN = 1 << 20, AHEAD = 2, STRIDE = 37 };

struct reader {
	struct remote *remote;
	struct block *b;
	struct slot {
		struct block_request r;
		struct iovec iov;
		struct reader *reader;
		uint8_t buf[REQUEST];
	} slot[AHEAD];
	int flying;
	uint64_t bytes;
};

static void die(const char *what, int r, const struct err *err)
{
	fprintf(stderr, "layers_wire: %s: %s\n", what, err->code ? err->text : strerror(-r));
	exit(1);
}

static void on_done(struct block_request *r, int result)
{
	struct slot *s = container_of(r, struct slot, r);

	if (result < 0)
		die("read", result, &ERR_INIT);
	s->reader->bytes += REQUEST;
	s->reader->flying--;
	s->r.len = 0;
}

static void start(struct reader *d, uint64_t off)
{
	struct slot *s = d->slot[0].r.len == 0 ? &d->slot[0] : &d->slot[1];

	s->reader = d;
	s->iov = (struct iovec){ s->buf, REQUEST };
	s->r = (struct block_request){ .op = BLOCK_READ, .offset = off, .len = REQUEST, .iov = &s->iov, .niov = 1, .done = on_done };
	d->flying++;
	block_submit(d->b, &s->r);
	block_kick(d->b);
}

static void wait_one(struct reader *d)
{
	int before = d->flying;
	struct pollfd p[] = { { .fd = d->b->event_fd, .events = POLLIN },
			      { .fd = remote_socket(d->remote), .events = POLLIN },
			      { .fd = remote_wake_fd(d->remote), .events = POLLIN } };

	while (d->flying == before && d->flying > 0) {
		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			die("poll", -errno, &ERR_INIT);
		if (!remote_run(d->remote))
			die("coffer-fetch has ended", -EPIPE, &ERR_INIT);
		block_complete(d->b);
	}
}

static void open_disk(struct reader *d, struct image *image, struct remote_layers *l)
{
	struct block_remote table[IMAGE_LAYERS_MAX + 1] = { { NULL } };
	int fd[IMAGE_LAYERS_MAX], socks[2], r;
	struct err err = ERR_INIT;

	l->l = calloc(image->nlayers, sizeof(*l->l));
	if (l->l == NULL)
		die("memory", -ENOMEM, &err);
	l->n = image->nlayers;
	for (size_t i = 0; i < l->n; i++)
		l->l[i] = (struct remote_layers_one){ .url = image->layer[i].url, .sha256 = image->layer[i].sha256, .size = image->layer[i].bytes };
	r = remote_layers_open(l, &err);
	if (r < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0 ||
	    (r = remote_layers_serve(l, &(struct remote_layers_options){ .mode = "lazy", .log_fd = -1 }, &socks[1], 1, &err)) < 0 ||
	    (r = remote_create(socks[0], &d->remote, &err)) < 0)
		die("open", r, &err);
	close(socks[1]);
	for (size_t i = 0; i < l->n && r >= 0; i++) {
		fd[i] = fcntl(l->l[i].data_fd, F_DUPFD_CLOEXEC, 3);
		r = remote_add(d->remote, (unsigned)i, l->l[i].table_fd, l->l[i].size, "layer", &table[i], &err);
	}
	if (r < 0 || (r = block_layers_open(&(struct block_config){ .ro = true, .depth = 8 }, &d->b, &err)) < 0)
		die("open", r, &err);
	remote_set_block(d->remote, d->b);
	r = block_layers_attach(d->b,
				&(struct block_stack){ .base_fd = -1, .layer_fd = fd, .nlayers = (int)l->n, .top_data_fd = -1, .top_index_fd = -1,
						       .remote = table, .remote_ops = &remote_ops, .remote_ctx = d->remote },
				&err);
	if (r < 0)
		die("attach", r, &err);
}

int main(int argc, char **argv)
{
	struct reader *d = calloc(1, sizeof(*d));
	struct remote_layers layers = { .l = NULL };
	struct err err = ERR_INIT;
	struct image image;
	uint64_t first, last, start_ns;

	if (argc != 5 || d == NULL) {
		fprintf(stderr, "layers_wire IMAGE FIRST_MIB LAST_MIB RUNS\n");
		return 2;
	}
	if (image_resolve(argv[1], &image, &err) < 0)
		die(argv[1], -ENOENT, &err);
	first = strtoull(argv[2], NULL, 10);
	last = strtoull(argv[3], NULL, 10);
	open_disk(d, &image, &layers);
	start_ns = loop_now_ns();
	for (uint64_t i = strtoull(argv[4], NULL, 10); i > 0; i--) {
		uint64_t at = MIB(first + i * STRIDE % (last - first)); /* none twice */

		for (uint64_t off = 0; off < RUN; off += REQUEST) {
			if (d->flying == AHEAD)
				wait_one(d);
			start(d, at + off);
		}
		while (d->flying > 0)
			wait_one(d);
	}
	printf("read=%llu ms=%.0f\n", (unsigned long long)d->bytes, measure_ms_since(start_ns));
	remote_shutdown(d->remote);
	block_close(d->b);
	remote_destroy(d->remote);
	remote_layers_finish(&layers);
	free(layers.l);
	image_finish(&image);
	free(d);
	return 0;
}
