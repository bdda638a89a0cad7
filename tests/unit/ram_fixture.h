/* SPDX-License-Identifier: Apache-2.0 */
/* Memory images in anonymous files, and memory filled from a seed, for the tests of snapshot/ram*. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_format.h"

struct pair {
	int data, index;
};

static inline struct pair pair_new(void)
{
	struct pair p = { memfd_create("ram", MFD_CLOEXEC), memfd_create("ram.index", MFD_CLOEXEC) };

	assert_true(p.data >= 0 && p.index >= 0);
	return p;
}

static inline void pair_close(struct pair *p)
{
	p->data = fd_close(p->data);
	p->index = fd_close(p->index);
}

static inline uint64_t file_size(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

static inline int file_copy(int fd)
{
	int to = memfd_create("copy", MFD_CLOEXEC);
	uint64_t n = file_size(fd);
	uint8_t *p = malloc(n ? n : 1);

	assert_true(to >= 0 && p);
	assert_int_equal(fd_pread_full(fd, p, n, 0), n);
	assert_int_equal(fd_pwrite_full(to, p, n, 0), 0);
	free(p);
	return to;
}

static inline void file_flip(int fd, uint64_t at)
{
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
}

/* xorshift */
static inline uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static inline void mem_make(struct mem *m, uint64_t size)
{
	struct err err = ERR_INIT;

	if (mem_init(m, -1, size, &err) < 0)
		fail_msg("%s", err.text);
}

static inline gpa_t page_gpa(const struct mem *m, uint64_t page)
{
	uint64_t run;

	return mem_page_gpa(m, page, &run);
}

/* Zeros, noise or something that compresses, by the seed. */
static inline void page_fill(struct mem *m, uint64_t page, uint64_t *seed)
{
	uint64_t b[MEM_PAGE_SIZE / sizeof(uint64_t)];
	unsigned kind = (unsigned)(rnd(seed) % 4);

	for (unsigned i = 0; i < ARRAY_SIZE(b); i++)
		b[i] = kind == 0 ? 0 : kind == 1 ? page + i / 64 : rnd(seed);
	assert_int_equal(mem_write(m, page_gpa(m, page), b, sizeof(b)), 0);
}

static inline uint64_t *bits_new(const struct mem *m, int value)
{
	size_t n = (mem_pages(m) + 63) / 64 * sizeof(uint64_t);
	uint64_t *p = malloc(n);

	assert_non_null(p);
	return memset(p, value, n);
}

static inline void bits_set(uint64_t *bits, uint64_t page)
{
	bits[page / 64] |= 1ull << (page % 64);
}

static inline void mem_fill(struct mem *m, uint64_t seed)
{
	for (uint64_t page = 0; page < mem_pages(m); page++)
		page_fill(m, page, &seed);
}

static inline void assert_same_memory(const struct mem *a, const struct mem *b)
{
	uint8_t x[MEM_PAGE_SIZE], y[MEM_PAGE_SIZE];

	assert_int_equal(a->size, b->size);
	for (uint64_t page = 0; page < mem_pages(a); page++) {
		assert_int_equal(mem_read(a, page_gpa(a, page), x, sizeof(x)), 0);
		assert_int_equal(mem_read(b, page_gpa(b, page), y, sizeof(y)), 0);
		if (memcmp(x, y, sizeof(x)) != 0)
			fail_msg("page %llu differs", (unsigned long long)page);
	}
}

static inline struct ram_id id_of(unsigned n)
{
	return (struct ram_id){ { (uint8_t)n, (uint8_t)(n >> 8), 0xc0 } };
}

static inline struct ram_writer *writer_new(struct mem *m, const struct pair *p, int level, unsigned id,
					    unsigned parent)
{
	struct ram_writer_config c = {
	    .mem = m, .data_fd = p->data, .index_fd = p->index, .level = level, .id = id_of(id)};
	struct ram_writer *w = NULL;
	struct err err = ERR_INIT;

	if (parent)
		c.parent = id_of(parent);
	if (ram_writer_new(&c, &w, &err) < 0)
		fail_msg("%s", err.text);
	return w;
}

static inline void writer_put(struct ram_writer *w, struct workers *ws, const uint64_t *bits)
{
	struct err err = ERR_INIT;

	if (ram_writer_put(w, ws, bits, &err) < 0)
		fail_msg("%s", err.text);
}

static inline struct ram_writer_stats writer_finish(struct ram_writer *w)
{
	struct ram_writer_stats stats;
	struct err err = ERR_INIT;

	if (ram_writer_finish(w, &stats, &err) < 0)
		fail_msg("%s", err.text);
	ram_writer_free(w);
	return stats;
}

/* One snapshot of the pages in bits (NULL: all). */
static inline struct pair save(struct mem *m, struct workers *ws, int level, unsigned id, unsigned parent,
			       const uint64_t *bits)
{
	struct pair p = pair_new();
	struct ram_writer *w = writer_new(m, &p, level, id, parent);
	uint64_t *all = bits_new(m, 0xff);

	writer_put(w, ws, bits ? bits : all);
	writer_finish(w);
	free(all);
	return p;
}

/* pairs: newest first. */
static inline int open_chain(const struct pair *pairs, unsigned n, uint64_t size, struct ram_image **ret,
			     struct err *err)
{
	struct ram_source chain[RAM_CHAIN_MAX];

	for (unsigned i = 0; i < n && i < RAM_CHAIN_MAX; i++)
		chain[i] = (struct ram_source){ .data_fd = pairs[i].data, .index_fd = pairs[i].index };
	return ram_image_open(chain, n, size, ret, err);
}

static inline struct ram_image *must_open(const struct pair *pairs, unsigned n, uint64_t size)
{
	struct ram_image *im = NULL;
	struct err err = ERR_INIT;

	if (open_chain(pairs, n, size, &im, &err) < 0)
		fail_msg("%s", err.text);
	return im;
}

typedef int restore_fn(struct ram_image *im, struct mem *m, struct workers *ws, struct err *err);

/* Restore into new memory and compare. */
static inline void check_restore(const struct pair *pairs, unsigned n, const struct mem *want, struct workers *ws,
				 restore_fn *restore)
{
	struct ram_image *im = must_open(pairs, n, want->size);
	struct err err = ERR_INIT;
	struct mem m;

	mem_make(&m, want->size);
	if (restore(im, &m, ws, &err) < 0)
		fail_msg("%s", err.text);
	assert_same_memory(&m, want);
	if (ram_image_verify(im, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
	ram_image_close(im);
	mem_finish(&m);
}

/* For cmocka: threads in *state. */
static inline int setup_workers(void **state)
{
	struct workers *ws = calloc(1, sizeof(*ws));
	struct err err = ERR_INIT;

	*state = ws;
	return ws ? workers_start(ws, NULL, 3, "test", &err) : -1;
}

static inline int teardown_workers(void **state)
{
	workers_finish(*state);
	free(*state);
	return 0;
}
