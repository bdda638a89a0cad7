/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor's end of coffer-gpu (lib/gpu_proto.h).
 *
 * Requests are sent without waiting, at most GPU_INFLIGHT_MAX of them unanswered; answers come from the loop. When the process ends,
 * or says anything it may not, it is given up for good: `died` is called once, and every later request fails with -EPIPE.
 *
 * Capability sets are handed on with the bits removed that would let a guest's command streams read and write the backing of
 * resources on their own: it is a copy that only transfers keep alike (enum gpu_caps_bit, virtio 1.2 has the sets as opaque bytes; their
 * layout is virglrenderer's ABI).
 *
 * Threads: main. Trust: answers are hostile.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/gpu_proto.h"
#include "lib/loop.h"

struct gpu_worker;

/* Main thread. */
struct gpu_worker_ops {
	void (*turn)(void *opaque, bool begins);    /* around the following when the loop calls; may be NULL */
	void (*done)(void *opaque, uint32_t seq, int status);
	void (*fenced)(void *opaque, uint32_t seq); /* all fences up to seq have passed */
	void (*room)(void *opaque);                 /* after a gpu_worker_send that said -EAGAIN */
	void (*died)(void *opaque, const char *why);
};

struct gpu_worker {
	struct loop *loop;
	struct loop_fd watch;
	const struct gpu_worker_ops *ops;
	void *opaque;
	int sock;              /* owned; -1: none, or given up */
	uint32_t last_sent, last_done, last_fenced;
	bool want_room;
	uint32_t ncapsets;
	struct gpu_capset capset[GPU_CAPSETS_MAX];
};

/* Send GPU_START with the display's memory and wait for GPU_READY, at most GPU_WORKER_START_MS. Takes sock, also when it fails. `memory`: MiB
 * for what the renderer makes. 0 or -errno with a text. */
enum { GPU_WORKER_START_MS = 30000 };
int gpu_worker_open(struct gpu_worker *w, int sock, int memory_fd, uint32_t memory, const struct gpu_worker_ops *ops, void *opaque, struct err *err);
/* From now on answers come. */
int gpu_worker_attach(struct gpu_worker *w, struct loop *loop, struct err *err);
void gpu_worker_close(struct gpu_worker *w); /* accepts a zeroed one */
static inline bool gpu_worker_alive(const struct gpu_worker *w) { return w->sock >= 0; }

/* Fills q->seq. 0; -EAGAIN when too many are unanswered; -EPIPE when there is no process. */
int gpu_worker_send(struct gpu_worker *w, struct gpu_request *q);
/* Take answers until everything sent so far has its GPU_DONE and, if asked, its fence, at most `ms`; the process is given up when it takes
 * longer. For the moments that must be still. */
int gpu_worker_drain(struct gpu_worker *w, bool fences, uint32_t last_fence, int ms);
