/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virglrenderer behind the requests of lib/gpu_proto.h: each is checked, carried out, and answered by a status.
 *
 * Resources and contexts are counted here too: virglrenderer trusts its caller to know what exists, and has no bound on memory.
 * What a resource takes is estimated from its size in the widest format (16 bytes a pixel for what is no plain 4-byte format,
 * mip levels, layers and samples included); requests beyond the bound fail with -ENOMEM.
 *
 * One a process: virglrenderer keeps its state in globals. Threads: one; virglrenderer has its own.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <virgl/virglrenderer.h>

#include "lib/err.h"
#include "lib/gpu_proto.h"

enum { RENDERER_RESOURCES_MAX = 1 << 16, RENDERER_CONTEXTS_MAX = 64 };

struct renderer_resource {
	uint32_t id;
	uint64_t bytes;
	struct iovec backing; /* iov_base NULL: none */
	struct renderer_resource *next;
};

struct renderer {
	uint8_t *memory; /* shared with the monitor */
	uint64_t memory_size;
	int render_node; /* descriptor, -1: in software */
	uint64_t limit, used; /* bytes that resources take */
	struct renderer_resource *bucket[1 << 12];
	uint32_t nresources;
	uint32_t context[RENDERER_CONTEXTS_MAX]; /* their numbers, 0: free */
	uint32_t retired; /* seq of the newest fence that has passed */
	bool retired_any;
	bool open;
	struct virgl_renderer_callbacks callbacks; /* virglrenderer keeps a pointer to them */
};

/* Start virglrenderer; fills capsets of *ret. memory and limit are set before the first request. */
int renderer_open(struct renderer *r, int render_node, struct gpu_ready *ret, struct err *err);
void renderer_close(struct renderer *r); /* accepts a zeroed one */

/* Readable when a fence may have passed: then renderer_poll. */
int renderer_poll_fd(const struct renderer *r);
/* Has a fence passed since the last call? Then *ret_seq is the newest. */
bool renderer_poll(struct renderer *r, uint32_t *ret_seq);

/* Carry out one request (not GPU_START): 0 or -errno. With GPU_FENCE and 0 a fence will pass for its seq. */
int renderer_request(struct renderer *r, const struct gpu_request *q);
