/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "null" backend: see block_null.h.
 *
 * Reads go through an empty memfd, so that guest memory is written by the kernel as with every other backend.
 */
/* syscalls(main): pread64
 * syscalls(vcpu): pread64 */
#include "devices/backend/block_null.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

static struct block_null *null_of(struct block *b)
{
	return container_of(b, struct block_null, b);
}

static void null_submit(struct block *b, struct block_request *r)
{
	struct block_null *n = null_of(b);

	r->next = NULL;
	if (n->head)
		n->tail->next = r;
	else
		n->head = r;
	n->tail = r;
}

static int read_zeros(int fd, const struct block_request *r)
{
	uint64_t off = r->offset;

	for (int i = 0; i < r->niov; i++) {
		size_t done = 0;

		while (done < r->iov[i].iov_len) {
			ssize_t k = pread(fd, (char *)r->iov[i].iov_base + done, r->iov[i].iov_len - done, (off_t)off);

			if (k <= 0)
				return k < 0 ? -errno : -EIO;
			done += (size_t)k;
			off += (uint64_t)k;
		}
	}
	return 0;
}

static void finish_all(struct block_null *n)
{
	struct block_request *r;

	while ((r = n->head)) {
		int result = n->fail;

		n->head = r->next;
		n->served[r->op]++;
		n->durable += r->op == BLOCK_WRITE && (r->flags & BLOCK_F_DURABLE);
		n->last_offset = r->offset;
		n->last_len = r->len;
		n->last_flags = r->flags;
		if (result == 0 && r->op == BLOCK_READ)
			result = read_zeros(n->zero_fd, r);
		r->done(r, result);
	}
}

static void null_kick(struct block *b)
{
	if (!null_of(b)->hold)
		finish_all(null_of(b));
}

static void null_complete(struct block *b)
{
	eventfd_t v;

	eventfd_read(b->event_fd, &v);
	finish_all(null_of(b));
}

static void null_drain(struct block *b)
{
	finish_all(null_of(b));
}

static int null_resize(struct block *b, uint64_t bytes, struct err *err)
{
	if (bytes && ftruncate(null_of(b)->zero_fd, (off_t)bytes) < 0)
		return err_errno(err, -errno, "%" PRIu64 " bytes", bytes);
	if (bytes)
		b->size = bytes;
	return 0;
}

static void null_close(struct block *b)
{
	fd_close(null_of(b)->zero_fd);
	fd_close(b->event_fd);
	free(null_of(b));
}

static const struct block_ops null_ops = {
	.submit = null_submit,
	.kick = null_kick,
	.complete = null_complete,
	.drain = null_drain,
	.resize = null_resize,
	.close = null_close,
};

int block_null_open(const struct block_config *c, struct block **ret, struct err *err)
{
	struct block_null *n = calloc(1, sizeof(*n));
	int r = 0;

	if (!n)
		return err_errno(err, -ENOMEM, "disk");
	n->b.ops = &null_ops;
	n->b.ro = c->ro;
	n->b.writethrough = c->cache && strcmp(c->cache, "writethrough") == 0;
	n->b.size = c->size;
	n->b.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	n->zero_fd = memfd_create("zeros", MFD_CLOEXEC);
	if (n->b.event_fd < 0 || n->zero_fd < 0 || ftruncate(n->zero_fd, (off_t)c->size) < 0)
		r = err_errno(err, -errno, "a null disk of %" PRIu64 " bytes", c->size);
	if (r < 0) {
		null_close(&n->b);
		return r;
	}
	*ret = &n->b;
	return 0;
}
