/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of remote blobs: $XDG_CACHE_HOME/coffer/blobs/sha256-HEX/{data,chunks} (devices/backend/remote_format.h).
 *
 * Who has `chunks` of a blob open holds a shared flock on it; a blob that somebody holds is never removed. A chunk is filled
 * under a byte lock on `chunks` (an open file description lock; the byte is the chunk's number), which goes with its holder,
 * so several processes fill one blob without fetching anything twice. All users of a cache are processes of one user.
 *
 * After a crash of the machine, chunks may be named present whose data never reached the disk. So the header says which
 * boot filled it, and the first to open it in another boot drops what was not synced.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "devices/backend/remote_format.h"
#include "lib/err.h"

enum { BLOB_CACHE_SHA256 = 64, BLOB_CACHE_NAME = 7 + BLOB_CACHE_SHA256 };
#define BLOB_CACHE_DEFAULT (20ull << 30)

struct blob_cache {
	int fd; /* of the directory of blobs, owned */
};

struct blob {
	int data_fd, chunks_fd;      /* owned */
	uint8_t *table;              /* chunks, mapped; read-write */
	uint64_t size, table_size;
	uint32_t nchunks;
	unsigned shift;
};
#define BLOB_NONE ((struct blob){ .data_fd = -1, .chunks_fd = -1 })

/* Open the user's cache, made when absent. */
int blob_cache_open(struct blob_cache *ret, struct err *err);
void blob_cache_close(struct blob_cache *c);

/* Open a blob for filling, made when absent; held until closed. */
int blob_cache_get(const struct blob_cache *c, const char *sha256, uint64_t size, struct blob *ret, struct err *err);
/* The same from descriptors that another process opened with it. Takes them over when it succeeds. */
int blob_adopt(int data_fd, int chunks_fd, uint64_t size, const char *name, struct blob *ret, struct err *err);
/* Descriptors for one who only reads, which hold the blob as well. */
int blob_cache_readers(const struct blob_cache *c, const char *sha256, int *ret_data, int *ret_chunks, struct err *err);
/* The data of a blob of the user's cache, to read, when it is whole and verified; it keeps its contents for as long as it is open. ret_path
 * (PATH_MAX bytes, or NULL): its name. -ENOENT when it is not so, or cannot be told. Makes no blob. */
int blob_cache_open_whole(const char *sha256, uint64_t size, char *ret_path);
void blob_close(struct blob *b); /* BLOB_NONE and zeroed ones too */

static inline uint32_t blob_generation(const struct blob *b, uint32_t chunk)
{
	return remote_generation(b->table, chunk);
}
static inline bool blob_is_verified(const struct blob *b) { return remote_verified(b->table); }
uint64_t blob_chunk_size(const struct blob *b, uint32_t chunk); /* the last one may be short */
uint32_t blob_count_present(const struct blob *b);

/* A chunk's lock: 0, -EAGAIN when another process has it, or -errno. */
int blob_lock(const struct blob *b, uint32_t chunk);
void blob_unlock(const struct blob *b, uint32_t first, uint32_t n);
/* The right to check the whole blob, in the same way. */
int blob_lock_check(const struct blob *b);
void blob_unlock_check(const struct blob *b);

/* With its lock held, and no data there: the whole chunk. 0 or -errno. */
int blob_fill(struct blob *b, uint32_t chunk, const void *data);
/* Takes their locks, waiting, and lets them go. */
void blob_drop(struct blob *b, uint32_t first, uint32_t n);
/* What is there survives a power cut from here on. */
int blob_sync(struct blob *b);
void blob_set_verified(struct blob *b); /* after blob_sync */

/* Bytes on disk that all blobs take up, without data that VMs or snapshots have as well: those are theirs. */
uint64_t blob_cache_usage(const struct blob_cache *c);
/* Remove one by the name of its directory: 0, -EBUSY when somebody holds it, or -errno. */
int blob_cache_remove(const struct blob_cache *c, const char *name);
/* Remove blobs that nobody holds or has under another name (that would free nothing), those first whose last use is longest ago, until
 * at least `bytes` have been freed; returns how many were. */
uint64_t blob_cache_evict(const struct blob_cache *c, uint64_t bytes);
/* Drop the oldest chunks of this blob, which is not verified, up to `bytes`; never those with a generation above `keep`. */
uint64_t blob_evict_chunks(struct blob *b, uint64_t bytes, uint32_t keep);
uint32_t blob_counter(const struct blob *b);
