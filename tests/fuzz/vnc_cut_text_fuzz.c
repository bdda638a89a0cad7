/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a hostile viewer about the clipboard: lengths and payloads, one after the other.
 *
 * No text is longer than one may be or has a zero byte, and every answer can be made, with the length it says.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/vnc/cut_text.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { MESSAGES_MAX = 64, OLD = 0x8000 };

struct texts {
	struct cut_text c;
	char out[CUT_TEXT_MAX];
	uint8_t message[CUT_MESSAGE_MAX];
};

static void answer(struct texts *t, enum cut_action action)
{
	ssize_t n = cut_text_make(&t->c, action, t->message);
	uint32_t size;

	FUZZ_REQUIRE(action == CUT_NOTHING ? n == 0 : n >= 8 && n <= CUT_MESSAGE_MAX);
	if (n == 0)
		return;
	size = (uint32_t)t->message[4] << 24 | (uint32_t)t->message[5] << 16 | (uint32_t)t->message[6] << 8 | t->message[7];
	FUZZ_REQUIRE((action == CUT_OLD ? size : 0 - size) == (uint32_t)n - 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct texts *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	for (int i = 0; i < MESSAGES_MAX && in.left > 0; i++) {
		size_t head = fuzz_u16(&in), n = MIN(head % OLD, in.left);
		uint8_t *payload = malloc(MAX(n, 1u)); /* of its own size, whose bounds a sanitizer knows */
		enum cut_action action = CUT_NOTHING;
		ssize_t r;

		if (!payload)
			abort();
		memcpy(payload, in.p, n);
		in.p += n;
		in.left -= n;
		if (head & OLD)
			r = (ssize_t)cut_text_receive_old(payload, n, t->out);
		else
			r = cut_text_receive(&t->c, payload, n, t->out, &action);
		free(payload);
		FUZZ_REQUIRE(r == -EPROTO || (r >= 0 && r <= CUT_TEXT_MAX));
		FUZZ_REQUIRE(r <= 0 || !memchr(t->out, 0, (size_t)r));
		answer(t, action);
		if (r > 0)
			answer(t, cut_text_set(&t->c, t->out, (size_t)r)); /* another viewer has copied it */
	}
	free(t);
	return 0;
}
