/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a chain of memory images: see ram.h.
 *
 * How it works: each index is read and checked whole. Then the chain is merged, newest first, into a list of pieces
 * for each chunk: which pages come from which snapshot's frame. Reading a chunk walks that list. The list is built
 * with work in the number of records, not of the memory: tables that are indexed by chunk are zeros that nobody
 * touches elsewhere.
 *
 * Trust: everything read. Lengths and offsets are checked here; a frame's bytes, in ram_frame_read, before they are
 * decompressed. A decompressor gets exactly the space of the pages that the record announces.
 */
/* syscalls(main): pread64 fstat newfstatat
 * syscalls(worker): pread64 */
#include "snapshot/ram_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fd.h"
#include "lib/util.h"

/* ---- one index ---- */

static int damaged(struct err *err, const struct ram_layer *l, const char *file, const char *what)
{
	return err_set(err, -EINVAL, "%s%s: damaged: %s", file, l->name, what);
}

static int read_exact(int fd, void *buf, size_t n, uint64_t off, const struct ram_layer *l, const char *file,
		      struct err *err)
{
	ssize_t got = fd_pread_full(fd, buf, n, (off_t)off);

	if (got < 0)
		return err_errno(err, (int)got, "%s%s: read", file, l->name);
	return (size_t)got == n ? 0 : err_set(err, -EINVAL, "%s%s: truncated: %llu bytes are missing", file, l->name,
					      (unsigned long long)(n - (size_t)got));
}

static int file_size(int fd, uint64_t *ret, const struct ram_layer *l, const char *file, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s%s", file, l->name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s%s: not a regular file", file, l->name);
	*ret = (uint64_t)st.st_size;
	return 0;
}

static int check_size(uint64_t size, uint64_t want, const struct ram_layer *l, const char *file, struct err *err)
{
	if (size == want)
		return 0;
	return err_set(err, -EINVAL, "%s%s: %s: %llu bytes instead of %llu", file, l->name,
		       size < want ? "truncated" : "too long", (unsigned long long)size, (unsigned long long)want);
}

static int check_version(const uint8_t *magic, const char *want, le32 version, const struct ram_layer *l,
			 const char *file, struct err *err)
{
	if (memcmp(magic, want, 8) != 0)
		return err_set(err, -EINVAL, "%s%s: not such a file: it does not begin with %s", file, l->name, want);
	if (le32_get(version) > RAM_FORMAT_VERSION)
		return err_set(err, -ENOTSUP, "%s%s: version %u, this program knows up to %d: use a newer one", file,
			       l->name, le32_get(version), RAM_FORMAT_VERSION);
	return le32_get(version) ? 0 : damaged(err, l, file, "version 0");
}

static int check_index_header(const struct ram_image *im, struct ram_layer *l, const struct ram_index_header *h,
			      struct err *err)
{
	const char *file = "ram.index";
	int r = check_version(h->magic, RAM_INDEX_MAGIC, h->version, l, file, err);

	if (r < 0)
		return r;
	if (le64_get(h->hash) != ram_hash(h, offsetof(struct ram_index_header, hash)))
		return damaged(err, l, file, "checksum of the header");
	if (le32_get(h->header_size) != sizeof(*h) || le32_get(h->page_size) != MEM_PAGE_SIZE ||
	    le32_get(h->chunk_pages) != RAM_CHUNK_PAGES || h->reserved[0].raw || h->reserved[1].raw)
		return damaged(err, l, file, "header");
	if (le64_get(h->mem_size) != im->size)
		return err_set(err, -EINVAL, "%s%s: %llu bytes of memory, not %llu", file, l->name,
			       (unsigned long long)le64_get(h->mem_size), (unsigned long long)im->size);
	if (le64_get(h->chunks) != im->chunks || le64_get(h->records) > im->chunks)
		return damaged(err, l, file, "number of chunks");
	if (le32_get(h->encoding) > RAM_ZSTD || le32_get(h->kind) > RAM_DIFF)
		return damaged(err, l, file, "kind");
	l->raw = le32_get(h->encoding) == RAM_RAW;
	l->full = le32_get(h->kind) == RAM_FULL;
	l->id = h->id;
	l->parent = h->parent;
	l->data_size = le64_get(h->data_size);
	l->nrecords = le64_get(h->records);
	if (ram_id_is_none(&l->id) || ram_id_is_none(&l->parent) != l->full)
		return damaged(err, l, file, "ids");
	return 0;
}

/* Does the frame lie where one may? */
static const char *check_frame(const struct ram_layer *l, const struct ram_record *rec)
{
	uint64_t off = le64_get(rec->offset), raw = (uint64_t)ram_mask_count(le16_get(rec->present)) * MEM_PAGE_SIZE;
	uint32_t len = le32_get(rec->length), encoding = le32_get(rec->encoding);

	if (!le16_get(rec->present))
		return off || len || encoding || rec->hash.raw ? "a frame without pages" : NULL;
	if (encoding > RAM_ZSTD || (l->raw && encoding != RAM_RAW))
		return "encoding";
	if (encoding == RAM_RAW ? len != raw : len < 1 || len >= raw)
		return "length";
	if (l->raw && l->full)
		return off == RAM_DATA_START + (uint64_t)le32_get(rec->chunk) * RAM_CHUNK_SIZE ? NULL : "offset";
	return off >= RAM_DATA_START && off <= l->data_size && len <= l->data_size - off ? NULL : "offset";
}

static const char *check_record(const struct ram_image *im, const struct ram_layer *l, const struct ram_record *rec)
{
	uint16_t present = le16_get(rec->present), zero = le16_get(rec->zero);

	if (present & zero || !(present | zero) || (l->full && zero))
		return "pages";
	if ((present | zero) & ~ram_chunk_mask(im->size, le32_get(rec->chunk)))
		return "pages beyond the end of memory";
	return check_frame(l, rec);
}

static int check_records(const struct ram_image *im, const struct ram_layer *l, struct err *err)
{
	uint64_t next = 0;

	for (uint64_t i = 0; i < l->nrecords; i++) {
		const struct ram_record *rec = &l->record[i];
		uint64_t chunk = le32_get(rec->chunk);
		const char *what = chunk < next || chunk >= im->chunks ? "chunk number" : check_record(im, l, rec);

		if (what)
			return err_set(err, -EINVAL, "ram.index%s: damaged: record %llu, chunk %llu: %s", l->name,
				       (unsigned long long)i, (unsigned long long)chunk, what);
		next = chunk + 1;
	}
	if (l->raw && l->full && l->data_size != RAM_DATA_START + im->size)
		return damaged(err, l, "ram.index", "size of ram");
	if (l->data_size < RAM_DATA_START)
		return damaged(err, l, "ram.index", "size of ram");
	return 0;
}

static int read_index(const struct ram_image *im, struct ram_layer *l, int fd, struct err *err)
{
	struct ram_index_header h = { 0 };
	uint64_t size = 0;
	int r = file_size(fd, &size, l, "ram.index", err);

	if (r == 0)
		r = read_exact(fd, &h, sizeof(h), 0, l, "ram.index", err);
	if (r == 0)
		r = check_index_header(im, l, &h, err);
	if (r == 0)
		r = check_size(size, sizeof(h) + l->nrecords * sizeof(*l->record), l, "ram.index", err);
	if (r < 0)
		return r;
	size_t len = (size_t)l->nrecords * sizeof(*l->record);

	l->record = malloc(len ? len : 1);
	if (!l->record)
		return err_errno(err, -ENOMEM, "ram.index%s: %zu bytes", l->name, len);
	r = read_exact(fd, l->record, len, sizeof(h), l, "ram.index", err);
	if (r < 0)
		return r;
	if (ram_hash(l->record, len) != le64_get(h.records_hash))
		return damaged(err, l, "ram.index", "checksum of the records");
	return check_records(im, l, err);
}

static int check_data_header(const struct ram_image *im, const struct ram_layer *l, const struct ram_data_header *h,
			     struct err *err)
{
	int r = check_version(h->magic, RAM_DATA_MAGIC, h->version, l, "ram", err);

	if (r < 0)
		return r;
	if (le64_get(h->hash) != ram_hash(h, offsetof(struct ram_data_header, hash)))
		return damaged(err, l, "ram", "checksum of the header");
	if (memcmp(&h->id, &l->id, sizeof(l->id)) != 0)
		return err_set(err, -EINVAL, "ram%s: belongs to another snapshot than ram.index", l->name);
	if (le32_get(h->header_size) != sizeof(*h) || le32_get(h->page_size) != MEM_PAGE_SIZE ||
	    le64_get(h->mem_size) != im->size || le32_get(h->encoding) != (l->raw ? RAM_RAW : RAM_ZSTD) ||
	    le32_get(h->kind) != (l->full ? RAM_FULL : RAM_DIFF))
		return damaged(err, l, "ram", "header");
	return 0;
}

static int read_data_header(const struct ram_image *im, const struct ram_layer *l, struct err *err)
{
	_cleanup_free_ struct ram_data_header *h = calloc(1, sizeof(*h));
	uint64_t size = 0;

	if (!h)
		return err_errno(err, -ENOMEM, "ram");
	int r = file_size(l->data_fd, &size, l, "ram", err);

	if (r == 0)
		r = check_size(size, l->data_size, l, "ram", err);
	if (r == 0)
		r = read_exact(l->data_fd, h, sizeof(*h), 0, l, "ram", err);
	return r < 0 ? r : check_data_header(im, l, h, err);
}

/* ---- the chain ---- */

static int check_chain(const struct ram_image *im, struct err *err)
{
	for (unsigned i = 0; i < im->n; i++) {
		const struct ram_layer *l = &im->layer[i];
		bool last = i + 1 == im->n;

		if (l->full && !last)
			return err_set(err, -EINVAL, "ram.index%s: a full snapshot, with %u parents given", l->name,
				       im->n - i - 1);
		if (!l->full && last)
			return err_set(err, -EINVAL, "ram.index%s: only the changes since a parent, which is not given",
				       l->name);
		if (!last && memcmp(&l->parent, &im->layer[i + 1].id, sizeof(l->parent)) != 0)
			return err_set(err, -EINVAL, "ram.index%s: its parent is another snapshot than the one given",
				       l->name);
	}
	return 0;
}

static int merge(struct ram_image *im, struct err *err)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < im->n; i++)
		total += im->layer[i].nrecords;
	if (total >= UINT32_MAX)
		return err_set(err, -E2BIG, "ram.index: %llu records in the chain: flatten it",
			       (unsigned long long)total);
	_cleanup_free_ uint16_t *seen = calloc(im->chunks, sizeof(*seen));
	_cleanup_free_ uint32_t *last = calloc(im->chunks, sizeof(*last));
	uint32_t n = 0;

	im->first = calloc(im->chunks, sizeof(*im->first));
	im->piece = malloc((total ? total : 1) * sizeof(*im->piece));
	if (!seen || !last || !im->first || !im->piece)
		return err_errno(err, -ENOMEM, "ram.index: %llu records", (unsigned long long)total);
	for (unsigned i = 0; i < im->n; i++) {
		const struct ram_layer *l = &im->layer[i];

		for (uint64_t k = 0; k < l->nrecords; k++) {
			const struct ram_record *rec = &l->record[k];
			uint32_t chunk = le32_get(rec->chunk);
			uint16_t present = le16_get(rec->present), zero = le16_get(rec->zero);
			uint16_t fresh = (uint16_t)((present | zero) & ~seen[chunk]);

			if (!fresh)
				continue;
			im->piece[n++] = (struct ram_piece){
				.record = (uint32_t)k,
				.take = present & fresh,
				.zero = zero & fresh,
				.source = (uint16_t)i,
			};
			*(last[chunk] ? &im->piece[last[chunk] - 1].next : &im->first[chunk]) = n;
			last[chunk] = n;
			seen[chunk] |= fresh;
		}
	}
	return 0;
}

int ram_image_open(const struct ram_source *chain, unsigned n, uint64_t size, struct ram_image **ret, struct err *err)
{
	struct ram_image *im;
	int r = 0;

	if (n < 1 || n > RAM_CHAIN_MAX)
		return err_set(err, -EINVAL, "ram: a chain of %u snapshots: 1 to %d can be read; flatten it", n,
			       RAM_CHAIN_MAX);
	if (size < MEM_MIN || size > MEM_MAX || size % MEM_PAGE_SIZE)
		return err_set(err, -EINVAL, "ram: %llu bytes of memory is out of range", (unsigned long long)size);
	im = calloc(1, sizeof(*im));
	if (!im)
		return err_errno(err, -ENOMEM, "ram");
	im->size = size;
	im->chunks = ram_chunks(size);
	im->n = n;
	for (unsigned i = 0; i < n && r == 0; i++) {
		struct ram_layer *l = &im->layer[i];

		l->data_fd = chain[i].data_fd;
		if (i > 0)
			snprintf(l->name, sizeof(l->name), " of parent %u", i);
		r = read_index(im, l, chain[i].index_fd, err);
		if (r == 0)
			r = read_data_header(im, l, err);
	}
	if (r == 0)
		r = check_chain(im, err);
	if (r == 0)
		r = merge(im, err);
	if (r < 0) {
		ram_image_close(im);
		return r;
	}
	*ret = im;
	return 0;
}

void ram_image_close(struct ram_image *im)
{
	if (!im)
		return;
	for (unsigned i = 0; i < im->n; i++)
		free(im->layer[i].record);
	free(im->first);
	free(im->piece);
	free(im);
}

void ram_image_cancel(struct ram_image *im)
{
	if (im)
		atomic_store(&im->cancelled, true);
}

struct ram_id ram_image_id(const struct ram_image *im)
{
	return im->layer[0].id;
}

/* ---- frames and chunks ---- */

int ram_scratch_init(struct ram_scratch *s)
{
	s->stored = malloc(RAM_CHUNK_SIZE);
	s->pages = malloc(RAM_CHUNK_SIZE);
	s->dctx = ZSTD_createDCtx();
	if (s->stored && s->pages && s->dctx)
		return 0;
	ram_scratch_finish(s);
	return -ENOMEM;
}

void ram_scratch_finish(struct ram_scratch *s)
{
	free(s->stored);
	free(s->pages);
	ZSTD_freeDCtx(s->dctx);
	memset(s, 0, sizeof(*s));
}

static int frame_damaged(const struct ram_layer *l, const struct ram_record *rec, const char *what, struct err *err)
{
	return err_set(err, -EINVAL, "ram%s: damaged: chunk %u: %s", l->name, le32_get(rec->chunk), what);
}

/* Bytes of the frame into buf; of a full raw image, the present pages, between which others may lie. */
static int read_stored(const struct ram_layer *l, const struct ram_record *rec, uint8_t *buf)
{
	uint64_t off = le64_get(rec->offset);
	uint16_t present = le16_get(rec->present);
	uint32_t len = le32_get(rec->length);
	unsigned first = 0;

	if (!l->raw || !l->full) {
		ssize_t got = fd_pread_full(l->data_fd, buf, len, (off_t)off);

		return got < 0 ? (int)got : (uint32_t)got == len ? 0 : -ENODATA;
	}
	for (unsigned n = ram_mask_run(present, 0, &first); n > 0; n = ram_mask_run(present, first + n, &first)) {
		size_t want = (size_t)n * MEM_PAGE_SIZE;
		ssize_t got = fd_pread_full(l->data_fd, buf, want, (off_t)(off + (uint64_t)first * MEM_PAGE_SIZE));

		if (got < 0 || (size_t)got != want)
			return got < 0 ? (int)got : -ENODATA;
		buf += want;
	}
	return 0;
}

int ram_frame_read(const struct ram_image *im, unsigned layer, const struct ram_record *rec, struct ram_scratch *s,
		   uint8_t *pages, struct err *err)
{
	const struct ram_layer *l = &im->layer[layer];
	bool raw = le32_get(rec->encoding) == RAM_RAW;
	uint8_t *stored = raw ? pages : s->stored;
	size_t size = (size_t)ram_mask_count(le16_get(rec->present)) * MEM_PAGE_SIZE;
	int r = read_stored(l, rec, stored);

	if (r < 0)
		return err_errno(err, r, "ram%s: chunk %u: read", l->name, le32_get(rec->chunk));
	if (ram_hash(stored, le32_get(rec->length)) != le64_get(rec->hash))
		return frame_damaged(l, rec, "checksum", err);
	if (raw)
		return 0;
	return ZSTD_decompressDCtx(s->dctx, pages, size, stored, le32_get(rec->length)) == size
		       ? 0
		       : frame_damaged(l, rec, "not a zstd frame of its pages", err);
}

int ram_chunk_read(const struct ram_image *im, unsigned layers, uint64_t chunk, struct ram_scratch *s, uint8_t *buf,
		   uint16_t *ret_present, uint16_t *ret_zero, struct err *err)
{
	uint16_t all = 0, zero = 0;

	for (uint32_t k = im->first[chunk]; k; k = im->piece[k - 1].next) {
		const struct ram_piece *p = &im->piece[k - 1];
		const struct ram_record *rec = &im->layer[p->source].record[p->record];
		uint16_t present = le16_get(rec->present);
		const uint8_t *src = s->pages;

		if (p->source >= layers)
			break;
		zero |= p->zero;
		if (!p->take)
			continue;
		int r = ram_frame_read(im, p->source, rec, s, s->pages, err);

		if (r < 0)
			return r;
		for (unsigned i = 0; i < RAM_CHUNK_PAGES; i++) {
			if (p->take >> i & 1)
				memcpy(buf + i * MEM_PAGE_SIZE, src, MEM_PAGE_SIZE);
			if (present >> i & 1)
				src += MEM_PAGE_SIZE;
		}
		all |= p->take;
	}
	*ret_present = all;
	*ret_zero = zero;
	return 0;
}
