/* SPDX-License-Identifier: Apache-2.0 */
/* Disks of layers for the tests: files in memory, one request at a time, contents that tell who wrote them. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/machine.h"

static inline int file_new(void)
{
	int fd = memfd_create("layer", MFD_CLOEXEC); /* a sync of it takes no time */

	assert_true(fd >= 0);
	return fd;
}

static inline uint64_t file_size(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

/* Piece by piece, holes left out: new memory is what most of the time would go into. */
static inline int file_copy(int from)
{
	enum { PIECE = 1 << 20 };
	uint8_t *p = malloc(PIECE);
	int fd = file_new();

	for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0;) {
		ssize_t n = fd_pread_full(from, p, PIECE, at);

		assert_true(n > 0);
		assert_int_equal(fd_pwrite_full(fd, p, (size_t)n, at), 0);
		at += n;
	}
	assert_int_equal(ftruncate(fd, (off_t)file_size(from)), 0);
	free(p);
	return fd;
}

static inline void pair_new(int *data, int *index, uint64_t size)
{
	struct err err = ERR_INIT;

	*data = file_new();
	*index = file_new();
	if (lsmt_create(*data, *index, size, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

/* A disk over a stack whose descriptors it gets. */
static inline struct block *disk_open(const struct block_stack *s, const char *aio, const char *cache)
{
	struct block_config c = { .backend = "layers", .stack = s, .aio = aio, .cache = cache, .depth = 64 };
	struct err err = ERR_INIT;
	struct block *b = NULL;

	if (block_open(&c, &b, &err) < 0)
		fail_msg("%s", err.text);
	return b;
}

struct waited {
	struct block_request req;
	struct iovec iov;
	bool done;
	int result;
};

static inline void on_waited(struct block_request *r, int result)
{
	struct waited *w = container_of(r, struct waited, req);

	assert_false(w->done);
	w->done = true;
	w->result = result;
}

static inline void waited_submit(struct block *b, struct waited *w, enum block_op op, uint64_t off, void *p,
				 uint64_t len, uint32_t flags)
{
	*w = (struct waited){ .iov = { p, len } };
	w->req = (struct block_request){
	    .op = op, .offset = off, .len = len, .flags = flags, .iov = &w->iov, .niov = p ? 1 : 0, .done = on_waited};
	block_submit(b, &w->req);
	assert_false(w->done);
}

/* As a device does: by the event. */
static inline void waited_finish(struct block *b, struct waited *w)
{
	block_kick(b);
	while (!w->done) {
		struct pollfd p = { .fd = b->event_fd, .events = POLLIN };

		assert_int_equal(poll(&p, 1, 60000), 1);
		block_complete(b);
	}
}

static inline int disk_do(struct block *b, enum block_op op, uint64_t off, void *p, uint64_t len, uint32_t flags)
{
	struct waited w;

	waited_submit(b, &w, op, off, p, len, flags);
	waited_finish(b, &w);
	return w.result;
}

static inline void fill_random(struct rnd *r, void *p, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = rnd_next(r);

		memcpy((uint8_t *)p + i, &v, MIN(n - i, sizeof(v)));
	}
}

/* Does the whole disk hold these bytes? Of a large one a part at a time: fresh memory costs more than the reading. */
static inline void disk_holds(struct block *b, const uint8_t *want)
{
	uint64_t part = MIN(b->size, (uint64_t)4 << 20);
	uint8_t *got = malloc(part);

	for (uint64_t off = 0, n; off < b->size; off += n) {
		n = MIN(part, b->size - off);
		assert_int_equal(disk_do(b, BLOCK_READ, off, got, n, 0), 0);
		for (uint64_t i = 0; memcmp(got, want + off, n) != 0 && i < n; i += 512)
			if (memcmp(got + i, want + off + i, 512) != 0)
				fail_msg("sector %u", (unsigned)((off + i) / 512));
	}
	free(got);
}

/* A file that is made in memory. */
struct memory_image {
	uint8_t *bytes;
	uint64_t room, size;
};

static inline void image_write(struct memory_image *m, const void *p, uint64_t n, uint64_t off)
{
	if (off + n > m->room) {
		uint64_t room = MAX(2 * m->room, off + n);

		m->bytes = realloc(m->bytes, room);
		memset(m->bytes + m->room, 0, room - m->room);
		m->room = room;
	}
	memcpy(m->bytes + off, p, n);
	m->size = MAX(m->size, off + n);
}

static inline void image_punch(struct memory_image *m, uint64_t off, uint64_t n)
{
	if (off < m->size)
		memset(m->bytes + off, 0, MIN(n, m->size - off));
}

/* Blocks of zeros are holes. */
static inline int image_to_file(struct memory_image *m)
{
	static const uint8_t zeros[4096];
	int fd = file_new();

	assert_int_equal(ftruncate(fd, (off_t)m->size), 0);
	for (uint64_t at = 0, n; at < m->size; at += n) {
		uint64_t end = at;

		for (; end < m->size && memcmp(m->bytes + end, zeros, n = MIN(m->size - end, sizeof(zeros))) != 0; end += n)
			;
		n = end - at;
		if (n)
			assert_int_equal(fd_pwrite_full(fd, m->bytes + at, n, (off_t)at), 0);
		else
			n = sizeof(zeros);
	}
	free(m->bytes);
	return fd;
}
