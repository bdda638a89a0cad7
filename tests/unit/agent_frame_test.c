/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from the host: put together from any pieces, refused by their header. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guest/agent/frame.h"
#include "lib/util.h"

enum { ALL = 1u << AGENT_STDIN | 1u << AGENT_SIGNAL | 1u << AGENT_WINSIZE | 1u << AGENT_STDOUT | 1u << AGENT_DATA };

static struct frame_reader f;

/* Feed in pieces of at most `step`; stops at a complete frame (1), an error or the end (0). Moves *pos on. */
static int feed(const unsigned char *data, size_t n, size_t step, size_t *pos)
{
	while (*pos < n) {
		void *dst;
		size_t room = frame_reader_space(&f, &dst), take = MIN(MIN(room, step), n - *pos);
		int rc;

		memcpy(dst, data + *pos, take);
		*pos += take;
		rc = frame_reader_commit(&f, take, NULL);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static size_t frame(unsigned char *out, uint8_t type, uint32_t length, char fill)
{
	struct agent_frame h = frame_header(type, length);

	memcpy(out, &h, sizeof(h));
	memset(out + sizeof(h), fill, length);
	return sizeof(h) + length;
}

static void pieces_of_any_size_make_the_same_frames(void **s)
{
	unsigned char *stream = malloc(3 * AGENT_FRAME_MAX);
	static const size_t steps[] = { 1, 3, 8, 4096, 1 << 20 };
	size_t n = 0;

	(void)s;
	n += frame(stream, AGENT_STDIN, 5, 'a');
	n += frame(stream + n, AGENT_STDIN, 0, 0);
	n += frame(stream + n, AGENT_DATA, AGENT_FRAME_MAX, 'b');
	n += frame(stream + n, AGENT_SIGNAL, 4, 9);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		size_t pos = 0;

		frame_reader_init(&f, ALL);
		assert_int_equal(feed(stream, n, steps[i], &pos), 1);
		assert_int_equal(f.type, AGENT_STDIN);
		assert_int_equal(f.length, 5);
		assert_memory_equal(f.payload, "aaaaa", 5);
		assert_int_equal(feed(stream, n, steps[i], &pos), 1);
		assert_int_equal(f.length, 0);
		assert_int_equal(feed(stream, n, steps[i], &pos), 1);
		assert_int_equal(f.length, AGENT_FRAME_MAX);
		assert_int_equal(f.payload[AGENT_FRAME_MAX - 1], 'b');
		assert_int_equal(feed(stream, n, steps[i], &pos), 1);
		assert_int_equal(f.type, AGENT_SIGNAL);
		assert_int_equal(pos, n);
		assert_int_equal(feed(stream, n, steps[i], &pos), 0);
	}
	free(stream);
}

static int header(uint8_t type, uint32_t length, uint8_t reserved)
{
	struct agent_frame h = frame_header(type, 0);
	size_t pos = 0;

	h.length = le32_make(length);
	h.zero[1] = reserved;
	frame_reader_init(&f, ALL);
	return feed((unsigned char *)&h, sizeof(h), 8, &pos);
}

static void headers_are_checked_before_any_payload(void **s)
{
	(void)s;
	assert_int_equal(header(AGENT_STDIN, AGENT_FRAME_MAX, 0), 0);
	assert_int_equal(header(AGENT_STDIN, AGENT_FRAME_MAX + 1, 0), -EPROTO);
	assert_int_equal(header(AGENT_STDIN, UINT32_MAX, 0), -EPROTO);
	assert_int_equal(header(AGENT_STDIN, 1, 1), -EPROTO);
	assert_int_equal(header(AGENT_SIGNAL, 3, 0), -EPROTO);
	assert_int_equal(header(AGENT_SIGNAL, 5, 0), -EPROTO);
	assert_int_equal(header(AGENT_WINSIZE, 8, 0), 0);
	assert_int_equal(header(AGENT_WINSIZE, 0, 0), -EPROTO);
	assert_int_equal(header(AGENT_STDOUT, 0, 0), 1);
	assert_int_equal(header(AGENT_STDOUT, 1, 0), -EPROTO);
}

static void types_that_do_not_belong_are_refused(void **s)
{
	static const uint8_t wrong[] = { 0, AGENT_STDERR, AGENT_EXIT, AGENT_ERROR, AGENT_CREDIT, 10, 31, 32, 33, 255 };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(header(wrong[i], 0, 0), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_of_any_size_make_the_same_frames),
		cmocka_unit_test(headers_are_checked_before_any_payload),
		cmocka_unit_test(types_that_do_not_belong_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
