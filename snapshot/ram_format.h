/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of `ram` and `ram.index`: docs/snapshot-format.md describes them, ram.h what they are for.
 *
 * Each structure is what lies in the file. Checksums are XXH3-64 without a seed. A header's own covers what is before
 * it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "lib/le.h"
#include "snapshot/ram.h"

enum { RAM_FORMAT_VERSION = 1 };

enum ram_encoding { RAM_RAW = 0, RAM_ZSTD = 1 }; /* of a file, and of a frame */
enum ram_kind { RAM_FULL = 0, RAM_DIFF = 1 };

/* Begins ram.index; the records follow, sorted by chunk. */
struct ram_index_header {
	uint8_t magic[8]; /* RAM_INDEX_MAGIC */
	le32 version;
	le32 header_size; /* of this structure */
	le64 mem_size;
	le32 page_size;
	le32 chunk_pages;
	le64 chunks;      /* of the memory */
	le64 records;
	le32 encoding;    /* enum ram_encoding */
	le32 kind;        /* enum ram_kind */
	struct ram_id id;
	struct ram_id parent; /* none in a full one */
	le64 data_size;   /* of the file `ram` */
	le64 records_hash;
	le64 reserved[2]; /* zero */
	le64 hash;
};
_Static_assert(sizeof(struct ram_index_header) == 128, "layout");

struct ram_record {
	le64 offset;  /* of the frame in `ram`; in a full raw one, of the chunk's place. Without a frame: 0 */
	le64 hash;    /* of its bytes; in a full raw one, of the present pages one after another. Without a frame: 0 */
	le32 chunk;
	le32 length;  /* of the frame */
	le16 present; /* pages in it, bit n: page n of the chunk */
	le16 zero;    /* pages that are zero, in a diff */
	le32 encoding; /* of the frame: a zstd file has raw ones where compression gains nothing */
};
_Static_assert(sizeof(struct ram_record) == 32, "layout");

/* Begins `ram`: says which index it belongs to. Zeros follow up to RAM_DATA_START. */
struct ram_data_header {
	uint8_t magic[8]; /* RAM_DATA_MAGIC */
	le32 version;
	le32 header_size; /* of this structure */
	struct ram_id id;
	le32 encoding;
	le32 kind;
	le64 mem_size;
	le32 page_size;
	uint8_t reserved[4036]; /* zero */
	le64 hash;
};
_Static_assert(sizeof(struct ram_data_header) == 4096 && offsetof(struct ram_data_header, hash) == 4088, "layout");

#define RAM_INDEX_MAGIC "COFRAMIX"
#define RAM_DATA_MAGIC "COFRAMDT"

uint64_t ram_hash(const void *p, size_t n);
uint64_t ram_hash_avx2(const void *p, size_t n); /* the same, for ram_hash, on processors that have it */
/* Of the pages in `mask` of a chunk, one after another. */
uint64_t ram_hash_pages(const uint8_t *chunk, uint16_t mask);

/* How many chunks `size` bytes of memory are, and which pages of one exist. */
uint64_t ram_chunks(uint64_t size);
uint16_t ram_chunk_mask(uint64_t size, uint64_t chunk);

/* The run of set bits at or after `from`: its first bit in *ret_first and its length; 0 when there is none. */
unsigned ram_mask_run(uint16_t mask, unsigned from, unsigned *ret_first);

static inline unsigned ram_mask_count(uint16_t mask)
{
	return (unsigned)__builtin_popcount(mask);
}

static inline bool ram_id_is_none(const struct ram_id *id)
{
	static const struct ram_id none;

	return memcmp(id, &none, sizeof(none)) == 0;
}
