/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote blob in the cache, and what is said about it on a socket. docs/remote.md has the whole.
 *
 * `data` is as large as the blob and sparse. `chunks` is a header block and one generation per chunk of `data`: 0, the chunk is
 * absent; else it is there. Filling a chunk gives it a generation that was not used before, stored after the data; taking it
 * away stores 0 before the data goes. So a reader that finds the same generation, not 0, before and after it has read a chunk
 * has read that chunk, whatever others did meanwhile. Both files are shared by processes of one user.
 *
 * On the socket (SOCK_SEQPACKET) each message is one packet of one of the structures below, little-endian.
 *
 * Trust: a process that maps `chunks` checks its header against the blob's size that it knows from elsewhere, once, and
 * uses no field of it after that but flags and generations. Each side of the socket checks every field.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/le.h"

enum {
	REMOTE_HEADER = 4096,          /* bytes of the header block */
	REMOTE_VERSION = 1,
	REMOTE_SHIFT = 14,             /* of chunks that Coffer makes */
	REMOTE_SHIFT_MIN = 14,
	REMOTE_SHIFT_MAX = 20,
	REMOTE_BLOBS = 255,            /* that one socket speaks of */
	REMOTE_WANT_CHUNKS = 256,      /* of one message */
	REMOTE_WANTS = 64,             /* messages that are not answered in full, at most */
	REMOTE_FLAG_VERIFIED = 1,      /* all of it is there, and has the right digest: nothing changes any more */
};
#define REMOTE_MAGIC "CofChnk1"
#define REMOTE_SIZE_MAX (1ull << 40)

struct remote_header {
	char magic[8];
	le32 version;
	le32 chunk_shift;
	le64 size;       /* bytes of the blob */
	le32 flags;
	le32 counter;    /* the last generation that was given */
	le32 synced;     /* chunks of generations up to this one survive a power cut */
	le32 reserved;
	le64 used;       /* seconds since 1970 when it was last opened for use */
	char boot[40];   /* the boot in which chunks later than `synced` were filled */
};
_Static_assert(sizeof(struct remote_header) <= REMOTE_HEADER, "the header block");

static inline uint32_t remote_chunks(uint64_t size, unsigned shift)
{
	return (uint32_t)((size + (1ull << shift) - 1) >> shift);
}

static inline uint64_t remote_table_bytes(uint64_t size, unsigned shift)
{
	return REMOTE_HEADER + 4ull * remote_chunks(size, shift);
}

/* Is this the table of a blob of so many bytes, in a file of file_size bytes? */
static inline bool remote_header_check(const struct remote_header *h, uint64_t size, uint64_t file_size)
{
	uint32_t shift = le32_get(h->chunk_shift);

	return memcmp(h->magic, REMOTE_MAGIC, sizeof(h->magic)) == 0 && le32_get(h->version) == REMOTE_VERSION &&
	       shift >= REMOTE_SHIFT_MIN && shift <= REMOTE_SHIFT_MAX && size > 0 && size <= REMOTE_SIZE_MAX &&
	       le64_get(h->size) == size && file_size == remote_table_bytes(size, shift);
}

/* `table` is the whole file, mapped. */
static inline uint32_t remote_generation(const void *table, uint32_t chunk)
{
	const uint32_t *g = (const uint32_t *)((const uint8_t *)table + REMOTE_HEADER);

	return le32toh(__atomic_load_n(&g[chunk], __ATOMIC_ACQUIRE));
}

static inline bool remote_verified(const void *table)
{
	const struct remote_header *h = table;

	return (le32toh(__atomic_load_n(&h->flags.raw, __ATOMIC_ACQUIRE)) & REMOTE_FLAG_VERIFIED) != 0;
}

enum remote_type {
	REMOTE_WANT = 1,    /* to the fetcher: have these chunks fetched */
	REMOTE_ARRIVED,     /* to the reader: an answer; each wanted chunk is in exactly one */
	REMOTE_NOTE,        /* to the reader: reads of this blob have been waiting, for this reason, for so many seconds */
	REMOTE_WHOLE,       /* to the reader: the blob is complete; result 0: verified, else it is damaged and gone */
};

struct remote_want {
	le32 type, blob, first, n;
};

struct remote_arrived {
	le32 type, blob, first, n;
	le32 result; /* 0 or -errno, as two's complement */
	le32 zero;
};

struct remote_note {
	le32 type, blob, result, seconds;
};

struct remote_whole {
	le32 type, blob, result, zero;
};

enum { REMOTE_MESSAGE_MAX = sizeof(struct remote_arrived) };
