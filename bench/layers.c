/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks of layers against the same bytes in a raw file, both through the block backends with the same engine and depth,
 * in turn; medians of the rounds. Reads from the page cache are compared by processor time, which other load does not
 * change; reads from storage, and writes with their flushes, by the clock.
 *
 *   layers DIR MIB ['read seq cold write load']
 *     read    read1, read8, read64: random reads of 4 KiB through so many layers, blocks spread at random over them
 *     seq     reads of 128 KiB in order, one layer
 *     cold    the same reads with nothing in the page cache
 *     write   random writes of 4 KiB, a flush behind each DEPTH
 *     load    time to attach a million segments in 1, 8, 64 layers / to read their indexes twice, into fresh memory;
 *             index_bytes: memory for each of them
 *
 * Layout: a layer lies in its file in the order of the disk, as `coffer pack` writes it; of many, each has some blocks of
 * every part of the disk. What a read from the page cache costs depends as much on the size of the pieces the kernel keeps
 * there as on all else, and that is a matter of how they came in (one page at a time, in the pieces of a write, ahead
 * of a reader: the longer it reads on the larger). So before something is measured, raw file and layers are dropped from
 * the cache and brought in again, the same way for both: for random reads in single pages, as random reads do it,
 * for reads in order by reading in order.
 *
 * A read of the first page of a file makes the kernel read ahead at once; elsewhere it has to see first that somebody reads in
 * order, which many requests at a time hide from it. A raw file has the disk's first page there, a layer its header: so what is
 * read in order begins 1 MiB into the disk.
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

#include "bench/measure.h"
#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "tests/harness/machine.h"

enum { DEPTH = 32, BLOCK = 4096, ROUNDS = 7, BATCHES = 500, WRITE_BATCHES = 60, SEQ = 128 << 10, MANY = 1 << 20,
       COLD_ROUNDS = 9, COLD_BATCHES = 30 };

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

enum filling { OUT, SCATTERED, IN_ORDER };

/* Out of the page cache, then in again: in single pages, or ahead of a reader in order. */
static void settle(int fd, enum filling how)
{
	ssize_t n = how == OUT ? 0 : 1;

	if (fdatasync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) ||
	    posix_fadvise(fd, 0, 0, how == SCATTERED ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL))
		die("drop from the page cache", NULL);
	for (off_t at = 0; n > 0; at += n) {
		n = pread(fd, memory, SEQ, at);
		if (n < 0)
			die("read", NULL);
	}
}

/* The blocks of the raw file whose turn is k of n, as a sealed layer. */
static int make_layer(const char *dir, int raw, uint64_t blocks, int k, int n)
{
	int fd = file_at(dir, "layer", n * 100 + k);
	struct lsmt_head h = { .virtual_size = blocks * BLOCK };
	uint8_t *entries = malloc(blocks * LSMT_ENTRY_BYTES);
	uint64_t at = LSMT_BLOCK, count = 0, full = 0;
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

/* batches of DEPTH requests; in order from 1 MiB on, or at random. */
static void run(struct block *b, enum block_op op, uint64_t len, int batches, bool random, uint64_t seed)
{
	static struct block_request req[DEPTH];
	static struct iovec iov[DEPTH];
	struct rnd rnd = { seed };
	uint64_t at = MIB(1) / len, n = b->size / len;

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
	return measure_median(v, ROUNDS);
}

/* From storage. */
static double cold_ratio(struct block *raw, struct block *l, int raw_fd, const int *fd, int n, uint64_t len, bool random)
{
	double v[COLD_ROUNDS];

	for (int i = 0; i < COLD_ROUNDS; i++) {
		double t[2];

		for (int k = 0; k < 2; k++) {
			uint64_t ns;

			settle(raw_fd, OUT);
			for (int j = 0; j < n; j++)
				settle(fd[j], OUT);
			ns = loop_now_ns();
			run(k ? l : raw, BLOCK_READ, len, COLD_BATCHES, random, 2 + (uint64_t)i);
			t[k] = (double)(loop_now_ns() - ns);
		}
		v[i] = t[0] / t[1];
	}
	return measure_median(v, COLD_ROUNDS);
}

struct read_ratios {
	double warm, seq, cold, cold_seq;
};

static void read_ratios(const char *dir, struct block *raw, int raw_fd, uint64_t blocks, int n, const char *only,
			struct read_ratios *ret)
{
	int fd[LSMT_LAYERS_MAX], own[LSMT_LAYERS_MAX];
	struct block_stack s = { .base_fd = -1, .layer_fd = own, .nlayers = n, .top_data_fd = -1, .top_index_fd = -1 };
	struct block *l;

	for (int k = 0; k < n; k++) {
		fd[k] = make_layer(dir, raw_fd, blocks, k, n);
		own[k] = dup(fd[k]);
	}
	l = open_stack(&s, true);
	if (strstr(only, "read")) {
		settle(raw_fd, SCATTERED);
		for (int k = 0; k < n; k++)
			settle(fd[k], SCATTERED);
		ret->warm = ratio(raw, l, BLOCK_READ, BLOCK, BATCHES, true);
	}
	if (n == 1 && strstr(only, "seq")) {
		settle(raw_fd, IN_ORDER);
		settle(fd[0], IN_ORDER);
		ret->seq = ratio(raw, l, BLOCK_READ, SEQ, BATCHES / 10, false);
	}
	if (strstr(only, "cold"))
		ret->cold = cold_ratio(raw, l, raw_fd, fd, n, BLOCK, true);
	if (n == 1 && strstr(only, "cold"))
		ret->cold_seq = cold_ratio(raw, l, raw_fd, fd, n, SEQ, false);
	for (int k = 0; k < n; k++)
		close(fd[k]);
	block_close(l);
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

/* Layer k of n, a million segments in all on a disk of 64 GiB, spread at random over the layers. Data are a hole. */
static int make_many(const char *dir, int k, int n, uint64_t *ret_count, uint64_t *ret_at)
{
	uint64_t data_end = LSMT_HEADER_SECTORS + MANY * 128ull;
	struct lsmt_head h = { .virtual_size = 64ull << 30 };
	uint8_t *entries = malloc((size_t)MANY * LSMT_ENTRY_BYTES);
	int fd = file_at(dir, "many", n * 100 + k);
	struct rnd rnd = { 11 };
	struct err err = ERR_INIT;

	*ret_count = 0;
	*ret_at = data_end * 512;
	for (uint64_t i = 0; i < MANY; i++) {
		struct lsmt_seg s = { .offset = i * 128, .length = 8 + i % 64, .moffset = LSMT_HEADER_SECTORS + i * 128 };

		if ((int)rnd_below(&rnd, (uint32_t)n) == k)
			lsmt_entry_encode(&s, entries + (*ret_count)++ * LSMT_ENTRY_BYTES);
	}
	if (lsmt_seal_file(fd, &h, data_end, entries, *ret_count, &err) < 0)
		die("seal", &err);
	free(entries);
	return fd;
}

static double load_figure(const char *dir, int n, double *bytes)
{
	int fd[LSMT_LAYERS_MAX], copy[LSMT_LAYERS_MAX];
	uint64_t count[LSMT_LAYERS_MAX], at[LSMT_LAYERS_MAX];
	double v[ROUNDS];

	for (int k = 0; k < n; k++)
		fd[k] = make_many(dir, k, n, &count[k], &at[k]);
	for (int i = 0; i < ROUNDS; i++) {
		struct block_stack s = { .base_fd = -1, .layer_fd = copy, .nlayers = n, .top_data_fd = -1,
					 .top_index_fd = -1 };
		clock_t t0, t1;
		struct block *b;

		for (int k = 0; k < n; k++)
			copy[k] = dup(fd[k]);
		t0 = clock();
		for (int twice = 0; twice < 2; twice++) {
			size_t all = (size_t)MANY * LSMT_ENTRY_BYTES, done = 0;
			uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			for (int k = 0; p != MAP_FAILED && k < n; done += count[k++] * LSMT_ENTRY_BYTES)
				if (fd_pread_full(fd[k], p + done, count[k] * LSMT_ENTRY_BYTES, (off_t)at[k]) < 0)
					die("read the index", NULL);
			munmap(p, all);
		}
		t1 = clock();
		b = open_stack(&s, true);
		v[i] = (double)(clock() - t1) / (double)(t1 - t0);
		*bytes = MAX(*bytes, (double)lsmt_index_memory(&layers_of(b)->index) / (double)layers_of(b)->index.count);
		block_close(b);
	}
	for (int k = 0; k < n; k++)
		close(fd[k]);
	return measure_median(v, ROUNDS);
}

int main(int argc, char **argv)
{
	static const int counts[] = { 1, 8, 64 };
	struct read_ratios r[ARRAY_SIZE(counts)] = { 0 };
	double load[3] = { 0 }, bytes = 0, write = 0;
	const char *only = argc == 4 ? argv[3] : "read seq cold write load";
	struct block_config c = { .backend = "file", .depth = DEPTH };
	struct err err = ERR_INIT;
	char path[4300];
	struct block *raw;
	uint64_t blocks;
	struct rnd rnd = { 3 };
	int fd;

	if (argc != 3 && argc != 4)
		die("usage: layers DIR MIB ['read seq cold write load']", NULL);
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
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		read_ratios(argv[1], raw, fd, blocks, counts[i], only, &r[i]);
	if (strstr(only, "write"))
		write = write_ratio(argv[1], raw);
	for (size_t i = 0; strstr(only, "load") && i < ARRAY_SIZE(counts); i++)
		load[i] = load_figure(argv[1], counts[i], &bytes);
	printf("cold1=%.2f cold8=%.2f cold64=%.2f cold_seq=%.2f\n", r[0].cold, r[1].cold, r[2].cold, r[0].cold_seq);
	printf("read8=%.2f load1=%.2f load8=%.2f load64=%.2f\n", r[1].warm, load[0], load[1], load[2]);
	printf("read1=%.2f read64=%.2f seq=%.2f write=%.2f index_bytes=%.1f\n", r[0].warm, r[2].warm, r[0].seq, write, bytes);
	block_close(raw);
	close(fd);
	free(memory);
	return 0;
}
