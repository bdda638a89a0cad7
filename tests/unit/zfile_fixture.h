/* SPDX-License-Identifier: Apache-2.0 */
/* ZFiles for the tests: in memory, written and read through the interface, and sources that misbehave. */
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
#include <unistd.h>

#include "devices/backend/zfile_format.h"
#include "lib/fd.h"
#include "lib/util.h"

struct bytes {
	uint8_t *p;
	size_t n;
};

/* A source in memory, and what was read of it. */
struct memory {
	struct bytes b;
	int error;                       /* returned instead of data */
	uint64_t least, most;            /* of the offsets read since they were set */
};

static inline ssize_t memory_read(void *ctx, void *buf, size_t n, uint64_t off)
{
	struct memory *m = ctx;

	if (m->error)
		return m->error;
	if (off >= m->b.n)
		return 0;
	n = MIN(n, m->b.n - off);
	memcpy(buf, m->b.p + off, n);
	m->least = MIN(m->least, off);
	m->most = MAX(m->most, off + n);
	return (ssize_t)n;
}

static inline struct zfile_source memory_source(struct memory *m)
{
	return (struct zfile_source){ .read_at = memory_read, .ctx = m, .size = m->b.n };
}

static inline int sink_append(void *ctx, const void *buf, size_t n)
{
	struct bytes *b = ctx;

	b->p = realloc(b->p, b->n + n);
	assert_non_null(b->p);
	memcpy(b->p + b->n, buf, n);
	b->n += n;
	return 0;
}

/* Words, runs of zeros and noise: the same for the same seed. */
static inline struct bytes content_make(size_t n, uint32_t seed)
{
	struct bytes b = { malloc(n + 1), n };
	size_t at = 0;

	assert_non_null(b.p);
	while (at < n) {
		size_t run;

		seed = seed * 1103515245 + 12345;
		run = MIN(n - at, (size_t)(seed >> 16 & 1023) + 1);
		for (size_t i = 0; i < run; i++) {
			uint32_t kind = seed >> 28;

			seed = seed * 1103515245 + 12345;
			b.p[at + i] = kind < 6 ? 0 : kind < 12 ? (uint8_t)("layer of blocks "[i & 15]) : (uint8_t)(seed >> 20);
			seed = (seed & 0x0fffffff) | kind << 28;
		}
		at += run;
	}
	return b;
}

static inline struct bytes content_noise(size_t n)
{
	struct bytes b = { malloc(n), n };
	uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		b.p[i] = (uint8_t)(x >> 32);
	}
	return b;
}

static inline struct bytes zfile_make(const struct bytes *content, const struct zfile_options *o, size_t piece)
{
	struct bytes out = { NULL, 0 };
	struct zfile_writer *w = NULL;
	struct err err = ERR_INIT;
	uint64_t size = 0;

	if (zfile_writer_open(o, sink_append, &out, &w, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t at = 0; at < content->n; at += piece)
		if (zfile_writer_write(w, content->p + at, MIN(piece, content->n - at), &err) < 0)
			fail_msg("%s", err.text);
	if (zfile_writer_finish(w, &size, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(size, out.n);
	zfile_writer_free(w);
	return out;
}

static inline struct zfile *zfile_of(struct memory *m)
{
	struct zfile_source src = memory_source(m);
	struct err err = ERR_INIT;
	struct zfile *z = NULL;

	if (zfile_open(&src, "layer", &z, &err) < 0)
		fail_msg("%s", err.text);
	return z;
}

/* Opening fails, and says why. */
static inline void zfile_refused(struct memory *m, const char *why)
{
	struct zfile_source src = memory_source(m);
	struct err err = ERR_INIT;
	struct zfile *z = NULL;
	int r = zfile_open(&src, "layer", &z, &err);

	if (r >= 0)
		fail_msg("opened in spite of: %s", why);
	assert_int_equal(r, err.code);
	if (strncmp(err.text, "layer: ", 7) != 0 || !strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}
