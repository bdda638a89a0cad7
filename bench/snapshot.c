/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a snapshot, written and read, beside what its bytes cost alone: bench/snapshot.sh runs it.
 *
 *   snapshot memory WORKDIR MIB RUNS   no KVM: memory of that size full of text-like data, by snapshot/ram.h
 *   snapshot pause WORKDIR RUNS        a payload that dirties 64 MiB again and again in a real coffer-vmm
 *
 * memory, medians of RUNS taken in turn:
 *   write   a full raw snapshot / write(2) of the same bytes to a file beside it
 *   zstd    eager restore of level 1 frames / libzstd's own decompression of the same frames, on as many threads, into one small
 *           buffer each; zstd_fresh: into memory that nobody touched before, as a restore has to
 *   diff    1 % of the pages, chosen at random: time and size / those of the full one, at the same level
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "snapshot/ram.h"
#include "tests/harness/monitor.h"

enum { RUNS_MAX = 100, BLOCK = 1 << 20 };

struct bench {
	struct mem mem;
	struct workers workers;
	const char *work;
	uint64_t pages;
	uint64_t *all, *few; /* bits of pages */
	uint8_t *copy;       /* the same bytes, for the floors */
	size_t frame_bytes;
};

static void must(int r, const struct err *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench-snapshot: %s\n", err->text);
	exit(1);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(v[0]), by_value);
	return v[n / 2];
}

static double seconds_since(uint64_t start)
{
	return (double)(loop_now_ns() - start) / 1e9;
}

static int new_file(const struct bench *b, const char *name)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", b->work, name);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

/* Words drawn from a small vocabulary: packs to about a third, as memory of programs does. */
static void fill(struct bench *b)
{
	uint64_t x = 88172645463325252ull;

	for (uint64_t i = 0; i < b->pages * MEM_PAGE_SIZE; i += 8) {
		uint64_t word;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		word = x % 5 == 0 ? x : 0x2020202020202020ull + (x & 0x3f) * 0x0101;
		memcpy(b->copy + i, &word, sizeof(word));
	}
	for (uint64_t page = 0, run; page < b->pages; page += run) {
		gpa_t at = mem_page_gpa(&b->mem, page, &run);

		if (mem_write(&b->mem, at, b->copy + page * MEM_PAGE_SIZE, run * MEM_PAGE_SIZE) < 0)
			exit(1);
	}
	memset(b->all, 0xff, (b->pages + 63) / 64 * 8);
	for (uint64_t i = 0; i < b->pages / 100; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		b->few[x % b->pages / 64] |= 1ull << (x % b->pages % 64);
	}
}

struct saved {
	int data, index;
};

static double save(struct bench *b, const char *name, int level, const uint64_t *pages, const struct ram_id *parent, struct saved *ret)
{
	struct ram_writer_config c = { .mem = &b->mem, .level = level, .id = { { 1 } } };
	struct ram_writer_stats stats;
	struct ram_writer *w = NULL;
	struct err err = ERR_INIT;
	char index[64];
	uint64_t start;

	snprintf(index, sizeof(index), "%s.index", name);
	c.data_fd = ret->data = new_file(b, name);
	c.index_fd = ret->index = new_file(b, index);
	if (parent) {
		c.parent = *parent;
		c.id.b[0] = 2;
	}
	start = loop_now_ns();
	must(ram_writer_new(&c, &w, &err), &err);
	must(ram_writer_put(w, &b->workers, pages, &err), &err);
	must(ram_writer_finish(w, &stats, &err), &err);
	ram_writer_free(w);
	return seconds_since(start);
}

static void drop(struct saved *s)
{
	close(s->data);
	close(s->index);
}

static double plain_write(struct bench *b)
{
	int fd = new_file(b, "plain");
	uint64_t start = loop_now_ns(), size = b->pages * MEM_PAGE_SIZE;
	double s;

	for (uint64_t at = 0; at < size; at += BLOCK)
		if (fd_write_full(fd, b->copy + at, (size_t)MIN((uint64_t)BLOCK, size - at)) < 0)
			exit(1);
	s = seconds_since(start);
	close(fd);
	return s;
}

static double load(struct bench *b, const struct saved *s)
{
	struct ram_source source = { .data_fd = s->data, .index_fd = s->index };
	struct ram_image *image = NULL;
	struct err err = ERR_INIT;
	struct mem fresh;
	uint64_t start;
	double t;

	must(mem_init(&fresh, -1, b->pages * MEM_PAGE_SIZE, &err), &err);
	start = loop_now_ns();
	must(ram_image_open(&source, 1, b->pages * MEM_PAGE_SIZE, &image, &err), &err);
	must(ram_image_load(image, &fresh, &b->workers, &err), &err);
	t = seconds_since(start);
	ram_image_close(image);
	mem_finish(&fresh);
	return t;
}

/* Frames of the same chunks, made and read by libzstd alone, in memory. */
struct frames {
	struct bench *b;
	uint8_t *data;
	size_t *at;
	uint64_t n;
	uint8_t *fresh; /* where to; NULL: a buffer of the thread's own */
	_Atomic uint64_t next;
};

static void unpack(void *arg, unsigned i)
{
	struct frames *f = arg;
	ZSTD_DCtx *d = ZSTD_createDCtx();
	uint8_t *out = malloc(RAM_CHUNK_SIZE);
	uint64_t k;

	(void)i;
	while (d && out && (k = f->next++) < f->n)
		if (ZSTD_isError(ZSTD_decompressDCtx(d, f->fresh ? f->fresh + k * RAM_CHUNK_SIZE : out, RAM_CHUNK_SIZE, f->data + f->at[k], f->at[k + 1] - f->at[k])))
			exit(1);
	free(out);
	ZSTD_freeDCtx(d);
}

static void make_frames(struct bench *b, struct frames *f)
{
	size_t room = ZSTD_compressBound(RAM_CHUNK_SIZE);
	ZSTD_CCtx *c = ZSTD_createCCtx();

	*f = (struct frames){ .b = b, .n = b->pages / RAM_CHUNK_PAGES };
	f->data = malloc(room * f->n);
	f->at = calloc(f->n + 1, sizeof(f->at[0]));
	if (!c || !f->data || !f->at)
		exit(1);
	for (uint64_t k = 0; k < f->n; k++)
		f->at[k + 1] = f->at[k] + ZSTD_compressCCtx(c, f->data + f->at[k], room, b->copy + k * RAM_CHUNK_SIZE, RAM_CHUNK_SIZE, 1);
	ZSTD_freeCCtx(c);
}

static double plain_unpack(struct frames *f, bool fresh)
{
	size_t size = f->n * RAM_CHUNK_SIZE;
	uint64_t start;
	double s;

	f->next = 0;
	f->fresh = fresh ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : NULL;
	if (f->fresh == MAP_FAILED)
		exit(1);
	start = loop_now_ns();
	workers_run(&f->b->workers, unpack, f);
	s = seconds_since(start);
	if (fresh)
		munmap(f->fresh, size);
	return s;
}

static uint64_t size_of(const struct saved *s)
{
	struct stat a, c;

	return fstat(s->data, &a) == 0 && fstat(s->index, &c) == 0 ? (uint64_t)(a.st_size + c.st_size) : 0;
}

static int bench_memory(const char *work, uint64_t mib, int runs)
{
	double raw[RUNS_MAX], plain[RUNS_MAX], eager[RUNS_MAX], unpacked[RUNS_MAX], placed[RUNS_MAX], full[RUNS_MAX], diff[RUNS_MAX], size = 0;
	struct bench b = { .work = work, .pages = MIB(mib) / MEM_PAGE_SIZE };
	struct err err = ERR_INIT;
	struct ram_id parent = { { 1 } };
	struct frames f;

	must(mem_init(&b.mem, -1, MIB(mib), &err), &err);
	must(workers_start(&b.workers, NULL, workers_default(), "work", &err), &err);
	b.all = calloc((b.pages + 63) / 64, 8);
	b.few = calloc((b.pages + 63) / 64, 8);
	b.copy = malloc(MIB(mib));
	if (!b.all || !b.few || !b.copy)
		return 1;
	fill(&b);
	make_frames(&b, &f);
	for (int i = 0; i < runs; i++) {
		struct saved s;

		plain[i] = plain_write(&b);
		raw[i] = save(&b, "raw", 0, b.all, NULL, &s);
		drop(&s);
		full[i] = save(&b, "full", 1, b.all, NULL, &s);
		eager[i] = load(&b, &s);
		size = (double)size_of(&s);
		drop(&s);
		unpacked[i] = plain_unpack(&f, false);
		placed[i] = plain_unpack(&f, true);
		diff[i] = save(&b, "diff", 1, b.few, &parent, &s);
		size = (double)size_of(&s) / size;
		drop(&s);
	}
	double w = median(raw, runs), p = median(plain, runs), e = median(eager, runs), u = median(unpacked, runs), o = median(placed, runs),
	       d = median(diff, runs), a = median(full, runs);

	printf("# %llu MiB on %u threads: raw %.0f MiB/s, write(2) %.0f, level 1 %.0f, eager %.0f, libzstd %.0f\n",
	       (unsigned long long)mib, workers_default(), (double)mib / w, (double)mib / p, (double)mib / a, (double)mib / e,
	       (double)mib / u);
	printf("memory write_ratio=%.2f zstd_ratio=%.2f zstd_fresh_ratio=%.2f diff_time=%.3f diff_size=%.3f\n", p / w, u / e, o / e, d / a, size);
	return 0;
}

__asm__(".pushsection .rodata\n"
	".code32\n"
	"dirty_begin:\n"
	"	mov $0x3f8, %dx\n"
	"	mov $'A', %al\n"
	"	out %al, %dx\n"
	"1:	mov $0x400000, %edi\n"
	"2:	incl (%edi)\n"
	"	mov $2000, %ecx\n"      /* some work between the pages */
	"3:	loop 3b\n"
	"	add $0x1000, %edi\n"
	"	cmp $0x4400000, %edi\n" /* 64 MiB */
	"	jb 2b\n"
	"	jmp 1b\n"
	"dirty_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t dirty_begin[], dirty_end[];

static int bench_pause(const char *work, int runs)
{
	struct bench b = { .work = work };
	double pause[RUNS_MAX], pages[RUNS_MAX];
	struct control_reply reply;
	struct monitor m;
	char kernel[512];
	const char *args[] = { "--kernel", kernel, "--memory", "128", "--log-level", "error", NULL };

	snprintf(kernel, sizeof(kernel), "%s/payload", work);
	monitor_write_payload(kernel, dirty_begin, (size_t)(dirty_end - dirty_begin));
	monitor_start(&m, work, args);
	monitor_hear(&m, 'A');
	for (int i = 0; i < runs; i++) {
		const uint64_t arg[4] = { (i ? CONTROL_SNAPSHOT_DIFF : 0) | CONTROL_SNAPSHOT_TRACK, 0, 0, 0 };
		int fds[3] = { new_file(&b, "state"), new_file(&b, "ram"), new_file(&b, "ram.index") };

		if (monitor_request(&m, CONTROL_SNAPSHOT, arg, fds, 3, &reply) != 0)
			fail_msg("snapshot: %s", reply.text);
		pause[i] = (double)le64_get(reply.value[CONTROL_SV_PAUSE_NS]) / 1e6;
		pages[i] = (double)le64_get(reply.value[CONTROL_SV_FINAL_PAGES]) / 256;
		for (int k = 0; k < 3; k++)
			close(fds[k]);
	}
	monitor_end(&m);
	printf("pause pause_ms=%.2f pause_dirty_mib=%.2f\n", median(pause, runs), median(pages, runs));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "memory") == 0)
		return bench_memory(argv[2], strtoull(argv[3], NULL, 10), MIN(atoi(argv[4]), (int)RUNS_MAX));
	if (argc == 4 && strcmp(argv[1], "pause") == 0)
		return bench_pause(argv[2], MIN(atoi(argv[3]), (int)RUNS_MAX));
	return 1;
}
