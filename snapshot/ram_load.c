/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a chain of memory images whole: into guest memory, to verify it, or into a new image: see ram.h.
 *
 * How it works: chunks are handed out in spans by an atomic counter. A worker unpacks each frame where its pages belong,
 * in the memory itself, which nothing uses yet; through a buffer of its own only where they are not all wanted or not one
 * run. With the oldest image mapped, only what the images above it say is filled in, and pages that they say are zero are
 * zeroed. A frame that turns out to be damaged may have left bytes behind: the machine of that memory is never run.
 *
 * Threads: as many as the workers are; verify and flatten use the calling one. The first error wins.
 */
/* syscalls(main): pread64 lseek
 * syscalls(worker): pread64 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_image.h"
#include "snapshot/ram_writer.h"

enum {
	SPAN_CHUNKS = 64,
	POPULATE_MIN = 4, /* pages; fewer are as quick by faults */
	LARGE_CHUNKS = MEM_LARGE_PAGES / RAM_CHUNK_PAGES,
	LARGE_MIN = MEM_LARGE_PAGES * 3 / 4, /* pages of a large one that hold something: else small ones cost less memory */
};

struct load {
	const struct ram_image *im;
	struct mem *mem;
	unsigned layers; /* without the oldest when that is mapped */
	bool large;
	struct ram_scratch scratch[WORKERS_MAX];
	_Atomic uint64_t span;
	_Atomic bool failed;
	struct err err; /* of who set `failed` */
};

/* Where n pages from this one belong, made at once where that is worth it; NULL: not in one region. */
static uint8_t *place(struct load *l, uint64_t page, unsigned n, bool made)
{
	if (!made && n >= POPULATE_MIN && l->layers == l->im->n)
		mem_populate(l->mem, page, n);
	return mem_host_pages(l->mem, page, n);
}

/* Pages of `mask` of a chunk; src: the `present` ones one after another. */
static int copy_mask(struct load *l, uint64_t chunk, uint16_t mask, uint16_t present, const uint8_t *src, bool made)
{
	unsigned first = 0;

	for (unsigned n = ram_mask_run(mask, 0, &first); n > 0; n = ram_mask_run(mask, first + n, &first)) {
		uint8_t *to = place(l, chunk * RAM_CHUNK_PAGES + first, n, made);
		unsigned before = ram_mask_count(present & (uint16_t)((1u << first) - 1));

		if (!to)
			return -EFAULT;
		memcpy(to, src + (size_t)before * MEM_PAGE_SIZE, (size_t)n * MEM_PAGE_SIZE);
	}
	return 0;
}

static int zero_mask(struct load *l, uint64_t chunk, uint16_t mask)
{
	unsigned first = 0;
	int r = 0;

	for (unsigned n = ram_mask_run(mask, 0, &first); n > 0 && r == 0; n = ram_mask_run(mask, first + n, &first)) {
		uint64_t run;
		gpa_t gpa = mem_page_gpa(l->mem, chunk * RAM_CHUNK_PAGES + first, &run);

		r = mem_zero(l->mem, gpa, (size_t)n * MEM_PAGE_SIZE);
	}
	return r;
}

/* Pages that the newest snapshot with this chunk stores. */
static unsigned pages_stored(const struct ram_image *im, uint64_t chunk)
{
	return im->first[chunk] ? (unsigned)__builtin_popcount(im->piece[im->first[chunk] - 1].take) : 0;
}

/* Large pages for a memory that is nearly full: making small ones one by one costs more than unpacking them. For all of it or not at
 * all, since each change between the two would be a mapping of its own. */
static bool wants_large_pages(const struct load *l)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < l->im->chunks; i++)
		n += pages_stored(l->im, i);
	return l->layers == l->im->n && n >= l->im->size / MEM_PAGE_SIZE / 4 * 3;
}

/* Is all of it there now? */
static bool make_large_page(struct load *l, uint64_t chunk)
{
	unsigned n = 0;
	uint64_t run;

	if (!l->large || chunk + LARGE_CHUNKS > l->im->chunks)
		return false;
	for (uint64_t i = chunk; i < chunk + LARGE_CHUNKS; i++)
		n += pages_stored(l->im, i);
	mem_page_gpa(l->mem, chunk * RAM_CHUNK_PAGES, &run);
	if (n < LARGE_MIN || run < MEM_LARGE_PAGES)
		return false;
	mem_populate(l->mem, chunk * RAM_CHUNK_PAGES, MEM_LARGE_PAGES);
	return true;
}

static int load_piece(struct load *l, struct ram_scratch *s, uint64_t chunk, const struct ram_piece *p, bool made,
		      struct err *err)
{
	const struct ram_record *rec = &l->im->layer[p->source].record[p->record];
	uint16_t present = le16_get(rec->present);
	unsigned first, n = ram_mask_run(present, 0, &first);
	int r;

	if (p->take == present && n == ram_mask_count(present)) {
		uint8_t *to = place(l, chunk * RAM_CHUNK_PAGES + first, n, made);

		return to ? ram_frame_read(l->im, p->source, rec, s, to, err) : err_errno(err, -EFAULT, "ram: chunk %llu",
											   (unsigned long long)chunk);
	}
	r = ram_frame_read(l->im, p->source, rec, s, s->pages, err);
	if (r < 0)
		return r;
	r = copy_mask(l, chunk, p->take, present, s->pages, made);
	return r < 0 ? err_errno(err, r, "ram: chunk %llu: write to memory", (unsigned long long)chunk) : 0;
}

static int load_chunk(struct load *l, struct ram_scratch *s, uint64_t chunk, bool made, struct err *err)
{
	uint16_t zero = 0;
	int r = 0;

	for (uint32_t k = l->im->first[chunk]; k && r == 0; k = l->im->piece[k - 1].next) {
		const struct ram_piece *p = &l->im->piece[k - 1];

		if (p->source >= l->layers)
			break;
		zero |= p->zero;
		if (p->take)
			r = load_piece(l, s, chunk, p, made, err);
	}
	/* Fresh memory is zero. */
	if (r < 0 || l->layers == l->im->n)
		return r;
	r = zero_mask(l, chunk, zero);
	return r < 0 ? err_errno(err, r, "ram: chunk %llu: write to memory", (unsigned long long)chunk) : 0;
}

static int load_span(struct load *l, struct ram_scratch *s, uint64_t chunk, uint64_t end, struct err *err)
{
	bool made = false;
	int r = 0;

	for (; chunk < end && r == 0; chunk++) {
		if (atomic_load_explicit(&l->im->cancelled, memory_order_relaxed))
			return err_errno(err, -ECANCELED, "ram: load");
		if (chunk % LARGE_CHUNKS == 0)
			made = make_large_page(l, chunk);
		r = load_chunk(l, s, chunk, made, err);
	}
	return r;
}

static void load_work(void *arg, unsigned i)
{
	struct load *l = arg;
	struct err err = ERR_INIT;
	int r = 0;

	while (r == 0 && !atomic_load_explicit(&l->failed, memory_order_relaxed)) {
		uint64_t chunk = atomic_fetch_add(&l->span, 1) * SPAN_CHUNKS;

		if (chunk >= l->im->chunks)
			break;
		r = load_span(l, &l->scratch[i], chunk, MIN(chunk + SPAN_CHUNKS, l->im->chunks), &err);
	}
	if (r < 0 && !atomic_exchange(&l->failed, true))
		l->err = err;
}

static int load_all(struct load *l, struct workers *ws, struct err *err)
{
	unsigned n = ws ? ws->n : 1;
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++)
		r = ram_scratch_init(&l->scratch[i]);
	if (r < 0)
		err_errno(err, r, "ram: buffers of %u threads", n);
	else if (ws)
		workers_run(ws, load_work, l);
	else
		load_work(l, 0);
	for (unsigned i = 0; i < n; i++)
		ram_scratch_finish(&l->scratch[i]);
	if (r < 0 || !l->failed)
		return r;
	return err_set(err, l->err.code, "%s", l->err.text);
}

static int start(struct ram_image *im, struct mem *m, unsigned layers, struct workers *ws, struct err *err)
{
	_cleanup_free_ struct load *l = calloc(1, sizeof(*l));

	if (!l)
		return err_errno(err, -ENOMEM, "ram");
	l->im = im;
	l->mem = m;
	l->layers = layers;
	l->large = wants_large_pages(l);
	if (l->large)
		mem_prefer_large_pages(m);
	return load_all(l, ws, err);
}

static int check_memory(const struct ram_image *im, const struct mem *m, struct err *err)
{
	return m->size == im->size ? 0 : err_set(err, -EINVAL, "ram: %llu bytes of memory, the machine has %llu",
						 (unsigned long long)im->size, (unsigned long long)m->size);
}

int ram_image_load(struct ram_image *im, struct mem *m, struct workers *ws, struct err *err)
{
	int r = check_memory(im, m, err);

	return r < 0 ? r : start(im, m, im->n, ws, err);
}

int ram_image_map(struct ram_image *im, struct mem *m, struct workers *ws, struct err *err)
{
	const struct ram_layer *oldest = &im->layer[im->n - 1];
	int r = check_memory(im, m, err);

	if (r == 0 && !oldest->raw)
		r = err_set(err, -ENOTSUP, "ram%s: is compressed and cannot be mapped: restore it --eager or --lazy",
			    oldest->name);
	for (uint64_t page = 0, run; r == 0 && page < mem_pages(m); page += run) {
		mem_page_gpa(m, page, &run);
		r = mem_map_file(m, page, run, oldest->data_fd, RAM_DATA_START + page * MEM_PAGE_SIZE, err);
	}
	return r < 0 || im->n == 1 ? r : start(im, m, im->n - 1, ws, err);
}

/* ---- verify ---- */

struct verify {
	const struct ram_image *im;
	struct ram_scratch scratch;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	uint64_t done, total;
};

static const uint8_t *first_nonzero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return p + i;
	return NULL;
}

/* Nothing but zeros from `off` to `end`: holes are skipped. */
static int verify_zeros(const struct verify *v, const struct ram_layer *l, uint64_t off, uint64_t end, struct err *err)
{
	while (off < end) {
		off_t data = lseek(l->data_fd, (off_t)off, SEEK_DATA);

		if (data < 0 && errno != ENXIO)
			return err_errno(err, -errno, "ram%s: look for data", l->name);
		if (data < 0 || (uint64_t)data >= end)
			return 0;
		off = (uint64_t)data;
		size_t n = (size_t)MIN(end - off, (uint64_t)RAM_CHUNK_SIZE);
		ssize_t got = fd_pread_full(l->data_fd, v->scratch.pages, n, (off_t)off);
		const uint8_t *bad = got > 0 ? first_nonzero(v->scratch.pages, (size_t)got) : NULL;

		if (got < 0 || (size_t)got != n)
			return err_errno(err, got < 0 ? (int)got : -ENODATA, "ram%s: read", l->name);
		if (bad)
			return err_set(err, -EINVAL, "ram%s: damaged: byte %llu is not zero, and belongs to no page",
				       l->name, (unsigned long long)off + (unsigned long long)(bad - v->scratch.pages));
		off += n;
	}
	return 0;
}

/* Where a full raw image has no page, a map would show what is there. `from`: page after the last one seen. */
static int verify_gaps(const struct verify *v, const struct ram_layer *l, uint64_t *from, uint64_t chunk,
		       uint16_t present, struct err *err)
{
	unsigned first = 0;
	int r = 0;

	for (unsigned n = ram_mask_run(present, 0, &first); n > 0 && r == 0;
	     n = ram_mask_run(present, first + n, &first)) {
		uint64_t page = chunk * RAM_CHUNK_PAGES + first;

		if (page > *from)
			r = verify_zeros(v, l, RAM_DATA_START + *from * MEM_PAGE_SIZE,
					 RAM_DATA_START + page * MEM_PAGE_SIZE, err);
		*from = page + n;
	}
	return r;
}

static int verify_layer(struct verify *v, unsigned i, struct err *err)
{
	const struct ram_layer *l = &v->im->layer[i];
	uint64_t page = 0;
	int r = verify_zeros(v, l, sizeof(struct ram_data_header), RAM_DATA_START, err);

	for (uint64_t k = 0; k < l->nrecords && r == 0; k++) {
		const struct ram_record *rec = &l->record[k];

		if (l->raw && l->full)
			r = verify_gaps(v, l, &page, le32_get(rec->chunk), le16_get(rec->present), err);
		if (r == 0 && le16_get(rec->present))
			r = ram_frame_read(v->im, i, rec, &v->scratch, v->scratch.pages, err);
		v->done += le32_get(rec->length);
		if (v->progress && r == 0)
			v->progress(v->arg, v->done, v->total);
	}
	if (r == 0 && l->raw && l->full)
		r = verify_zeros(v, l, RAM_DATA_START + page * MEM_PAGE_SIZE, l->data_size, err);
	return r;
}

int ram_image_verify(struct ram_image *im, void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		     struct err *err)
{
	struct verify v = { .im = im, .progress = progress, .arg = arg };
	int r = ram_scratch_init(&v.scratch);

	if (r < 0)
		return err_errno(err, r, "ram: buffers");
	for (unsigned i = 0; i < im->n; i++)
		for (uint64_t k = 0; k < im->layer[i].nrecords; k++)
			v.total += le32_get(im->layer[i].record[k].length);
	for (unsigned i = 0; i < im->n && r == 0; i++)
		r = verify_layer(&v, i, err);
	ram_scratch_finish(&v.scratch);
	return r;
}

/* ---- flatten ---- */

struct flatten {
	const struct ram_image *im;
	struct ram_scratch scratch;
	struct err err; /* of reading */
};

static int fetch_image(void *arg, unsigned thread, uint64_t chunk, uint16_t mask, uint8_t *buf)
{
	struct flatten *f = arg;
	uint16_t present, zero;
	int r = ram_chunk_read(f->im, f->im->n, chunk, &f->scratch, buf, &present, &zero, &f->err);

	(void)thread;
	for (unsigned i = 0; i < RAM_CHUNK_PAGES && r == 0; i++)
		if (mask & ~present & 1u << i)
			memset(buf + i * MEM_PAGE_SIZE, 0, MEM_PAGE_SIZE);
	return r;
}

/* The bits of chunks that have anything. */
static uint64_t *wanted_pages(const struct ram_image *im)
{
	enum { WORD_CHUNKS = 64 / RAM_CHUNK_PAGES };
	uint64_t *pages = calloc(im->chunks / WORD_CHUNKS + 1, sizeof(*pages));

	for (uint64_t chunk = 0; pages && chunk < im->chunks; chunk++)
		if (im->first[chunk])
			pages[chunk / WORD_CHUNKS] |= 0xffffull << (chunk % WORD_CHUNKS * RAM_CHUNK_PAGES);
	return pages;
}

static int flatten(struct flatten *f, struct ram_writer *w, struct err *err)
{
	_cleanup_free_ uint64_t *pages = wanted_pages(f->im);
	int r = pages ? ram_writer_put(w, NULL, pages, err) : err_errno(err, -ENOMEM, "ram");

	if (r < 0 && f->err.code < 0)
		return err_set(err, f->err.code, "%s", f->err.text);
	return r < 0 ? r : ram_writer_finish(w, NULL, err);
}

int ram_image_flatten(struct ram_image *im, int data_fd, int index_fd, int level, const struct ram_id *id,
		      struct err *err)
{
	const struct ram_writer_config c = { .data_fd = data_fd, .index_fd = index_fd, .level = level, .id = *id };
	struct flatten f = { .im = im };
	struct ram_writer *w = NULL;
	int r = ram_scratch_init(&f.scratch);

	if (r < 0)
		return err_errno(err, r, "ram: buffers");
	r = ram_writer_new_from(&c, im->size, fetch_image, &f, &w, err);
	if (r == 0)
		r = flatten(&f, w, err);
	ram_writer_free(w);
	ram_scratch_finish(&f.scratch);
	return r;
}
