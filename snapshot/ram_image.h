/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of memory images as ram_image.c merged it, for those that read pages from it: ram_load.c, ram_lazy.c. */
#pragma once
#include <stdatomic.h>
#include <zstd.h>

#include "snapshot/ram_format.h"

/* What one snapshot of the chain contributes to a chunk. */
struct ram_piece {
	uint32_t record; /* in its source */
	uint32_t next;   /* number of the piece of an older snapshot plus one; 0: none */
	uint16_t take;   /* pages that come from its frame */
	uint16_t zero;   /* pages that are zero by it */
	uint16_t source;
};

struct ram_layer {
	int data_fd;
	bool raw, full;
	struct ram_id id, parent;
	uint64_t data_size, nrecords;
	struct ram_record *record;
	char name[24]; /* "" or " of parent N" */
};

struct ram_image {
	uint64_t size, chunks;
	unsigned n;
	struct ram_layer layer[RAM_CHAIN_MAX]; /* newest first */
	uint32_t *first; /* for each chunk its newest piece plus one; 0: all zero */
	struct ram_piece *piece;
	_Atomic bool cancelled;
};

/* Buffers of one reader. */
struct ram_scratch {
	uint8_t *stored; /* RAM_CHUNK_SIZE: a compressed frame */
	uint8_t *pages;  /* RAM_CHUNK_SIZE: present pages of a frame, one after another */
	ZSTD_DCtx *dctx;
};

int ram_scratch_init(struct ram_scratch *s);
void ram_scratch_finish(struct ram_scratch *s); /* accepts zeroed */

/* The present pages of a record one after another into `pages` (s->pages, or where there is room for them and nobody looks
 * until this has returned 0), checked. */
int ram_frame_read(const struct ram_image *im, unsigned layer, const struct ram_record *rec, struct ram_scratch *s,
		   uint8_t *pages, struct err *err);
/* A chunk as the newest `layers` of the chain have it: pages of *ret_present at their places in buf; those of
 * *ret_zero are said to be zero, as are all others when `layers` is the whole chain. */
int ram_chunk_read(const struct ram_image *im, unsigned layers, uint64_t chunk, struct ram_scratch *s, uint8_t *buf,
		   uint16_t *ret_present, uint16_t *ret_zero, struct err *err);
