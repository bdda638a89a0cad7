/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for the "layers" backend that carries out one request at a time, in a random order, and notes which writes a sync
 * has made safe; and a disk on it.
 */
#pragma once
#include "tests/device/layers_fixture.h"

enum { SECTORS = 256, SIZE = SECTORS * 512, INFLIGHT = 24, OPS = 160, ROUNDS = 12, FILES_MAX = 16, EVENTS = 4096 };

/* A write to a file, or a hole in it. */
struct event {
	ino_t ino;
	bool safe, hole;
	uint64_t off, len;
	uint8_t *bytes;
};

struct fake_io {
	struct block_io io;
	struct block_io *real;
	int file[BLOCK_IO_FILES];
	struct block_request *waiting[LAYERS_SUBS + 8];
	int nwaiting;
	struct event *event; /* EVENTS of them */
	int nevents, holes, switches;
	bool plain; /* requests are carried out in order, and nothing is noted */
	struct rnd rnd;
};

static void fake_submit(struct block_io *io, struct block_request *r)
{
	struct fake_io *f = (struct fake_io *)io;

	io->inflight++;
	assert_true(f->nwaiting < LAYERS_SUBS + 8);
	f->waiting[f->nwaiting++] = r;
}

static ino_t inode(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void punch(int fd, uint64_t off, uint64_t len)
{
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len), 0);
}

static void note_write(struct fake_io *f, int fd, const struct block_request *r)
{
	struct event *e = &f->event[f->nevents++];
	uint64_t at = 0;

	assert_true(f->nevents < EVENTS);
	f->switches += r->offset == 0;
	*e = (struct event){ .ino = inode(fd), .off = r->offset, .len = r->len, .bytes = malloc(r->len) };
	for (int i = 0; i < r->niov; i++) {
		memcpy(e->bytes + at, r->iov[i].iov_base, r->iov[i].iov_len);
		at += r->iov[i].iov_len;
	}
	assert_int_equal(at, r->len);
}

static void note_hole(struct fake_io *f, int fd, uint64_t off, uint64_t len)
{
	struct event *e = &f->event[f->nevents++];

	assert_true(f->nevents < EVENTS);
	assert_true(off >= LSMT_BLOCK);
	*e = (struct event){ .ino = inode(fd), .hole = true, .off = off, .len = len };
	f->holes++;
	punch(fd, off, len);
}

/* Carry out the one that waits at place i. */
static void fake_do(struct fake_io *f, int i)
{
	struct block_request *r = f->waiting[i];
	uint64_t off = r->offset;
	int fd;

	f->waiting[i] = f->waiting[--f->nwaiting];
	fd = f->file[r->file];
	f->io.inflight--;
	switch (r->op) {
	case BLOCK_WRITE:
		if (!f->plain)
			note_write(f, fd, r);
		for (int k = 0; k < r->niov; off += r->iov[k++].iov_len)
			assert_int_equal(fd_pwrite_full(fd, r->iov[k].iov_base, r->iov[k].iov_len, (off_t)off), 0);
		if (!f->plain && (r->flags & BLOCK_F_DURABLE))
			f->event[f->nevents - 1].safe = true; /* this one, nothing else */
		break;
	case BLOCK_READ:
		for (int k = 0; k < r->niov; off += r->iov[k++].iov_len)
			assert_int_equal(fd_pread_full(fd, r->iov[k].iov_base, r->iov[k].iov_len, (off_t)off),
					 r->iov[k].iov_len);
		break;
	case BLOCK_FLUSH: /* nothing completes while it is under way: all that is complete is safe */
		for (int k = 0; k < f->nevents; k++)
			f->event[k].safe |= f->event[k].ino == inode(fd);
		break;
	case BLOCK_DISCARD:
		if (f->plain)
			punch(fd, off, r->len);
		else
			note_hole(f, fd, off, r->len);
		break;
	case BLOCK_WRITE_ZEROES:
		assert_true(r->flags & BLOCK_F_UNMAP);
		note_hole(f, fd, off, r->len);
		break;
	}
	r->done(r, 0);
}

/* Any of them. */
static void fake_step(struct fake_io *f)
{
	fake_do(f, f->plain ? 0 : (int)rnd_below(&f->rnd, (uint32_t)f->nwaiting));
}

static void fake_kick(struct block_io *io)
{
	(void)io;
}

static void fake_drain(struct block_io *io)
{
	while (((struct fake_io *)io)->nwaiting)
		fake_step((struct fake_io *)io);
}

static int fake_set_file(struct block_io *io, unsigned index, int fd)
{
	((struct fake_io *)io)->file[index] = fd;
	return 0;
}

static void fake_close(struct block_io *io)
{
	struct fake_io *f = (struct fake_io *)io;

	for (int i = 0; i < f->nevents; i++)
		free(f->event[i].bytes);
	free(f->event);
	f->real->ops->close(f->real);
	free(f);
}

static const struct block_io_ops fake_ops = {
	.submit = fake_submit,
	.kick = fake_kick,
	.complete = fake_kick,
	.drain = fake_drain,
	.set_file = fake_set_file,
	.close = fake_close,
};

struct op {
	struct waited w;
	uint8_t *buf;
	int rank;    /* in the order of completion, from 1 on; 0: not complete */
	bool lost;   /* its monitor ended before it was done */
};

struct crash {
	struct block *b;
	struct fake_io *f;
	uint64_t seed;
	struct op op[OPS];
	int nops, nranks;
	int floor[SECTORS];     /* rank that a cut must not go behind */
	int latest[SECTORS];    /* rank of the newest complete one */
	int data[FILES_MAX], index[FILES_MAX], npairs;
	struct rnd rnd;
};

static void pair_add(struct crash *c)
{
	pair_new(&c->data[c->npairs], &c->index[c->npairs], SIZE);
	c->npairs++;
}

/* A disk with f in place of its engine, which never gets a request and so starts no thread. */
static struct block *fake_open(const struct block_stack *s, struct fake_io *f)
{
	struct block *b = disk_open(s, "threads", NULL);
	struct block_layers *l = layers_of(b);

	f->io = (struct block_io){ .ops = &fake_ops, .event_fd = b->event_fd };
	f->real = l->io;
	f->file[LAYERS_FILE_ZEROS] = l->zero_fd;
	for (int i = 0; i < s->nlayers; i++)
		f->file[LAYERS_FILE_TAG0 + i] = s->layer_fd[i];
	f->file[LAYERS_FILE_TAG0 + s->nlayers] = s->top_data_fd;
	f->file[LAYERS_FILE_INDEX0] = s->top_index_fd;
	l->io = &f->io;
	return b;
}

/* As it is opened to be looked at. */
static inline struct block *plain_open(const struct block_stack *s)
{
	struct fake_io *f = calloc(1, sizeof(*f));

	f->plain = true;
	return fake_open(s, f);
}

/* A monitor begins with the first pair. */
static void crash_open(struct crash *c)
{
	struct block_stack s = { .base_fd = -1, .top_data_fd = dup(c->data[0]), .top_index_fd = dup(c->index[0]) };
	struct block_layers *l;

	c->b = fake_open(&s, c->f);
	l = layers_of(c->b);
	l->space.pool.max = c->seed % 3 * 4; /* small, so that holes are punched, too */
	l->compact.floor = c->seed % 2 ? 4 : 30; /* and the log written anew, again and again */
	l->compact.times = 0;
	l->compact.slice_max = 5 + 8 * (c->seed % 4);
}

static struct crash *crash_start(uint64_t seed)
{
	struct crash *c = calloc(1, sizeof(*c));

	c->seed = seed;
	c->rnd = (struct rnd){ seed };
	c->f = calloc(1, sizeof(*c->f));
	c->f->event = calloc(EVENTS, sizeof(*c->f->event));
	c->f->rnd = (struct rnd){ seed + 1000 };
	pair_add(c);
	crash_open(c);
	return c;
}

static void crash_end(struct crash *c)
{
	block_close(c->b);
	for (int i = 0; i < c->nops; i++)
		free(c->op[i].buf);
	for (int i = 0; i < c->npairs; i++) {
		close(c->data[i]);
		close(c->index[i]);
	}
	free(c);
}
