/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of ZFiles (docs/layers.md), for the files that read and write them: header, trailer, checksums. */
#pragma once
#include "devices/backend/zfile.h"
#include "lib/le.h"

enum {
	ZFILE_FLAG_HEADER = 1, /* clear: trailer */
	ZFILE_FLAG_DATA = 2,
	ZFILE_FLAG_SEALED = 4,
	ZFILE_FLAG_OVERWRITTEN = 8, /* of a header: all its fields are right */
	ZFILE_FLAG_DIGEST = 16,     /* digest and index_crc are right */
	ZFILE_FLAG_INDEX_COMPRESSED = 32,
	ZFILE_FLAGS = 63,
};

enum {
	ZFILE_CRC_BYTES = 4,           /* behind each block, if the file is checked */
	ZFILE_CRC_SEED_BLOCK = 100007, /* of blocks; of all else 0 */
	ZFILE_GROUP = 64,              /* blocks between two sums of the index */
};

/* Header or trailer, decoded. */
struct zfile_head {
	uint64_t flags;        /* the known ones */
	uint64_t index_offset; /* bytes */
	uint64_t blocks;
	uint64_t size;         /* of the content */
	uint32_t index_crc;
	uint32_t block_size, dict_size;
	uint8_t algo, level, use_dict, verify;
};

void zfile_head_encode(const struct zfile_head *h, uint8_t ret[ZFILE_SPACE]);
/* Magic numbers, size and digest are checked, nothing else. `what` ("header", "trailer") and `name` are for messages. */
int zfile_head_decode(const uint8_t p[ZFILE_SPACE], const char *name, const char *what, struct zfile_head *ret,
		      struct err *err);
bool zfile_is_head(const uint8_t p[ZFILE_SPACE]);

/* CRC-32C as this format has it: started at `seed`, not inverted. Of two pieces: the first's result seeds the second. */
uint32_t zfile_crc(uint32_t seed, const void *buf, size_t n);
uint32_t zfile_crc_portable(uint32_t seed, const void *buf, size_t n); /* the same where there is no instruction for it */

/* The most that a block may take in the file. */
static inline uint32_t zfile_stored_limit(uint32_t block_size)
{
	return block_size + (ZFILE_STORED_MAX - ZFILE_BLOCK_MAX);
}
