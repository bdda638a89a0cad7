/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The merged index of a stack of layers: which layer supplies each sector of the disk.
 *
 * A sorted sequence of segments that do not overlap, in chunks of a page each, below a directory of first
 * offsets. A segment takes the 16 bytes it has on disk; its tag is the number of the layer. Inserting replaces what it
 * covers. Neighbours that continue each other are joined. A full chunk first gives to a neighbour, then two full
 * ones become three, so that chunks stay two thirds full: 24 bytes a segment at most, except where large holes
 * were just cut.
 *
 * Memory: all of it is reserved at once without being there; a page comes into being with its first segment. So
 * no call allocates, and the limit is known: -ENOMEM, with nothing changed.
 *
 * Threads: none of its own; the caller serialises.
 */
#pragma once
#include <stddef.h>

#include "devices/backend/lsmt_format.h"

enum { LSMT_CHUNK_SEGS = 255 };

struct lsmt_chunk {
	uint32_t n;
	struct lsmt_chunk *next_free;
	struct lsmt_cell { uint64_t low, high; } seg[LSMT_CHUNK_SEGS]; /* as on disk, in the host's byte order */
};

struct lsmt_index {
	struct lsmt_dir { uint64_t first; struct lsmt_chunk *chunk; } *dir; /* the reservation starts here */
	struct lsmt_chunk *arena;
	struct lsmt_chunk *free;
	size_t bytes;             /* reserved */
	uint32_t max, fresh, ndir, nfree;
	uint64_t count;
	uint32_t of_tag[256];     /* of count, by layer */
};

/* Room for max_segs segments (more when they lie well). 0 or -errno. */
int lsmt_index_init(struct lsmt_index *x, uint64_t max_segs, struct err *err);
void lsmt_index_clear(struct lsmt_index *x); /* empty again, memory given back */
void lsmt_index_finish(struct lsmt_index *x); /* accepts a zeroed one */

/* So many are about to be inserted, in order: a hint that makes it faster when they are many. */
void lsmt_index_expect(struct lsmt_index *x, uint64_t n);

/* The next insert would fail. */
bool lsmt_index_full(const struct lsmt_index *x);
/* 0 or -ENOMEM with nothing changed. */
int lsmt_index_insert(struct lsmt_index *x, const struct lsmt_seg *s);

/* What gives entries one by one (lsmt_sealed_walk, lsmt_pair_open) puts them into an index by this, with a tag. */
struct lsmt_tagged { struct lsmt_index *index; uint8_t tag; };
int lsmt_index_insert_tagged(void *tagged, const struct lsmt_seg *s);

/* All entries of n layers, lowest first, with tags from 0 on (lsmt_load.c). Each walk has room for LSMT_LOAD_ROOM_MIN or more.
 * On failure the index has part of them. */
enum { LSMT_LOAD_ROOM_MIN = 512 };
int lsmt_index_load(struct lsmt_index *x, struct lsmt_walk *walks, unsigned n, struct err *err);

/* What is at `offset`: a segment cut to start there and to have at most max (> 0) sectors: true; or a hole: false,
 * ret->length is its size, at most max (and at most UINT32_MAX). */
bool lsmt_index_lookup(const struct lsmt_index *x, uint64_t offset, uint64_t max, struct lsmt_seg *ret);

/* `offset` will be looked up soon, after others of the same kind: what that takes is fetched into the processor's cache
 * meanwhile, in two steps, the second with the next call. *a: zeros at first. */
struct lsmt_approach { uint64_t offset; uint32_t chunk; };
void lsmt_index_approach(const struct lsmt_index *x, struct lsmt_approach *a, uint64_t offset);

/* All segments with this tag, in order, encoded with tag 0: how many; ret (NULL: only count) has room for max. */
uint64_t lsmt_index_extract(const struct lsmt_index *x, uint8_t tag, uint8_t *ret, uint64_t max);

/* The same in pieces: from the first that ends behind *offset on, max at most, looking at no more than LSMT_SLICE_LOOK
 * of all layers. *offset becomes where to go on, LSMT_OFFSET_MAX behind the last. What changes in between is in no piece,
 * or in one. */
enum { LSMT_SLICE_LOOK = 1 << 15 };
uint32_t lsmt_index_slice(const struct lsmt_index *x, uint8_t tag, uint64_t *offset, uint8_t *ret, uint32_t max);

/* In order: false behind the last one. */
struct lsmt_cursor { uint32_t dir, i; };
bool lsmt_index_next(const struct lsmt_index *x, struct lsmt_cursor *c, struct lsmt_seg *ret);
/* Bytes of memory in use. */
static inline uint64_t lsmt_index_memory(const struct lsmt_index *x)
{
	return x->ndir * (uint64_t)(sizeof(struct lsmt_chunk) + sizeof(*x->dir));
}
