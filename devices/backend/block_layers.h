/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend's insides, shared by block_layers.c (requests), block_layers_log.c (the top's index file)
 * and block_layers_stack.c (attaching, sealing). Others use block.h.
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
	uint64_t cursor;              /* sectors: where the next write's data go in the top's data file */
	struct lsmt_head top_head;
	struct lsmt_index index;
	struct layers_list todo;      /* not started, or not all of it */
	bool again;                   /* something has changed since todo was looked at */
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
