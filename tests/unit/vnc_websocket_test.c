/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of WebSocket, as a viewer in a browser sends and gets them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/vnc/websocket.h"

enum { BINARY = 0x82, PING = 0x89, CLOSE = 0x88 };

/* A masked frame at out: its length. */
static size_t frame(uint8_t *out, uint8_t first, const void *text, size_t n)
{
	static const uint8_t mask[4] = { 0x12, 0x34, 0x56, 0x78 };
	const uint8_t *bytes = text;
	size_t at = 0;

	out[at++] = first;
	if (n < 126) {
		out[at++] = (uint8_t)(0x80 | n);
	} else {
		out[at++] = 0x80 | 126;
		out[at++] = (uint8_t)(n >> 8);
		out[at++] = (uint8_t)n;
	}
	memcpy(out + at, mask, 4);
	at += 4;
	for (size_t i = 0; i < n; i++)
		out[at++] = bytes[i] ^ mask[i & 3];
	return at;
}

static void a_frame_becomes_the_bytes_it_carries(void **state)
{
	struct websocket w = { .opcode = 0 };
	uint8_t buf[64];
	size_t n = frame(buf, BINARY, "RFB 003.008\n", 12);

	(void)state;
	assert_int_equal(websocket_decode(&w, buf, n), 12);
	assert_memory_equal(buf, "RFB 003.008\n", 12);
}

static void frames_cut_at_any_place_give_the_same_bytes(void **state)
{
	uint8_t all[1024], text[300];
	size_t n;

	(void)state;
	memset(text, 'x', sizeof(text));
	n = frame(all, BINARY & 0x0f, "abc", 3);
	n += frame(all + n, 0x80, text, sizeof(text));
	n += frame(all + n, PING, "p", 1);
	n += frame(all + n, BINARY, "end", 3);
	for (size_t cut = 0; cut <= n; cut++) {
		struct websocket w = { .opcode = 0 };
		uint8_t a[1024], b[1024];
		long first, second;

		memcpy(a, all, cut);
		memcpy(b, all + cut, n - cut);
		first = websocket_decode(&w, a, cut);
		second = websocket_decode(&w, b, n - cut);
		assert_int_equal(first + second, 3 + 300 + 3);
		memmove(a + first, b, (size_t)second);
		assert_memory_equal(a, "abcx", 4);
		assert_memory_equal(a + 302, "xend", 4);
		assert_true(w.pong_due);
	}
}

static void a_ping_is_to_be_answered_with_its_bytes(void **state)
{
	struct websocket w = { .opcode = 0 };
	uint8_t buf[256], text[125];

	(void)state;
	memset(text, 'p', sizeof(text));
	assert_int_equal(websocket_decode(&w, buf, frame(buf, PING, text, sizeof(text))), 0);
	assert_true(w.pong_due);
	assert_int_equal(w.pong_len, 125);
	assert_memory_equal(w.pong, text, 125);
}

static void nothing_is_taken_after_a_close_frame(void **state)
{
	struct websocket w = { .opcode = 0 };
	uint8_t buf[64];
	size_t n = frame(buf, CLOSE, "\003\350", 2);

	(void)state;
	n += frame(buf + n, BINARY, "late", 4);
	assert_int_equal(websocket_decode(&w, buf, n), 0);
	assert_true(w.closed);
}

static void wrong_frames_are_refused(void **state)
{
	static const uint8_t wrong[][14] = {
		{ 0x82, 0x01, 'x' },             /* not masked */
		{ 0xc2, 0x81 },                  /* a reserved bit */
		{ 0x81, 0x81 },                  /* text */
		{ 0x83, 0x81 }, { 0x8b, 0x81 },  /* unknown */
		{ 0x89, 0xfe, 0, 126 },          /* a long ping */
		{ 0x09, 0x81 }, { 0x08, 0x80 },  /* a piece of a control frame */
		{ 0x82, 0xff, 0x80 },            /* longer than a length can be */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct websocket w = { .opcode = 0 };
		uint8_t buf[14];

		memcpy(buf, wrong[i], sizeof(buf));
		assert_int_equal(websocket_decode(&w, buf, sizeof(buf)), -EPROTO);
	}
}

/* The wrong frame comes after one that is longer than a control frame's buffer. */
static void after_a_wrong_frame_all_is_refused(void **state)
{
	static const uint8_t wrong[7] = { PING, 1, 'w', 'r', 'o', 'n', 'g' };
	struct websocket w = { .opcode = 0 };
	uint8_t buf[512], text[300] = { 0 };
	size_t n;

	(void)state;
	assert_int_equal(websocket_decode(&w, buf, frame(buf, BINARY, text, sizeof(text))), 300);
	memcpy(buf, wrong, sizeof(wrong));
	assert_int_equal(websocket_decode(&w, buf, sizeof(wrong)), -EPROTO);
	n = frame(buf, PING, "p", 1);
	assert_int_equal(websocket_decode(&w, buf, n), -EPROTO);
	assert_int_equal(websocket_decode(&w, buf, 0), -EPROTO);
	assert_false(w.pong_due);
}

static void an_announced_length_costs_nothing(void **state)
{
	struct websocket w = { .opcode = 0 };
	uint8_t buf[32] = { 0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'a', 'b' };

	(void)state;
	assert_int_equal(websocket_decode(&w, buf, 16), 2);
	assert_memory_equal(buf, "ab", 2);
}

static void our_frames_have_the_shortest_header(void **state)
{
	uint8_t out[WEBSOCKET_HEADER_MAX];

	(void)state;
	assert_int_equal(websocket_header(out, 2, 125), 2);
	assert_memory_equal(out, "\x82\x7d", 2);
	assert_int_equal(websocket_header(out, 2, 126), 4);
	assert_memory_equal(out, "\x82\x7e\0\x7e", 4);
	assert_int_equal(websocket_header(out, 2, 65535), 4);
	assert_memory_equal(out, "\x82\x7e\xff\xff", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_becomes_the_bytes_it_carries),
		cmocka_unit_test(frames_cut_at_any_place_give_the_same_bytes),
		cmocka_unit_test(a_ping_is_to_be_answered_with_its_bytes),
		cmocka_unit_test(nothing_is_taken_after_a_close_frame),
		cmocka_unit_test(wrong_frames_are_refused),
		cmocka_unit_test(after_a_wrong_frame_all_is_refused),
		cmocka_unit_test(an_announced_length_costs_nothing),
		cmocka_unit_test(our_frames_have_the_shortest_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
