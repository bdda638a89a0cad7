/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for people: what a terminal gets, how it is cut, how sizes are said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/text.h"
#include "lib/util.h"

static void assert_escaped(const char *in, const char *expected)
{
	char out[256];

	assert_int_equal(text_escape(in, strlen(in), "", out, sizeof(out)), strlen(expected));
	assert_string_equal(out, expected);
	assert_int_equal(text_escape(expected, strlen(expected), "", out, sizeof(out)), strlen(expected));
	assert_string_equal(out, expected); /* twice is once */
	assert_true(text_is_utf8(out));
}

static void control_characters_are_escaped(void **s)
{
	(void)s;
	assert_escaped("a\n\033[2J\x7f", "a\\x0a\\x1b[2J\\x7f");
	assert_escaped("\xc2\x80\xc2\x9b" "2J\xc2\xa0", "\\xc2\\x80\\xc2\\x9b2J\xc2\xa0");
	assert_escaped("\xe2\x80\xae" "gpj\xe2\x81\xa6", "\\xe2\\x80\\xaegpj\\xe2\\x81\\xa6");
	assert_escaped("\xe2\x80\xa8", "\\xe2\\x80\\xa8");
}

static void bytes_that_are_no_characters_are_escaped(void **s)
{
	(void)s;
	assert_escaped("a\377b", "a\\xffb");
	assert_escaped("\xc0\x80", "\\xc0\\x80");                 /* too long a form */
	assert_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");        /* surrogate */
	assert_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
	assert_escaped("a\xe2\x82", "a\\xe2\\x82");               /* cut off */
	assert_escaped("\x9b" "2J", "\\x9b2J");
}

static void characters_and_backslashes_stay(void **s)
{
	(void)s;
	assert_escaped("\\ \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\\ \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
}

static void bytes_may_be_zero_and_some_be_kept(void **s)
{
	char out[64];

	(void)s;
	text_escape("a\0b\n\t\r", 6, "\n\t", out, sizeof(out));
	assert_string_equal(out, "a\\x00b\n\t\\x0d");
}

static void what_is_cut_says_so_and_is_whole(void **s)
{
	char out[8];

	(void)s;
	assert_int_equal(text_escape("1234567", 7, "", out, sizeof(out)), 7);
	assert_string_equal(out, "1234567");
	text_escape("12345678", 8, "", out, sizeof(out));
	assert_string_equal(out, "1234...");
	text_escape("123\377\377", 5, "", out, sizeof(out));
	assert_string_equal(out, "123...");
	text_escape("123\xe2\x82\xac" "45", 8, "", out, sizeof(out));
	assert_string_equal(out, "123...");
	text_escape("\377", 1, "", out, 4);
	assert_string_equal(out, "...");
}

static void a_name_in_a_message_is_cut_with_a_sign(void **s)
{
	char name[300], *copy;

	(void)s;
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(strlen(TEXT_CUT(name)), TEXT_CUT_SIZE - 1);
	assert_string_equal(TEXT_CUT(name) + TEXT_CUT_SIZE - 4, "...");
	assert_string_equal(TEXT_CUT("a\377"), "a\\xff");
	copy = text_escape_dup("\xff\xff");
	assert_string_equal(copy, "\\xff\\xff");
	free(copy);
	assert_null(text_escape_dup(NULL));
}

static void the_beginning_of_a_character_is_told(void **s)
{
	static const struct {
		const char *text;
		size_t n;
	} cases[] = {
		{ "", 0 },	    { "ab", 0 },	       { "a\xc2", 1 },		{ "a\xe2\x82", 2 },	{ "\xf0\x9f\x98", 3 },
		{ "\xc3\xa9", 0 }, { "\xf0\x9f\x98\x80", 0 }, { "\x80\x80\x80\x80", 0 }, { "\xff", 0 }, { "\xe2", 1 },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(text_incomplete(cases[i].text, strlen(cases[i].text)), cases[i].n);
}

static void assert_column(const char *text, size_t min, size_t max, const char *expected)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	text_print_column(f, text, min, max);
	fclose(f);
	assert_string_equal(out, expected);
	free(out);
}

static void columns_are_counted_in_characters(void **s)
{
	(void)s;
	assert_column("ab", 4, 0, "ab  ");
	assert_column("\xc3\xa9", 3, 0, "\xc3\xa9  ");
	assert_column("a\n", 6, 0, "a\\x0a ");
	assert_column("abcdef", 3, 6, "abcdef");
	assert_column("abcdefg", 3, 6, "abc...");
	assert_column("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 0, 4, "\xc3\xa9...");
	assert_column("ab\377\377", 8, 8, "ab...   ");
	assert_int_equal(text_columns("a\xc3\xa9\n\377"), 10);
}

static void sizes_have_a_unit_and_are_not_0_for_something(void **s)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1, "1 B" },
		{ 1023, "1023 B" },
		{ 1024, "1 KiB" },
		{ 4096, "4 KiB" },
		{ 1536, "1.5 KiB" },
		{ KIB(10) - 1, "10 KiB" },
		{ KIB(10) + 512, "11 KiB" },
		{ MIB(1) - 1, "1 MiB" },
		{ MIB(12), "12 MiB" },
		{ MIB(2) - KIB(20), "2 MiB" },
		{ GIB(1) + GIB(1) / 5, "1.2 GiB" },
		{ GIB(16), "16 GiB" },
		{ MIB(1023), "1023 MiB" },
		{ GIB(1024), "1 TiB" },
		{ UINT64_MAX, "16 EiB" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(TEXT_SIZE(cases[i].bytes), cases[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_characters_are_escaped),
		cmocka_unit_test(bytes_that_are_no_characters_are_escaped),
		cmocka_unit_test(characters_and_backslashes_stay),
		cmocka_unit_test(bytes_may_be_zero_and_some_be_kept),
		cmocka_unit_test(what_is_cut_says_so_and_is_whole),
		cmocka_unit_test(a_name_in_a_message_is_cut_with_a_sign),
		cmocka_unit_test(the_beginning_of_a_character_is_told),
		cmocka_unit_test(columns_are_counted_in_characters),
		cmocka_unit_test(sizes_have_a_unit_and_are_not_0_for_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
