/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZFile: a compressed file that is read at any place (overlaybd's container). docs/layers.md has the bytes.
 *
 * The content is cut into blocks of one size, each compressed by itself; an index has the stored size of each. Whatever
 * gives bytes at an offset can be the source: a file, or a cache of a remote blob with parts that are not there
 * yet. So reading has two halves that can be used apart: zfile_locate says which bytes of the source a range of the
 * content needs, and zfile_decode turns the stored bytes of a block into its content.
 *
 * Errors of the data path: -EBADMSG a block is damaged (its checksum is wrong, or it does not decompress to its size),
 * -EINVAL a range outside the content, -EIO the source ended early, and whatever the source returned.
 *
 * Threads: a struct zfile does not change once it is open: any number of threads read it at a time, each with a context of its
 * own. A context serves any number of files.
 * Trust: all of the source is hostile.
 * Limits: blocks of 4 KiB to 64 KiB, ZFILE_BLOCKS_MAX of them; no dictionaries.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

enum zfile_algo { ZFILE_LZ4 = 1, ZFILE_ZSTD = 2 }; /* as in the file */

enum {
	ZFILE_SPACE = 512,                    /* of header, of trailer */
	ZFILE_BLOCK_MIN = 4 << 10,
	ZFILE_BLOCK_MAX = 64 << 10,
	ZFILE_STORED_MAX = ZFILE_BLOCK_MAX + 1024, /* bytes of one block in the file, its checksum included */
	ZFILE_BLOCKS_MAX = 64 << 20,          /* 256 MiB of index: 256 GiB in blocks of 4 KiB, 4 TiB in blocks of 64 */
};

/* Where the bytes are. read_at is like pread: up to n bytes at `off`, fewer only at the source's end, or -errno. It is called
 * by several threads at a time. The file is the range [start, start + size) of what read_at reads. */
typedef ssize_t zfile_read_at(void *ctx, void *buf, size_t n, uint64_t off);
struct zfile_source {
	zfile_read_at *read_at;
	void *ctx;
	uint64_t start, size;
};
/* read_at of a descriptor. ctx: (void *)(intptr_t)fd. */
zfile_read_at zfile_read_fd;

/* What a blob holds. A layer in a registry may be wrapped in a tar with one entry: narrows `src` to that entry's data,
 * leaves it alone when there is no tar. Reads the first kilobytes only. */
int zfile_unwrap(struct zfile_source *src, const char *name, struct err *err);
/* Does the source begin like a ZFile? 1, 0 or -errno. */
int zfile_probe(const struct zfile_source *src);

struct zfile;
struct zfile_info {
	enum zfile_algo algo;
	bool checked;          /* each block has a checksum */
	uint32_t block_size;   /* of the content; the last block may be shorter */
	uint32_t stored_max;   /* largest stored block, bytes */
	uint64_t size;         /* of the content */
	uint64_t blocks;
	uint64_t memory;       /* bytes the open file takes */
};

/* Check header, trailer and index: the source's first and last 512 bytes, then the index. `name` is for messages. */
int zfile_open(const struct zfile_source *src, const char *name, struct zfile **ret, struct err *err);
/* The same of a regular file, unwrapped. The descriptor stays the caller's, who keeps it open. */
int zfile_open_fd(int fd, const char *name, struct zfile **ret, struct err *err);
void zfile_close(struct zfile *z); /* NULL too */
const struct zfile_info *zfile_info(const struct zfile *z);

/* Buffers and decompression state for one thread, about 350 KiB, all of it allocated here. It may outlive the files it
 * was used for. */
struct zfile_ctx;
struct zfile_ctx *zfile_ctx_create(void); /* NULL: no memory */
void zfile_ctx_destroy(struct zfile_ctx *c);

/* Read [off, off + n) of the content, cut at its end: returns the bytes read, or -errno and buf is of no use. The block of
 * which only a part was wanted last is kept in the context. buf must not be memory that others write meanwhile (a guest's):
 * decompressors read what they wrote. */
ssize_t zfile_pread(const struct zfile *z, struct zfile_ctx *c, void *buf, size_t n, uint64_t off);

/* Bytes of the source (offsets as read_at has them) that hold the blocks of [off, off + n) of the content; n > 0, inside
 * the content. They lie together. 0 or -EINVAL. */
struct zfile_range {
	uint64_t off, len;
};
int zfile_locate(const struct zfile *z, uint64_t off, uint64_t n, struct zfile_range *ret);
/* The content of one block from its stored bytes (the range zfile_locate gives for it). out: room for block_size.
 * Returns the bytes of content, or -EBADMSG. Nothing of `out` is to be used after an error. */
ssize_t zfile_decode(const struct zfile *z, struct zfile_ctx *c, uint64_t block, const void *stored, size_t n, void *out);

/* Writing: content in, file out in order, nothing written twice, so that the sink can hash or send it as it comes. What comes out
 * depends on content and options alone, not on the number of threads or the sizes of the writes. */
struct zfile_options {
	enum zfile_algo algo;
	int level;           /* zstd 1..19, 0: 3; LZ4 1..12 (above 2: its slow mode), 0: 1 */
	uint32_t block_size; /* a power of two, 0: ZFILE_BLOCK_DEFAULT */
	unsigned threads;    /* that compress; 0: as many as there are CPUs; ZFILE_THREADS_MAX at most; 1: the caller's own */
};
/* 32 KiB is the largest block that overlaybd's own readers take whatever is in it: theirs has room for 64 KiB of stored
 * bytes, and a block that does not compress is a little longer than its content. */
enum { ZFILE_BLOCK_DEFAULT = 32 << 10, ZFILE_THREADS_MAX = 64 };

typedef int zfile_sink(void *ctx, const void *buf, size_t n); /* 0 or -errno; called by the thread that writes */

struct zfile_writer;
int zfile_writer_open(const struct zfile_options *o, zfile_sink *sink, void *ctx, struct zfile_writer **ret,
		      struct err *err);
int zfile_writer_write(struct zfile_writer *w, const void *buf, size_t n, struct err *err);
/* The last block, index and trailer. ret_size (may be NULL): bytes given to the sink. No content at all is -EINVAL: readers
 * elsewhere take no empty file. The writer is of no use then, nor after any error. */
int zfile_writer_finish(struct zfile_writer *w, uint64_t *ret_size, struct err *err);
void zfile_writer_free(struct zfile_writer *w); /* NULL too; at any time */
/* A sink for a descriptor that is written to in order. ctx: (void *)(intptr_t)fd. */
zfile_sink zfile_write_fd;
