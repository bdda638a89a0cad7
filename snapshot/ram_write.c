/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes guest memory into `ram` and `ram.index`: see ram.h.
 *
 * How it works: the bitmap of a put is handed out in spans by an atomic counter. Two ways from there:
 * - full raw: sixteen neighbouring chunks lie in memory as they lie in the file. They are examined, hashed and written
 *   where they are, by one pwrite a run. When the guest writes meanwhile, checksum and file may differ: the page is dirty
 *   then, its chunk is put again, and the last put is of a guest that stands still. Pages that are zero stay holes,
 *   unless something was stored there before: then zeros are written over it.
 * - packed (diff, zstd): the pages of a chunk are copied first, since a compressor must not see them change. Frames gather
 *   in a buffer and go out together to a place in the file that an atomic cursor gives. A chunk stored again gets a new
 *   place; the old bytes stay in the file without a record.
 *
 * A full snapshot does not look at pages that are zero for certain (mem_find_zero).
 *
 * The records are an array indexed by chunk as they lie in the index, zeros where nothing was put; `zero` collects
 * pages seen to be zero in full snapshots too, until ram_writer_finish compacts the array in place and writes it.
 *
 * Threads: a chunk belongs to one worker for the length of a put. Buffers and compressors are made by the first put,
 * for its number of workers, and used by nobody else.
 * Limits: memory of the array, 34 bytes for each 64 KiB of guest memory that holds something.
 */
/* syscalls(main): ftruncate
 * syscalls(worker): pwrite64 ftruncate */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_format.h"
#include "snapshot/ram_writer.h"

enum {
	BATCH_CHUNKS = 16, /* in one call: larger ones gain nothing, smaller ones fight for the file's lock more often */
	BUFFER_SIZE = BATCH_CHUNKS * RAM_CHUNK_SIZE,
	PENDING_MAX = 1024,    /* frames that wait in the buffer */
	SPAN_CHUNKS = 64,      /* what a worker takes at a time: whole words of the bitmap and whole batches */
	WORD_CHUNKS = 64 / RAM_CHUNK_PAGES,
};

struct writer_thread {
	uint8_t *buffer;       /* BUFFER_SIZE; NULL where memory is written in place */
	uint8_t *chunk;        /* RAM_CHUNK_SIZE: pages to be compressed */
	ZSTD_CCtx *cctx;
	size_t fill;
	unsigned npending;
	uint32_t pending[PENDING_MAX]; /* chunks whose frames are in the buffer; their offsets are relative to it */
};

struct ram_writer {
	struct ram_writer_config c;
	uint64_t size, chunks;
	ram_fetch_fn *fetch;
	void *arg;
	bool diff, packed;
	bool in_place; /* guest memory is examined and written where it is: full raw */
	bool asks;     /* which pages are zero for certain; those of a diff were written */
	struct ram_record *record;
	uint16_t *written; /* full raw: pages of each chunk that were written to the file, whatever the record says */
	unsigned nthreads;
	struct writer_thread *thread;
	_Atomic uint64_t cursor, bytes;
	int failed; /* of an earlier put */
	/* of the put under way */
	const uint64_t *pages;
	_Atomic uint64_t span;
	_Atomic int error;
	_Atomic bool cancelled;
};

static int fetch_memory(void *arg, unsigned thread, uint64_t chunk, uint16_t mask, uint8_t *buf)
{
	const struct mem *m = arg;
	unsigned first = 0;
	int r = 0;

	(void)thread;
	for (unsigned n = ram_mask_run(mask, 0, &first); n > 0 && r == 0; n = ram_mask_run(mask, first + n, &first)) {
		uint64_t run; /* a chunk lies in one region: the hole begins at a multiple of its size */
		gpa_t gpa = mem_page_gpa(m, chunk * RAM_CHUNK_PAGES + first, &run);

		r = n <= run ? mem_read(m, gpa, buf + first * MEM_PAGE_SIZE, (size_t)n * MEM_PAGE_SIZE) : -EFAULT;
	}
	return r;
}

static bool page_is_zero(const uint8_t *p)
{
	enum { STEP = 128 };

	for (unsigned i = 0; i < MEM_PAGE_SIZE; i += STEP) {
		uint64_t v[STEP / sizeof(uint64_t)], all = 0;

		memcpy(v, p + i, sizeof(v));
		for (unsigned k = 0; k < ARRAY_SIZE(v); k++)
			all |= v[k];
		if (all)
			return false;
	}
	return true;
}

static uint16_t find_zero(const uint8_t *chunk, uint16_t mask)
{
	uint16_t zero = 0;

	for (unsigned i = 0; i < RAM_CHUNK_PAGES; i++)
		if (mask >> i & 1 && page_is_zero(chunk + i * MEM_PAGE_SIZE))
			zero |= (uint16_t)(1u << i);
	return zero;
}

/* `known` to be zero are not looked at. */
static uint16_t known_or_found_zero(const uint8_t *chunk, uint16_t mask, uint16_t known)
{
	return (uint16_t)((mask & known) | find_zero(chunk, mask & (uint16_t)~known));
}

/* The pages to store of a chunk: what this put names, and what earlier ones did. */
static uint16_t todo(const struct ram_writer *w, uint64_t chunk)
{
	uint16_t mask = (uint16_t)(w->pages[chunk / WORD_CHUNKS] >> (chunk % WORD_CHUNKS * RAM_CHUNK_PAGES));
	const struct ram_record *rec = &w->record[chunk];

	mask &= ram_chunk_mask(w->size, chunk);
	return mask ? (uint16_t)(mask | le16_get(rec->present) | le16_get(rec->zero)) : 0;
}

/* ---- full raw ---- */

/* Write the runs of `dirty` pages of a batch; one bit a page. */
static int write_runs(struct ram_writer *w, const uint8_t *buffer, uint64_t first_chunk, const uint16_t *dirty)
{
	enum { PAGES = BATCH_CHUNKS * RAM_CHUNK_PAGES };

	for (unsigned from = 0, to; from < PAGES; from = to) {
		to = from + 1;
		if (!(dirty[from / RAM_CHUNK_PAGES] >> (from % RAM_CHUNK_PAGES) & 1))
			continue;
		while (to < PAGES && dirty[to / RAM_CHUNK_PAGES] >> (to % RAM_CHUNK_PAGES) & 1)
			to++;
		uint64_t off = RAM_DATA_START + first_chunk * RAM_CHUNK_SIZE + (uint64_t)from * MEM_PAGE_SIZE;
		size_t len = (size_t)(to - from) * MEM_PAGE_SIZE;
		int r = fd_pwrite_full(w->c.data_fd, buffer + (size_t)from * MEM_PAGE_SIZE, len, (off_t)off);

		if (r < 0)
			return r;
		atomic_fetch_add_explicit(&w->bytes, len, memory_order_relaxed);
	}
	return 0;
}

/* The chunks of a batch, as they lie in the file: guest memory itself, or what is fetched of it for each. */
static const uint8_t *batch_view(const struct ram_writer *w, unsigned i, uint64_t first, uint64_t end)
{
	uint64_t page = first * RAM_CHUNK_PAGES, npages = MIN(end * RAM_CHUNK_PAGES, w->size / MEM_PAGE_SIZE) - page;

	return w->in_place ? mem_host_pages(w->c.mem, page, npages) : w->thread[i].buffer;
}

static int put_batch(struct ram_writer *w, unsigned i, uint64_t first, uint64_t end, const uint16_t *known)
{
	const uint8_t *buffer = batch_view(w, i, first, end);
	uint16_t dirty[BATCH_CHUNKS] = { 0 };
	bool any = false;

	if (!buffer)
		return -EFAULT;
	for (uint64_t chunk = first; chunk < end; chunk++) {
		const uint8_t *p = buffer + (chunk - first) * RAM_CHUNK_SIZE;
		struct ram_record *rec = &w->record[chunk];
		uint16_t mask = todo(w, chunk), zero, present;

		if (!mask)
			continue;
		if (!w->in_place) {
			int r = w->fetch(w->arg, i, chunk, mask, w->thread[i].buffer + (p - buffer));

			if (r < 0)
				return r;
		}
		zero = known_or_found_zero(p, mask, known[chunk - first]);
		present = (uint16_t)(mask & ~zero);
		/* What a pwrite took may differ from what was looked at: a place that was ever written to may hold anything. */
		dirty[chunk - first] = (uint16_t)(present | (zero & w->written[chunk]));
		w->written[chunk] |= dirty[chunk - first];
		any = any || dirty[chunk - first];
		*rec = (struct ram_record){
			.offset = le64_make(present ? RAM_DATA_START + chunk * RAM_CHUNK_SIZE : 0),
			.hash = le64_make(present ? ram_hash_pages(p, present) : 0),
			.chunk = le32_make((uint32_t)chunk),
			.length = le32_make(ram_mask_count(present) * MEM_PAGE_SIZE),
			.present = le16_make(present),
			.zero = le16_make(zero),
		};
	}
	return any ? write_runs(w, buffer, first, dirty) : 0;
}

/* ---- packed ---- */

static int flush(struct ram_writer *w, struct writer_thread *t)
{
	uint64_t at = atomic_fetch_add(&w->cursor, t->fill);
	int r = t->fill ? fd_pwrite_full(w->c.data_fd, t->buffer, t->fill, (off_t)at) : 0;

	for (unsigned k = 0; k < t->npending; k++) {
		struct ram_record *rec = &w->record[t->pending[k]];

		rec->offset = le64_make(le64_get(rec->offset) + at);
	}
	atomic_fetch_add_explicit(&w->bytes, t->fill, memory_order_relaxed);
	t->fill = 0;
	t->npending = 0;
	return r;
}

/* Move the pages of `mask` together at the start. */
static size_t compact(uint8_t *chunk, uint16_t mask)
{
	unsigned to = 0;

	for (unsigned i = 0; i < RAM_CHUNK_PAGES; i++) {
		if (!(mask >> i & 1))
			continue;
		if (to != i)
			memcpy(chunk + to * MEM_PAGE_SIZE, chunk + i * MEM_PAGE_SIZE, MEM_PAGE_SIZE);
		to++;
	}
	return (size_t)to * MEM_PAGE_SIZE;
}

/* Make the frame at the buffer's end of `len` bytes of pages in t->chunk. */
static enum ram_encoding encode(struct writer_thread *t, uint8_t *out, size_t len, size_t *ret_len)
{
	/* One byte less than raw, or it is not worth it. */
	size_t n = ZSTD_compress2(t->cctx, out, len - 1, t->chunk, len);

	if (!ZSTD_isError(n)) {
		*ret_len = n;
		return RAM_ZSTD;
	}
	memcpy(out, t->chunk, len);
	*ret_len = len;
	return RAM_RAW;
}

static int put_packed(struct ram_writer *w, unsigned i, uint64_t chunk, uint16_t known)
{
	struct writer_thread *t = &w->thread[i];
	enum ram_encoding encoding = RAM_RAW;
	uint16_t mask = todo(w, chunk), zero, present;
	size_t len;
	int r = 0;

	if (!mask)
		return 0;
	if (BUFFER_SIZE - t->fill < RAM_CHUNK_SIZE || t->npending == PENDING_MAX)
		r = flush(w, t);
	uint8_t *out = t->buffer + t->fill, *pages = w->c.level ? t->chunk : out;

	if (r == 0 && mask & ~known)
		r = w->fetch(w->arg, i, chunk, mask & (uint16_t)~known, pages);
	if (r < 0)
		return r;
	zero = known_or_found_zero(pages, mask, known);
	present = (uint16_t)(mask & ~zero);
	len = compact(pages, present);
	if (len && w->c.level)
		encoding = encode(t, out, len, &len);
	w->record[chunk] = (struct ram_record){
		.offset = le64_make(len ? t->fill : 0),
		.hash = le64_make(len ? ram_hash(out, len) : 0),
		.chunk = le32_make((uint32_t)chunk),
		.length = le32_make((uint32_t)len),
		.present = le16_make(present),
		.zero = le16_make(zero),
		.encoding = le32_make(encoding),
	};
	if (len) {
		t->pending[t->npending++] = (uint32_t)chunk;
		t->fill += len;
	}
	return 0;
}

/* ---- a put ---- */

static bool is_empty(const struct ram_writer *w, uint64_t first, uint64_t end)
{
	uint64_t all = 0;

	for (uint64_t word = first / WORD_CHUNKS; word < (end + WORD_CHUNKS - 1) / WORD_CHUNKS; word++)
		all |= w->pages[word];
	return all == 0;
}

static bool is_cancelled(const struct ram_writer *w)
{
	return atomic_load_explicit(&w->cancelled, memory_order_relaxed);
}

/* Of each chunk of a batch, which lies in one region. */
static void find_known(const struct ram_writer *w, uint64_t first, uint64_t end, uint16_t ret[BATCH_CHUNKS])
{
	uint64_t page = first * RAM_CHUNK_PAGES, bits[MEM_KNOWN_MAX / 64];

	_Static_assert(BATCH_CHUNKS * RAM_CHUNK_PAGES == MEM_KNOWN_MAX, "a batch is asked for at once");
	memset(ret, 0, BATCH_CHUNKS * sizeof(*ret));
	if (!w->asks)
		return;
	mem_find_zero(w->c.mem, page, MIN(end * RAM_CHUNK_PAGES, w->size / MEM_PAGE_SIZE) - page, bits);
	for (unsigned i = 0; i < BATCH_CHUNKS; i++)
		ret[i] = (uint16_t)(bits[i / WORD_CHUNKS] >> (i % WORD_CHUNKS * RAM_CHUNK_PAGES));
}

static int put_span(struct ram_writer *w, unsigned i, uint64_t first, uint64_t end)
{
	uint16_t known[BATCH_CHUNKS];
	int r = 0;

	for (uint64_t batch = first; batch < end && r == 0; batch += BATCH_CHUNKS) {
		uint64_t last = MIN(batch + BATCH_CHUNKS, end);

		find_known(w, batch, last, known);
		if (!w->packed)
			r = put_batch(w, i, batch, last, known);
		for (uint64_t chunk = batch; w->packed && chunk < last && r == 0 && !is_cancelled(w); chunk++)
			r = put_packed(w, i, chunk, known[chunk - batch]);
	}
	return r;
}

static void put_work(void *arg, unsigned i)
{
	struct ram_writer *w = arg;
	int r = 0;

	while (r == 0 && atomic_load_explicit(&w->error, memory_order_relaxed) == 0) {
		if (is_cancelled(w)) {
			r = -ECANCELED;
			break;
		}
		uint64_t first = atomic_fetch_add(&w->span, 1) * SPAN_CHUNKS;
		uint64_t end = MIN(first + SPAN_CHUNKS, w->chunks);

		if (first >= w->chunks)
			break;
		if (!is_empty(w, first, end))
			r = put_span(w, i, first, end);
	}
	if (r == 0)
		r = flush(w, &w->thread[i]);
	int none = 0;

	if (r < 0)
		atomic_compare_exchange_strong(&w->error, &none, r);
}

/* The compressor allocates its tables when it first runs: that is here, not while the guest waits. */
static int make_compressor(const struct ram_writer *w, struct writer_thread *t)
{
	t->cctx = ZSTD_createCCtx();
	if (!t->cctx || ZSTD_isError(ZSTD_CCtx_setParameter(t->cctx, ZSTD_c_compressionLevel, w->c.level)))
		return -ENOMEM;
	size_t n = ZSTD_compress2(t->cctx, t->buffer, BUFFER_SIZE, t->chunk, RAM_CHUNK_SIZE);

	return ZSTD_isError(n) ? -ENOMEM : 0;
}

static int make_threads(struct ram_writer *w, unsigned n)
{
	int r = 0;

	if (n <= w->nthreads)
		return 0;
	struct writer_thread *more = realloc(w->thread, n * sizeof(*more));

	if (!more)
		return -ENOMEM;
	w->thread = more;
	for (; w->nthreads < n && r == 0; w->nthreads++) {
		struct writer_thread *t = &more[w->nthreads];

		memset(t, 0, sizeof(*t));
		if (w->in_place)
			continue;
		t->buffer = malloc(BUFFER_SIZE);
		if (!t->buffer)
			r = -ENOMEM;
		if (r == 0 && w->c.level) {
			t->chunk = calloc(1, RAM_CHUNK_SIZE);
			r = t->chunk ? make_compressor(w, t) : -ENOMEM;
		}
	}
	return r;
}

int ram_writer_put(struct ram_writer *w, struct workers *ws, const uint64_t *pages, struct err *err)
{
	int r = w->failed;

	if (r == 0)
		r = make_threads(w, ws ? ws->n : 1);
	w->pages = pages;
	atomic_store(&w->span, 0);
	atomic_store(&w->error, r);
	if (r == 0 && ws)
		workers_run(ws, put_work, w);
	else if (r == 0)
		put_work(w, 0);
	w->pages = NULL;
	w->failed = atomic_load(&w->error);
	return w->failed < 0 ? err_errno(err, w->failed, "ram: write memory") : 0;
}

void ram_writer_cancel(struct ram_writer *w)
{
	if (w)
		atomic_store(&w->cancelled, true);
}

/* ---- begin and end ---- */

static int check_config(const struct ram_writer_config *c, uint64_t size, struct err *err)
{
	if (c->level < 0 || c->level > RAM_LEVEL_MAX)
		return err_set(err, -EINVAL, "compression level %d: use 0 (none) to %d", c->level, RAM_LEVEL_MAX);
	if (size < MEM_MIN || size > MEM_MAX || size % MEM_PAGE_SIZE)
		return err_set(err, -EINVAL, "ram: %llu bytes of memory is out of range", (unsigned long long)size);
	if (ram_id_is_none(&c->id))
		return err_set(err, -EINVAL, "ram: the snapshot has no id");
	return 0;
}

int ram_writer_new_from(const struct ram_writer_config *c, uint64_t size, ram_fetch_fn *fetch, void *arg,
			struct ram_writer **ret, struct err *err)
{
	int r = check_config(c, size, err);
	struct ram_writer *w = r < 0 ? NULL : calloc(1, sizeof(*w));

	if (r < 0)
		return r;
	if (!w)
		return err_errno(err, -ENOMEM, "ram");
	w->c = *c;
	w->size = size;
	w->chunks = ram_chunks(size);
	w->fetch = fetch;
	w->arg = arg;
	w->diff = !ram_id_is_none(&c->parent);
	w->packed = w->diff || c->level > 0;
	w->cursor = RAM_DATA_START;
	w->record = calloc(w->chunks, sizeof(*w->record));
	w->written = w->packed ? NULL : calloc(w->chunks, sizeof(*w->written));
	if (!w->record || (!w->packed && !w->written)) {
		ram_writer_free(w);
		return err_errno(err, -ENOMEM, "ram: index of %llu MiB", (unsigned long long)(size >> 20));
	}
	*ret = w;
	return 0;
}

int ram_writer_new(const struct ram_writer_config *c, struct ram_writer **ret, struct err *err)
{
	int r = ram_writer_new_from(c, c->mem->size, fetch_memory, c->mem, ret, err);

	if (r == 0) {
		(*ret)->in_place = !(*ret)->packed;
		(*ret)->asks = !(*ret)->diff;
	}
	return r;
}

/* Move the records that say something together and sum up. How many they are. */
static uint64_t compact_records(struct ram_writer *w, struct ram_writer_stats *stats)
{
	uint64_t n = 0;

	for (uint64_t chunk = 0; chunk < w->chunks; chunk++) {
		struct ram_record rec = w->record[chunk];

		if (!le16_get(rec.present) && !le16_get(rec.zero))
			continue;
		stats->pages += ram_mask_count(le16_get(rec.present));
		stats->zero_pages += ram_mask_count(le16_get(rec.zero));
		if (!w->diff)
			rec.zero = le16_make(0);
		if (le16_get(rec.present) || le16_get(rec.zero))
			w->record[n++] = rec;
	}
	return n;
}

static int write_data_header(const struct ram_writer *w, uint64_t data_size)
{
	_cleanup_free_ struct ram_data_header *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	memcpy(h->magic, RAM_DATA_MAGIC, sizeof(h->magic));
	h->version = le32_make(RAM_FORMAT_VERSION);
	h->header_size = le32_make(sizeof(*h));
	h->id = w->c.id;
	h->encoding = le32_make(w->c.level ? RAM_ZSTD : RAM_RAW);
	h->kind = le32_make(w->diff ? RAM_DIFF : RAM_FULL);
	h->mem_size = le64_make(w->size);
	h->page_size = le32_make(MEM_PAGE_SIZE);
	h->hash = le64_make(ram_hash(h, offsetof(struct ram_data_header, hash)));
	r = fd_pwrite_full(w->c.data_fd, h, sizeof(*h), 0);
	if (r == 0 && ftruncate(w->c.data_fd, (off_t)data_size) < 0)
		r = -errno;
	return r;
}

static int write_index(const struct ram_writer *w, uint64_t records, uint64_t data_size)
{
	size_t len = (size_t)records * sizeof(struct ram_record);
	struct ram_index_header h = {
		.magic = RAM_INDEX_MAGIC,
		.version = le32_make(RAM_FORMAT_VERSION),
		.header_size = le32_make(sizeof(h)),
		.mem_size = le64_make(w->size),
		.page_size = le32_make(MEM_PAGE_SIZE),
		.chunk_pages = le32_make(RAM_CHUNK_PAGES),
		.chunks = le64_make(w->chunks),
		.records = le64_make(records),
		.encoding = le32_make(w->c.level ? RAM_ZSTD : RAM_RAW),
		.kind = le32_make(w->diff ? RAM_DIFF : RAM_FULL),
		.id = w->c.id,
		.parent = w->c.parent,
		.data_size = le64_make(data_size),
		.records_hash = le64_make(ram_hash(w->record, len)),
	};

	h.hash = le64_make(ram_hash(&h, offsetof(struct ram_index_header, hash)));
	int r = fd_pwrite_full(w->c.index_fd, w->record, len, sizeof(h));

	return r < 0 ? r : fd_pwrite_full(w->c.index_fd, &h, sizeof(h), 0);
}

int ram_writer_finish(struct ram_writer *w, struct ram_writer_stats *ret, struct err *err)
{
	struct ram_writer_stats stats = { .bytes = atomic_load(&w->bytes) };
	uint64_t data_size = w->packed ? atomic_load(&w->cursor) : RAM_DATA_START + w->size;

	if (w->failed)
		return err_errno(err, w->failed, "ram: write memory");
	/* The records are compacted in place: this happens once. */
	w->failed = -EALREADY;
	uint64_t records = compact_records(w, &stats);
	int r = write_data_header(w, data_size);

	if (r < 0)
		return err_errno(err, r, "ram: write the header");
	r = write_index(w, records, data_size);
	if (r < 0)
		return err_errno(err, r, "ram.index: write");
	if (ret)
		*ret = stats;
	return 0;
}

void ram_writer_free(struct ram_writer *w)
{
	if (!w)
		return;
	for (unsigned i = 0; i < w->nthreads; i++) {
		free(w->thread[i].buffer);
		free(w->thread[i].chunk);
		ZSTD_freeCCtx(w->thread[i].cctx);
	}
	free(w->thread);
	free(w->written);
	free(w->record);
	free(w);
}
