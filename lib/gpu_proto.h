/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the monitor and coffer-gpu, the process that renders for one VM.
 *
 * A SOCK_SEQPACKET pair made by whoever starts both. One struct a packet, little-endian. The monitor's first, GPU_START, brings the
 * display's memory (a memfd, devices/backend/display.h), and all that both sides read and write lies there: the command streams, what
 * stands for the guest's pages behind a resource ("backing"), and the frame buffers that viewers look at. The process never
 * sees guest memory itself: the monitor copies what the guest's transfers name.
 *
 * The process answers GPU_START by GPU_READY, and every request by GPU_DONE, in order. With GPU_FENCE a GPU_FENCED
 * follows once the renderer has finished it and all before it; one GPU_FENCED may stand for many: all up to its seq.
 * Contexts and resources have the guest's own numbers.
 *
 * Trust: the process is as hostile as the guest: what it says may fail a request, and nothing else. What the monitor sends is the
 * guest's wish with its numbers unchecked, but offsets and sizes in the memory, which are the monitor's own; the process checks all of it.
 */
#pragma once
#include "lib/le.h"

enum {
	GPU_VERSION = 1,
	GPU_CAPSETS_MAX = 2,
	GPU_CAPSET_SIZE_MAX = 2048,
	GPU_NAME_MAX = 64,
	GPU_SUBMIT_MAX = 4 << 20, /* bytes of one command stream */
	GPU_INFLIGHT_MAX = 64,    /* requests without their GPU_DONE */
};

enum gpu_op {
	GPU_START = 1,   /* with the memory's descriptor; arg: enum gpu_start_arg */
	GPU_CTX_CREATE,  /* ctx; arg[0]: context_init; name */
	GPU_CTX_DESTROY, /* ctx */
	GPU_CTX_ATTACH,  /* ctx, resource */
	GPU_CTX_DETACH,
	GPU_RESOURCE_CREATE, /* resource; arg: enum gpu_create_arg */
	GPU_RESOURCE_UNREF,  /* resource */
	GPU_BACKING,     /* resource; offset, size: there it lies; size 0: it has none any more */
	GPU_TRANSFER_TO, /* resource, ctx; arg: enum gpu_transfer_arg; offset: in the backing */
	GPU_TRANSFER_FROM,
	GPU_SUBMIT,      /* ctx; offset, size: of the command stream in the memory */
	GPU_READ,        /* resource: arg box and stride as of a transfer; offset: in the memory, where its first line goes; 4 bytes a pixel */
	GPU_RESET,       /* all contexts and resources go */
	GPU_READY = 64,
	GPU_DONE,
	GPU_FENCED,
};

enum { GPU_FENCE = 1 }; /* flags of a request */

enum gpu_start_arg { GPU_START_VERSION, GPU_START_MEMORY /* bytes that resources may take in the renderer, MiB */ };
enum gpu_create_arg {
	GPU_CREATE_TARGET, GPU_CREATE_FORMAT, GPU_CREATE_BIND, GPU_CREATE_WIDTH, GPU_CREATE_HEIGHT, GPU_CREATE_DEPTH,
	GPU_CREATE_ARRAY_SIZE, GPU_CREATE_LAST_LEVEL, GPU_CREATE_NR_SAMPLES, GPU_CREATE_FLAGS,
};
enum gpu_transfer_arg {
	GPU_BOX_X, GPU_BOX_Y, GPU_BOX_Z, GPU_BOX_W, GPU_BOX_H, GPU_BOX_D, GPU_BOX_LEVEL, GPU_BOX_STRIDE, GPU_BOX_LAYER_STRIDE,
	GPU_NARGS,
};
_Static_assert(GPU_CREATE_FLAGS < GPU_NARGS + 1, "arguments of a request");

struct gpu_request {
	le16 op, flags;
	le32 seq; /* 1, 2, 3 ... ; 0 is none */
	le32 ctx, resource;
	le64 offset, size;
	le32 arg[GPU_NARGS + 1];
	char name[GPU_NAME_MAX]; /* need not end with a zero byte */
};

struct gpu_reply {
	le16 op, reserved;
	le32 seq;
	le32 status; /* 0 or a negative errno as two's complement */
	le32 reserved2;
};

struct gpu_capset {
	le32 id, version, size, reserved;
	uint8_t data[GPU_CAPSET_SIZE_MAX];
};

/* GPU_READY. status: why there is no renderer. */
struct gpu_ready {
	struct gpu_reply h;
	le32 version, ncapsets;
	struct gpu_capset capset[GPU_CAPSETS_MAX];
	char text[256]; /* the error */
};
