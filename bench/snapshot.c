/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a snapshot, written and read, beside what its bytes cost alone: bench/snapshot.sh runs it.
 *
 *   snapshot memory WORKDIR MIB RUNS   no KVM: memory of that size full of text-like data, by snapshot/ram.h
 *   snapshot pause WORKDIR RUNS        a payload that dirties 64 MiB again and again in a real coffer-vmm
 *
 * memory: what is compared takes turns, RUNS times. Figures are of the fastest of each, since other load only ever makes slower.
 *   write   a full raw snapshot / write(2) of the same bytes to a file beside it, by one thread, 1 MiB a call
 *   zstd    eager restore of level 1 frames / libzstd's own decompression of the same frames on as many threads:
 *             zstd_ratio         into fresh memory of the same kind, made in the same way (anonymous, large pages, each populated just
 *                                before it is filled), since a restore has to fill such
 *             zstd_buffer_ratio  into one small buffer for each thread: nothing but decompression
 *   diff    1 % of the pages, chosen at random: time and size / those of the full one, at the same level
 * Each is done twice and the second time counts: where the host is itself a guest, the first use of a page that its hypervisor has not
 * mapped costs ten times what filling it does. write_first_ratio and zstd_first_ratio (the latter beside the small buffers) are of the
 * first times, medians of the ratios within a turn, as diff_time is; a diff and its full snapshot are made once.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "bench/measure.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "snapshot/ram_format.h"
#include "tests/harness/monitor.h"

enum { RUNS_MAX = 100, BLOCK = 1 << 20, SPAN = 64 /* frames */, LARGE_CHUNKS = MEM_LARGE_PAGES / RAM_CHUNK_PAGES };

struct bench {
	struct mem mem;
	struct workers workers;
	const char *work;
	uint64_t pages;
	uint64_t *all, *few; /* bits of pages */
	uint8_t *copy;       /* the same bytes, for the floors */
};

static void must(int r, const struct err *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench-snapshot: %s\n", err->text);
	exit(1);
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
	c.data_fd = ret->data = measure_new_file(b->work, name);
	c.index_fd = ret->index = measure_new_file(b->work, index);
	if (parent) {
		c.parent = *parent;
		c.id.b[0] = 2;
	}
	start = loop_now_ns();
	must(ram_writer_new(&c, &w, &err), &err);
	must(ram_writer_put(w, &b->workers, pages, &err), &err);
	must(ram_writer_finish(w, &stats, &err), &err);
	ram_writer_free(w);
	return measure_ms_since(start);
}

static void drop(const struct bench *b, const char *name, struct saved *s)
{
	char path[512];

	close(s->data);
	close(s->index);
	snprintf(path, sizeof(path), "%s/%s", b->work, name);
	unlink(path);
}

static double plain_write(struct bench *b)
{
	int fd = measure_new_file(b->work, "plain");
	uint64_t start = loop_now_ns(), size = b->pages * MEM_PAGE_SIZE;
	double s;

	for (uint64_t at = 0; at < size; at += BLOCK)
		if (fd_write_full(fd, b->copy + at, (size_t)MIN((uint64_t)BLOCK, size - at)) < 0)
			exit(1);
	s = measure_ms_since(start);
	close(fd);
	close(measure_new_file(b->work, "plain")); /* its pages are free again */
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
	t = measure_ms_since(start);
	ram_image_close(image);
	mem_finish(&fresh);
	return t;
}

/* Frames of a snapshot, in memory, for libzstd alone. */
struct frames {
	uint8_t *data;
	struct ram_record *rec;
	uint64_t n;
	struct mem *to; /* NULL: a buffer of the thread's own */
	_Atomic uint64_t next;
};

static void unpack_one(struct frames *f, const struct ram_record *rec, ZSTD_DCtx *d, uint8_t *buffer)
{
	size_t size = (size_t)ram_mask_count(le16_get(rec->present)) * MEM_PAGE_SIZE;
	const uint8_t *src = f->data + le64_get(rec->offset);
	uint8_t *out = buffer;

	if (f->to && le32_get(rec->chunk) % LARGE_CHUNKS == 0)
		mem_populate(f->to, (uint64_t)le32_get(rec->chunk) * RAM_CHUNK_PAGES, MEM_LARGE_PAGES);
	if (f->to)
		out = mem_host_pages(f->to, (uint64_t)le32_get(rec->chunk) * RAM_CHUNK_PAGES, RAM_CHUNK_PAGES);
	if (!out || le32_get(rec->encoding) != RAM_ZSTD || ZSTD_decompressDCtx(d, out, size, src, le32_get(rec->length)) != size) {
		fprintf(stderr, "bench-snapshot: chunk %u is no zstd frame\n", le32_get(rec->chunk));
		exit(1);
	}
}

static void unpack(void *arg, unsigned i)
{
	struct frames *f = arg;
	ZSTD_DCtx *d = ZSTD_createDCtx();
	uint8_t *buffer = malloc(RAM_CHUNK_SIZE);
	uint64_t k;

	(void)i;
	/* Neighbours by one thread, as a restore does it: two would fault in the same large page. */
	while (d && buffer && (k = f->next++ * SPAN) < f->n)
		for (uint64_t end = MIN(k + SPAN, f->n); k < end; k++)
			unpack_one(f, &f->rec[k], d, buffer);
	free(buffer);
	ZSTD_freeDCtx(d);
}

static void read_frames(const struct saved *s, struct frames *f)
{
	struct stat data, index;

	*f = (struct frames){ 0 };
	if (fstat(s->data, &data) < 0 || fstat(s->index, &index) < 0)
		exit(1);
	f->n = ((uint64_t)index.st_size - sizeof(struct ram_index_header)) / sizeof(*f->rec);
	f->data = malloc((size_t)data.st_size);
	f->rec = calloc(f->n, sizeof(*f->rec));
	if (!f->data || !f->rec || fd_pread_full(s->data, f->data, (size_t)data.st_size, 0) != data.st_size ||
	    fd_pread_full(s->index, f->rec, f->n * sizeof(*f->rec), sizeof(struct ram_index_header)) < 0)
		exit(1);
}

static double plain_unpack(struct bench *b, struct frames *f, bool fresh)
{
	struct err err = ERR_INIT;
	struct mem to;
	uint64_t start;
	double ms;

	if (fresh) {
		must(mem_init(&to, -1, b->pages * MEM_PAGE_SIZE, &err), &err);
		mem_prefer_large_pages(&to);
	}
	f->next = 0;
	f->to = fresh ? &to : NULL;
	start = loop_now_ns();
	workers_run(&b->workers, unpack, f);
	ms = measure_ms_since(start);
	if (fresh)
		mem_finish(&to);
	return ms;
}

static uint64_t size_of(const struct saved *s)
{
	struct stat a, c;

	return fstat(s->data, &a) == 0 && fstat(s->index, &c) == 0 ? (uint64_t)(a.st_size + c.st_size) : 0;
}

/* Of one turn, in milliseconds. */
struct turn {
	double plain, raw, full, eager, fresh, buffer, diff;
	double first_plain, first_raw, first_eager;
	double diff_size; /* / the full one's */
};

static void take_turn(struct bench *b, struct turn *t)
{
	struct ram_id parent = { { 1 } };
	struct frames f;
	struct saved s;
	double size;

	t->first_plain = plain_write(b);
	t->plain = plain_write(b);
	t->first_raw = save(b, "raw", 0, b->all, NULL, &s);
	drop(b, "raw", &s);
	t->raw = save(b, "raw", 0, b->all, NULL, &s);
	drop(b, "raw", &s);
	t->full = save(b, "full", 1, b->all, NULL, &s);
	size = (double)size_of(&s);
	read_frames(&s, &f);
	t->first_eager = load(b, &s);
	t->eager = load(b, &s);
	plain_unpack(b, &f, true);
	t->fresh = plain_unpack(b, &f, true);
	t->buffer = plain_unpack(b, &f, false);
	free(f.data);
	free(f.rec);
	drop(b, "full", &s);
	t->diff = save(b, "diff", 1, b->few, &parent, &s);
	t->diff_size = (double)size_of(&s) / size;
	drop(b, "diff", &s);
}

static double value(const struct turn *t, size_t field)
{
	return *(const double *)(const void *)((const char *)t + field);
}

static double fastest(const struct turn *t, int n, size_t field)
{
	double ms = value(t, field);

	for (int i = 1; i < n; i++)
		ms = MIN(ms, value(&t[i], field));
	return ms;
}

/* The median over turns of a / b. */
static double typical(const struct turn *t, int n, size_t a, size_t b)
{
	double v[RUNS_MAX];

	for (int i = 0; i < n; i++)
		v[i] = value(&t[i], a) / value(&t[i], b);
	return measure_median(v, n);
}
#define RATIO(a, b) (fastest(t, runs, offsetof(struct turn, a)) / fastest(t, runs, offsetof(struct turn, b)))
#define IN_TURN(a, b) typical(t, runs, offsetof(struct turn, a), offsetof(struct turn, b))
#define MIBS(a) ((double)mib * 1e3 / fastest(t, runs, offsetof(struct turn, a)))

static int bench_memory(const char *work, uint64_t mib, int runs)
{
	struct bench b = { .work = work, .pages = MIB(mib) / MEM_PAGE_SIZE };
	struct err err = ERR_INIT;
	struct turn t[RUNS_MAX];

	must(mem_init(&b.mem, -1, MIB(mib), &err), &err);
	must(workers_start(&b.workers, NULL, workers_default(), "work", &err), &err);
	b.all = calloc((b.pages + 63) / 64, 8);
	b.few = calloc((b.pages + 63) / 64, 8);
	b.copy = malloc(MIB(mib));
	if (!b.all || !b.few || !b.copy)
		return 1;
	fill(&b);
	for (int i = 0; i < runs; i++)
		take_turn(&b, &t[i]);
	printf("# %llu MiB on %u threads, MiB/s (first time): raw %.0f (%.0f), write(2) %.0f (%.0f); level 1 %.0f; eager %.0f (%.0f), "
	       "libzstd %.0f into fresh memory, %.0f into a buffer\n", (unsigned long long)mib, workers_default(), MIBS(raw), MIBS(first_raw),
	       MIBS(plain), MIBS(first_plain), MIBS(full), MIBS(eager), MIBS(first_eager), MIBS(fresh), MIBS(buffer));
	printf("memory write_ratio=%.2f write_first_ratio=%.2f zstd_ratio=%.2f zstd_buffer_ratio=%.2f zstd_first_ratio=%.2f "
	       "diff_time=%.3f diff_size=%.3f\n", RATIO(plain, raw), IN_TURN(first_plain, first_raw), RATIO(fresh, eager), RATIO(buffer, eager),
	       IN_TURN(buffer, first_eager), IN_TURN(diff, full), t[0].diff_size);
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
		int fds[3] = { measure_new_file(b.work, "state"), measure_new_file(b.work, "ram"), measure_new_file(b.work, "ram.index") };

		if (monitor_request(&m, CONTROL_SNAPSHOT, arg, fds, 3, &reply) != 0)
			fail_msg("snapshot: %s", reply.text);
		pause[i] = (double)le64_get(reply.value[CONTROL_SV_PAUSE_NS]) / 1e6;
		pages[i] = (double)le64_get(reply.value[CONTROL_SV_FINAL_PAGES]) / 256;
		for (int k = 0; k < 3; k++)
			close(fds[k]);
	}
	monitor_end(&m);
	printf("pause pause_ms=%.2f pause_dirty_mib=%.2f\n", measure_median(pause, runs), measure_median(pages, runs));
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
