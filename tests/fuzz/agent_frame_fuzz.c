/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from a hostile host.
 *
 * Input: which types are allowed (2 bytes), the size of the pieces (1), then the stream. The same stream in other pieces must give
 * the same frames and fail at the same byte.
 */
#include <stdlib.h>
#include <string.h>

#include "guest/agent/frame.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

struct outcome {
	uint64_t hash;
	size_t frames, failed_at; /* 0: did not */
};

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 1099511628211u;
	return h;
}

static struct outcome run(unsigned allowed, size_t step, const uint8_t *p, size_t n)
{
	struct frame_reader *f = malloc(sizeof(*f));
	struct outcome o = { .hash = 14695981039346656037u };
	size_t pos = 0;

	if (!f)
		abort();
	frame_reader_init(f, allowed);
	while (pos < n) {
		void *dst;
		size_t room = frame_reader_space(f, &dst), left = n - pos, take = MIN(room, step);
		int rc;

		FUZZ_REQUIRE(room > 0);
		take = MIN(take, left);
		memcpy(dst, p + pos, take);
		pos += take;
		rc = frame_reader_commit(f, take, NULL);
		if (rc < 0) {
			o.failed_at = pos;
			break;
		}
		if (rc == 1) {
			FUZZ_REQUIRE(f->type < 32 && (allowed & 1u << f->type) && f->length <= AGENT_FRAME_MAX);
			o.frames++;
			o.hash = mix(mix(o.hash, &f->type, 1), f->payload, f->length);
		}
	}
	free(f);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	unsigned allowed = fuzz_u16(&in);
	size_t step = fuzz_u8(&in) + 1u;
	struct outcome a = run(allowed, step, in.p, in.left), b = run(allowed, SIZE_MAX, in.p, in.left);

	FUZZ_REQUIRE(a.frames == b.frames && a.hash == b.hash);
	FUZZ_REQUIRE((a.failed_at != 0) == (b.failed_at != 0));
	return 0;
}
