/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block requests as sequences of system calls: see block_io.h.
 *
 * READ and WRITE repeat until nothing is left: the kernel may transfer less than asked for (a signal, a full file
 * system, direct I/O at its own limits). Direct I/O that the file system refuses for alignment goes on through the
 * page cache (file 0). DISCARD is a hint: where holes cannot be punched nothing is done. WRITE_ZEROES without holes or
 * zero ranges writes zeros from one static page range. A durable WRITE_ZEROES ends with a sync step.
 *
 * A read that finds the end of the file means that someone truncated it under the guest: EIO.
 */
#include "devices/backend/block_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "lib/util.h"

enum { STEP_MAIN, STEP_FILL, STEP_FINAL_SYNC };
enum { ZERO_BYTES = 65536, ZERO_IOVS = 64 };

static const uint8_t zeros[ZERO_BYTES];
/* writev takes no pointers to const; nothing writes through these. */
static const struct iovec zero_iov[ZERO_IOVS] = {
	[0 ... ZERO_IOVS - 1] = { .iov_base = (void *)zeros, .iov_len = ZERO_BYTES },
};

static bool is_one_of(const char *s, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(s, *list) == 0)
			return true;
	return false;
}

int block_io_check(const struct block_config *c, struct err *err)
{
	static const char *const caches[] = { "writeback", "writethrough", "none", "unsafe", NULL };
	static const char *const aios[] = { "auto", "io_uring", "threads", NULL };

	if (c->cache && !is_one_of(c->cache, caches))
		return err_set(err, -EINVAL, "cache '%s' is unknown: use writeback, writethrough, none or unsafe", c->cache);
	if (c->aio && !is_one_of(c->aio, aios))
		return err_set(err, -EINVAL, "aio '%s' is unknown: use auto, io_uring or threads", c->aio);
	return 0;
}

int block_io_open(const struct block_config *c, struct block *b, uint32_t depth, const int *files, int nfiles,
		  struct block_io **ret, struct err *err)
{
	const char *aio = c->aio ? c->aio : "auto";
	struct err why = ERR_INIT;
	int r;

	if (strcmp(aio, "threads") == 0)
		return block_threads_open(files, nfiles, b->event_fd, BLOCK_IO_THREADS, ret, err);
	r = block_uring_open(files, nfiles, b->event_fd, depth, ret, &why);
	if (r >= 0)
		return r;
	if (strcmp(aio, "io_uring") == 0)
		return err_set(err, r, "aio=io_uring: %s (aio=threads works everywhere)", why.text);
	if (!b->note[0])
		snprintf(b->note, sizeof(b->note), "no io_uring on this host (%.160s): threads instead", why.text);
	return block_threads_open(files, nfiles, b->event_fd, BLOCK_IO_THREADS, ret, err);
}

void block_io_begin(struct block_request *r)
{
	r->pos = r->offset;
	r->left = r->op == BLOCK_FLUSH ? 0 : r->len;
	r->result = 0;
	r->step = STEP_MAIN;
}

void block_io_step(struct block_request *r, struct block_step *ret)
{
	*ret = (struct block_step){ .off = r->pos, .len = r->left };
	if (r->step == STEP_FINAL_SYNC) {
		ret->kind = BLOCK_STEP_SYNC;
		return;
	}
	if (r->step == STEP_FILL) {
		ret->kind = BLOCK_STEP_WRITE;
		if (r->left >= ZERO_BYTES) {
			ret->iov = zero_iov;
			ret->niov = (int)MIN(r->left / ZERO_BYTES, (uint64_t)ZERO_IOVS);
		} else {
			r->fill = (struct iovec){ .iov_base = (void *)zeros, .iov_len = r->left };
			ret->iov = &r->fill;
			ret->niov = 1;
		}
		return;
	}
	switch (r->op) {
	case BLOCK_READ:
	case BLOCK_WRITE:
		ret->kind = r->op == BLOCK_READ ? BLOCK_STEP_READ : BLOCK_STEP_WRITE;
		ret->iov = r->iov;
		ret->niov = r->niov;
		ret->mode = r->op == BLOCK_WRITE && (r->flags & BLOCK_F_DURABLE) ? RWF_DSYNC : 0;
		break;
	case BLOCK_FLUSH:
		ret->kind = BLOCK_STEP_SYNC;
		break;
	case BLOCK_DISCARD:
		ret->kind = BLOCK_STEP_ALLOCATE;
		ret->mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
		break;
	case BLOCK_WRITE_ZEROES:
		ret->kind = BLOCK_STEP_ALLOCATE;
		ret->mode = r->flags & BLOCK_F_UNMAP ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
						     : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
		break;
	}
}

static bool finish(struct block_request *r, int result)
{
	r->result = result;
	return true;
}

/* Skip n transferred bytes of the iovec. */
static void advance(struct block_request *r, uint64_t n)
{
	r->pos += n;
	r->left -= n;
	while (r->niov > 0 && n >= r->iov->iov_len) {
		n -= r->iov->iov_len;
		r->iov++;
		r->niov--;
	}
	if (n) {
		r->iov->iov_base = (char *)r->iov->iov_base + n;
		r->iov->iov_len -= n;
	}
}

static bool cannot_allocate(int64_t res)
{
	return res == -EOPNOTSUPP || res == -ENODEV || res == -ENOSYS || res == -EINVAL;
}

static bool zeroed(struct block_request *r)
{
	if (!(r->flags & BLOCK_F_DURABLE))
		return finish(r, 0);
	r->step = STEP_FINAL_SYNC;
	return false;
}

bool block_io_took(struct block_request *r, int64_t res)
{
	if (res == -EINTR)
		return false;
	if (r->step == STEP_FINAL_SYNC || r->op == BLOCK_FLUSH)
		return finish(r, (int)res);
	if (r->step == STEP_FILL) {
		if (res <= 0)
			return finish(r, res < 0 ? (int)res : -EIO);
		r->pos += (uint64_t)res;
		r->left -= (uint64_t)res;
		return r->left ? false : zeroed(r);
	}
	if (r->op == BLOCK_DISCARD)
		return finish(r, cannot_allocate(res) ? 0 : (int)res);
	if (r->op == BLOCK_WRITE_ZEROES) {
		if (res == 0)
			return zeroed(r);
		if (!cannot_allocate(res))
			return finish(r, (int)res);
		r->step = STEP_FILL;
		return false;
	}
	if (res == -EINVAL && (r->flags & BLOCK_F_DIRECT)) {
		r->flags &= ~(uint32_t)BLOCK_F_DIRECT;
		r->file = 0;
		return false;
	}
	if (res <= 0)
		return finish(r, res < 0 ? (int)res : -EIO);
	if ((uint64_t)res > r->left) /* cannot be; do not walk past the iovec */
		return finish(r, -EIO);
	advance(r, (uint64_t)res);
	return r->left == 0;
}
