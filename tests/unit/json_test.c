/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader and writer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/json.h"
#include "lib/util.h"

/* Read the whole text in a heap buffer of exactly its size, so that sanitizers see any step beyond it. */
static bool valid(const char *text)
{
	size_t n = strlen(text);
	char *copy = malloc(n ? n : 1);
	struct json_token t;
	struct json j;
	int tokens = 0;

	memcpy(copy, text, n);
	json_init(&j, copy, n);
	do
		json_next(&j, &t);
	while (t.type != JSON_TOKEN_END && t.type != JSON_TOKEN_ERROR && ++tokens < 1000);
	if (t.type == JSON_TOKEN_ERROR) {
		assert_non_null(j.error);
		assert_int_equal(json_next(&j, &t), JSON_TOKEN_ERROR); /* and it stays an error */
	}
	free(copy);
	return t.type == JSON_TOKEN_END;
}

static void accepts_what_the_grammar_allows(void **s)
{
	static const char *const good[] = {
		"{}", "[]", "0", "-0", "\"\"", "true", " null ", "[1,2]", "[[],{}]", "{\"a\":{\"b\":[false]}}", "\t{\r\n\"a\" : 1 , \"b\":2 }\n",
		"1.5", "-1e5", "1E+2", "1.0e-10", "\"\\u0041\\n\\/\"", "\"\\ud83d\\ude00\"", "\"\xff\xfe\"", "[[[[[[[[1]]]]]]]]",
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (!valid(good[i]))
			fail_msg("refused: %s", good[i]);
}

static void refuses_everything_else(void **s)
{
	static const char *const bad[] = {
		"", " ", "{", "}", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:2}",
		"{\"a\":1 \"b\":2}", "{\"a\":1]", "[1}", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "tru", "truex", "nul", "\"", "\"a",
		"\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\u0000\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\n\"",
		"\"\x01\"", "1 2", "{} {}", "[[[[[[[[[1]]]]]]]]]", "'a'", "NaN", "//", "{\"a\":1}x", "\"\\ud83d\\ude0\"",
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (valid(bad[i]))
			fail_msg("accepted: %s", bad[i]);
}

static void a_zero_byte_is_no_end_of_text(void **s)
{
	char text[] = "{}\0{}";
	struct json_token t;
	struct json j;

	(void)s;
	json_init(&j, text, sizeof(text) - 1);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_OBJECT);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_OBJECT_END);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_ERROR);
}

static void strings_are_decoded_in_place(void **s)
{
	char text[] = "[\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00z\",\"\\u0041\"]";
	struct json_token t;
	struct json j;

	(void)s;
	json_init(&j, text, strlen(text));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_ARRAY);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_STRING);
	assert_string_equal(t.s, "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
	assert_int_equal(t.len, strlen(t.s));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_STRING);
	assert_string_equal(t.s, "A");
}

static struct json_token number(const char *text)
{
	static char buf[64];
	struct json_token t;
	struct json j;

	strcpy(buf, text);
	json_init(&j, buf, strlen(buf));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_NUMBER);
	return t;
}

static void integers_are_exact_to_their_limits(void **s)
{
	(void)s;
	assert_true(number("9223372036854775807").i == INT64_MAX && number("9223372036854775807").is_int);
	assert_true(number("-9223372036854775808").i == INT64_MIN && number("-9223372036854775808").is_int);
	assert_false(number("9223372036854775808").is_int);
	assert_false(number("-9223372036854775809").is_int);
	assert_false(number("99999999999999999999999").is_int);
	assert_false(number("1.0").is_int);
	assert_false(number("1e3").is_int);
	assert_int_equal(number("-0").i, 0);
}

static void keys_and_values_come_in_order(void **s)
{
	char text[] = "{\"a\":[1,{\"x\":[2]}],\"b\":\"v\",\"c\":null}";
	struct json_token t;
	struct json j;

	(void)s;
	json_init(&j, text, strlen(text));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_OBJECT);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_KEY);
	assert_true(json_token_is(&t, "a"));
	assert_false(json_token_is(&t, "ab"));
	assert_true(json_skip(&j));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_KEY);
	assert_true(json_token_is(&t, "b"));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_STRING);
	assert_true(json_token_is(&t, "v"));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_KEY);
	assert_true(json_skip(&j));
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_OBJECT_END);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_END);
	assert_int_equal(json_next(&j, &t), JSON_TOKEN_END);
}

static void skip_stops_at_an_error(void **s)
{
	char text[] = "{\"a\":[1,,2]}";
	struct json_token t;
	struct json j;

	(void)s;
	json_init(&j, text, strlen(text));
	json_next(&j, &t);
	json_next(&j, &t);
	assert_false(json_skip(&j));
	assert_int_equal(j.error_pos, 8);
}

static void writer_makes_one_compact_line(void **s)
{
	char buf[256];
	struct json_writer w;
	int n;

	(void)s;
	json_writer_init(&w, buf, sizeof(buf));
	json_write_object(&w, NULL);
	json_write_string(&w, "s", "a\"b\\c\nd\x7f");
	json_write_int(&w, "i", INT64_MIN);
	json_write_uint(&w, "u", UINT64_MAX);
	json_write_bool(&w, "t", true);
	json_write_array(&w, "l");
	json_write_int(&w, NULL, 1);
	json_write_object(&w, NULL);
	json_write_object_end(&w);
	json_write_array_end(&w);
	json_write_object_end(&w);
	n = json_writer_finish(&w);
	assert_true(n > 0);
	buf[n] = '\0';
	assert_string_equal(buf, "{\"s\":\"a\\\"b\\\\c\\u000ad\\u007f\",\"i\":-9223372036854775808,\"u\":18446744073709551615,\"t\":true,"
				 "\"l\":[1,{}]}");
	assert_true(valid(buf));
}

static void writer_replaces_what_is_not_utf8(void **s)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "\xc3\xa9", "\"\xc3\xa9\"" },
		{ "\xe2\x82\xac", "\"\xe2\x82\xac\"" },
		{ "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"" },
		{ "\xff", "\"\xef\xbf\xbd\"" },
		{ "\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },                         /* overlong */
		{ "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },         /* surrogate */
		{ "\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" }, /* beyond 10ffff */
		{ "a\xc3", "\"a\xef\xbf\xbd\"" },                                       /* cut off */
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char buf[64];
		struct json_writer w;
		int n;

		json_writer_init(&w, buf, sizeof(buf));
		json_write_string(&w, NULL, cases[i].in);
		n = json_writer_finish(&w);
		assert_int_equal(n, strlen(cases[i].out));
		assert_memory_equal(buf, cases[i].out, (size_t)n);
	}
}

static void writer_says_when_it_does_not_fit(void **s)
{
	char buf[8] = "";
	struct json_writer w;

	(void)s;
	json_writer_init(&w, buf, 7);
	json_write_string(&w, NULL, "12345");
	assert_int_equal(json_writer_finish(&w), 7);
	json_writer_init(&w, buf, 6);
	json_write_string(&w, NULL, "12345");
	assert_int_equal(json_writer_finish(&w), -ENOSPC);
	assert_int_equal(buf[7], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts_what_the_grammar_allows),
		cmocka_unit_test(refuses_everything_else),
		cmocka_unit_test(a_zero_byte_is_no_end_of_text),
		cmocka_unit_test(strings_are_decoded_in_place),
		cmocka_unit_test(integers_are_exact_to_their_limits),
		cmocka_unit_test(keys_and_values_come_in_order),
		cmocka_unit_test(skip_stops_at_an_error),
		cmocka_unit_test(writer_makes_one_compact_line),
		cmocka_unit_test(writer_replaces_what_is_not_utf8),
		cmocka_unit_test(writer_says_when_it_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
