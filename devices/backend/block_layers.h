/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend's insides, shared by block_layers.c (requests), block_layers_log.c (the top's index file),
 * block_layers_space.c (the space of its data file) and block_layers_stack.c (attaching, sealing). Others use block.h.
 */
#pragma once
#include "devices/backend/block_io.h"
#include "devices/backend/lsmt_index.h"

enum {
	LAYERS_SUBS = 512,             /* requests to files in flight */
	LAYERS_LOG_ENTRIES = 1 << 14,  /* of the top's index that are not in its file yet, at most */
	LAYERS_LOG_WRITE = LAYERS_LOG_ENTRIES / 2, /* so many are written without being asked */
};

/* Places in the engine's table. A layer's is given by its number, which is its tag in the index. A layer that is not
 * a plain file would be told apart in resolve() of block_layers.c, which alone turns a segment into a file's range. */
enum {
	LAYERS_FILE_ZEROS,
	LAYERS_FILE_BASE,
	LAYERS_FILE_TAG0,
	LAYERS_FILE_INDEX0 = LAYERS_FILE_TAG0 + 256,
	LAYERS_FILES = LAYERS_FILE_INDEX0 + 2
};
_Static_assert((int)LAYERS_FILES <= (int)BLOCK_IO_FILES, "the engine's table");

struct block_layers;

/* A part of a request, or the data of a write. */
struct layers_sub {
	struct block_request req;
	struct block_layers *l;
	struct layers_sub *next_free;
	struct block_request *parent;
	struct iovec iov;             /* when the parent's own cannot be used: part of one element */
	uint64_t moffset;             /* a write's place, sectors */
	uint8_t epoch;                /* a read's */
};

/* What a top has not told its index file yet. */
struct layers_log {
	uint8_t *ring;                /* LAYERS_LOG_ENTRIES entries, encoded */
	uint64_t head, tail;          /* of them, [head, tail) */
	uint64_t file_end;            /* bytes */
	uint16_t data_place;
	int index_fd;                 /* owned; -1 */
	bool data_dirty, index_dirty; /* written since the last sync */
};

enum {
	LAYERS_BLOCK = LSMT_BLOCK / 512, /* sectors */
	LAYERS_RING = 1 << 16,           /* extents of garbage */
	LAYERS_POOL = 4096,              /* extents of a pool */
	LAYERS_PUNCHES = 4,              /* under way at a time */
};

/* Of the top's data file, in blocks of LAYERS_BLOCK sectors. */
struct layers_extent {
	uint64_t block, n;
};

struct layers_pool {
	struct layers_extent *e;      /* LAYERS_POOL */
	uint32_t n, hand;
	uint64_t blocks, max;
};

struct layers_punch {
	struct block_request req;
	struct block_layers *l;
	bool busy;
};

/* Blocks that nothing uses any more (block_layers_space.c). */
struct layers_space {
	struct layers_extent *ring;   /* head <= released <= durable <= mark <= tail */
	uint64_t head, released, durable, mark, tail;
	uint64_t target;              /* what the change of epochs under way releases */
	uint64_t blocks, young, fresh; /* in the ring; of them not durable; of them behind mark */
	uint64_t start;               /* blocks before it were there when the pair was opened */
	uint32_t reserved;            /* places of the ring, for writes in flight */
	uint32_t reads[2];            /* in flight, by epoch */
	uint8_t epoch;
	bool grace;                   /* the older epoch runs empty */
	bool can_punch;
	struct layers_pool pool, holes;
	struct layers_punch punch[LAYERS_PUNCHES];
};

enum layers_step { LAYERS_IDLE, LAYERS_SYNC_DATA, LAYERS_WRITE_INDEX, LAYERS_SYNC_INDEX };

struct layers_list {
	struct block_request *head, *tail;
};

struct block_layers {
	struct block b;
	struct block_io *io;
	int zero_fd, base_fd;
	int layer_fd[256];            /* by tag, the top's data file included; owned */
	uint64_t base_size;
	bool sized;                   /* with a size since it was opened */
	bool attached, has_top, unsafe;
	uint8_t top;                  /* tag of the top, or one above the highest layer */
	uint64_t cursor;              /* sectors: the end of what is used of the top's data file, whole blocks */
	struct layers_space space;
	struct lsmt_head top_head;
	struct lsmt_index index;
	struct layers_list todo;      /* not started, or not all of it */
	bool again;                   /* something has changed since todo was looked at */
	bool draining;
	struct layers_sub *subs, *free;

	/* block_layers_log.c */
	struct layers_log log[2];
	uint8_t current;              /* log of the top */
	bool carry;                   /* the other one, of the layer below, is not empty: it goes first */
	uint32_t reserved;            /* entries of writes in flight */
	struct layers_list flushes;   /* waiting for the next round */
	struct block_request *batch;  /* waiting for this one */
	enum layers_step step;
	uint8_t step_log;             /* the log this round is at */
	uint32_t step_entries;
	struct block_request step_req;
	struct iovec step_iov[2];
	bool full;                    /* a request waits for room */
	int log_error;                /* of the last round */
	bool broken;                  /* a sync failed: what is on the storage is unknown from here on */
};

static inline struct block_layers *layers_of(struct block *b) { return (struct block_layers *)b; }

void layers_append(struct layers_list *l, struct block_request *r);

/* Room for n entries more, besides those reserved? */
bool layers_log_has_room(const struct block_layers *l, uint32_t n);
/* One entry, there is room. */
void layers_log_add(struct block_layers *l, const struct lsmt_seg *s);
/* r is done when everything that was complete before is on stable storage. */
void layers_log_flush(struct block_layers *l, struct block_request *r);
/* Start a round if there is a reason; after anything above. */
void layers_log_poke(struct block_layers *l);
/* Write everything, and wait: nothing else is in flight. 0 or -errno. */
int layers_log_finish(struct block_layers *l);

/* 0 or -ENOMEM; finish accepts what init left, and zeros. */
int layers_space_init(struct layers_space *s);
void layers_space_finish(struct layers_space *s);
/* For a new top; start: the first block that is ours. */
void layers_space_reset(struct layers_space *s, uint64_t start);
/* Can holes be punched into this file? end: of it, bytes, or more. */
bool layers_space_probe(struct layers_space *s, int fd, uint64_t end);
/* After a pair was opened: what nothing uses becomes garbage. */
void layers_space_scan(struct block_layers *l);

/* May a request for so many sectors begin? */
bool layers_space_has_room(const struct layers_space *s, uint64_t sectors, bool write);
/* The place (sectors) for a write; _written: it ended, before anything it displaces or gives back. */
uint64_t layers_space_take(struct block_layers *l, uint64_t sectors);
void layers_space_written(struct layers_space *s, uint64_t sectors);
/* Whole blocks of this range of the file were never used. */
void layers_space_put(struct block_layers *l, uint64_t moffset, uint64_t sectors);
/* The index is about to say something else of [sector, sector + n). False: no room, nothing changed. */
bool layers_space_displace(struct block_layers *l, uint64_t sector, uint32_t n);

/* The log: a round has taken all entries there are; that round succeeded; should one begin? */
void layers_space_mark(struct layers_space *s);
void layers_space_logged(struct layers_space *s);
bool layers_space_wants_round(const struct layers_space *s, bool full);
/* True when something was submitted to the engine. */
bool layers_space_poke(struct block_layers *l);

/* For sealing: what can be punched, how many extents (ret NULL: only count). And doing it, on any thread. */
uint64_t layers_space_free(const struct layers_space *s, struct layers_extent *ret);
void layers_space_punch(int fd, const struct layers_extent *e, uint64_t n);
