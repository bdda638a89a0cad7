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

static inline int file_copy(int from)
{
	uint64_t n = file_size(from);
	uint8_t *p = malloc(n + 1);
	int fd = file_new();

	assert_int_equal(fd_pread_full(from, p, n, 0), n);
	assert_int_equal(fd_pwrite_full(fd, p, n, 0), 0);
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

/* Does the whole disk hold these bytes? */
static inline void disk_holds(struct block *b, const uint8_t *want)
{
	uint8_t *got = malloc(b->size);

	assert_int_equal(disk_do(b, BLOCK_READ, 0, got, b->size, 0), 0);
	for (uint64_t i = 0; i < b->size; i += 512)
		if (memcmp(got + i, want + i, 512) != 0)
			fail_msg("sector %u", (unsigned)(i / 512));
	free(got);
}
