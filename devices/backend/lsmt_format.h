/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of LSMT layers (docs/layers.md), for the files that read and write them: header and trailer
 * blocks, index entries, and reading an index in order.
 *
 * Units: sectors of 512 bytes for everything in an index entry, bytes elsewhere.
 * Trust: what is read is hostile; everything these functions return was checked against the file's real size.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "devices/backend/lsmt.h"
#include "lib/le.h"

enum {
	LSMT_BLOCK = 4096,                 /* header, trailer; alignment of the index */
	LSMT_HEADER_SECTORS = LSMT_BLOCK / 512,
	LSMT_ENTRY_BYTES = 16,
	LSMT_LENGTH_MAX = (1 << 14) - 1,   /* sectors of one entry */
	LSMT_ENTRIES_MAX = 64 << 20,       /* of an index: 1 GiB */
	LSMT_READ_ENTRIES = 4096,          /* read at a time */
};
#define LSMT_OFFSET_MAX ((1ull << 50) - 1) /* sectors */
#define LSMT_MOFFSET_MAX ((1ull << 55) - 1)
#define LSMT_VIRTUAL_MAX (1ull << 59)      /* bytes */
/* The two places in a pair's index file where its log can begin are LSMT_BLOCK and this; each reaches as far. */
#define LSMT_LOG_SECOND (8ull << 30)

enum {
	LSMT_FLAG_HEADER = 1, /* clear: trailer */
	LSMT_FLAG_DATA = 2,   /* clear: index file */
	LSMT_FLAG_SEALED = 4,
	LSMT_FLAG_GC = 8,
	LSMT_FLAG_SPARSE = 16,
	LSMT_FLAG_LOG_SECOND = 256, /* a pair's index file only, ours only: its log is the second one */
};

/* Header or trailer, decoded. */
struct lsmt_head {
	uint32_t flags;
	uint64_t index_offset, index_entries, virtual_size;
	char uuid[LSMT_UUID_LEN + 1], parent_uuid[LSMT_UUID_LEN + 1];
};

/* An index entry, decoded, and what the merged index (lsmt_index.h) has. */
struct lsmt_seg {
	uint64_t offset;  /* of the disk */
	uint64_t moffset; /* of the layer's file; without meaning when zeroed */
	uint32_t length;  /* 1..LSMT_LENGTH_MAX */
	uint8_t tag;
	bool zeroed;
};

void lsmt_entry_encode(const struct lsmt_seg *s, uint8_t ret[LSMT_ENTRY_BYTES]);
void lsmt_entry_decode(const uint8_t p[LSMT_ENTRY_BYTES], struct lsmt_seg *ret);
/* Inside a disk of `sectors`, and its data inside [LSMT_HEADER_SECTORS, data_end). NULL: it is, else what is wrong. */
const char *lsmt_seg_fault(const struct lsmt_seg *s, uint64_t sectors, uint64_t data_end);

void lsmt_head_encode(const struct lsmt_head *h, uint8_t ret[LSMT_BLOCK]);
/* uuid: 36 characters, or NULL: a random one. */
int lsmt_head_set_uuid(struct lsmt_head *h, const char *uuid, struct err *err);
/* `what` ("header", "trailer") and `name` are for messages. */
int lsmt_head_decode(const uint8_t block[LSMT_BLOCK], const char *name, const char *what, struct lsmt_head *ret,
		     struct err *err);
/* Where the bytes of a sealed layer are, when they are not simply a file's. read_at is like pread: fewer only at the end. */
struct lsmt_bytes {
	ssize_t (*read_at)(void *ctx, void *buf, size_t n, uint64_t off);
	void *ctx;
	uint64_t size;
};
int lsmt_head_read(int fd, uint64_t off, const char *name, const char *what, struct lsmt_head *ret, struct err *err);

/* A sealed layer, its index not read yet. */
struct lsmt_sealed {
	struct lsmt_head head; /* the trailer's, with its place of the index */
	uint64_t file_size;
	uint64_t data_end;     /* sectors */
};
int lsmt_sealed_open(int fd, const char *name, struct lsmt_sealed *ret, struct err *err);
int lsmt_sealed_open_bytes(const struct lsmt_bytes *b, const char *name, struct lsmt_sealed *ret, struct err *err);
/* Give each entry (tag 0, no padding) to `each`, in order, checked; a negative result of it ends the walk. buf: room
 * for LSMT_READ_ENTRIES entries. Returns the number of entries without padding. */
typedef int lsmt_each(void *arg, const struct lsmt_seg *s);
int64_t lsmt_sealed_walk(int fd, const char *name, const struct lsmt_sealed *l, uint8_t *buf, lsmt_each *each,
			 void *arg, struct err *err);
int64_t lsmt_sealed_walk_bytes(const struct lsmt_bytes *b, const char *name, const struct lsmt_sealed *l, uint8_t *buf,
			       lsmt_each *each, void *arg, struct err *err);

/* The same piece by piece. What is in buf from at on, up to n, is checked, in order and without padding. */
struct lsmt_walk {
	const struct lsmt_bytes *bytes;
	const char *name;
	const struct lsmt_sealed *layer;
	uint8_t *buf;
	uint32_t room;  /* entries in buf */
	uint32_t at, n;
	uint64_t done;  /* entries read, with padding */
	uint64_t next;  /* sector behind the last one */
};
/* Read on until there are so many (at most room), or all. */
int lsmt_walk_fill(struct lsmt_walk *w, uint32_t want, struct err *err);
static inline bool lsmt_walk_ended(const struct lsmt_walk *w)
{
	return w->done == w->layer->head.index_entries;
}

/* Where a log begins, and where it must end. */
static inline uint64_t lsmt_log_start(bool second)
{
	return second ? LSMT_LOG_SECOND : LSMT_BLOCK;
}
static inline uint64_t lsmt_log_limit(bool second)
{
	return second ? 2 * LSMT_LOG_SECOND : LSMT_LOG_SECOND;
}

/* A writable pair. Entries are given to `each` in the order they were written, up to the first that cannot be: one
 * that was not whole, or whose data are not there, when the power went. Whatever follows it is cut off, and what is
 * left of another log (block_layers_compact.c) is removed. */
struct lsmt_pair {
	struct lsmt_head head;
	uint64_t data_end;  /* sectors; a multiple of LSMT_BLOCK: where data go on */
	uint64_t index_end; /* bytes; where entries go on */
	uint64_t entries;
	bool second;        /* the log begins at LSMT_LOG_SECOND */
	bool one_log;       /* the place of the other log could not be cleaned */
	bool torn;          /* something was cut off */
};
int lsmt_pair_open(int data_fd, int index_fd, const char *name, uint8_t *buf, lsmt_each *each, void *arg,
		   struct lsmt_pair *ret, struct err *err);
/* Both files of a pair without data or entries? For what will be the next top. */
int lsmt_pair_check_empty(int data_fd, int index_fd, const char *name, uint64_t virtual_size, struct lsmt_pair *ret,
			  struct err *err);

/* Write the index (n entries, encoded, without padding), the trailer, and last the sealed header into a data file whose
 * data end at data_end sectors. */
int lsmt_seal_file(int fd, const struct lsmt_head *head, uint64_t data_end, const uint8_t *entries, uint64_t n,
		   struct err *err);

/* 0 when fd is a regular file, opened for reading (and writing) and not for appending; sets its size. */
int lsmt_check_fd(int fd, bool write, const char *name, uint64_t *ret_size, struct err *err);
