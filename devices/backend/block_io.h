/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block I/O engines: carry out block requests on open files without making the caller wait.
 *
 * An engine owns no files: it is given descriptors when it is made, and a request names one by its
 * index there (`file`). A place that is -1 then can be filled, and filled again, later: set_file. Two engines: io_uring (block_uring.c) and a few threads (block_threads.c). What a request
 * means in system calls, how a partial transfer goes on, and what is done when the file system cannot punch holes is
 * common to both (block_io.c): a request is a sequence of steps, each one system call.
 *
 * Threads: as block.h. The engine's own threads see requests, iovecs and descriptors only.
 */
#pragma once
#include "devices/backend/block.h"

enum { BLOCK_IO_FILES = 260, BLOCK_IO_THREADS = 4 };

struct block_io;

struct block_io_ops {
	void (*submit)(struct block_io *io, struct block_request *r);
	void (*kick)(struct block_io *io);
	void (*complete)(struct block_io *io);
	/* complete without reading the event, for the second engine on one event_fd; threads only. */
	void (*reap)(struct block_io *io);
	void (*drain)(struct block_io *io);
	int (*start)(struct block_io *io, struct vm *vm, struct err *err); /* may be NULL */
	/* No request on that place may be in flight. 0 or -errno. */
	int (*set_file)(struct block_io *io, unsigned index, int fd);
	void (*close)(struct block_io *io);
};

struct block_io {
	const struct block_io_ops *ops;
	int event_fd; /* owned by whoever made the engine */
	int file[BLOCK_IO_FILES]; /* threads */
	uint32_t inflight;
};

/* Each: 0 or -errno with a text that says why this host cannot. */
int block_uring_open(const int *files, int nfiles, int event_fd, uint32_t depth, struct block_io **ret, struct err *err);
/* nthreads: BLOCK_IO_THREADS at most. */
int block_threads_open(const int *files, int nfiles, int event_fd, int nthreads, struct block_io **ret, struct err *err);
/* The one that c->aio names; without a name io_uring, or threads and a note. Checks c->aio and c->cache, too. */
int block_io_check(const struct block_config *c, struct err *err);
int block_io_open(const struct block_config *c, struct block *b, uint32_t depth, const int *files, int nfiles,
		  struct block_io **ret, struct err *err);

/* One system call's worth of a request. */
enum block_step_kind { BLOCK_STEP_READ, BLOCK_STEP_WRITE, BLOCK_STEP_SYNC, BLOCK_STEP_ALLOCATE };
struct block_step {
	enum block_step_kind kind;
	uint64_t off;
	uint64_t len;            /* ALLOCATE */
	const struct iovec *iov; /* READ, WRITE */
	int niov;
	int mode;                /* ALLOCATE: FALLOC_FL_*; WRITE: RWF_* */
};

void block_io_begin(struct block_request *r);
/* The next step of a request that is not finished. */
void block_io_step(struct block_request *r, struct block_step *ret);
/* Take the step's outcome (bytes, 0 or -errno). True when the request is finished, with r->result. */
bool block_io_took(struct block_request *r, int64_t res);
