/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-gpu's requests and the command streams behind them, with virglrenderer drawing in software. Input: bytes of the shared memory's
 * first FUZZ_STREAM (le16 length, then they), then struct gpu_requests, one after another. Each input begins with nothing there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/gpu/renderer.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_MEMORY = 1 << 20, FUZZ_STREAM = 0xffff, FUZZ_REQUESTS = 64, FUZZ_LIMIT = 4 << 20 };

/* Before the first input: it takes seconds under a sanitizer. */
static struct renderer *renderer(void)
{
	static struct renderer r;
	struct gpu_ready ready;

	if (r.open)
		return &r;
	r.memory = malloc(FUZZ_MEMORY);
	r.memory_size = FUZZ_MEMORY;
	r.limit = FUZZ_LIMIT;
	setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
	if (!r.memory || renderer_open(&r, -1, &ready, NULL) < 0)
		abort();
	return &r;
}

static void __attribute__((constructor)) begin(void)
{
	renderer();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct renderer *r = renderer();
	static const struct gpu_request forget = { .op = { GPU_RESET } };
	uint32_t seq;
	size_t n;

	if (size < 2)
		return 0;
	memset(r->memory, 0, FUZZ_MEMORY);
	n = MIN((size_t)le16_load(data), size - 2);
	memcpy(r->memory, data + 2, n);
	data += 2 + n;
	size -= 2 + n;
	for (int i = 0; i < FUZZ_REQUESTS && size >= sizeof(struct gpu_request); i++) {
		struct gpu_request q;

		memcpy(&q, data, sizeof(q));
		data += sizeof(q);
		size -= sizeof(q);
		renderer_request(r, &q);
		renderer_poll(r, &seq);
	}
	if (renderer_request(r, &forget) != 0 || r->used != 0 || r->nresources != 0)
		abort();
	return 0;
}
