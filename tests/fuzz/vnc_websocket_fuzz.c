/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WebSocket frames of a viewer, in pieces as a connection may bring them.
 *
 * The stream does not depend on where it was cut, is never longer than what came, and ends for good with the first wrong frame.
 * The first byte of the input says how large pieces are.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/vnc/websocket.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

struct stream {
	struct websocket w;
	uint8_t *bytes;
	size_t n;
	bool failed;
};

static void feed(struct stream *s, const uint8_t *data, size_t n)
{
	uint8_t *piece = malloc(n ? n : 1); /* of its exact size: what is written behind it is found */
	long r;

	if (!piece)
		abort();
	memcpy(piece, data, n);
	r = websocket_decode(&s->w, piece, n);
	FUZZ_REQUIRE(r == -EPROTO || (r >= 0 && (size_t)r <= n));
	FUZZ_REQUIRE(!s->failed || r == -EPROTO);
	FUZZ_REQUIRE(s->w.pong_len <= WEBSOCKET_CONTROL_MAX && s->w.header_used <= sizeof(s->w.header));
	if (r < 0) {
		s->failed = true;
	} else {
		memcpy(s->bytes + s->n, piece, (size_t)r);
		s->n += (size_t)r;
	}
	free(piece);
}

static void begin(struct stream *s, size_t size)
{
	*s = (struct stream){ .bytes = malloc(size + 1) };
	if (!s->bytes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	size_t piece = fuzz_u8(&in) + 1u;
	struct stream whole, cut;

	begin(&whole, size);
	begin(&cut, size);
	feed(&whole, in.p, in.left);
	for (size_t at = 0; at < in.left; at += piece)
		feed(&cut, in.p + at, MIN(piece, in.left - at));
	/* Of a piece with a wrong frame nothing is passed on, also of what was before it. */
	FUZZ_REQUIRE(whole.failed == cut.failed);
	FUZZ_REQUIRE(whole.failed ? whole.n == 0 : whole.n == cut.n && memcmp(whole.bytes, cut.bytes, cut.n) == 0);
	FUZZ_REQUIRE(cut.n <= in.left);
	if (!whole.failed) {
		FUZZ_REQUIRE(whole.w.closed == cut.w.closed && whole.w.left == cut.w.left && whole.w.pong_due == cut.w.pong_due);
		FUZZ_REQUIRE(whole.w.pong_len == cut.w.pong_len && memcmp(whole.w.pong, cut.w.pong, cut.w.pong_len) == 0);
	}
	free(whole.bytes);
	free(cut.bytes);
	return 0;
}
