/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with one monitor: see serve.c. */
#pragma once
#include "host/gpu/renderer.h"
#include "lib/err.h"

struct serve_gpu {
	int sock; /* the monitor's end is its life */
	struct renderer renderer;
	struct gpu_ready ready;
	uint32_t told_fence;
};

/* Take GPU_START from the socket and map the memory: before the jail. */
int serve_gpu_start(struct serve_gpu *s, struct err *err);
/* Say ready, or with `failed` why not; then serve until the socket ends: 0, or -errno with a text when the monitor broke the protocol. */
int serve_gpu_run(struct serve_gpu *s, const struct err *failed, struct err *err);
