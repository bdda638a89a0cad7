/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the clipboard between a viewer and coffer-vnc, as messages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "host/vnc/cut_text.h"
#include "lib/util.h"

enum { TEXT = 1, HEADER = 8 };

struct fixture {
	struct cut_text c;
	char out[CUT_TEXT_MAX];
	uint8_t message[CUT_MESSAGE_MAX];
	enum cut_action answer;
};

static int setup(void **ctx)
{
	*ctx = calloc(1, sizeof(struct fixture));
	return *ctx ? 0 : -1;
}

static int teardown(void **ctx)
{
	free(*ctx);
	return 0;
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void caps(struct fixture *f, uint32_t actions, uint32_t unsolicited)
{
	uint8_t m[8];

	put_u32(m, CUT_CAPS | actions | TEXT);
	put_u32(m + 4, unsolicited);
	assert_int_equal(cut_text_receive(&f->c, m, sizeof(m), f->out, &f->answer), 0);
}

/* A provide message: `named` is the length in it, of n bytes that come. */
static ssize_t provided(struct fixture *f, const void *text, size_t n, uint32_t named, int how)
{
	uint8_t *plain = malloc(n + 4), *m = malloc(n + 4096);
	z_stream z = { 0 };
	ssize_t r;

	assert_true(plain && m);
	put_u32(plain, named);
	memcpy(plain + 4, text, n);
	put_u32(m, CUT_PROVIDE | TEXT);
	assert_int_equal(deflateInit(&z, 1), Z_OK);
	z.next_in = plain;
	z.avail_in = (uInt)(n + 4);
	z.next_out = m + 4;
	z.avail_out = (uInt)(n + 4092);
	assert_true(deflate(&z, how) >= 0);
	r = cut_text_receive(&f->c, m, (size_t)(z.next_out - m), f->out, &f->answer);
	deflateEnd(&z);
	free(plain);
	free(m);
	return r;
}

static void texts_go_the_old_way_before_the_viewer_says_more(void **ctx)
{
	static const char text[] = "Gr\xc3\xbc\xc3\x9f""e \xe2\x82\xac 1\n";
	struct fixture *f = *ctx;

	assert_int_equal(cut_text_set(&f->c, text, sizeof(text) - 1), CUT_OLD);
	assert_int_equal(cut_text_make(&f->c, CUT_OLD, f->message), HEADER + 10);
	assert_memory_equal(f->message, "\3\0\0\0\0\0\0\x0aGr\xfc\xdf""e ? 1\n", HEADER + 10);
	assert_int_equal(cut_text_receive_old((const uint8_t *)"a\r\n\xfc\0b", 6, f->out), 5);
	assert_memory_equal(f->out, "a\n\xc3\xbc" "b", 5);
}

static void what_was_copied_before_is_announced_when_the_viewer_says_more(void **ctx)
{
	struct fixture *f = *ctx;

	cut_text_set(&f->c, "\xe2\x82\xac", 3);
	caps(f, CUT_NOTIFY | CUT_REQUEST | CUT_PROVIDE, 0);
	assert_int_equal(f->answer, CUT_NOTIFY);
	assert_int_equal(cut_text_make(&f->c, CUT_NOTIFY, f->message), HEADER + 4);
	assert_memory_equal(f->message, "\3\0\0\0\xff\xff\xff\xfc\x08\0\0\1", HEADER + 4);
	caps(f, CUT_NOTIFY | CUT_REQUEST | CUT_PROVIDE, 0);
	assert_int_equal(f->answer, CUT_NOTHING); /* it knows it by now */
}

/* A text of the guest's as the viewer reads it. */
static void a_request_is_answered_with_the_text(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t request[4], plain[64];
	uLongf n = sizeof(plain);
	ssize_t size;

	caps(f, CUT_NOTIFY | CUT_REQUEST | CUT_PROVIDE, 0);
	assert_int_equal(f->answer, CUT_NOTHING);
	assert_int_equal(cut_text_set(&f->c, "a\n\xe2\x82\xac\r\n", 7), CUT_NOTIFY);
	put_u32(request, CUT_REQUEST | TEXT);
	assert_int_equal(cut_text_receive(&f->c, request, 4, f->out, &f->answer), 0);
	assert_int_equal(f->answer, CUT_PROVIDE);
	size = cut_text_make(&f->c, CUT_PROVIDE, f->message);
	assert_true(size > HEADER + 4);
	assert_int_equal(get_u32(f->message + 4), (uint32_t)(HEADER - size));
	assert_int_equal(get_u32(f->message + HEADER), CUT_PROVIDE | TEXT);
	assert_int_equal(uncompress(plain, &n, f->message + HEADER + 4, (uLong)size - HEADER - 4), Z_OK);
	assert_int_equal(n, 4 + 9);
	assert_memory_equal(plain, "\0\0\0\x09" "a\r\n\xe2\x82\xac\r\n\0", 13);
}

static void a_short_text_is_sent_unasked_to_who_takes_it(void **ctx)
{
	struct fixture *f = *ctx;

	caps(f, CUT_NOTIFY | CUT_PROVIDE, 5);
	assert_int_equal(cut_text_set(&f->c, "abcd", 4), CUT_PROVIDE);
	assert_int_equal(cut_text_set(&f->c, "abc\n", 4), CUT_NOTIFY); /* with CR and zero it is longer */
	caps(f, CUT_PROVIDE, 0);
	assert_int_equal(cut_text_set(&f->c, "abcd", 4), CUT_NOTHING);
}

static void the_longest_text_fits_whatever_it_is(void **ctx)
{
	struct fixture *f = *ctx;
	char *text = malloc(CUT_TEXT_MAX + 1);
	uint32_t x = 1;

	assert_non_null(text);
	caps(f, CUT_NOTIFY | CUT_PROVIDE, UINT32_MAX);
	for (int kind = 0; kind < 2; kind++) {
		for (size_t i = 0; i < CUT_TEXT_MAX + 1; i++) {
			x = x * 1103515245 + 12345;
			text[i] = kind == 0 ? '\n' : (char)(x >> 24);
		}
		assert_int_equal(cut_text_set(&f->c, text, CUT_TEXT_MAX), CUT_PROVIDE);
		assert_true(cut_text_make(&f->c, CUT_PROVIDE, f->message) > HEADER);
		assert_true(cut_text_make(&f->c, CUT_OLD, f->message) >= HEADER);
	}
	assert_int_equal(cut_text_set(&f->c, text, CUT_TEXT_MAX + 1), CUT_NOTHING);
	free(text);
}

static void a_notify_asks_for_the_text(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t m[4];

	caps(f, CUT_REQUEST | CUT_PROVIDE, 0);
	put_u32(m, CUT_NOTIFY | TEXT);
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), 0);
	assert_int_equal(f->answer, CUT_REQUEST);
	put_u32(m, CUT_NOTIFY | 2); /* RTF alone */
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), 0);
	assert_int_equal(f->answer, CUT_NOTHING);
	put_u32(m, CUT_PEEK);
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), 0);
	assert_int_equal(f->answer, CUT_NOTIFY);
	assert_int_equal(cut_text_make(&f->c, CUT_NOTIFY, f->message), HEADER + 4);
	assert_int_equal(get_u32(f->message + HEADER), CUT_NOTIFY); /* of no format */
}

/* Viewers flush their streams, or end them. */
static void a_provided_text_is_taken(void **ctx)
{
	static const int how[] = { Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_FINISH };
	struct fixture *f = *ctx;

	caps(f, CUT_REQUEST | CUT_PROVIDE, 0);
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		assert_int_equal(provided(f, "\xe4\xb8\x96\r\nb\rc\0d", 10, 10, how[i]), 7);
		assert_memory_equal(f->out, "\xe4\xb8\x96\nb\rc", 7);
	}
	assert_int_equal(provided(f, "", 0, 0, Z_FINISH), 0);
}

static void lengths_that_are_not_those_of_the_text_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	char *big = calloc(1, 8 << 20);

	assert_non_null(big);
	caps(f, CUT_REQUEST | CUT_PROVIDE, 0);
	assert_int_equal(provided(f, "abc", 3, 4, Z_SYNC_FLUSH), -EPROTO);
	assert_int_equal(provided(f, "abc", 3, 4, Z_FINISH), -EPROTO);
	assert_int_equal(provided(f, "abc", 3, UINT32_MAX, Z_FINISH), 0); /* too long: left out before it is looked at */
	memset(big, 'a', 8 << 20);
	assert_int_equal(provided(f, big, 8 << 20, 8 << 20, Z_FINISH), 0); /* 8 KiB on the wire */
	assert_int_equal(provided(f, big, 8 << 20, 3, Z_FINISH), 3);
	assert_int_equal(provided(f, big, CUT_TEXT_MAX, CUT_TEXT_MAX, Z_FINISH), CUT_TEXT_MAX);
	assert_int_equal(provided(f, big, CUT_TEXT_MAX + 1, CUT_TEXT_MAX + 1, Z_FINISH), 0);
	free(big);
}

static void a_viewer_that_says_no_capabilities_has_the_usual(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(provided(f, "abc", 4, 4, Z_SYNC_FLUSH), 3);
	assert_int_equal(cut_text_set(&f->c, "abcd", 4), CUT_PROVIDE);
}

static void messages_that_are_none_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t m[72] = { 0 };

	put_u32(m, CUT_CAPS | TEXT | 2);
	assert_int_equal(cut_text_receive(&f->c, m, 8, f->out, &f->answer), -EPROTO); /* one size for two formats */
	assert_int_equal(cut_text_receive(&f->c, m, 12, f->out, &f->answer), 0);
	assert_true(f->c.extended);
	for (size_t n = 0; n < 4; n++)
		assert_int_equal(cut_text_receive(&f->c, m, n, f->out, &f->answer), -EPROTO);
	put_u32(m, CUT_PROVIDE | TEXT); /* and no stream */
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), -EPROTO);
	assert_int_equal(cut_text_receive(&f->c, m, 40, f->out, &f->answer), -EPROTO);
	put_u32(m, CUT_PROVIDE | CUT_NOTIFY | TEXT);
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), -EPROTO);
	put_u32(m, TEXT);
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), -EPROTO);
	put_u32(m, CUT_CAPS); /* none at all: the old way again */
	assert_int_equal(cut_text_receive(&f->c, m, 4, f->out, &f->answer), 0);
	assert_false(f->c.extended);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(texts_go_the_old_way_before_the_viewer_says_more),
		CASE(what_was_copied_before_is_announced_when_the_viewer_says_more),
		CASE(a_request_is_answered_with_the_text),
		CASE(a_short_text_is_sent_unasked_to_who_takes_it),
		CASE(the_longest_text_fits_whatever_it_is),
		CASE(a_notify_asks_for_the_text),
		CASE(a_provided_text_is_taken),
		CASE(lengths_that_are_not_those_of_the_text_are_refused),
		CASE(a_viewer_that_says_no_capabilities_has_the_usual),
		CASE(messages_that_are_none_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
