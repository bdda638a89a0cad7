/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend's insides, shared by block_layers.c (requests), block_layers_log.c (the top's index file),
 * block_layers_compact.c (writing that anew), block_layers_source.c (compressed and remote layers), block_layers_space.c (the space of its data file) and
 * block_layers_stack.c (attaching, sealing). Others use block.h.
 */
#pragma once
#include "devices/backend/block_io.h"
#include "devices/backend/lsmt_index.h"
#include "devices/backend/zfile.h"

enum {
	LAYERS_SUBS = 512,             /* requests to files in flight */
	LAYERS_LOG_ENTRIES = 1 << 14,  /* of the top's index that are not in its file yet, at most */
	LAYERS_LOG_WRITE = LAYERS_LOG_ENTRIES / 2, /* so many are written without being asked */
	LAYERS_LOG_FLOOR = 1 << 16,    /* entries of the index file that may always be, whatever the top holds, */
	LAYERS_LOG_TIMES = 2,          /* and for each that it holds */
	LAYERS_SLICE = 4096,           /* entries copied at a time when the log is written anew */
	LAYERS_GENERATIONS = 6,        /* chunks that one read of a source may touch */
	LAYERS_JOIN_IOVS = 64,         /* of writes that go to the file together */
	LAYERS_JOIN_BYTES = 1 << 20,
};

/* Places in the engine's table. A layer's is given by its number, which is its tag in the index. A layer that is not
 * a plain file has a source at the same place. */
enum {
	LAYERS_FILE_ZEROS,
	LAYERS_FILE_BASE,
	LAYERS_FILE_TAG0,
	LAYERS_FILE_INDEX0 = LAYERS_FILE_TAG0 + 256,
	LAYERS_FILES = LAYERS_FILE_INDEX0 + 2,
	LAYERS_SOURCES = LAYERS_FILE_INDEX0,
};
_Static_assert((int)LAYERS_FILES <= (int)BLOCK_IO_FILES, "the engine's table");

struct block_layers;

/* A part of a request, or the data of a write or several. */
struct layers_sub {
	struct block_request req;
	struct block_layers *l;
	struct layers_sub *next_free;
	struct block_request *parent;
	struct iovec iov;             /* when the parent's own cannot be used: part of one element */
	uint64_t moffset;             /* a write's place, sectors */
	uint8_t epoch;                /* a read's */
	bool apart;                   /* a write's: its parents go one by one, after they failed together */
	struct block_request *last;   /* a write's: parents from `parent` on to this one, by `next` */

	/* block_layers_source.c */
	struct layers_sub *next_wait;
	struct layers_source *source;
	uint64_t block, slow_off;     /* of a compressed layer, and in it */
	struct zfile_range range;     /* of the blob */
	struct iovec whole;           /* as it was before the engine changed it */
	uint32_t gen[LAYERS_GENERATIONS];

	struct iovec joined[LAYERS_JOIN_IOVS]; /* last: its pages come into being when they are used */
};

enum {
	LAYERS_SLOTS = 64,            /* decompressed blocks that are kept: 4 MiB at most */
	LAYERS_THREADS = 2,           /* that decompress */
};
_Static_assert((int)ZFILE_STORED_MAX <= (LAYERS_GENERATIONS - 1) << BLOCK_REMOTE_SHIFT_MIN, "chunks of a block");

/* A layer, or the base, that is not a plain file. */
struct layers_source {
	struct block_layers *l;
	struct zfile *z;              /* NULL: not compressed */
	struct block_remote remote;   /* without generations: local */
	uint8_t *asked;               /* a bit for each chunk */
	uint64_t start, size;         /* of what is wrapped; of the blob */
	int fd;                       /* block_layers' */
	int failed;                   /* the last chunk that could not be had */
	uint16_t place, number;
};

enum layers_slot_state { LAYERS_SLOT_FREE, LAYERS_SLOT_BUSY, LAYERS_SLOT_VALID };

/* One block of a compressed layer. */
struct layers_slot {
	struct block_request job;
	struct block_layers *l;
	struct layers_source *source;
	uint64_t block, used;
	enum layers_slot_state state;
	uint32_t size;
	struct zfile_range range;
	uint32_t gen[LAYERS_GENERATIONS];
	struct layers_sub *waiters;
	uint8_t *content;
};

struct layers_slow {
	struct block_io *io;          /* threads; they begin only where there may be something for them */
	struct zfile_ctx *ctx[LAYERS_THREADS];
	uint8_t *stored[LAYERS_THREADS];
	struct layers_slot *slot;     /* LAYERS_SLOTS; NULL without a compressed layer */
	uint8_t *content;
	uint64_t clock;
	struct layers_sub *parked;    /* parts that wait for chunks */
	struct layers_sub *hungry;    /* parts that wait for a slot */
	const struct block_remote_ops *ops;
	void *ops_ctx;
};

/* What a top has not told its index file yet. */
struct layers_log {
	uint8_t *ring;                /* LAYERS_LOG_ENTRIES entries, encoded */
	uint64_t head, tail;          /* of them, [head, tail) */
	uint64_t file_end;            /* bytes */
	uint16_t data_place;
	int index_fd;                 /* owned; -1 */
	bool second;                  /* where in the file it is: lsmt_log_start */
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

/* What the log's machine is at: the steps of a round, then those between rounds. */
enum layers_step {
	LAYERS_IDLE,
	LAYERS_SYNC_DATA,
	LAYERS_WRITE_INDEX,
	LAYERS_WRITE_COPY,            /* the same entries, into the log that is written anew */
	LAYERS_SYNC_INDEX,
	LAYERS_WRITE_HEADER,
	LAYERS_SYNC_HEADER,
	LAYERS_BETWEEN,               /* block_layers_compact.c */
};

/* The top's log, written anew (block_layers_compact.c). */
enum layers_compact_state {
	LAYERS_COMPACT_OFF,
	LAYERS_COMPACT_COPY,          /* what the index holds goes to the other place, and so does what comes */
	LAYERS_COMPACT_SWITCH,        /* all is there: the next round can have the header name it */
	LAYERS_COMPACT_CLEAN,         /* the other place is to be emptied */
	LAYERS_COMPACT_SYNC,          /* and that synced */
};

struct layers_compact {
	enum layers_compact_state state;
	uint8_t *slice;               /* LAYERS_SLICE entries; a header block */
	uint64_t at;                  /* COPY: sector of the disk; CLEAN: bytes of the file */
	uint64_t end;                 /* bytes: of what the other place holds */
	uint32_t floor, times, slice_max; /* LAYERS_LOG_FLOOR, _TIMES, LAYERS_SLICE; tests want less */
	uint32_t entries;             /* of the slice under way */
	bool turn;                    /* between rounds, a step of this is next */
	bool switching;               /* the round under way ends with the header */
	bool doubt;                   /* a header may or may not have been written: both logs are kept whole */
	bool off;                     /* not for this top */
	bool waiting;                 /* comes back with the next event */
};

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
	struct lsmt_approach approach;
	struct layers_list todo;      /* not started, or not all of it */
	bool again;                   /* something has changed since todo was looked at */
	bool draining;
	struct layers_sub *subs, *free;
	struct layers_sub *held;      /* a write that is not submitted yet: others may join it */
	struct layers_source *source[LAYERS_SOURCES]; /* by place; NULL: a plain file */
	struct layers_slow slow;

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
	struct layers_compact compact;
	bool full;                    /* a request waits for room */
	int log_error;                /* of the last round */
	bool broken;                  /* a sync failed: what is on the storage is unknown from here on */
};

static inline struct block_layers *layers_of(struct block *b) { return (struct block_layers *)b; }

void layers_append(struct layers_list *l, struct block_request *r);
struct layers_sub *layers_sub_get(struct block_layers *l); /* NULL: none is left */
void layers_sub_put(struct layers_sub *s);
/* One part of r is through; the last one ends it. */
void layers_part_done(struct block_request *r, int result);
/* Give s as much of r's iovecs as makes up to len bytes; 0: r has no more. */
uint64_t layers_take_iov(struct layers_sub *s, struct block_request *r, uint64_t len);
/* Start what can be started, have all of it carried out. */
void layers_run(struct block_layers *l);

/* block_layers_source.c. Read of a source: the bytes that are under way now, 0: it must wait, -errno. */
int64_t layers_source_read(struct block_layers *l, struct block_request *r, struct layers_source *s, uint64_t off,
			   uint64_t len);
/* For draining: wait for what was asked for. */
void layers_source_wait(struct block_layers *l);
/* A layer, or the base (number BLOCK_LAYER_BASE), of `size` bytes: what is it? ret: its content, until the source is closed.
 * After the index was read: a plain file needs no source any more. On failure the caller closes. */
int layers_source_open(struct block_layers *l, const struct block_stack *stack, unsigned number, int fd, uint64_t size,
		       const char *name, struct lsmt_bytes *ret, struct err *err);
void layers_source_settle(struct block_layers *l, unsigned place);
void layers_source_close(struct block_layers *l, unsigned place);
void layers_slow_finish(struct block_layers *l);

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

/* block_layers_compact.c, for the log's machine. A new top, with the index file that pair_open or check_empty saw: */
void layers_compact_reset(struct block_layers *l, bool off);
/* Has it something to do between rounds? If so, and the machine is idle, do it: l->step_req is to be submitted. */
bool layers_compact_ready(struct block_layers *l);
bool layers_compact_step(struct block_layers *l);
void layers_compact_stepped(struct block_layers *l, int result);
/* Should a round begin for its sake; do the round's entries go to both logs; where. */
bool layers_compact_wants_round(const struct block_layers *l);
bool layers_compact_doubles(const struct block_layers *l);
/* Could those not be written? False: the round has failed. */
bool layers_compact_give_up(struct block_layers *l);
/* l->step_req becomes the header's write; it was written, and synced; it was not. */
void layers_compact_header(struct block_layers *l);
void layers_compact_switched(struct block_layers *l);
void layers_compact_in_doubt(struct block_layers *l);

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
