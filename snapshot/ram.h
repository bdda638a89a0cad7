/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory in a snapshot: two files, `ram` (contents) and `ram.index` (where what is, and its checksums).
 *
 * Pages are numbered through RAM without the hole (mem_page_gpa); RAM_CHUNK_PAGES of them are a chunk. The index has
 * one record for each chunk that holds anything: which of its pages this snapshot stores, which it knows to be zero,
 * and the frame in `ram` with the stored ones, raw or as one independent zstd frame, with the XXH3 of the stored
 * bytes. A full snapshot says nothing about pages that are zero; a diff has only pages written since its parent, zero
 * ones by their bit, and takes all others from the parent. In a full raw snapshot page n lies at RAM_DATA_START + n *
 * page size, with holes for zero pages, so that it can be mapped. docs/snapshot-format.md has the bytes.
 *
 * A chain is the snapshot and its parents, newest first; each index names its parent's id.
 *
 * Trust: both files are hostile when read. The index is checked whole before anything uses it; a frame is checked
 * before the guest can see its bytes. Errors name the file by its place in the chain ("ram of parent 2") and the chunk.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/memory.h"
#include "vmm/workers.h"

enum {
	RAM_CHUNK_PAGES = 16,
	RAM_CHUNK_SIZE = RAM_CHUNK_PAGES * MEM_PAGE_SIZE,
	RAM_DATA_START = 65536, /* a header block; data are aligned to large files' needs */
	RAM_CHAIN_MAX = 64,
	RAM_ID_SIZE = 16,
	RAM_LEVEL_MAX = 19, /* zstd */
};

struct ram_id {
	uint8_t b[RAM_ID_SIZE]; /* random; all zero: none */
};

/* ---- writing ---- */

struct ram_writer_config {
	struct mem *mem;
	int data_fd, index_fd; /* borrowed, empty files open for writing */
	int level;             /* 0: raw, else zstd 1..RAM_LEVEL_MAX */
	struct ram_id id;
	struct ram_id parent;  /* none: a full snapshot */
};

struct ram_writer_stats {
	uint64_t pages;      /* stored, in the end state */
	uint64_t zero_pages; /* looked at and found zero */
	uint64_t bytes;      /* of frames written, superseded ones too */
};

struct ram_writer; /* opaque */

int ram_writer_new(const struct ram_writer_config *c, struct ram_writer **ret, struct err *err);
/* Here and below: `ws` NULL is the calling thread alone. */

/* Look at the pages whose bit is set (bit n of the array: page n; 64-bit words) and store them, on all threads of `ws`, and wait. May be called many times, with the guest
 * running: a chunk is stored again with all pages given for it so far, and what it had before is forgotten. A page
 * that the guest writes meanwhile must be given again: until then its chunk may be one that no restore accepts. 0 or -errno (-ENOSPC, -EIO ...) with a text. Not for two
 * callers at once. */
int ram_writer_put(struct ram_writer *w, struct workers *ws, const uint64_t *pages, struct err *err);
/* Any thread: what is being put, or will be, ends soon with -ECANCELED. */
void ram_writer_cancel(struct ram_writer *w); /* accepts NULL */
/* Write the headers and the index. The caller syncs both files. */
int ram_writer_finish(struct ram_writer *w, struct ram_writer_stats *ret, struct err *err);
void ram_writer_free(struct ram_writer *w); /* accepts NULL */

/* ---- reading ---- */

struct ram_source {
	int data_fd, index_fd; /* borrowed, read-only */
};

struct ram_image; /* opaque: a chain, all indexes checked and merged */

/* n snapshots, newest first. The memory they describe must have `size` bytes. 0, -EINVAL (damaged, or not a chain),
 * -ENOTSUP (newer). */
int ram_image_open(const struct ram_source *chain, unsigned n, uint64_t size, struct ram_image **ret, struct err *err);
void ram_image_close(struct ram_image *im); /* accepts NULL */
struct ram_id ram_image_id(const struct ram_image *im); /* of the newest */

/* Fill memory that nothing has touched yet and nothing uses meanwhile. After an error its contents are worth nothing. */
int ram_image_load(struct ram_image *im, struct mem *m, struct workers *ws, struct err *err);
/* Map the oldest, full raw, and load what the diffs above changed. -ENOTSUP when it is compressed. Contents of the
 * mapped file are not read: its size and header are checked. */
int ram_image_map(struct ram_image *im, struct mem *m, struct workers *ws, struct err *err);
/* Any thread: what is being filled by one of these two, or will be, ends after the frames under way with -ECANCELED. */
void ram_image_cancel(struct ram_image *im); /* accepts NULL */
/* Read everything and compare all checksums; memory is not needed. progress (may be NULL) is told done and total
 * bytes. */
int ram_image_verify(struct ram_image *im, void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		     struct err *err);
/* One full snapshot of what the chain is, at `level`, with a new id (host side: `coffer snapshot flatten`). */
int ram_image_flatten(struct ram_image *im, int data_fd, int index_fd, int level, const struct ram_id *id,
		      struct err *err);

/* ---- reading on demand (ram_lazy.c) ---- */

/*
 * Pages arrive through userfaultfd: those in `order` first, then what the guest asks for at once and the rest in the
 * background. The thread that serves faults is `server` (a struct workers of one thread), the background uses
 * `fillers` (NULL: none, then only what is asked for arrives). uffd: opened before isolation (ram_lazy_open_uffd).
 * order_in (or -1): le32 chunk numbers, any length, unknown ones ignored; read by ram_lazy_start. order_out (or -1):
 * the same, written as the guest first asks for chunks that hold anything (not those that were there in time); in
 * blocks, the last when all pages have arrived or at ram_lazy_stop. on_damage is called once, from
 * the serving or a background thread, when a frame is damaged or cannot be read. Whoever waits for a page stays where
 * it is, and that may be the main thread, in a device: the callback itself must end the process.
 */
struct ram_lazy;
struct ram_lazy_config {
	struct ram_image *image; /* this and the descriptors: owned from here on, also when it fails */
	struct mem *mem;
	struct workers *server, *fillers;
	int uffd, order_in, order_out;
	void (*on_damage)(void *arg, const char *text);
	void *arg;
};
int ram_lazy_open_uffd(struct err *err); /* descriptor or -errno with what the administrator can do */
int ram_lazy_start(const struct ram_lazy_config *c, struct ram_lazy **ret, struct err *err);
/* Wait until every page has arrived and userfaultfd is gone: before a snapshot of this VM. 0; -EIO after damage, -ECANCELED
 * when it was stopped. */
int ram_lazy_complete(struct ram_lazy *l, struct err *err);
/* Let whoever waits for that go with -ECANCELED, and let no more pages arrive: no vCPU will run again. */
void ram_lazy_cancel(struct ram_lazy *l); /* accepts NULL */
/* End the threads' work and free; accepts NULL. Only when all pages are there, or no vCPU will run again. */
void ram_lazy_stop(struct ram_lazy *l);
