/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks of layers against the same bytes in a raw file, both through the block backends with the same engine and depth, in turn;
 * medians of the rounds. Reads, all from the page cache, are compared by processor time, which other load does not change; writes
 * with their flushes by the clock.
 *
 *   layers DIR MIB   read1, read8, read64: random reads of 4 KiB through so many layers, blocks spread at random over them
 *                    seq: reads of 128 KiB in order, one layer; write: random writes of 4 KiB, a flush behind each DEPTH
 *                    index_bytes: memory for each of a million segments; load: time to attach them / to read the index twice, into fresh memory
 *
 * Last line: `read1=... read64=... seq=... write=... index_bytes=...`; ratios are raw's time over layers'.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "tests/harness/machine.h"

enum { DEPTH = 32, BLOCK = 4096, ROUNDS = 7, BATCHES = 500, WRITE_BATCHES = 60, SEQ = 128 << 10, MANY = 1 << 20 };

static uint8_t *memory; /* DEPTH * SEQ */

static void die(const char *what, const struct err *err)
{
	fprintf(stderr, "layers: %s: %s\n", what, err && err->text[0] ? err->text : strerror(errno));
	exit(1);
}

static int file_at(const char *dir, const char *name, int k)
{
	char path[4300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s%d", dir, name, k);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path, NULL);
	return fd;
}

/* The blocks of the raw file whose turn is k of n, as a sealed layer. */
static int make_layer(const char *dir, int raw, uint64_t blocks, int k, int n)
{
	int fd = file_at(dir, "layer", n * 100 + k);
	struct lsmt_head h = { .virtual_size = blocks * BLOCK };
	uint8_t *entries = malloc(blocks * LSMT_ENTRY_BYTES);
	uint64_t at = LSMT_BLOCK, count = 0, full = 0; /* written as the raw file is: the page cache keeps what comes together together */
	struct rnd rnd = { 9 };
	struct err err = ERR_INIT;

	for (uint64_t b = 0; b < blocks; b++) {
		struct lsmt_seg s = { .offset = b * 8, .length = 8, .moffset = at / 512 };

		if ((int)rnd_below(&rnd, (uint32_t)n) != k)
			continue;
		if (fd_pread_full(raw, memory + full, BLOCK, (off_t)(b * BLOCK)) != BLOCK)
			die("read the raw file", NULL);
		lsmt_entry_encode(&s, entries + count++ * LSMT_ENTRY_BYTES);
		at += BLOCK;
		full += BLOCK;
		if (full == SEQ && fd_pwrite_full(fd, memory, full, (off_t)(at - full)) < 0)
			die("make a layer", NULL);
		full %= SEQ;
	}
	if (fd_pwrite_full(fd, memory, full, (off_t)(at - full)) < 0)
		die("make a layer", NULL);
	if (lsmt_seal_file(fd, &h, at / 512, entries, count, &err) < 0)
		die("seal", &err);
	free(entries);
	return fd;
}

static struct block *open_stack(const struct block_stack *s, bool ro)
{
	struct block_config c = { .backend = "layers", .stack = s, .ro = ro, .depth = DEPTH };
	struct err err = ERR_INIT;
	struct block *b;

	if (block_open(&c, &b, &err) < 0)
		die("open layers", &err);
	return b;
}

static struct block *open_layers(const char *dir, int raw, uint64_t blocks, int n)
{
	int fds[LSMT_LAYERS_MAX];
	struct block_stack s = { .base_fd = -1, .layer_fd = fds, .nlayers = n, .top_data_fd = -1, .top_index_fd = -1 };

	for (int k = 0; k < n; k++)
		fds[k] = make_layer(dir, raw, blocks, k, n);
	return open_stack(&s, true);
}

static int left;

static void on_done(struct block_request *r, int result)
{
	(void)r;
	if (result < 0)
		die("request", NULL);
	left--;
}

static void finish(struct block *b)
{
	block_kick(b);
	block_drain(b);
	if (left)
		die("drain", NULL);
}

/* batches of DEPTH requests; in order, or at random. */
static void run(struct block *b, enum block_op op, uint64_t len, int batches, bool random, uint64_t seed)
{
	static struct block_request req[DEPTH];
	static struct iovec iov[DEPTH];
	struct rnd rnd = { seed };
	uint64_t at = 0, n = b->size / len;

	for (int k = 0; k < batches; k++) {
		left = DEPTH;
		for (int i = 0; i < DEPTH; i++, at++) {
			iov[i] = (struct iovec){ memory + (uint64_t)i * SEQ, len };
			req[i] = (struct block_request){ .op = op, .offset = (random ? rnd_next(&rnd) % n : at % n) * len,
							 .len = len, .iov = &iov[i], .niov = 1, .done = on_done };
			block_submit(b, &req[i]);
		}
		finish(b);
		if (op == BLOCK_WRITE) {
			left = 1;
			req[0] = (struct block_request){ .op = BLOCK_FLUSH, .done = on_done };
			block_submit(b, &req[0]);
			finish(b);
		}
	}
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Median of raw's time over the layers'. */
static double ratio(struct block *raw, struct block *l, enum block_op op, uint64_t len, int batches, bool random)
{
	double v[ROUNDS];

	run(raw, op, len, batches, random, 1); /* warm */
	run(l, op, len, batches, random, 1);
	for (int i = 0; i < ROUNDS; i++) {
		double t[2];

		for (int k = 0; k < 2; k++) {
			clock_t cpu = clock();
			uint64_t ns = loop_now_ns();

			run(k ? l : raw, op, len, batches, random, 2 + (uint64_t)i);
			t[k] = op == BLOCK_WRITE ? (double)(loop_now_ns() - ns) : (double)(clock() - cpu);
		}
		v[i] = t[0] / t[1];
	}
	qsort(v, ROUNDS, sizeof(*v), compare);
	return v[ROUNDS / 2];
}

static double write_ratio(const char *dir, struct block *raw)
{
	int data = file_at(dir, "data", 0), index = file_at(dir, "index", 0);
	struct block_stack s = { .base_fd = -1, .top_data_fd = data, .top_index_fd = index };
	struct err err = ERR_INIT;
	struct block *b;
	double r;

	if (lsmt_create(data, index, raw->size, NULL, NULL, &err) < 0)
		die("make a pair", &err);
	b = open_stack(&s, false);
	r = ratio(raw, b, BLOCK_WRITE, BLOCK, WRITE_BATCHES, true);
	block_close(b);
	return r;
}

/* A layer of a million segments on a disk of 64 GiB: its data are a hole. */
static void index_figures(const char *dir, double *bytes, double *load)
{
	uint64_t data_end = LSMT_HEADER_SECTORS + MANY * 128ull, at = data_end * 512;
	struct lsmt_head h = { .virtual_size = 64ull << 30 };
	uint8_t *entries = malloc((size_t)MANY * LSMT_ENTRY_BYTES);
	int fd = file_at(dir, "many", 0);
	struct err err = ERR_INIT;
	double v[ROUNDS];

	for (uint64_t i = 0; i < MANY; i++) {
		struct lsmt_seg s = { .offset = i * 128, .length = 8 + i % 64, .moffset = LSMT_HEADER_SECTORS + i * 128 };

		lsmt_entry_encode(&s, entries + i * LSMT_ENTRY_BYTES);
	}
	if (lsmt_seal_file(fd, &h, data_end, entries, MANY, &err) < 0)
		die("seal", &err);
	free(entries);
	for (int i = 0; i < ROUNDS; i++) {
		int copy = dup(fd);
		struct block_stack s = { .base_fd = -1, .layer_fd = &copy, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 };
		clock_t t0 = clock(), t1;
		struct block *b;

		for (int k = 0; k < 2; k++) {
			size_t n = (size_t)MANY * LSMT_ENTRY_BYTES;
			uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (p == MAP_FAILED || fd_pread_full(fd, p, n, (off_t)at) < 0)
				die("read the index", NULL);
			munmap(p, n);
		}
		t1 = clock();
		b = open_stack(&s, true);
		v[i] = (double)(clock() - t1) / (double)(t1 - t0);
		*bytes = (double)lsmt_index_memory(&layers_of(b)->index) / (double)layers_of(b)->index.count;
		block_close(b);
	}
	qsort(v, ROUNDS, sizeof(*v), compare);
	*load = v[ROUNDS / 2];
	close(fd);
}

int main(int argc, char **argv)
{
	static const int counts[] = { 1, 8, 64 };
	double read[3], seq = 0, write, bytes, load;
	struct block_config c = { .backend = "file", .depth = DEPTH };
	struct err err = ERR_INIT;
	char path[4300];
	struct block *raw;
	uint64_t blocks;
	struct rnd rnd = { 3 };
	int fd;

	if (argc != 3)
		die("usage: layers DIR MIB", NULL);
	blocks = strtoull(argv[2], NULL, 10) * 256;
	memory = malloc((size_t)DEPTH * SEQ);
	fd = file_at(argv[1], "raw", 0);
	for (uint64_t b = 0; b < blocks * BLOCK / SEQ; b++) {
		for (size_t i = 0; i < SEQ; i += 8)
			*(uint64_t *)(void *)(memory + i) = rnd_next(&rnd);
		if (fd_pwrite_full(fd, memory, SEQ, (off_t)(b * SEQ)) < 0)
			die("raw file", NULL);
	}
	snprintf(path, sizeof(path), "%s/raw0", argv[1]);
	c.path = path;
	if (block_open(&c, &raw, &err) < 0)
		die("raw", &err);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		struct block *l = open_layers(argv[1], fd, blocks, counts[i]);

		read[i] = ratio(raw, l, BLOCK_READ, BLOCK, BATCHES, true);
		if (counts[i] == 1)
			seq = ratio(raw, l, BLOCK_READ, SEQ, BATCHES / 10, false);
		block_close(l);
	}
	write = write_ratio(argv[1], raw);
	index_figures(argv[1], &bytes, &load);
	printf("read8=%.2f load=%.2f\n", read[1], load);
	printf("read1=%.2f read64=%.2f seq=%.2f write=%.2f index_bytes=%.1f\n", read[0], read[2], seq, write, bytes);
	block_close(raw);
	close(fd);
	free(memory);
	return 0;
}
