/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block backends: where the bytes of a disk are.
 *
 * A backend serves requests of byte ranges inside [0, size), out of order, and says when each is done. Callers own
 * the requests and keep them, their iovecs and the memory those name alive until `done`. iovecs are host views
 * of guest memory: a backend hands them to the kernel, or (compressed layers) copies into them in a read, in the thread that
 * calls it. It never reads through them.
 *
 *   submit ... submit, kick      queue requests, then start them together; what finishes at once is done in kick
 *   event_fd readable, complete  finish what is ready
 *   drain                        wait until nothing is in flight
 *
 * Backends: "file" (a regular file or a block device; io_uring, or a few threads), "memory" (a RAM disk through the
 * same code), "null" (reads zeros, forgets writes), "layers" (a stack of layers: it splits each request into requests of
 * its own to the files below, on the same engine, block_io.h).
 *
 * Threads: the caller serialises all calls on one block (a device does by its lock), from any thread. `done` runs
 * inside kick, complete or drain, never inside submit.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "lib/err.h"

struct block_stack;
struct vm;

enum { BLOCK_SECTOR = 512, BLOCK_SECTOR_SHIFT = 9 };

enum block_op { BLOCK_READ, BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_WRITE_ZEROES };

enum {
	BLOCK_F_DURABLE = 1, /* WRITE, WRITE_ZEROES: on stable storage before done */
	BLOCK_F_UNMAP = 2,   /* WRITE_ZEROES: may give the space back */
	BLOCK_F_DIRECT = 4,  /* a backend's: `file` bypasses the page cache, file 0 is the same with it */
};

struct block_request {
	enum block_op op;
	uint32_t flags;
	uint64_t offset, len; /* bytes, multiples of BLOCK_SECTOR, inside the disk; not for FLUSH */
	struct iovec *iov;    /* READ, WRITE: len bytes, at most BLOCK_IOV_MAX; changed by the backend */
	int niov;
	void (*done)(struct block_request *r, int result); /* 0 or -errno; may submit others */
	/* For a backend's own requests to the thread engine: done by thread number `thread` instead of a system call. */
	int (*work)(struct block_request *r, unsigned thread);

	/* The backend's while in flight. */
	struct block_request *next;
	uint64_t pos, left;
	struct iovec fill;
	int result;
	uint32_t parts;
	uint16_t file;
	uint8_t step;
};
enum { BLOCK_IOV_MAX = 1024 };

struct block;

struct block_ops {
	void (*submit)(struct block *b, struct block_request *r);
	void (*kick)(struct block *b);
	void (*complete)(struct block *b);
	void (*drain)(struct block *b);
	int (*start)(struct block *b, struct vm *vm, struct err *err);         /* may be NULL */
	int (*resize)(struct block *b, uint64_t bytes, struct err *err);       /* may be NULL */
	void (*close)(struct block *b);
};

struct block {
	const struct block_ops *ops;
	int event_fd;       /* owned; readable when complete has something to do */
	uint64_t size;      /* bytes, a multiple of BLOCK_SECTOR, not 0 */
	bool ro;
	bool writethrough;  /* cache=writethrough: the guest sees no write cache by default */
	char note[256];     /* something the user should know, for the log; "" if nothing */
	char fault[192];    /* the last damage found behind a read that failed; who logs it makes it "" (a guest can repeat it) */
};

struct block_config {
	const char *backend; /* "file", "memory", "null", "layers"; NULL: file */
	const char *path;    /* file */
	uint64_t size;       /* memory, null, layers */
	bool ro;
	const char *cache;   /* "writeback" (NULL), "writethrough", "none" (O_DIRECT), "unsafe" (flush does nothing) */
	const char *aio;     /* "auto" (NULL: io_uring, else threads), "io_uring", "threads" */
	uint32_t depth;      /* requests in flight at most */
	const struct block_stack *stack; /* layers: attached at once; NULL: later */
};

/* Open one: the only step that takes names. 0 or -errno with a text that names the path. */
int block_open(const struct block_config *c, struct block **ret, struct err *err);

/* Create the threads that are needed; inside the jail, before system calls are filtered. vm->worker_isolate, when set,
 * runs first in each of them. Without it they are created with the first request. */
int block_start(struct block *b, struct vm *vm, struct err *err);

static inline void block_submit(struct block *b, struct block_request *r) { b->ops->submit(b, r); }
static inline void block_kick(struct block *b) { b->ops->kick(b); }
static inline void block_complete(struct block *b) { b->ops->complete(b); }
static inline void block_drain(struct block *b) { b->ops->drain(b); }

/* Grow to `bytes` (the file is extended when it must be); 0: to the size the file has now. Never shrinks.
 * 0 or -errno; size is the new one afterwards. */
int block_resize(struct block *b, uint64_t bytes, struct err *err);
void block_close(struct block *b); /* accepts NULL; drains first */

/* ---- the "layers" backend: a stack of read-only layers with one writable top (block_layers.c) ----
 *
 * Opened without layers, with a size; attached once, later, by descriptors (a jailed process opens nothing). */

struct block_stack {
	int base_fd;           /* a raw read-only image below all layers; -1: zeros */
	const int *layer_fd;   /* sealed LSMT layers, lowest first; LSMT_LAYERS_MAX at most */
	int nlayers;
	int top_data_fd, top_index_fd; /* a writable pair; both -1: a read-only disk */
	const struct block_remote *remote; /* one for each layer, then one for the base; NULL: all are local */
	const struct block_remote_ops *remote_ops;
	void *remote_ctx;
};

/* A layer whose bytes may not have arrived yet: its descriptor is a sparse cache file of the blob's size, and for each
 * chunk of it a word in shared memory says what is there: 0 nothing, else a number that is another each time the
 * chunk is filled. Whoever fills writes the bytes, then the number (release); whoever evicts sets 0, then punches. The words stay
 * mapped until block_close; they are read only, and hostile: a wrong one makes reads fail, or wait, no more. */
enum { BLOCK_REMOTE_SHIFT_MIN = 14, BLOCK_REMOTE_SHIFT_MAX = 20, BLOCK_LAYER_BASE = 255 };
struct block_remote {
	const uint32_t *generation; /* NULL: this one is local */
	uint64_t chunks;            /* words there are */
	unsigned shift;             /* log2 of the bytes of a chunk */
};
struct block_remote_ops {
	/* Have this chunk fetched; block_layers_arrived says that it is there, or cannot be had. Called with the disk locked,
	 * by whichever thread calls the disk (of a vCPU, too: it may write to a socket, not open one); must neither wait nor call
	 * back. A chunk is asked for again only after it has been answered. layer: as in the stack, or BLOCK_LAYER_BASE. */
	void (*want)(void *ctx, unsigned layer, uint64_t chunk);
	/* Wait until something was answered: block_layers_arrived was called in it. 0, or -errno: nothing will come any more, and
	 * what waits fails. For attaching and draining, main thread. */
	int (*wait)(void *ctx);
};
struct block;
/* result: 0, or -errno: what waits for it fails. Under the disk's lock, like block_complete: `done` runs inside. */
void block_layers_arrived(struct block *b, unsigned layer, uint64_t chunk, int result);
/* Takes the descriptors over when it succeeds. The size must be the one it was opened with, or that of the stack when
 * it was opened with 0. Main thread, after block_start too. */
int block_layers_attach(struct block *b, const struct block_stack *s, struct err *err);
bool block_is_layers(const struct block *b);

/* Snapshot: with nothing in flight (drained), the top becomes a layer and a new, empty pair (of the same size) the top, in the time it
 * takes to copy the top's index. Takes the descriptors over. What is left to do, writing index and trailer into the old
 * data file and syncing it, is done by block_sealing_finish on any thread while the disk goes on. On failure nothing changed. */
struct block_sealing;
int block_layers_seal(struct block *b, int new_data_fd, int new_index_fd, struct block_sealing **ret, struct err *err);
int block_sealing_finish(struct block_sealing *s, struct err *err);
void block_sealing_free(struct block_sealing *s); /* accepts NULL */

/* For block_open. Of layers with size 0 and no stack: one that is attached before anything else is done with it, and then has the
 * size of the stack. */
int block_layers_open(const struct block_config *c, struct block **ret, struct err *err);
int block_file_open(const struct block_config *c, struct block **ret, struct err *err);
int block_null_open(const struct block_config *c, struct block **ret, struct err *err);
