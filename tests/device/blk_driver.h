/* SPDX-License-Identifier: Apache-2.0 */
/* A disk driver's request on top of the fake driver, for the virtio-blk tests. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/block_null.h"
#include "devices/virtio_blk.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { BLK_NO_STATUS = 0xee };

struct blk_test {
	struct machine m;
	struct driver d;
	struct device *dev;
	char image[64]; /* "" without a file */
	bool through;   /* what the disk holds is not in the image, but to be asked from the backend */
	uint64_t scratch; /* start of reusable guest memory for data */
};

struct blk_req {
	uint64_t header, status;
	uint16_t head;
};

static inline struct block_null *blk_null(struct blk_test *t)
{
	return (struct block_null *)((struct virtio_blk *)t->dev)->host.block;
}

static inline void blk_setup(struct blk_test *t, const char *options, uint64_t features)
{
	machine_init(&t->m, MIB(64));
	t->dev = machine_add(&t->m, "blk", options);
	driver_init(&t->d, &t->m, t->dev);
	driver_start(&t->d, features, 0);
	t->scratch = MIB(32);
}

static inline void blk_teardown(struct blk_test *t)
{
	machine_finish(&t->m);
	if (t->image[0])
		unlink(t->image);
}

/* A file of `size` bytes filled by a fixed pattern. */
static inline void blk_make_image(struct blk_test *t, size_t size)
{
	int fd;
	uint8_t *p = malloc(size);

	snprintf(t->image, sizeof(t->image), "/tmp/blk_test_XXXXXX");
	fd = mkstemp(t->image);
	assert_true(fd >= 0);
	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t)(i * 7 + (i >> 9) * 13 + (i >> 17));
	assert_int_equal(write(fd, p, size), (ssize_t)size);
	close(fd);
	free(p);
}

static inline void blk_header(struct blk_test *t, uint64_t at, uint32_t type, uint64_t sector)
{
	struct virtio_blk_header h = { .type = le32_make(type), .sector = le64_make(sector) };

	machine_poke(&t->m, at, &h, sizeof(h));
}

/* Header, data and status in three (or two) descriptors; not announced. */
static inline struct blk_req blk_add(struct blk_test *t, uint32_t q, uint32_t type, uint64_t sector, uint64_t data, uint32_t len)
{
	struct blk_req r = { .header = driver_alloc(&t->d, 16, 16), .status = driver_alloc(&t->d, 1, 1) };
	bool to_guest = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
	const uint8_t none = BLK_NO_STATUS;

	blk_header(t, r.header, type, sector);
	machine_poke(&t->m, r.status, &none, 1);
	struct driver_buf with[] = { { r.header, 16, false }, { data, len, to_guest }, { r.status, 1, true } };
	struct driver_buf without[] = { { r.header, 16, false }, { r.status, 1, true } };

	r.head = len ? driver_add(&t->d, q, with, 3) : driver_add(&t->d, q, without, 2);
	return r;
}

static inline uint8_t blk_status(struct blk_test *t, struct blk_req r)
{
	uint8_t s;

	machine_peek(&t->m, r.status, &s, 1);
	return s;
}

/* Wait for the next used element; returns its length. */
static inline uint32_t blk_wait(struct blk_test *t, uint32_t q, uint32_t *ret_head)
{
	uint32_t len;

	machine_settle(&t->m);
	for (int tries = 0; tries < 120; tries++) {
		if (driver_used(&t->d, q, ret_head, &len))
			return len;
		if (loop_step(&t->m.vm.loop, 1000) > 0)
			tries = 0;
	}
	fail_msg("no completion");
	return 0;
}

/* One request from start to end: its status. */
static inline uint8_t blk_do(struct blk_test *t, uint32_t type, uint64_t sector, uint64_t data, uint32_t len)
{
	struct blk_req r = blk_add(t, 0, type, sector, data, len);
	uint32_t head;

	driver_kick(&t->d, 0);
	blk_wait(t, 0, &head);
	assert_int_equal(head, r.head);
	return blk_status(t, r);
}

/* A discard or write zeroes request of n ranges. */
static inline uint8_t blk_ranges(struct blk_test *t, uint32_t type, const struct virtio_blk_range *g, uint32_t n)
{
	uint64_t at = driver_alloc(&t->d, n * sizeof(*g) + 1, 16);

	machine_poke(&t->m, at, g, n * sizeof(*g));
	return blk_do(t, type, 0, at, n * (uint32_t)sizeof(*g));
}

static inline struct virtio_blk_range blk_range(uint64_t sector, uint32_t n, uint32_t flags)
{
	return (struct virtio_blk_range){ le64_make(sector), le32_make(n), le32_make(flags) };
}

static inline void blk_fill(struct blk_test *t, uint64_t gpa, size_t len, uint64_t seed)
{
	struct rnd r = { seed };

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = rnd_next(&r);

		machine_poke(&t->m, gpa + i, &v, MIN(len - i, sizeof(v)));
	}
}

static inline void blk_ignore_result(struct block_request *r, int result)
{
	(void)r;
	(void)result;
}

static inline bool blk_read_backend(struct blk_test *t, uint64_t off, uint8_t *p, size_t len)
{
	struct block *b = ((struct virtio_blk *)t->dev)->host.block;
	struct iovec iov = { p, len };
	struct block_request r = { .op = BLOCK_READ, .offset = off, .len = len, .iov = &iov, .niov = 1, .done = blk_ignore_result };

	block_submit(b, &r);
	block_drain(b);
	return r.result == 0;
}

/* Is guest memory [gpa, gpa+len) what the disk (its image) has at off? */
static inline bool blk_same(struct blk_test *t, uint64_t gpa, uint64_t off, size_t len)
{
	uint8_t *a = malloc(len), *b = malloc(len);
	FILE *f = fopen(t->image, "rb");
	bool same;

	machine_peek(&t->m, gpa, a, len);
	if (t->through)
		same = blk_read_backend(t, off, b, len);
	else
		same = f && fseek(f, (long)off, SEEK_SET) == 0 && fread(b, 1, len, f) == len;
	same = same && memcmp(a, b, len) == 0;
	if (f)
		fclose(f);
	free(a);
	free(b);
	return same;
}
